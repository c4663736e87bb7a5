//! One pass over the rows: every node may take the label that most of its edges lead to.
//!
//! Taken one node after another, each sees what the nodes before it chose. To share this among threads without letting
//! their number change the outcome, rows are taken in blocks of fixed size. The nodes of a block choose at once, from
//! the state before the block; then the choices are carried out in order, and a node chooses again if a neighbour in
//! its own block has moved meanwhile or the label it chose has filled up. The outcome is that of the sequential pass
//! but for chances that open within a block and wait for the next pass.

use graphweft_base::progress::Phase;
use rayon::prelude::*;

use super::level::Level;
use super::ratings::Ratings;
use crate::csr::NodeId;
use crate::partition::random::hash;

/// Nodes that choose at once: enough to keep many threads busy, few against the graphs that need many threads.
const BLOCK: usize = 1 << 13;

/// Labels and what all nodes of each label weigh.
pub(in crate::partition) struct Labels<I> {
    pub(in crate::partition) of: Vec<I>,
    pub(in crate::partition) weights: Vec<u64>,
}

/// Which label a node prefers among those that it may take.
#[derive(Clone, Copy)]
pub(in crate::partition) enum Rule {
    /// Grow clusters: the strongest label; a hash keyed by this number decides between equals.
    Cluster(u64),
    /// Improve parts: a stronger one, or an equally strong one that is lighter. Nodes leave parts that are too heavy.
    Refine,
}

/// Lets every node choose once; labels may weigh up to `most`. Returns the number of nodes that moved.
pub(in crate::partition) fn pass<I: NodeId>(
    level: &Level<I>,
    labels: &mut Labels<I>,
    most: u64,
    rule: Rule,
    phase: &dyn Phase,
) -> usize {
    let mut ratings = Ratings::new();
    let mut moved = 0;
    let mut wishes: Vec<I> = Vec::new();
    let mut has_moved = vec![false; BLOCK.min(level.len())];
    for start in (0..level.len()).step_by(BLOCK) {
        let block = start..level.len().min(start + BLOCK);
        let chosen = block.clone().into_par_iter().with_min_len(128);
        chosen.map_init(Ratings::new, |r, i| choose(level, labels, most, rule, i, r)).collect_into_vec(&mut wishes);
        has_moved.fill(false);
        for i in block.clone() {
            let own = labels.of[i];
            let mut wish = wishes[i - start];
            if wish == own {
                continue;
            }
            let row = level.row(i);
            let first = row.partition_point(|j| j.index() < start);
            let stale = row[first..].iter().map(|j| j.index()).take_while(|&j| j < i).any(|j| has_moved[j - start]);
            if stale || labels.weights[wish.index()] + level.weight(i) > most {
                wish = choose(level, labels, most, rule, i, &mut ratings);
            }
            if wish != own {
                let weight = level.weight(i);
                labels.weights[own.index()] -= weight;
                labels.weights[wish.index()] += weight;
                labels.of[i] = wish;
                has_moved[i - start] = true;
                moved += 1;
            }
        }
        phase.add(block.len() as u64);
    }
    moved
}

fn choose<I: NodeId>(
    level: &Level<I>,
    labels: &Labels<I>,
    most: u64,
    rule: Rule,
    i: usize,
    ratings: &mut Ratings<I>,
) -> I {
    let own = labels.of[i];
    let weight = level.weight(i);
    ratings.reset(level.degree(i).min(labels.weights.len()));
    for (j, w) in level.neighbours(i) {
        ratings.add(labels.of[j], w);
    }
    let room = |label: I| labels.weights[label.index()] + weight <= most;
    let others = ratings.iter().filter(|&(label, _)| label != own && room(label));
    match rule {
        Rule::Cluster(seed) => {
            let tie = |label: I| hash(seed ^ i as u64, label.into());
            let start = (ratings.get(own), tie(own), own);
            others.map(|(label, rating)| (rating, tie(label), label)).fold(start, Ord::max).2
        }
        Rule::Refine => {
            let too_heavy = labels.weights[own.index()] > most;
            let lightness = |label: I| u64::MAX - labels.weights[label.index()];
            let Some(best) = others.map(|(label, rating)| (rating, lightness(label), label)).max() else { return own };
            let (rating, _, label) = best;
            let stronger = rating > ratings.get(own);
            let lighter =
                rating == ratings.get(own) && labels.weights[label.index()] + weight < labels.weights[own.index()];
            if too_heavy || stronger || lighter { label } else { own }
        }
    }
}
