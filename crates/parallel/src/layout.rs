//! Who has which rows, and what one rank holds of the graph.
//!
//! Nodes are renumbered so that every rank has one range of them: *new* ids. Everything here is in new ids, except
//! where it says original. A rank's edges are those into its own rows; their sources may be anyone's.

use std::ops::Range;
use std::sync::Arc;

use graphweft_comm::Label;
use graphweft_graph::partition::Partition;
use graphweft_graph::{Csr, Permutation};
use graphweft_tensor::{Error, Ids, Result};

use crate::link::Link;

/// One rank's part of a graph, and everyone's rows.
#[derive(Clone, Debug)]
pub struct Layout {
    rank: usize,
    /// The first row of every rank, and the number of nodes.
    ranges: Arc<[usize]>,
    originals: Arc<[u64]>,
    degrees: Arc<[u32]>,
    csr: Csr<u32>,
    edges: Vec<u64>,
    /// The relation of each of these edges, where they have one.
    relations: Option<Arc<[u16]>>,
}

/// What all ranks' layouts are made from.
struct Divided<'a> {
    graph: &'a Csr<u32>,
    permutation: &'a Permutation,
    ranges: Arc<[usize]>,
    originals: Arc<[u64]>,
    degrees: Arc<[u32]>,
}

impl<'a> Divided<'a> {
    fn new(graph: &'a Csr<u32>, partition: &'a Partition, ranks: usize) -> Result<Self> {
        let nodes = partition.num_nodes();
        if graph.num_dst() != nodes || graph.num_src() != nodes {
            let shape = format!("{} × {}", graph.num_dst(), graph.num_src());
            return refused(format!("a partition of {nodes} nodes does not divide a graph of {shape}"));
        }
        let (permutation, parts) = (partition.permutation(), partition.num_parts());
        let ranges = (0..=ranks).map(|r| partition.ranges()[r * parts / ranks.max(1)] as usize).collect();
        let originals: Arc<[u64]> = permutation.old_of_new().into();
        // A node has fewer than 2³² neighbours but may have more edges; its weight in a mean is as small either way.
        let degree = |id: &u64| graph.degree(*id as usize).min(u32::MAX as usize) as u32;
        let degrees = originals.iter().map(degree).collect();
        Ok(Self { graph, permutation, ranges, originals, degrees })
    }

    fn layout(&self, rank: usize) -> Layout {
        let Self { graph, permutation, ranges, originals, degrees } = self;
        let own = &originals[ranges[rank]..ranges[rank + 1]];
        let mut indptr = Vec::with_capacity(own.len() + 1);
        indptr.push(0u64);
        let total: usize = own.iter().map(|id| graph.degree(*id as usize)).sum();
        let (mut indices, mut edges) = (Vec::with_capacity(total), Vec::with_capacity(total));
        let mut row: Vec<(u32, u64)> = Vec::new();
        for &id in own {
            let positions = graph.edges_of(id as usize);
            row.clear();
            row.extend(positions.map(|e| (permutation.new_of(graph.indices()[e] as usize) as u32, e as u64)));
            row.sort_unstable();
            indices.extend(row.iter().map(|(source, _)| *source));
            edges.extend(row.iter().map(|(_, edge)| *edge));
            indptr.push(indices.len() as u64);
        }
        let csr = Csr::from_valid(indptr, indices, graph.num_src());
        let (ranges, originals, degrees) = (Arc::clone(ranges), Arc::clone(originals), Arc::clone(degrees));
        Layout { rank, ranges, originals, degrees, csr, edges, relations: None }
    }
}

fn refused<T>(problem: String) -> Result<T> {
    Err(Error::Argument { op: "layout", problem })
}

impl Layout {
    /// The part of `graph`, which has original ids, that belongs to `rank` of `ranks`. Of K parts, rank r of P has
    /// those from r·K/P up to (r+1)·K/P; a rank that has none has no rows.
    ///
    /// # Errors
    /// If the partition is of another graph, or there is no such rank.
    pub fn new(graph: &Csr<u32>, partition: &Partition, ranks: usize, rank: usize) -> Result<Self> {
        if rank >= ranks {
            return refused(format!("there is no rank {rank} of {ranks}"));
        }
        Ok(Divided::new(graph, partition, ranks)?.layout(rank))
    }

    /// The parts of all ranks, in order, at less than the cost of each.
    ///
    /// # Errors
    /// If the partition is of another graph.
    pub fn all(graph: &Csr<u32>, partition: &Partition, ranks: usize) -> Result<Vec<Self>> {
        let divided = Divided::new(graph, partition, ranks)?;
        Ok((0..ranks).map(|rank| divided.layout(rank)).collect())
    }

    /// The same with the relation of each edge, from those of all edges of the original graph.
    #[must_use]
    pub fn with_relations(mut self, all: Option<&[u16]>) -> Self {
        self.relations = all.map(|all| self.edges.iter().map(|edge| all[*edge as usize]).collect());
        self
    }

    /// The layout in which the ranks of `across`, which follow one another, are one, as are as many others each, and
    /// how many edges every rank of `across` brought into it.
    pub(crate) fn joined(&self, across: &Link, label: Label) -> Result<(Self, Vec<usize>)> {
        let size = across.size();
        let (rank, first) = (self.rank / size, self.rank / size * size);
        let ranges: Arc<[usize]> = self.ranges.iter().step_by(size).copied().collect();
        let rows: Vec<usize> = self.counts()[first..first + size].to_vec();
        let edges = across.all_gather_ids(label, &[self.csr.num_edges() as u64], &vec![1; size])?;
        let edges: Vec<usize> = edges.into_iter().map(|count| count as usize).collect();
        let degrees: Vec<u64> = (0..self.csr.num_dst()).map(|row| self.csr.degree(row) as u64).collect();
        let mut end = 0;
        let add = |degree: u64| {
            end += degree;
            end
        };
        let degrees = across.all_gather_ids(label, &degrees, &rows)?;
        let indptr: Vec<u64> = std::iter::once(0).chain(degrees.into_iter().map(add)).collect();
        let sources: Vec<u64> = self.csr.indices().iter().map(|id| u64::from(*id)).collect();
        let sources = across.all_gather_ids(label, &sources, &edges)?;
        let indices: Vec<u32> = sources.into_iter().map(|id| id as u32).collect();
        let relations = match &self.relations {
            None => None,
            Some(own) => {
                let own: Vec<u64> = own.iter().map(|of| u64::from(*of)).collect();
                let all = across.all_gather_ids(label, &own, &edges)?;
                Some(all.into_iter().map(|of| of as u16).collect())
            }
        };
        let joined = Self {
            rank,
            relations,
            ranges,
            originals: Arc::clone(&self.originals),
            degrees: Arc::clone(&self.degrees),
            csr: Csr::from_valid(indptr, indices, self.total_rows()),
            edges: across.all_gather_ids(label, &self.edges, &edges)?,
        };
        Ok((joined, edges))
    }

    /// The edges of this rank's rows among `nodes` alone, which have both ends of all of them, spread over other ranks:
    /// rank r has the nodes `ranges[r]..ranges[r + 1]`, and this is what `rank` has.
    pub(crate) fn among(&self, nodes: &[u32], ranges: Vec<usize>, rank: usize) -> Self {
        let mut place = vec![0u32; self.total_rows()];
        for (k, row) in (0..).zip(nodes) {
            place[*row as usize] = k;
        }
        let (mut indptr, mut indices, mut edges) = (vec![0], Vec::new(), Vec::new());
        let (mut sorted, rows, mut positions_of) = (Vec::new(), self.own(), Vec::new());
        for row in &nodes[ranges[rank]..ranges[rank + 1]] {
            if rows.contains(&(*row as usize)) {
                let positions = self.csr.edges_of(*row as usize - rows.start);
                sorted.clear();
                sorted.extend(positions.map(|e| (place[self.csr.indices()[e] as usize], self.edges[e], e)));
                sorted.sort_unstable();
                indices.extend(sorted.iter().map(|(source, ..)| *source));
                edges.extend(sorted.iter().map(|(_, edge, _)| *edge));
                positions_of.extend(sorted.iter().map(|(.., e)| *e));
            }
            indptr.push(indices.len() as u64);
        }
        Self {
            rank,
            ranges: ranges.into(),
            originals: nodes.iter().map(|row| self.originals[*row as usize]).collect(),
            degrees: nodes.iter().map(|row| self.degrees[*row as usize]).collect(),
            relations: self.relations_at(positions_of.into_iter()),
            csr: Csr::from_valid(indptr, indices, nodes.len()),
            edges,
        }
    }

    /// The same rows with only the edges from other ranks' rows; [`Layout::edges`] are then positions in this layout's.
    pub(crate) fn cut(&self) -> Self {
        let (own, csr) = (self.own(), &self.csr);
        let (mut indptr, mut indices, mut edges) = (vec![0], Vec::new(), Vec::new());
        for row in 0..csr.num_dst() {
            for e in csr.edges_of(row).filter(|e| !own.contains(&(csr.indices()[*e] as usize))) {
                indices.push(csr.indices()[e]);
                edges.push(e as u64);
            }
            indptr.push(indices.len() as u64);
        }
        Self {
            rank: self.rank,
            ranges: Arc::clone(&self.ranges),
            originals: Arc::clone(&self.originals),
            degrees: Arc::clone(&self.degrees),
            csr: Csr::from_valid(indptr, indices, self.total_rows()),
            relations: self.relations_at(edges.iter().map(|e| *e as usize)),
            edges,
        }
    }

    fn relations_at(&self, edges: impl Iterator<Item = usize>) -> Option<Arc<[u16]>> {
        self.relations.as_ref().map(|all| edges.map(|e| all[e]).collect())
    }

    /// The rows of a rank that this rank's edges come from, ascending.
    pub(crate) fn needed_of(&self, rank: usize) -> Vec<u32> {
        let rows = self.rows_of(rank);
        let mut needed = vec![false; rows.len()];
        for row in 0..self.csr.num_dst() {
            let sources = self.csr.row(row);
            let first = sources.partition_point(|j| (*j as usize) < rows.start);
            for j in sources[first..].iter().take_while(|j| (**j as usize) < rows.end) {
                needed[*j as usize - rows.start] = true;
            }
        }
        rows.zip(needed).filter(|(_, needed)| *needed).map(|(row, _)| row as u32).collect()
    }

    /// The first row of every rank, and the number of nodes.
    pub(crate) fn ranges(&self) -> &[usize] {
        &self.ranges
    }

    /// This rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// All ranks.
    pub fn ranks(&self) -> usize {
        self.ranges.len() - 1
    }

    /// The rows of a rank.
    pub fn rows_of(&self, rank: usize) -> Range<usize> {
        self.ranges[rank]..self.ranges[rank + 1]
    }

    /// The rows of this rank.
    pub fn own(&self) -> Range<usize> {
        self.rows_of(self.rank)
    }

    /// How many rows every rank has.
    pub fn counts(&self) -> Vec<usize> {
        self.ranges.windows(2).map(|w| w[1] - w[0]).collect()
    }

    /// Rows of all ranks.
    pub fn total_rows(&self) -> usize {
        self.originals.len()
    }

    /// The rank that has a row.
    pub fn owner(&self, row: usize) -> usize {
        // The last of the ranks that begin at or before it: those before it that begin at the same row have none.
        self.ranges.partition_point(|start| *start <= row) - 1
    }

    /// Original ids of all rows.
    pub fn originals(&self) -> &Arc<[u64]> {
        &self.originals
    }

    /// Original ids of some rows.
    pub fn ids(&self, rows: Range<usize>) -> Ids {
        Ids::Listed(self.originals[rows].into())
    }

    /// In-degrees of all rows in the whole graph.
    pub fn degrees(&self) -> &[u32] {
        &self.degrees
    }

    /// The edges into this rank's rows, from all rows.
    pub fn csr(&self) -> &Csr<u32> {
        &self.csr
    }

    /// The relation of each of these edges, where they have one.
    pub(crate) fn relations(&self) -> Option<&Arc<[u16]>> {
        self.relations.as_ref()
    }

    /// For each of these edges, its position in the original graph: where its features are.
    pub fn edges(&self) -> &[u64] {
        &self.edges
    }
}

#[cfg(test)]
mod tests {
    use graphweft_graph::Permutation;

    use super::*;

    /// 5 nodes: parallel edges into 1, nothing into 3, an edge of 4 to itself.
    fn graph() -> Csr<u32> {
        Csr::new(vec![0, 2, 5, 6, 6, 8], vec![1, 2, 0, 0, 4, 3, 0, 4], 5).unwrap()
    }

    fn partition(ranges: &[u64]) -> Partition {
        Partition::new(Permutation::from_old_of_new(vec![4, 1, 3, 0, 2]).unwrap(), ranges.to_vec()).unwrap()
    }

    #[test]
    fn every_edge_is_with_its_destination_in_new_ids() {
        let graph = graph();
        for (ranges, ranks) in
            [(&[0, 5][..], 1), (&[0, 2, 5], 2), (&[0, 2, 5], 3), (&[0, 1, 2, 2, 3, 4, 5], 2), (&[0, 2, 5], 7)]
        {
            let mut seen = Vec::new();
            for rank in 0..ranks {
                let layout = Layout::new(&graph, &partition(ranges), ranks, rank).unwrap();
                assert_eq!(layout.counts().iter().sum::<usize>(), 5);
                assert_eq!(layout.csr().num_dst(), layout.own().len());
                for (k, row) in layout.own().enumerate() {
                    assert_eq!(layout.owner(row), rank);
                    let to = layout.originals()[row] as usize;
                    assert_eq!(layout.degrees()[row] as usize, graph.degree(to));
                    for e in layout.csr().edges_of(k) {
                        let at = layout.edges()[e] as usize;
                        assert!(graph.edges_of(to).contains(&at));
                        let source = layout.csr().indices()[e] as usize;
                        assert_eq!(graph.indices()[at] as u64, layout.originals()[source]);
                        seen.push(at);
                    }
                }
            }
            seen.sort_unstable();
            assert_eq!(seen, (0..graph.num_edges()).collect::<Vec<_>>(), "{ranges:?} on {ranks} ranks");
        }
    }

    #[test]
    fn parts_are_shared_by_ranks_in_order() {
        let of = |ranges: &[u64], ranks| Layout::new(&graph(), &partition(ranges), ranks, 0).unwrap().counts();
        assert_eq!(of(&[0, 1, 2, 3, 4, 5], 2), [2, 3]);
        assert_eq!(of(&[0, 2, 5], 4), [0, 2, 0, 3]);
        assert_eq!(of(&[0, 0, 5, 5], 3), [0, 5, 0]);
    }

    #[test]
    fn nonsense_is_refused() {
        let halves = partition(&[0, 2, 5]);
        assert!(Layout::new(&graph(), &halves, 2, 2).is_err());
        assert!(Layout::new(&graph(), &halves, 0, 0).is_err());
        let other = Csr::new(vec![0, 0], Vec::<u32>::new(), 1).unwrap();
        assert!(Layout::new(&other, &halves, 2, 0).is_err());
    }
}
