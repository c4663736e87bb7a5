//! Barabási–Albert: nodes arrive one by one and join M earlier ones, each chosen in proportion to its degree.
//!
//! The usual program keeps a list of all edge ends so far and picks one at random, which chooses nodes by degree, one
//! after another. Here the list is never written down (Sanders and Schulz, "Scalable generation of scale-free graphs",
//! IPL 2016). Ends 2k and 2k + 1 of edge k are the arriving node, which is known from k, and a copy of an earlier end,
//! whose position is a hash of k. So any edge can be found by itself: hash, and while the position is that of a copy,
//! hash again. Half of the positions are those of arriving nodes, so that takes two hashes on average.
//!
//! A node chooses among the edges of nodes before it, so it never joins itself; where it joins the same node twice the
//! edges are merged. Ids are in order of arrival: the oldest, best connected nodes come first.

use std::fmt;
use std::ops::Range;

use graphweft_base::Result;
use graphweft_base::random::Philox;

use super::counting::Draws;
use super::fields::Fields;
use super::{MOST_DEGREE, MOST_NODES, Stream};

/// `ba:N:M`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BarabasiAlbert {
    nodes: u64,
    per_node: u64,
}

impl BarabasiAlbert {
    pub(super) fn parse(mut fields: Fields<'_>) -> Result<Self> {
        let nodes = fields.integer("N", 2..=MOST_NODES)?;
        let per_node = fields.integer("M", 1..=MOST_DEGREE.min(nodes - 1))?;
        fields.end()?;
        Ok(Self { nodes, per_node })
    }

    pub(super) fn draws(&self, seed: u64) -> impl Draws {
        Attachments { spec: self.clone(), random: Philox::new(seed, Stream::Edges.number()) }
    }
}

impl fmt::Display for BarabasiAlbert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ba:{}:{}", self.nodes, self.per_node)
    }
}

struct Attachments {
    spec: BarabasiAlbert,
    random: Philox,
}

impl Attachments {
    /// The node whose arrival made this edge. Node 0 was there from the start.
    fn arriving(&self, edge: u64) -> u64 {
        edge / self.spec.per_node + 1
    }

    /// The node that this edge's arriving node chose.
    fn chosen(&self, mut edge: u64) -> u64 {
        loop {
            let earlier_edges = (self.arriving(edge) - 1) * self.spec.per_node;
            if earlier_edges == 0 {
                return 0;
            }
            let end = self.random.below(edge, 2 * earlier_edges);
            if end.is_multiple_of(2) {
                return self.arriving(end / 2);
            }
            edge = end / 2;
        }
    }
}

impl Draws for Attachments {
    fn num_nodes(&self) -> u64 {
        self.spec.nodes
    }

    fn len(&self) -> u64 {
        (self.spec.nodes - 1) * self.spec.per_node
    }

    fn list(&self, draws: Range<u64>, mut edge: impl FnMut(u32, u32)) {
        for draw in draws {
            edge(self.arriving(draw) as u32, self.chosen(draw) as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_join_m_earlier_ones_by_degree() {
        let draws = Attachments { spec: BarabasiAlbert { nodes: 20_000, per_node: 3 }, random: Philox::new(1, 0) };
        let mut degree = vec![0u32; 20_000];
        draws.list(0..draws.len(), |new, old| {
            assert!(old < new);
            degree[new as usize] += 1;
            degree[old as usize] += 1;
        });
        assert!(degree[1..].iter().all(|&d| d >= 3));
        // The degree of node i grows as M·√(N/i): compare the sums over nodes that arrived early and late.
        let sum = |range: Range<usize>| degree[range].iter().map(|&d| f64::from(d)).sum::<f64>();
        let expected = |range: Range<usize>| range.map(|i| 3.0 * (20_000.0 / i as f64).sqrt()).sum::<f64>();
        for range in [200..2_000, 2_000..10_000, 10_000..20_000] {
            let ratio = sum(range.clone()) / expected(range.clone());
            assert!((ratio - 1.0).abs() < 0.1, "{range:?}: {ratio}");
        }
    }
}
