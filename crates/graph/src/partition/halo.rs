//! What a partition costs: rows, edges and halos of every part.
//!
//! The halo of part r towards part s is the set of nodes of s that rows of r look at: one row each must travel from s
//! to r in every layer, however many edges use it. One bit per node of the graph tells which sources of r were met
//! already; parts follow one another, the rows of a part are shared among threads, and since exactly one thread sets a
//! bit first, counts do not depend on their number.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::Partition;
use crate::csr::{Csr, NodeId};

/// The largest part over the mean part: 1 is perfect.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Imbalance {
    /// Counting nodes.
    pub nodes: f64,
    /// Counting edges into the part's nodes.
    pub edges: f64,
}

/// The numbers that decide what a partition costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartitionStats {
    /// Halo rows of all parts over the number of nodes.
    pub alpha: f64,
    /// Stored edges between different parts over all stored edges.
    pub cut: f64,
    /// Stored edges between different parts.
    pub cut_edges: u64,
    /// The mean over all stored edges of log₂(1 + |i − j|) in the new numbering: how far apart neighbours' rows lie.
    pub gap_bits: f64,
    /// How unequal the parts are.
    pub imbalance: Imbalance,
    /// Nodes of every part.
    pub rows: Vec<u64>,
    /// Edges into every part's nodes.
    pub edges: Vec<u64>,
    /// `halo[r][s]`: nodes of part s that rows of part r look at.
    pub halo: Vec<Vec<u64>>,
}

impl PartitionStats {
    /// All halo rows of part `r`.
    pub fn halo_rows(&self, r: usize) -> u64 {
        self.halo[r].iter().sum()
    }
}

/// Counts what `partition` costs on `graph`, which is in original ids.
pub fn statistics<I: NodeId>(graph: &Csr<I>, partition: &Partition) -> PartitionStats {
    assert_eq!(graph.num_dst(), partition.num_nodes(), "the partition is for another graph");
    let parts = partition.num_parts();
    let met = Bits::new(graph.num_src());
    let mut counts: Vec<Counts> = Vec::with_capacity(parts);
    for part in 0..parts {
        met.clear();
        let of_piece = |rows: Range<usize>| {
            let mut c = Counts::new(parts);
            for new in rows {
                let row = graph.row(partition.permutation.old_of(new));
                c.edges += row.len() as u64;
                for j in row {
                    let j = j.index();
                    c.gap_bits += gap_bits(new, partition.permutation.new_of(j));
                    let owner = partition.part_of(j);
                    if owner != part {
                        c.cut += 1;
                        c.halo[owner] += u64::from(met.set(j));
                    }
                }
            }
            c
        };
        counts.push(pieces(partition.rows(part)).map(of_piece).reduce(|| Counts::new(parts), Counts::add));
    }

    let edges: Vec<u64> = counts.iter().map(|c| c.edges).collect();
    let rows: Vec<u64> = partition.ranges.windows(2).map(|w| w[1] - w[0]).collect();
    let cut_edges: u64 = counts.iter().map(|c| c.cut).sum();
    let gaps: u64 = counts.iter().map(|c| c.gap_bits).sum();
    let halo: Vec<Vec<u64>> = counts.into_iter().map(|c| c.halo).collect();
    let per = |x: u64, n: usize| if n == 0 { 0.0 } else { x as f64 / n as f64 };
    PartitionStats {
        alpha: per(halo.iter().flatten().sum(), graph.num_dst()),
        cut: per(cut_edges, graph.num_edges()),
        cut_edges,
        gap_bits: per(gaps, graph.num_edges()) / GAP_UNIT,
        imbalance: Imbalance { nodes: imbalance(&rows), edges: imbalance(&edges) },
        rows,
        edges,
        halo,
    }
}

/// The nodes that rows of `part` look at in every other part, as ascending new ids: entry s lists those of part s.
pub fn halo_lists<I: NodeId>(graph: &Csr<I>, partition: &Partition, part: usize) -> Vec<Vec<u64>> {
    assert_eq!(graph.num_dst(), partition.num_nodes(), "the partition is for another graph");
    let met = Bits::new(graph.num_src());
    pieces(partition.rows(part)).for_each(|rows| {
        for new in rows {
            for j in graph.row(partition.permutation.old_of(new)) {
                if partition.part_of(j.index()) != part {
                    met.set(partition.permutation.new_of(j.index()));
                }
            }
        }
    });
    (0..partition.num_parts())
        .into_par_iter()
        .map(|s| met.ones(partition.rows(s)).map(|k| k as u64).collect())
        .collect()
}

/// Rows handed to one thread at a time.
const PIECE: usize = 1 << 12;

fn pieces(rows: Range<usize>) -> impl ParallelIterator<Item = Range<usize>> {
    (0..rows.len().div_ceil(PIECE)).into_par_iter().map(move |k| {
        let start = rows.start + k * PIECE;
        start..rows.end.min(start + PIECE)
    })
}

/// Gaps are summed in units of 2⁻¹⁶ bit: whole numbers add up the same in any order.
const GAP_UNIT: f64 = 65536.0;

fn gap_bits(i: usize, j: usize) -> u64 {
    (((1 + i.abs_diff(j)) as f32).log2() * GAP_UNIT as f32) as u64
}

fn imbalance(weights: &[u64]) -> f64 {
    let total: u64 = weights.iter().sum();
    let most = weights.iter().copied().max().unwrap_or(0);
    if total == 0 { 1.0 } else { most as f64 * weights.len() as f64 / total as f64 }
}

struct Counts {
    edges: u64,
    cut: u64,
    gap_bits: u64,
    halo: Vec<u64>,
}

impl Counts {
    fn new(parts: usize) -> Self {
        Self { edges: 0, cut: 0, gap_bits: 0, halo: vec![0; parts] }
    }

    fn add(mut self, other: Self) -> Self {
        self.edges += other.edges;
        self.cut += other.cut;
        self.gap_bits += other.gap_bits;
        self.halo.iter_mut().zip(other.halo).for_each(|(a, b)| *a += b);
        self
    }
}

/// One bit per node, set from any thread.
struct Bits(Vec<AtomicU64>);

impl Bits {
    fn new(len: usize) -> Self {
        Self((0..len.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    fn clear(&self) {
        self.0.par_iter().with_min_len(1 << 14).for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// Sets bit `k`; whether it was this call that set it.
    fn set(&self, k: usize) -> bool {
        let (word, bit) = (&self.0[k / 64], 1 << (k % 64));
        // Most sources are met many times: looking is cheaper than an atomic update.
        word.load(Ordering::Relaxed) & bit == 0 && word.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    fn ones(&self, range: Range<usize>) -> impl Iterator<Item = usize> {
        let words = range.start / 64..range.end.div_ceil(64);
        let bits = words.flat_map(|w| {
            let mut word = self.0[w].load(Ordering::Relaxed);
            std::iter::from_fn(move || {
                let k = word.trailing_zeros() as usize;
                word &= word.checked_sub(1)?;
                Some(w * 64 + k)
            })
        });
        bits.filter(move |k| range.contains(k))
    }
}
