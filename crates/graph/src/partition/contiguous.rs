//! Contiguous parts: cuts through the range of ids.
//!
//! The cuts minimise the heaviest part over all ways to cut, so that a hub on a boundary does not spoil the balance.

use super::balance::{self, Balance};
use super::{Options, PartId};
use crate::csr::{Csr, NodeId};

pub(super) fn assign<I: NodeId>(graph: &Csr<I>, options: &Options) -> Vec<PartId> {
    let (indptr, mean) = (graph.indptr(), balance::mean_degree(graph));
    let cuts = balance::cut_runs(graph.num_dst(), options.parts, |k| match options.balance {
        Balance::Nodes => k as u64,
        Balance::Edges => indptr[k],
        Balance::Both => indptr[k] + k as u64 * mean,
    });
    let mut part_of = vec![0; graph.num_dst()];
    for (part, w) in cuts.windows(2).enumerate() {
        part_of[w[0] as usize..w[1] as usize].fill(part as PartId);
    }
    part_of
}
