//! The degree of a node, on a logarithmic scale.

use graphweft_graph::Csr;

/// ln(1 + degree) of each node.
pub fn degree(graph: &Csr<u32>) -> Vec<f64> {
    (0..graph.num_dst()).map(|i| (graph.degree(i) as f64).ln_1p()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoding::tests::graph;

    #[test]
    fn a_star() {
        let found = degree(&graph(4, &[(0, 1), (0, 2)]));
        let expected = [3f64.ln(), 2f64.ln(), 2f64.ln(), 0.0];
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-15));
    }
}
