//! Contiguous parts: cuts through the range of ids.
//!
//! The cuts minimise the heaviest part over all ways to cut, so that a hub on a boundary does not spoil the balance.

use super::PartId;
use super::balance::{self, Balance, Weighing};
use crate::csr::{Csr, NodeId};

pub(super) fn assign<I: NodeId>(graph: &Csr<I>, parts: usize, weighing: Weighing<'_>) -> Vec<PartId> {
    let (indptr, mean) = (graph.indptr(), balance::mean_degree(graph));
    let sums = weighing.costs.map(prefix_sums);
    let rows = |k: usize| sums.as_ref().map_or(k as u64, |sums| sums[k]);
    let cuts = balance::cut_runs(graph.num_dst(), parts, |k| match weighing.balance {
        Balance::Nodes => rows(k),
        Balance::Edges => indptr[k],
        Balance::Both => weighing.mean() * indptr[k] + rows(k) * mean,
    });
    let mut part_of = vec![0; graph.num_dst()];
    for (part, w) in cuts.windows(2).enumerate() {
        part_of[w[0] as usize..w[1] as usize].fill(part as PartId);
    }
    part_of
}

/// What the first k rows cost, for every k.
fn prefix_sums(costs: &[u32]) -> Vec<u64> {
    let mut sums = vec![0u64; costs.len() + 1];
    for (k, cost) in costs.iter().enumerate() {
        sums[k + 1] = sums[k] + u64::from(*cost);
    }
    sums
}
