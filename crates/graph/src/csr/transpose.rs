//! Transpose: from "who points at me" to "whom do I point at".
//!
//! Each thread owns a range of sources, scans all edges and keeps those of its own range. The scan is sequential and
//! cheap, the scatter is what costs, and it is shared; rows come out sorted by destination with parallel edges in
//! stored order, without atomics or sorting. Beyond a few threads the scan would dominate, hence the cap.

use std::ops::Range;

use rayon::prelude::*;

use super::{Csr, NodeId, rows};

const MOST_OWNERS: usize = 16;

impl<I: NodeId> Csr<I> {
    /// The graph with every edge turned round.
    pub fn transpose(&self) -> Self {
        self.turn(|_, _, _| {}, |_| Vec::<()>::new()).0
    }

    /// The transpose, and for each of its entries the position of the same edge in `self`: how values that belong to
    /// edges are found from the other side.
    pub fn transpose_with_edges(&self) -> (Self, Vec<u64>) {
        self.turn(|out: &mut [u64], at, edge| out[at] = edge as u64, |edges| vec![0u64; edges])
    }

    fn turn<E: Send>(
        &self,
        place: impl Fn(&mut [E], usize, usize) + Sync,
        allocate: impl FnOnce(usize) -> Vec<E>,
    ) -> (Self, Vec<E>) {
        let (n, m) = (self.num_src(), self.num_dst());
        let owners = rayon::current_num_threads().min(MOST_OWNERS);

        let mut indptr = vec![0u64; n + 1];
        let width = n.div_ceil(owners).max(1);
        indptr[1..].par_chunks_mut(width).enumerate().for_each(|(owner, counts)| {
            let first = owner * width;
            for id in &self.indices[..] {
                if let Some(c) = id.index().checked_sub(first).and_then(|k| counts.get_mut(k)) {
                    *c += 1;
                }
            }
        });
        rows::prefix_sum(&mut indptr);

        let owned: Vec<Range<usize>> = rows::balanced(&indptr, owners);
        let mut indices = vec![I::new(0); self.num_edges()];
        let mut extra = allocate(self.num_edges());
        let extras = if extra.is_empty() {
            owned.iter().map(|_| Default::default()).collect()
        } else {
            rows::split(&mut extra, &indptr, &owned)
        };
        let parts = rows::split(&mut indices, &indptr, &owned);
        owned.par_iter().zip(parts).zip(extras).for_each(|((owned, part), extra)| {
            let base = indptr[owned.start];
            let mut next: Vec<u64> = indptr[owned.clone()].iter().map(|x| x - base).collect();
            for i in 0..m {
                for edge in self.edges_of(i) {
                    let j = self.indices[edge].index();
                    if let Some(at) = j.checked_sub(owned.start).and_then(|k| next.get_mut(k)) {
                        part[*at as usize] = I::new(i);
                        place(extra, *at as usize, edge);
                        *at += 1;
                    }
                }
            }
        });
        (Self::from_valid(indptr, indices, m), extra)
    }
}
