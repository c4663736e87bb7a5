//! The degree distribution.

use crate::csr::{Csr, NodeId};

/// How many nodes have how many edges. Edges are counted where they arrive: a directed graph's degrees are in-degrees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Degrees {
    counts: Vec<(u64, u64)>,
    nodes: u64,
    edges: u64,
}

/// A range of degrees on a logarithmic scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bin {
    /// The lowest degree.
    pub from: u64,
    /// The highest degree.
    pub to: u64,
    /// Nodes with a degree in between, both ends included.
    pub nodes: u64,
}

/// Counts the degrees of all nodes.
pub fn degrees<I: NodeId>(graph: &Csr<I>) -> Degrees {
    let mut nodes_with = vec![0u64; graph.max_degree() + 1];
    for i in 0..graph.num_dst() {
        nodes_with[graph.degree(i)] += 1;
    }
    let counts = (0..).zip(nodes_with).filter(|&(_, nodes)| nodes > 0).collect();
    Degrees { counts, nodes: graph.num_dst() as u64, edges: graph.num_edges() as u64 }
}

impl Degrees {
    /// Each degree that occurs, ascending, with the number of nodes that have it.
    pub fn counts(&self) -> &[(u64, u64)] {
        &self.counts
    }

    /// Edges per node; 0 in a graph without nodes.
    pub fn mean(&self) -> f64 {
        if self.nodes == 0 { 0.0 } else { self.edges as f64 / self.nodes as f64 }
    }

    /// The largest degree.
    pub fn max(&self) -> u64 {
        self.counts.last().map_or(0, |&(degree, _)| degree)
    }

    /// Nodes without an edge.
    pub fn zero(&self) -> u64 {
        self.counts.first().map_or(0, |&(degree, nodes)| if degree == 0 { nodes } else { 0 })
    }

    /// The smallest degree that at least the given share of all nodes does not exceed: 0.5 for the median.
    pub fn quantile(&self, share: f64) -> u64 {
        let wanted = share.clamp(0.0, 1.0) * self.nodes as f64;
        let mut below = 0;
        let reached = self.counts.iter().find(|&&(_, nodes)| {
            below += nodes;
            below as f64 >= wanted
        });
        reached.map_or(0, |&(degree, _)| degree)
    }

    /// The distribution in bins that double in width: 1, 2–3, 4–7, …; nodes without an edge are not in any.
    pub fn log_bins(&self) -> Vec<Bin> {
        let mut bins: Vec<Bin> = Vec::new();
        for &(degree, nodes) in self.counts.iter().filter(|(degree, _)| *degree > 0) {
            match bins.last_mut() {
                Some(bin) if degree <= bin.to => bin.nodes += nodes,
                _ => {
                    let from = 1 << degree.ilog2();
                    bins.push(Bin { from, to: 2 * from - 1, nodes });
                }
            }
        }
        bins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_graph_is_counted_by_hand() {
        // Degrees 0, 1, 1, 2, 5.
        let g = Csr::<u32>::new(vec![0, 0, 1, 2, 4, 9], vec![1, 1, 0, 4, 0, 0, 1, 2, 3], 5).unwrap();
        let d = degrees(&g);
        assert_eq!(d.counts(), [(0, 1), (1, 2), (2, 1), (5, 1)]);
        assert_eq!((d.mean(), d.max(), d.zero()), (1.8, 5, 1));
        assert_eq!((d.quantile(0.5), d.quantile(0.61), d.quantile(0.99), d.quantile(0.0)), (1, 2, 5, 0));
        let bin = |from, to, nodes| Bin { from, to, nodes };
        assert_eq!(d.log_bins(), [bin(1, 1, 2), bin(2, 3, 1), bin(4, 7, 1)]);
    }

    #[test]
    fn a_graph_without_nodes_has_no_degrees() {
        let d = degrees(&Csr::<u32>::new(vec![0], vec![], 0).unwrap());
        assert_eq!((d.mean(), d.max(), d.zero(), d.quantile(0.5)), (0.0, 0, 0, 0));
        assert!(d.log_bins().is_empty());
    }
}
