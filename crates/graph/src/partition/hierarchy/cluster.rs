//! Clusters: groups of nodes that belong together, none too heavy.

use graphweft_base::progress::Phase;

use super::level::Level;
use super::pass::{Labels, Rule, pass};
use super::ratings::Ratings;
use crate::csr::NodeId;

/// Passes over the graph; later ones would change little.
pub(super) const PASSES: u64 = 4;
/// A pass that moves fewer than one node in this many is the last.
const SETTLED: usize = 50;

/// Gives every node the id of some node of its cluster. No cluster weighs more than `most`, unless it is one heavy
/// node.
pub(super) fn cluster<I: NodeId>(level: &Level<I>, most: u64, seed: u64, phase: &dyn Phase) -> Vec<I> {
    let of: Vec<I> = (0..level.len()).map(I::new).collect();
    let weights = (0..level.len()).map(|i| level.weight(i)).collect();
    let mut labels = Labels { of, weights };
    for round in 0..PASSES {
        let moved = pass(level, &mut labels, most, Rule::Cluster(seed.wrapping_add(round << 32)), phase);
        if moved < level.len() / SETTLED {
            break;
        }
    }
    join_leftovers(level, &mut labels, most);
    labels.of
}

/// Joins nodes that are still alone with others that are alone around the same cluster (the leaves of a full hub), and
/// nodes without neighbours with each other: without this, stars would never shrink.
fn join_leftovers<I: NodeId>(level: &Level<I>, labels: &mut Labels<I>, most: u64) {
    let mut alone = vec![true; level.len()];
    for (i, label) in labels.of.iter().enumerate().filter(|(i, label)| label.index() != *i) {
        alone[i] = false;
        alone[label.index()] = false;
    }
    // Who waits for company around each cluster; the last place is for nodes without neighbours.
    let mut waiting: Vec<Option<I>> = vec![None; level.len() + 1];
    let mut ratings = Ratings::new();
    for i in (0..level.len()).filter(|&i| alone[i]) {
        ratings.reset(level.degree(i));
        for (j, w) in level.neighbours(i) {
            ratings.add(labels.of[j], w);
        }
        let favourite = ratings.iter().max_by_key(|&(label, rating)| (rating, label));
        let place = favourite.map_or(level.len(), |(label, _)| label.index());
        let weight = level.weight(i);
        match waiting[place] {
            Some(other) if labels.weights[other.index()] + weight <= most => {
                labels.weights[i] -= weight;
                labels.weights[other.index()] += weight;
                labels.of[i] = other;
            }
            _ => waiting[place] = Some(I::new(i)),
        }
    }
}
