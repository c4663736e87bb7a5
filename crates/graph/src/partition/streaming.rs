//! Parts by streaming: our own partitioner, for graphs of any size.
//!
//! Classic streaming partitioners (LDG, Fennel) read the rows once and place each node for good, with whatever of its
//! neighbourhood has been placed by then; on graphs whose ids say nothing, that is little. Restreaming helps, but moves
//! one node at a time, and a cluster that began in two parts stays there. Here the same kind of pass first finds
//! clusters, which become the nodes of a [hierarchy](super::hierarchy) of smaller graphs; the smallest is divided by
//! streaming in breadth-first order, best of several attempts; and on the way down every graph of the hierarchy is
//! restreamed, so that large clusters move first, then smaller ones, and single nodes last.
//!
//! Memory beside the graph: the hierarchy, at most as large as the graph and usually far smaller, and some numbers per
//! node. No count is narrower than 64 bits, so the number of edges has no limit. Only stored in-edges are looked at:
//! symmetrise a directed graph first where both directions matter.

mod fm;
mod initial;
mod refine;

use graphweft_base::progress::{Progress, Unit};

use self::refine::{Effort, MOST_PASSES, refine};
use super::balance::{Weighing, limit};
use super::hierarchy::{Hierarchy, Level};
use super::{Options, PartId};
use crate::csr::{Csr, NodeId};

/// A cluster weighs at most this fraction of a part, so that parts made of clusters can be balanced.
const CLUSTERS_PER_PART: u64 = 32;
/// Contraction ends at this many nodes per part.
const ENOUGH_PER_PART: usize = 128;
/// Contractions at most. Each is several times smaller than the one before.
const MOST_CONTRACTIONS: usize = 12;

pub(super) fn assign<I: NodeId>(
    graph: &Csr<I>,
    options: &Options,
    weighing: Weighing<'_>,
    progress: &dyn Progress,
) -> Vec<PartId> {
    let Options { parts, seed, .. } = *options;
    let total = weighing.total(graph);
    let most = limit(total, parts);
    let bound = (total / (parts as u64 * CLUSTERS_PER_PART)).max(1);
    let bounds = std::iter::repeat_n(bound, MOST_CONTRACTIONS);
    let mut hierarchy = Hierarchy::build(graph, weighing, bounds, ENOUGH_PER_PART * parts, seed, progress);

    let effort = |level: &Level<I>| {
        if fm::is_affordable(level, parts, graph.bytes()) { Effort::Search } else { Effort::Passes }
    };
    let top = hierarchy.top();
    let mut labels = initial::divide(top, parts, most, seed, effort(top));
    while let Some((_, numbers)) = hierarchy.pop() {
        let level = hierarchy.top();
        labels.of = numbers.iter().map(|c| labels.of[c.index()]).collect();
        let phase = progress.start("refining", (MOST_PASSES * level.len()) as u64, Unit::Items);
        refine(level, &mut labels, most, effort(level), &*phase);
    }
    labels.of.iter().map(|p| p.index() as PartId).collect()
}
