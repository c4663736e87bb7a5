//! Chunks: a graph in pieces that are visited one after another, or by one rank each, without the rest of it in memory.
//!
//! The nodes of a chunk are a range of *new* ids, and the graph is kept in new ids. So everything about a chunk is
//! contiguous: its rows are a range of the offsets, its edges a range of the indices, its features a range of the
//! feature matrix. Sources ascend in every row, so the edges from one chunk to another, its *bridges*, are a run inside
//! each row: no files for pairs of chunks are needed. In-degrees in the whole graph are differences of offsets, also
//! for nodes outside.
//!
//! ```text
//! chunks/<method>-<K>/
//!   perm.npy     i64 [N]    entry k is the original id of new node k
//!   ranges.npy   i64 [K+1]  chunk c has the new ids ranges[c] to ranges[c+1]
//!   indptr.npy   u64 [N+1]  the graph in new ids, by destination
//!   indices.npy  u32 [E]
//!   feat.npy     f32|f16    dense features in the order of new ids
//!   about.toml              what it was made of
//! ```
//!
//! [`prepare`] writes such a folder with a fixed budget of memory (beside a few bytes per node), and goes on where it
//! was interrupted; [`Chunks::open`] maps it, and [`Chunks::check`] says whether it is of its dataset as that is now. A
//! graph whose ids are ranges already ([`Chunks::contiguous`]) needs no copy at all, and a small one is divided in
//! memory ([`Chunks::divided`]).
//!
//! A [`Piece`] is what is trained on: a chunk, perhaps with a second one, and the *halo*, the sources of their edges
//! that are in neither. Rows of the two chunks have all their edges, rows of the halo have none. [`Piece::coverage`]
//! says how much of a node's surroundings that is.

mod check;
mod coverage;
mod piece;
mod store;

use std::ops::Range;

use graphweft_base::{Error, Result};

use crate::buf::Buf;
use crate::csr::{Csr, Permutation};
use crate::dataset::Dense;
use crate::partition::Partition;

pub use piece::{Halo, Piece};
pub use store::{Recipe, folder, prepare};

/// A graph in chunks; cheap to clone.
#[derive(Clone, Debug)]
pub struct Chunks {
    /// The first new id of every chunk, and the number of nodes.
    ranges: Vec<u64>,
    /// Original ids in new order; `None` where they are the new ids.
    originals: Option<Buf<u64>>,
    graph: Csr<u32>,
    features: Option<Dense>,
}

impl Chunks {
    /// Ranges of ids of about equal length. Nothing is copied: a mapped graph stays where it is.
    pub fn contiguous(graph: Csr<u32>, count: usize) -> Self {
        let (n, count) = (graph.num_dst(), count.clamp(1, graph.num_dst().max(1)));
        let ranges = (0..=count).map(|k| (n as u128 * k as u128 / count as u128) as u64).collect();
        Self { ranges, originals: None, graph, features: None }
    }

    /// The parts of a graph in original ids, renumbered in memory.
    pub fn divided(graph: &Csr<u32>, partition: &Partition) -> Self {
        let (permutation, ranges) = (partition.permutation(), partition.ranges().to_vec());
        if permutation.old_of_new().iter().enumerate().all(|(new, old)| new as u64 == *old) {
            return Self { ranges, originals: None, graph: graph.clone(), features: None };
        }
        let originals = Some(permutation.old_of_new().to_vec().into());
        Self { ranges, originals, graph: graph.permute(permutation), features: None }
    }

    /// The same as a partition.
    ///
    /// # Errors
    /// If ids are not what they should be.
    pub fn partition(&self) -> Result<Partition> {
        let bad = |what: String| Error::request(format!("these chunks are damaged: {what}"), "create them again");
        let ids = (0..self.num_nodes()).map(|new| self.original(new)).collect();
        let permutation = Permutation::from_old_of_new(ids).map_err(|e| bad(e.to_string()))?;
        Partition::new(permutation, self.ranges.clone()).map_err(bad)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.ranges.len() - 1
    }

    /// The new ids of a chunk.
    pub fn rows(&self, chunk: usize) -> Range<usize> {
        self.ranges[chunk] as usize..self.ranges[chunk + 1] as usize
    }

    /// All nodes.
    pub fn num_nodes(&self) -> usize {
        self.graph.num_dst()
    }

    /// The graph in new ids.
    pub fn graph(&self) -> &Csr<u32> {
        &self.graph
    }

    /// Dense features in the order of new ids, if they are stored so.
    pub fn features(&self) -> Option<&Dense> {
        self.features.as_ref()
    }

    /// Gives the pages of mapped files back; see [`Buf::release`].
    pub fn release(&self) {
        self.graph.indptr().release();
        self.graph.indices().release();
        self.originals.iter().for_each(Buf::release);
        self.features.iter().for_each(Dense::release);
    }

    /// The original id of a node.
    pub fn original(&self, new: usize) -> u64 {
        self.originals.as_ref().map_or(new as u64, |ids| ids[new])
    }

    /// The new ids of nodes with these original ids, in the same order. Ids must be of this graph.
    pub fn new_ids(&self, originals: &[i64]) -> Vec<u32> {
        match &self.originals {
            None => originals.iter().map(|id| *id as u32).collect(),
            Some(ids) => {
                let mut new_of = vec![0u32; ids.len()];
                ids.iter().enumerate().for_each(|(new, old)| new_of[*old as usize] = new as u32);
                originals.iter().map(|id| new_of[*id as usize]).collect()
            }
        }
    }

    /// The chunk that stands beside `base` in round `round`: all others in turn, none twice before all were there, and
    /// at any time a different one beside each base. `None` where there is one chunk only.
    pub fn companion(&self, base: usize, round: u64) -> Option<usize> {
        let others = self.count() as u64 - 1;
        (others > 0).then(|| ((base as u64 + 1 + round % others) % self.count() as u64) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_base_meets_every_other_chunk_once_a_turn() {
        let graph = Csr::<u32>::new(vec![0; 11], vec![], 10).unwrap();
        let chunks = Chunks::contiguous(graph.clone(), 4);
        assert_eq!((0..4).map(|c| chunks.rows(c).len()).collect::<Vec<_>>(), [2, 3, 2, 3]);
        for round in 0..9 {
            let mut companions: Vec<usize> = (0..4).map(|base| chunks.companion(base, round).unwrap()).collect();
            assert!(companions.iter().enumerate().all(|(base, c)| base != *c));
            companions.sort_unstable();
            assert_eq!(companions, [0, 1, 2, 3], "no chunk is with two bases");
        }
        let mut met: Vec<usize> = (3..6).map(|round| chunks.companion(1, round).unwrap()).collect();
        met.sort_unstable();
        assert_eq!(met, [0, 2, 3]);
        assert_eq!(Chunks::contiguous(graph.clone(), 1).companion(0, 5), None);
        assert_eq!(Chunks::contiguous(graph, 99).count(), 10, "no chunk is empty");
    }
}
