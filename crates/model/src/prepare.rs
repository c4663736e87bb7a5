//! The graph that a model works on: the data's, with the edges that the model adds to it.

use std::sync::Arc;

use graphweft_base::random::{Bijection, Philox};
use graphweft_graph::{Csr, TypedCsr};
use graphweft_tensor::ops::edge_values::EdgeColumns;
use graphweft_tensor::{DType, Device, Error, Matrix, Result, Tag};
use rayon::prelude::*;

use crate::convs::compgcn::{DIRECTIONS, direction_of};

/// Kinds of edges in a graph with an expander: the data's own, and the expander's.
const KINDS: usize = 2;
/// Keeps the draws apart from others of the same seed.
const STREAM: u64 = 0xe9a9;

/// A graph with the features of its edges.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The structure.
    pub csr: Csr<u32>,
    /// What features its edges have.
    pub columns: EdgeColumns,
    /// Types of edges that attention has maps for; 1 where edges have none.
    pub num_relations: usize,
    /// A row per edge.
    values: Arc<[f32]>,
    /// The type of each edge, where it is for maps.
    relations: Option<Arc<[u16]>>,
}

impl Prepared {
    /// A graph as it is.
    pub fn plain(csr: Csr<u32>) -> Self {
        Self { csr, columns: EdgeColumns::default(), num_relations: 1, values: Arc::from([]), relations: None }
    }

    /// A graph as it is, whose edges have these features, row by row in its order.
    ///
    /// # Errors
    /// If there is not a row for every edge, or an id is none of its column's.
    pub fn with_edges(csr: Csr<u32>, columns: EdgeColumns, values: Arc<[f32]>) -> Result<Self> {
        let wrong = |problem| Error::Argument { op: "edge features", problem };
        let (edges, stored) = (csr.num_edges(), columns.stored());
        if values.len() != edges * stored {
            return Err(wrong(format!("{} numbers are not {stored} for each of {edges} edges", values.len())));
        }
        for (edge, row) in values.chunks_exact(stored.max(1)).enumerate() {
            for (id, count) in row[columns.dense()..].iter().zip(columns.categories()) {
                if id.fract() != 0.0 || !(0.0..*count as f32).contains(id) {
                    return Err(wrong(format!("edge {edge} has category {id} where there are {count}")));
                }
            }
        }
        Ok(Self { columns, values, ..Self::plain(csr) })
    }

    /// A graph whose edges are of so many `types`, for [maps](crate::RelationMaps) of relations.
    ///
    /// # Errors
    /// If a type is none of these.
    pub fn mapped(graph: &TypedCsr, types: usize) -> Result<Self> {
        if let Some(of) = graph.types.iter().find(|of| usize::from(**of) >= types) {
            let problem = format!("an edge is of type {of} of {types}");
            return Err(Error::Argument { op: "types of edges", problem });
        }
        let relations = Some(graph.types.as_slice().into());
        Ok(Self { num_relations: types, relations, ..Self::plain(graph.graph.clone()) })
    }

    /// The same where the edges that it was made of have these features, row by row in their order. Where edges were
    /// added, the kind of an edge is its first category; one that was added has zeros, and in each column of categories
    /// one of its own.
    ///
    /// # Errors
    /// As [`Prepared::with_edges`].
    pub fn with_features(self, columns: EdgeColumns, values: Arc<[f32]>) -> Result<Self> {
        if self.columns.is_empty() || columns.is_empty() {
            return if columns.is_empty() { Ok(self) } else { Self::with_edges(self.csr, columns, values) };
        }
        let counts = columns.categories().iter().map(|count| count + 1);
        let all = EdgeColumns::new(columns.dense(), &std::iter::once(KINDS).chain(counts).collect::<Vec<_>>())?;
        let of_added = columns.categories().iter().map(|count| *count as f32);
        let of_added: Vec<f32> = std::iter::repeat_n(0.0, columns.dense()).chain(of_added).collect();
        let mut given = values.chunks_exact(columns.stored());
        let own = self.values.chunks_exact(KINDS).filter(|kind| kind[1] == 0.0).count();
        if given.len() != own || !given.remainder().is_empty() {
            let problem = format!("{} numbers are not {} for each of {own} edges", values.len(), columns.stored());
            return Err(Error::Argument { op: "edge features", problem });
        }
        let mut rows = Vec::with_capacity(self.csr.num_edges() * all.stored());
        for kind in self.values.chunks_exact(KINDS) {
            let row = if kind[1] == 0.0 { given.next().unwrap_or(&of_added) } else { &of_added };
            let (numbers, ids) = row.split_at(columns.dense());
            rows.extend_from_slice(numbers);
            rows.push(kind[1]);
            rows.extend_from_slice(ids);
        }
        Self::with_edges(self.csr, all, rows.into())
    }

    /// A graph whose edges are of so many `types`. The features of an edge are c, where c edges of its type lead to the
    /// same node, and its type: what [sums by relation](graphweft_tensor::ops::related) take.
    ///
    /// # Errors
    /// If a type is none of these.
    pub fn counted(graph: &TypedCsr, types: usize) -> Result<Self> {
        let edges = graph.same_type_degrees().into_iter().zip(&graph.types);
        let values = edges.flat_map(|(c, of)| [c as f32, f32::from(*of)]).collect();
        Self::with_edges(graph.graph.clone(), EdgeColumns::new(1, &[types])?, values)
    }

    /// A graph whose edges are of so many `types`, of which the second half are reverses. The features of an edge j → i
    /// are √(d_i·d_j), with the edges of its direction into i and out of j, and its type.
    ///
    /// # Errors
    /// If a type is none of these.
    pub fn directions(graph: &TypedCsr, types: usize) -> Result<Self> {
        let (csr, of) = (&graph.graph, |of: u16| direction_of(usize::from(of), types));
        let mut degrees = vec![[[0u32; DIRECTIONS]; 2]; csr.num_dst().max(csr.num_src())];
        let edges = (0..csr.num_dst()).flat_map(|i| csr.edges_of(i).map(move |e| [i, e]));
        let ends = |[i, e]: [usize; 2]| (i, csr.indices()[e] as usize, graph.types[e]);
        for (i, j, of_edge) in edges.clone().map(ends) {
            degrees[i][0][of(of_edge)] += 1;
            degrees[j][1][of(of_edge)] += 1;
        }
        let row = |(i, j, of_edge): (usize, usize, u16)| {
            let [to, from] = [degrees[i][0][of(of_edge)], degrees[j][1][of(of_edge)]];
            [(f64::from(to) * f64::from(from)).sqrt() as f32, f32::from(of_edge)]
        };
        let values = edges.map(ends).flat_map(row).collect();
        Self::with_edges(csr.clone(), EdgeColumns::new(1, &[types])?, values)
    }

    /// A graph with the edges of an expander, each edge with its kind as feature, one-hot.
    ///
    /// Every one of `count` random permutations π adds i → π(i) and π(i) → i, without self-loops and without duplicates
    /// among these; an edge that the data has too is there twice, once of each kind. A union of a few random
    /// permutations is an expander almost surely: any two nodes are a few steps apart.
    pub fn expander(csr: &Csr<u32>, count: usize, seed: u64) -> Result<Self> {
        let n = csr.num_dst();
        if csr.num_src() != n {
            let problem =
                format!("an expander needs the whole graph: this one has {} sources and {n} nodes", csr.num_src());
            return Err(Error::Argument { op: "expander", problem });
        }
        let permutations: Vec<Bijection> = (0..count as u64)
            .map(|k| Bijection::new(n as u64, &Philox::new(seed, STREAM.wrapping_add(k << 32))))
            .collect();
        let rows: Vec<Vec<(u32, bool)>> = (0..n)
            .into_par_iter()
            .map(|i| {
                let ends = permutations.iter().flat_map(|p| [p.forward(i as u64) as u32, p.inverse(i as u64) as u32]);
                let mut added: Vec<u32> = ends.filter(|j| *j as usize != i).collect();
                added.sort_unstable();
                added.dedup();
                let own = csr.row(i).iter().map(|j| (*j, false));
                let mut row: Vec<(u32, bool)> = own.chain(added.into_iter().map(|j| (j, true))).collect();
                row.sort_unstable();
                row
            })
            .collect();
        let mut indptr = Vec::with_capacity(n + 1);
        indptr.push(0);
        for row in &rows {
            indptr.push(indptr.last().copied().unwrap_or_default() + row.len() as u64);
        }
        let indices: Vec<u32> = rows.iter().flatten().map(|(j, _)| *j).collect();
        let kind = |added: bool| if added { [0.0, 1.0] } else { [1.0, 0.0] };
        let values = rows.iter().flatten().flat_map(|(_, added)| kind(*added)).collect();
        Ok(Self { columns: EdgeColumns::numbers(KINDS), values, ..Self::plain(Csr::from_valid(indptr, indices, n)) })
    }

    /// The type of each edge, where it is for maps.
    pub fn relations(&self) -> Option<&Arc<[u16]>> {
        self.relations.as_ref()
    }

    /// Whether these columns are the kinds of edges in a graph with an expander, and nothing else.
    pub(crate) fn are_kinds(columns: &EdgeColumns) -> bool {
        *columns == EdgeColumns::numbers(KINDS)
    }

    /// The features of the edges, row by row; nothing where there are none.
    pub fn edge_rows(&self) -> &[f32] {
        &self.values
    }

    /// The same as a matrix, if there are any: in f32, or f64 for tests.
    pub fn features(&self, device: &Device, dtype: DType) -> Result<Option<Matrix>> {
        if self.columns.is_empty() {
            return Ok(None);
        }
        let rows = device.upload(self.csr.num_edges(), self.columns.stored(), &self.values, Tag::Graph)?;
        match dtype {
            DType::F64 => device.convert("edge features", &rows, dtype).map(Some),
            _ => Ok(Some(rows)),
        }
    }
}
