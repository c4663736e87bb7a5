//! Cutting out parts of a graph.

use rayon::prelude::*;

use super::{Csr, NodeId, rows};

/// A graph cut out of a larger one, with the original ids of its nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Subgraph<I: NodeId> {
    /// The edges, between nodes numbered as in `nodes`.
    pub graph: Csr<I>,
    /// Original ids, ascending: node k of `graph` is `nodes[k]`.
    pub nodes: Vec<I>,
}

impl<I: NodeId> Csr<I> {
    /// The subgraph induced by `nodes`: these nodes and every edge between two of them. Order and repetition do not
    /// matter.
    pub fn induced(&self, nodes: &[I]) -> Subgraph<I> {
        let mut nodes = nodes.to_vec();
        nodes.par_sort_unstable();
        nodes.dedup();
        // Rows and nodes are both ascending, so new ids keep the order of old ones.
        let kept = |i: usize| self.row(nodes[i].index()).iter().filter_map(|j| nodes.binary_search(j).ok()).map(I::new);
        let graph = rows::collect(nodes.len(), nodes.len(), kept);
        Subgraph { graph, nodes }
    }

    /// The subgraph induced by everything from which `seeds` can be reached over at most `hops` edges: what `hops`
    /// layers of message passing look at to compute the seeds.
    pub fn k_hop(&self, seeds: &[I], hops: usize) -> Subgraph<I> {
        let mut seen = vec![false; self.num_dst()];
        let mut reached: Vec<I> = Vec::new();
        let mut visit = |id: I, reached: &mut Vec<I>| {
            if !std::mem::replace(&mut seen[id.index()], true) {
                reached.push(id);
            }
        };
        for &s in seeds {
            visit(s, &mut reached);
        }
        let mut frontier = 0..reached.len();
        for _ in 0..hops {
            for k in frontier.clone() {
                for &j in self.row(reached[k].index()) {
                    visit(j, &mut reached);
                }
            }
            frontier = frontier.end..reached.len();
        }
        self.induced(&reached)
    }
}
