//! Merging parallel edges.

use super::{Csr, NodeId, rows};

impl<I: NodeId> Csr<I> {
    /// Keeps one of each set of parallel edges.
    pub fn merge_parallel(&self) -> Self {
        let firsts = |i| self.row(i).chunk_by(|a, b| a == b).map(|same| same[0]);
        rows::collect(self.num_dst(), self.num_src(), firsts)
    }

    /// Entries beyond the first of each set of parallel edges.
    pub fn num_parallel_edges(&self) -> usize {
        use rayon::prelude::*;
        let repeats = |i| self.row(i).windows(2).filter(|w| w[0] == w[1]).count();
        (0..self.num_dst()).into_par_iter().map(repeats).sum()
    }
}
