//! Random parts: nodes in the order of a hash of their ids, cut into runs of equal weight.
//!
//! The hash is keyed by the seed and nothing else, so that the result does not depend on threads.

use rayon::prelude::*;

use super::balance::{self, Weighing};
use super::{Options, PartId};
use crate::csr::{Csr, NodeId};

pub(super) fn assign<I: NodeId>(graph: &Csr<I>, options: &Options, weighing: Weighing<'_>) -> Vec<PartId> {
    let Options { parts, seed, .. } = *options;
    let n = graph.num_dst();
    let mut shuffled: Vec<I> = (0..n).into_par_iter().map(I::new).collect();
    shuffled.par_sort_unstable_by_key(|&i| (hash(seed, i.into()), i));
    let mut prefix = vec![0u64; n + 1];
    for (k, i) in shuffled.iter().enumerate() {
        prefix[k + 1] = prefix[k] + weighing.weight(graph, i.index());
    }
    let cuts = balance::cut_runs(n, parts, |k| prefix[k]);
    let mut part_of = vec![0; n];
    for (part, w) in cuts.windows(2).enumerate() {
        for i in &shuffled[w[0] as usize..w[1] as usize] {
            part_of[i.index()] = part as PartId;
        }
    }
    part_of
}

/// Mixes a key and a number into 64 bits without pattern (the finaliser of splitmix64, over both).
pub(super) fn hash(key: u64, x: u64) -> u64 {
    let mix = |mut z: u64| {
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    mix(mix(key.wrapping_add(0x9e37_79b9_7f4a_7c15)).wrapping_add(x.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}
