//! A level of the hierarchy: a graph whose nodes and edges have weights.

use std::borrow::Cow;

use rayon::prelude::*;

use super::ratings::Ratings;
use crate::csr::{Csr, NodeId};
use crate::partition::balance::Weighing;

/// The graph itself, or a contraction of it.
pub(in crate::partition) struct Level<'a, I: NodeId> {
    graph: Cow<'a, Csr<I>>,
    nodes: NodeWeights<'a>,
    /// In the order of the graph's indices; empty where every edge weighs 1. A bundle of more than 2³² edges counts as
    /// 2³².
    edges: Vec<u32>,
}

enum NodeWeights<'a> {
    Same(Weighing<'a>),
    Each(Vec<u64>),
}

impl<'a, I: NodeId> Level<'a, I> {
    pub(in crate::partition) fn base(graph: &'a Csr<I>, weighing: Weighing<'a>) -> Self {
        Self { graph: Cow::Borrowed(graph), nodes: NodeWeights::Same(weighing), edges: Vec::new() }
    }

    pub(in crate::partition) fn len(&self) -> usize {
        self.graph.num_dst()
    }

    pub(in crate::partition) fn num_edges(&self) -> usize {
        self.graph.num_edges()
    }

    pub(in crate::partition) fn weight(&self, i: usize) -> u64 {
        match &self.nodes {
            NodeWeights::Same(weighing) => weighing.weight(&self.graph, i),
            NodeWeights::Each(weights) => weights[i],
        }
    }

    /// Edges stored with node `i`.
    pub(in crate::partition) fn degree(&self, i: usize) -> usize {
        self.graph.degree(i)
    }

    /// The sources of the edges into `i`, ascending.
    pub(in crate::partition) fn row(&self, i: usize) -> &[I] {
        self.graph.row(i)
    }

    /// The neighbours of `i` other than itself, with the weights of the edges.
    pub(in crate::partition) fn neighbours(&self, i: usize) -> impl Iterator<Item = (usize, u64)> {
        let range = self.graph.edges_of(i);
        let weights = self.edges.get(range.clone());
        let ids = self.graph.indices()[range].iter().map(|j| j.index()).enumerate();
        ids.filter(move |&(_, j)| j != i).map(move |(k, j)| (j, weights.map_or(1, |w| u64::from(w[k]))))
    }

    /// Whether each edge stands beside its reverse, of the same weight.
    pub(in crate::partition) fn is_symmetric(&self) -> bool {
        let weight = |edge: usize| self.edges.get(edge).copied().unwrap_or(1);
        let matches = |i: usize, edge: usize| {
            let j = self.graph.indices()[edge].index();
            let back = self.graph.row(j).partition_point(|k| k.index() < i) + self.graph.edges_of(j).start;
            weight(back) == weight(edge)
        };
        self.graph.is_symmetric()
            && (self.edges.is_empty()
                || (0..self.len()).into_par_iter().all(|i| self.graph.edges_of(i).all(|edge| matches(i, edge))))
    }

    /// Total weight of edges between nodes of different labels.
    pub(in crate::partition) fn cut(&self, labels: &[I]) -> u64 {
        let of = |i: usize| self.neighbours(i).filter(|&(j, _)| labels[i] != labels[j]).map(|(_, w)| w).sum::<u64>();
        (0..self.len()).into_par_iter().with_min_len(1024).map(of).sum()
    }

    /// Makes one node of all nodes with the same label, unless the result has more than `most` edges.
    /// `labels` become the numbers of the new nodes.
    pub(in crate::partition) fn contract(&self, labels: &mut [I], most: usize) -> Option<Level<'static, I>> {
        let groups = Groups::new(labels);
        let gather = |c: usize, ratings: &mut Ratings<I>| {
            let members = groups.members(c);
            ratings.reset(members.iter().map(|i| self.degree(i.index())).sum::<usize>().min(groups.len()));
            for i in members {
                for (j, weight) in self.neighbours(i.index()) {
                    if labels[j].index() != c {
                        ratings.add(labels[j], weight);
                    }
                }
            }
        };

        let mut indptr = vec![0u64; groups.len() + 1];
        indptr[1..].par_iter_mut().enumerate().with_min_len(64).for_each_init(Ratings::new, |ratings, (c, slot)| {
            gather(c, ratings);
            *slot = ratings.len() as u64;
        });
        let mut sum = 0;
        for x in &mut indptr {
            sum += *x;
            *x = sum;
        }
        if sum > most as u64 {
            return None;
        }

        let mut indices = vec![I::new(0); sum as usize];
        let mut edges = vec![0u32; sum as usize];
        let mut rows = Vec::with_capacity(groups.len());
        let (mut rest, mut rest_edges) = (&mut indices[..], &mut edges[..]);
        for w in indptr.windows(2) {
            let (ids, tail) = rest.split_at_mut((w[1] - w[0]) as usize);
            let (weights, tail_edges) = rest_edges.split_at_mut(ids.len());
            rows.push((ids, weights));
            (rest, rest_edges) = (tail, tail_edges);
        }
        let fill = |(ratings, sorted): &mut (Ratings<I>, Vec<(I, u64)>),
                    (c, (ids, weights)): (usize, (&mut [I], &mut [u32]))| {
            gather(c, ratings);
            sorted.clear();
            sorted.extend(ratings.iter());
            sorted.sort_unstable();
            for ((id, weight), &(j, w)) in ids.iter_mut().zip(weights).zip(&*sorted) {
                (*id, *weight) = (j, u32::try_from(w).unwrap_or(u32::MAX));
            }
        };
        rows.into_par_iter().enumerate().with_min_len(64).for_each_init(|| (Ratings::new(), Vec::new()), fill);

        let nodes = (0..groups.len()).into_par_iter().with_min_len(1024);
        let nodes = nodes.map(|c| groups.members(c).iter().map(|i| self.weight(i.index())).sum()).collect();
        let graph = Csr::from_valid(indptr, indices, groups.len());
        Some(Level { graph: Cow::Owned(graph), nodes: NodeWeights::Each(nodes), edges })
    }
}

/// Nodes sorted by label.
struct Groups<I> {
    members: Vec<I>,
    starts: Vec<I>,
}

impl<I: NodeId> Groups<I> {
    /// Renumbers `labels`, which are ids of nodes, in ascending order, and lists the nodes of each.
    fn new(labels: &mut [I]) -> Self {
        let mut sizes = vec![I::new(0); labels.len()];
        for label in &*labels {
            let size = &mut sizes[label.index()];
            *size = I::new(size.index() + 1);
        }
        // Sizes become numbers, and their running sum becomes `starts`.
        let mut starts = vec![I::new(0)];
        let mut sum = 0;
        for size in &mut sizes {
            if size.index() > 0 {
                sum += size.index();
                *size = I::new(starts.len() - 1);
                starts.push(I::new(sum));
            }
        }
        labels.par_iter_mut().for_each(|label| *label = sizes[label.index()]);
        drop(sizes);
        let mut next = starts.clone();
        let mut members = vec![I::new(0); labels.len()];
        for (i, label) in labels.iter().enumerate() {
            let at = &mut next[label.index()];
            members[at.index()] = I::new(i);
            *at = I::new(at.index() + 1);
        }
        Self { members, starts }
    }

    fn len(&self) -> usize {
        self.starts.len() - 1
    }

    fn members(&self, group: usize) -> &[I] {
        &self.members[self.starts[group].index()..self.starts[group + 1].index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::Balance;

    /// A directed graph with a self-loop and a parallel edge: 0 → 1 twice, 1 → 0, 2 → 1, 3 → 2, 2 → 2.
    fn graph() -> Csr<u32> {
        Csr::new(vec![0, 1, 4, 6, 6], vec![1, 0, 0, 2, 2, 3], 4).unwrap()
    }

    #[test]
    fn contraction_adds_up_nodes_and_edges() {
        let graph = graph();
        let base = Level::base(&graph, Balance::Edges.into());
        let mut labels = vec![1, 1, 3, 3];
        assert!(base.contract(&mut labels.clone(), 0).is_none(), "one edge is left");
        let small = base.contract(&mut labels, 1).unwrap();
        assert_eq!((labels, small.len(), small.num_edges()), (vec![0, 0, 1, 1], 2, 1));
        assert_eq!((small.weight(0), small.weight(1)), (4, 2));
        assert_eq!(small.neighbours(0).collect::<Vec<_>>(), [(1, 1)]);
        assert_eq!((base.cut(&[0, 0, 1, 1]), small.cut(&[0, 1])), (1, 1));
        assert!(!small.is_symmetric());
    }

    #[test]
    fn contraction_keeps_symmetry() {
        let graph = graph().symmetrise();
        let base = Level::base(&graph, Balance::Nodes.into());
        let small = base.contract(&mut [0, 1, 0, 3], 100).unwrap();
        assert!(base.is_symmetric() && small.is_symmetric());
        assert_eq!(small.neighbours(0).collect::<Vec<_>>(), [(1, 2), (2, 1)]);
    }
}
