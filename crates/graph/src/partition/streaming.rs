//! Our own partitioner, for graphs of any size.

mod cluster;
mod fm;
mod initial;
mod level;
mod pass;
mod ratings;
mod refine;

use crate::csr::{Csr, NodeId};
use crate::progress::{Progress, Unit};

use self::level::Level;
use self::pass::Labels;
use super::PartId;
use super::balance::{Balance, limit};
use super::random::hash;

/// A cluster weighs at most this fraction of a part.
const CLUSTERS_PER_PART: u64 = 32;
/// Contraction stops below this many nodes per part.
const COARSEST_PER_PART: usize = 128;

pub(super) fn assign<I: NodeId>(
    graph: &Csr<I>,
    parts: usize,
    balance: Balance,
    seed: u64,
    progress: &dyn Progress,
) -> Vec<PartId> {
    let total = balance.total(graph);
    let heaviest = (total / (parts as u64 * CLUSTERS_PER_PART)).max(1);
    let base = Level::base(graph, balance);
    let t0 = std::time::Instant::now();
    let mut ladder: Vec<(Level<I>, Vec<I>)> = Vec::new();
    let mut budget = graph.num_edges() / 2;
    loop {
        let level = ladder.last().map_or(&base, |(level, _)| level);
        if level.len() <= COARSEST_PER_PART * parts {
            break;
        }
        let _phase = progress.start("clustering", level.len() as u64, Unit::Items);
        let mut labels = cluster::cluster(level, heaviest, hash(seed, ladder.len() as u64));
        let Some(next) = level.contract(&mut labels, budget) else { eprintln!("no fit"); break };
        eprintln!("{:?} level {} nodes {} edges", t0.elapsed(), next.len(), next.num_edges());
        if next.len() * 10 > level.len() * 9 {
            break;
        }
        budget -= next.num_edges();
        ladder.push((next, labels));
    }

    let most = limit(total, parts);
    let coarsest = ladder.last().map_or(&base, |(level, _)| level);
    let improve = |level: &Level<I>, labels: &mut Labels<I>, fm: bool| {
        refine::refine(level, labels, most);
        if fm {
            fm::climb(level, labels, most);
        }
    };
    let affordable = |level: &Level<I>| fm::is_affordable(level, parts, graph.bytes());
    let fm = affordable(coarsest);
    let mut labels = initial::divide(coarsest, parts, most, seed, |level, labels| improve(level, labels, fm));
    eprintln!("{:?} initial cut {}", t0.elapsed(), coarsest.cut(&labels.of));
    while let Some((_, of)) = ladder.pop() {
        let level = ladder.last().map_or(&base, |(level, _)| level);
        let fine = of.iter().map(|c| labels.of[c.index()]).collect();
        labels = Labels { of: fine, weights: labels.weights };
        let _phase = progress.start("refining", level.len() as u64, Unit::Items);
        improve(level, &mut labels, affordable(level));
        eprintln!("{:?} refined {} nodes cut {}", t0.elapsed(), level.len(), level.cut(&labels.of));
    }
    labels.of.iter().map(|p| p.index() as PartId).collect()
}
