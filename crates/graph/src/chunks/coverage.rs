//! How much of a node's surroundings a piece has.
//!
//! c⁰ = 1 for every node of the piece; cˡ of a node is the mean, over all its in-edges in the whole graph, of cˡ⁻¹ of
//! their sources, with 0 for edges that are not here and, from l = 1 on, for nodes whose edges are not: the share of
//! walks of l steps against the edges that never leave what is known. It is 1 exactly where nothing is missing.

use rayon::prelude::*;

use super::Piece;

impl Piece {
    /// The coverage of the base's rows for a model of `depth` layers over the edges.
    pub fn coverage(&self, depth: usize) -> Vec<f32> {
        let mut now = vec![1.0f64; self.nodes.len()];
        for _ in 0..depth {
            let next = (0..now.len()).into_par_iter().with_min_len(1024).map(|row| match self.degrees[row] {
                _ if !self.is_inner(row) => 0.0,
                0 => 1.0,
                degree => self.graph.row(row).iter().map(|j| now[*j as usize]).sum::<f64>() / f64::from(degree),
            });
            now = next.collect();
        }
        now[self.base.clone()].iter().map(|c| *c as f32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Chunks, Halo};
    use super::*;
    use crate::csr::Csr;

    #[test]
    fn walks_that_stay_are_counted() {
        // A ring of six nodes with self-loops, in chunks of two: a node has its own chunk's other node and one outside.
        let rows = (0..6u32).map(|i| {
            let mut row = [(i + 5) % 6, i, (i + 1) % 6];
            row.sort_unstable();
            row
        });
        let indices: Vec<u32> = rows.flatten().collect();
        let graph = Csr::new((0..=6).map(|k| 3 * k).collect::<Vec<u64>>(), indices, 6).unwrap();
        let chunks = Chunks::contiguous(graph, 3);
        let alone = Piece::cut(&chunks, chunks.rows(1), None, &Halo::All);
        assert_eq!(alone.coverage(0), [1.0, 1.0]);
        assert_eq!(alone.coverage(1), [1.0, 1.0], "the first hop is complete");
        // Of nine walks of two steps, three go over the one source outside.
        assert_eq!(alone.coverage(2), [2.0 / 3.0; 2]);
        let both = Piece::cut(&chunks, chunks.rows(1), Some(chunks.rows(2)), &Halo::All);
        assert_eq!(both.coverage(2), [2.0 / 3.0, 1.0], "the second node's neighbours are all inner");
        let whole = Piece::cut(&chunks, 0..6, None, &Halo::All);
        assert_eq!(whole.coverage(7), [1.0; 6]);
    }

    #[test]
    fn nodes_without_edges_are_complete() {
        let chunks = Chunks::contiguous(Csr::<u32>::new(vec![0, 0, 1], vec![0], 2).unwrap(), 2);
        assert_eq!(Piece::cut(&chunks, 0..1, None, &Halo::All).coverage(3), [1.0]);
        assert_eq!(Piece::cut(&chunks, 1..2, None, &Halo::All).coverage(2), [0.0]);
    }
}
