//! Symmetrising: the union of a graph and its transpose.

use super::{Csr, NodeId, rows};

impl<I: NodeId> Csr<I> {
    /// The undirected simple graph: an edge each way wherever there is one either way, parallel edges merged,
    /// self-loops kept once.
    pub fn symmetrise(&self) -> Self {
        assert_eq!(self.num_dst(), self.num_src(), "only a square graph can be made symmetric");
        let back = self.transpose();
        rows::collect(self.num_dst(), self.num_src(), |i| Union { a: self.row(i), b: back.row(i) })
    }
}

/// The union of two sorted lists, each value once.
struct Union<'a, I> {
    a: &'a [I],
    b: &'a [I],
}

impl<I: NodeId> Iterator for Union<'_, I> {
    type Item = I;

    fn next(&mut self) -> Option<I> {
        let id = match (self.a.first(), self.b.first()) {
            (Some(&x), Some(&y)) => x.min(y),
            (Some(&x), None) | (None, Some(&x)) => x,
            (None, None) => return None,
        };
        for side in [&mut self.a, &mut self.b] {
            while let Some((_, rest)) = side.split_first().filter(|(first, _)| **first == id) {
                *side = rest;
            }
        }
        Some(id)
    }
}
