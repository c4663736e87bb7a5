//! The first division into parts, of the smallest graph.

use graphweft_base::progress::Silent;
use rayon::prelude::*;

use super::refine::{Effort, refine};
use crate::csr::NodeId;
use crate::partition::hierarchy::{Labels, Level, Ratings};
use crate::partition::random::hash;

/// Nodes and edges of all attempts together; the first may have more.
const WORK: usize = 1 << 21;
const MOST_ATTEMPTS: usize = 32;

/// The best of several attempts.
pub(super) fn divide<I: NodeId>(level: &Level<I>, parts: usize, most: u64, seed: u64, effort: Effort) -> Labels<I> {
    let attempts = (WORK / (level.num_edges() + level.len()).max(1)).clamp(1, MOST_ATTEMPTS);
    let all = (0..attempts as u64).into_par_iter().map(|k| {
        let mut labels = attempt(level, parts, most, hash(seed, k));
        refine(level, &mut labels, most, effort, &Silent);
        let excess: u64 = labels.weights.iter().map(|w| w.saturating_sub(most)).sum();
        (excess, level.cut(&labels.of), k, labels)
    });
    let best = all.min_by_key(|&(excess, cut, k, _)| (excess, cut, k));
    best.map_or_else(|| Labels { of: Vec::new(), weights: vec![0; parts] }, |(.., labels)| labels)
}

/// Takes the nodes in breadth-first order from a random start and gives each to the part that has most of its edges,
/// less the fuller that part is.
fn attempt<I: NodeId>(level: &Level<I>, parts: usize, most: u64, seed: u64) -> Labels<I> {
    let unassigned = parts;
    let mut labels = Labels { of: vec![I::new(unassigned); level.len()], weights: vec![0; parts] };
    let mut ratings = Ratings::new();
    for i in breadth_first(level, seed) {
        ratings.reset(level.degree(i).min(parts + 1));
        for (j, w) in level.neighbours(i) {
            ratings.add(labels.of[j], w);
        }
        let weight = level.weight(i);
        let room = |p: usize| (most.saturating_sub(labels.weights[p])) as f64 / most.max(1) as f64;
        let score = |p: usize| {
            let fits = labels.weights[p] + weight <= most;
            (fits, ratings.get(I::new(p)) as f64 * room(p), room(p))
        };
        let better = |a: &(bool, f64, f64), b: &(bool, f64, f64)| {
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.total_cmp(&b.2))
        };
        let best = (0..parts).map(|p| (score(p), p)).max_by(|(a, p), (b, q)| better(a, b).then(q.cmp(p)));
        let p = best.map_or(0, |(_, p)| p);
        labels.of[i] = I::new(p);
        labels.weights[p] += weight;
    }
    labels
}

fn breadth_first<I: NodeId>(level: &Level<I>, seed: u64) -> Vec<usize> {
    let mut starts: Vec<usize> = (0..level.len()).collect();
    starts.sort_unstable_by_key(|&i| (hash(seed, i as u64), i));
    let mut seen = vec![false; level.len()];
    let mut order = Vec::with_capacity(level.len());
    let mut done = 0;
    for start in starts {
        if !std::mem::replace(&mut seen[start], true) {
            order.push(start);
        }
        while done < order.len() {
            for (j, _) in level.neighbours(order[done]) {
                if !std::mem::replace(&mut seen[j], true) {
                    order.push(j);
                }
            }
            done += 1;
        }
    }
    order
}
