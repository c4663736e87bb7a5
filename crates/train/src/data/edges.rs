//! Features of edges, and what becomes of them where the graph changes.
//!
//! They are numbers (`edge_feat.npy`), then categories (`edge_cat.npy`), in the order of the edges. An edge of another
//! graph gets those of the same edge; one that `symmetrise` made, those of the edge the other way; a self-loop that was
//! added, zeros, and in each column of categories a new one. Parallel edges keep their order.

use std::ops::Range;
use std::sync::Arc;

use graphweft_base::Error as Bad;
use graphweft_graph::chunks::Piece;
use graphweft_graph::dataset::Dense;
use graphweft_graph::{Csr, Dataset, TypedCsr};
use graphweft_model::{ModelConfig, Prepared};
use graphweft_tensor::ops::edge_values::{self, EdgeColumns};

use super::types::EdgeTypes;
use super::{Data, rows};
use crate::error::Result;

/// Columns of categories at most; types may be one more.
const MOST_CATEGORIES: usize = edge_values::MOST_CATEGORIES - 1;

/// Features of all edges of a graph.
#[derive(Clone, Debug, Default)]
pub struct EdgeFeatures {
    /// What they are.
    pub columns: EdgeColumns,
    /// A row per edge: numbers, then ids of categories.
    pub rows: Arc<[f32]>,
}

impl EdgeFeatures {
    /// Those of a dataset.
    pub(crate) fn of(dataset: &Dataset) -> Result<Option<Self>> {
        let (dense, codes) = (dataset.edge_features(), dataset.edge_categories());
        let width = dense.map_or(0, Dense::width);
        let numbers = dense.map(|dense| rows::dense(dense, None));
        let Some(codes) = codes else {
            return Ok(numbers.map(|rows| Self { columns: EdgeColumns::numbers(width), rows: rows.into() }));
        };
        if codes.width() > MOST_CATEGORIES {
            let problem = format!("{} columns are more than the {MOST_CATEGORIES} that models take", codes.width());
            return Err(Bad::bad(dataset.dir().join("edge_cat.npy"), "edge_cat", problem, "remove some").into());
        }
        let mut counts = vec![1; codes.width()];
        let mut rows = Vec::with_capacity(codes.len() / codes.width() * (width + codes.width()));
        for at in 0..codes.len() {
            let (edge, column) = (at / codes.width(), at % codes.width());
            if column == 0 {
                rows.extend_from_slice(numbers.as_ref().map_or(&[], |numbers| &numbers[edge * width..][..width]));
            }
            let code = codes.get(at);
            counts[column] = counts[column].max(usize::from(code) + 1);
            rows.push(f32::from(code));
        }
        Ok(Some(Self { columns: EdgeColumns::new(width, &counts)?, rows: rows.into() }))
    }

    /// The row of an edge that was added.
    fn of_added(&self) -> Vec<f32> {
        let categories = self.columns.categories().iter().map(|count| *count as f32);
        std::iter::repeat_n(0.0, self.columns.dense()).chain(categories).collect()
    }

    /// Those of `new`, a graph of the same nodes whose edges are of so many types: the type is the first category.
    pub(super) fn with_types(&self, types: &EdgeTypes, new: &TypedCsr, count: usize) -> Result<Self> {
        let more = usize::from(types.adds());
        let categories = self.columns.categories().iter().map(|count| count + more);
        let categories: Vec<usize> = std::iter::once(count).chain(categories).collect();
        let columns = EdgeColumns::new(self.columns.dense(), &categories)?;
        let none = self.of_added();
        let mut rows = Vec::with_capacity(new.types.len() * columns.stored());
        for i in 0..new.graph.num_dst() {
            let edges: Vec<(u32, u16)> = new.row(i).collect();
            for ((j, of), k) in repeats(&edges) {
                let edge = types.origin(i, [j as usize, usize::from(of)], k);
                let (numbers, others) = edge.map_or(&none[..], |edge| self.row(edge)).split_at(columns.dense());
                rows.extend_from_slice(numbers);
                rows.push(f32::from(of));
                rows.extend_from_slice(others);
            }
        }
        Ok(Self { columns, rows: rows.into() })
    }

    fn row(&self, edge: usize) -> &[f32] {
        let width = self.columns.stored();
        &self.rows[edge * width..][..width]
    }

    /// Those of `new`, a graph of the same nodes that was made of `old`.
    pub(crate) fn carried(&self, old: &Csr<u32>, new: &Csr<u32>) -> Result<Self> {
        let sources = Sources { of: old };
        let is_added = |i: usize, j: u32| i == j as usize && sources.edge(i, j, 0).is_none();
        let adds = (0..new.num_dst()).any(|i| new.row(i).binary_search(&(i as u32)).is_ok() && is_added(i, i as u32));
        let mut columns = self.columns;
        if adds {
            let more: Vec<usize> = columns.categories().iter().map(|count| count + 1).collect();
            columns = EdgeColumns::new(columns.dense(), &more)?;
        }
        let none = self.of_added();
        let mut rows = Vec::with_capacity(new.num_edges() * columns.stored());
        for i in 0..new.num_dst() {
            for (j, k) in repeats(new.row(i)) {
                let edge = sources.edge(i, j, k).or_else(|| sources.edge(j as usize, i as u32, k));
                rows.extend_from_slice(edge.map_or(&none, |edge| self.row(edge)));
            }
        }
        Ok(Self { columns, rows: rows.into() })
    }

    /// Those of a piece of `graph`, whose they are.
    pub(crate) fn of_piece(&self, graph: &Csr<u32>, piece: &Piece) -> Arc<[f32]> {
        let sources = Sources { of: graph };
        let mut rows = Vec::with_capacity(piece.graph.num_edges() * self.columns.stored());
        for i in 0..piece.graph.num_dst() {
            for (j, k) in repeats(piece.graph.row(i)) {
                let ends = [piece.originals[i] as usize, piece.originals[j as usize] as usize];
                let edge = sources.edge(ends[0], ends[1] as u32, k);
                // Every edge of a piece is one of the graph.
                rows.extend_from_slice(edge.map_or(&[], |edge| self.row(edge)));
            }
        }
        rows.into()
    }
}

impl Data {
    /// The features of edges that `model` looks at.
    pub(crate) fn edges_for(&self, model: &ModelConfig) -> Option<&EdgeFeatures> {
        self.edges.as_ref().filter(|_| model.uses_edge_features())
    }

    /// The graph that `model` works on, with the edges that it adds and the types and features that it looks at.
    pub fn graph_for(&self, model: &ModelConfig, seed: u64) -> Result<Prepared> {
        if let Some(types) = self.types_for(model) {
            return types.prepared(model, seed);
        }
        let prepared = model.prepare(self.graph.clone(), seed)?;
        match self.edges_for(model) {
            Some(edges) => Ok(prepared.with_features(edges.columns, Arc::clone(&edges.rows))?),
            None => Ok(prepared),
        }
    }

    /// The same of a piece of the graph.
    pub(crate) fn piece_for(&self, model: &ModelConfig, piece: &Piece, seed: u64) -> Result<Prepared> {
        let prepared = model.prepare(piece.graph.clone(), seed)?;
        match self.edges_for(model) {
            Some(edges) => Ok(prepared.with_features(edges.columns, edges.of_piece(&self.graph, piece))?),
            None => Ok(prepared),
        }
    }
}

/// Where edges stand in the graph that has features for them.
pub(super) struct Sources<'a> {
    pub(super) of: &'a Csr<u32>,
}

impl Sources<'_> {
    /// All edges j → i.
    pub(super) fn all(&self, i: usize, j: u32) -> Range<usize> {
        let (row, start) = (self.of.row(i), self.of.edges_of(i).start);
        let first = row.partition_point(|other| *other < j);
        start + first..start + first + row[first..].partition_point(|other| *other == j)
    }

    /// The edge j → i, of several the one after `k` others; the last, if there are fewer.
    fn edge(&self, i: usize, j: u32, k: usize) -> Option<usize> {
        let all = self.all(i, j);
        (!all.is_empty()).then(|| all.start + k.min(all.len() - 1))
    }
}

/// Each element of a sorted list with the number of equal ones before it.
fn repeats<T: Copy + PartialEq>(row: &[T]) -> impl Iterator<Item = (T, usize)> {
    let mut before = 0;
    row.iter().enumerate().map(move |(at, &x)| {
        before = if at > 0 && row[at - 1] == x { before + 1 } else { 0 };
        (x, before)
    })
}

#[cfg(test)]
mod tests {
    use graphweft_graph::SelfLoops;
    use graphweft_graph::dataset::{Codes, DatasetWriter, Meta};

    use super::*;

    /// Edges 1 → 0 twice, 0 → 1, 1 → 1, 2 → 1; each has its number and a category.
    fn given() -> (Csr<u32>, EdgeFeatures) {
        let csr = Csr::new(vec![0u64, 2, 5, 5], vec![1u32, 1, 0, 1, 2], 3).unwrap();
        let rows: Vec<f32> = (0..5).flat_map(|k| [k as f32, (k % 2) as f32]).collect();
        (csr, EdgeFeatures { columns: EdgeColumns::new(1, &[2]).unwrap(), rows: rows.into() })
    }

    #[test]
    fn categories_of_a_folder_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, graph) = (dir.path().join("small"), given().0);
        let writer = DatasetWriter::create(&folder).unwrap();
        writer.graph(&graph.clone().into()).unwrap();
        writer.edge_categories(&Codes::U8 { values: vec![0, 2, 1, 0, 0, 1, 1, 0, 0, 0].into(), width: 2 }).unwrap();
        writer.finish(&Meta::of("small", &graph, false)).unwrap();
        let found = EdgeFeatures::of(&Dataset::open(&folder).unwrap()).unwrap().unwrap();
        assert_eq!((found.columns.dense(), found.columns.categories()), (0, &[2, 3][..]));
        assert_eq!(found.rows[..6], [0.0, 2.0, 1.0, 0.0, 0.0, 1.0]);
    }

    #[test]
    fn an_edge_back_has_the_features_of_the_edge() {
        let (csr, edges) = given();
        let new = csr.symmetrise();
        let found = edges.carried(&csr, &new).unwrap();
        // 1 → 0, 0 → 1, 1 → 1, 2 → 1, 1 → 2.
        assert_eq!(new.indices()[..], [1, 0, 1, 2, 1]);
        assert_eq!(&found.rows[..], [0.0, 0.0, 2.0, 0.0, 3.0, 1.0, 4.0, 0.0, 4.0, 0.0]);
        assert_eq!(found.columns, edges.columns);
    }

    #[test]
    fn an_added_loop_has_zeros_and_a_category_of_its_own() {
        let (csr, edges) = given();
        let new = csr.with_self_loops(SelfLoops::Add);
        let found = edges.carried(&csr, &new).unwrap();
        assert_eq!(new.indices()[..], [0, 1, 1, 0, 1, 2, 2]);
        assert_eq!(found.columns.categories(), [3]);
        let expected = [0.0, 2.0, 0.0, 0.0, 1.0, 1.0, 2.0, 0.0, 3.0, 1.0, 4.0, 0.0, 0.0, 2.0];
        assert_eq!(&found.rows[..], expected);
        let without = edges.carried(&csr, &csr.with_self_loops(SelfLoops::Remove)).unwrap();
        assert_eq!(&without.rows[..], [0.0, 0.0, 1.0, 1.0, 2.0, 0.0, 4.0, 0.0]);
        assert_eq!(without.columns, edges.columns);
    }
}
