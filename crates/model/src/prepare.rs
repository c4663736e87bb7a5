//! The graph that a model works on: the data's, with the edges that the model adds to it.

use graphweft_base::random::{Bijection, Philox};
use graphweft_graph::{Csr, TypedCsr};
use graphweft_tensor::{DType, Device, Error, Matrix, Result, Tag};
use rayon::prelude::*;

/// Kinds of edges in a graph with an expander: the data's own, and the expander's.
pub(crate) const KINDS: usize = 2;
/// Keeps the draws apart from others of the same seed.
const STREAM: u64 = 0xe9a9;

/// A graph with the features of its edges.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The structure.
    pub csr: Csr<u32>,
    /// Features per edge.
    pub width: usize,
    /// A row per edge.
    values: Vec<f32>,
    /// Whether these are the reciprocals of whole numbers, which f64 can hold better.
    reciprocals: bool,
}

impl Prepared {
    /// A graph as it is.
    pub fn plain(csr: Csr<u32>) -> Self {
        Self { csr, width: 0, values: Vec::new(), reciprocals: false }
    }

    /// A graph whose edges have types. Of the features of an edge, one for each of so many `types`, that of its type is
    /// 1/c, where c edges of this type lead to the same node; the others are 0.
    pub fn relations(graph: &TypedCsr, types: usize) -> Self {
        let mut values = vec![0.0; graph.types.len() * types];
        let degrees = graph.same_type_degrees();
        for (edge, (of, degree)) in graph.types.iter().zip(degrees).enumerate() {
            values[edge * types + usize::from(*of)] = (degree as f32).recip();
        }
        Self { csr: graph.graph.clone(), width: types, values, reciprocals: true }
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
        let values: Vec<f32> = rows.iter().flatten().flat_map(|(_, added)| kind(*added)).collect();
        Ok(Self { csr: Csr::from_valid(indptr, indices, n), width: KINDS, values, reciprocals: false })
    }

    /// The features of the edges, row by row; nothing where there are none.
    pub fn edge_rows(&self) -> &[f32] {
        &self.values
    }

    /// The same as a matrix, if there are any: in f32, or f64 for tests.
    pub fn features(&self, device: &Device, dtype: DType) -> Result<Option<Matrix>> {
        if self.width == 0 {
            return Ok(None);
        }
        if self.reciprocals && dtype == DType::F64 {
            let exact = |x: &f32| if *x == 0.0 { 0.0 } else { f64::from(*x).recip().round().recip() };
            let values: Vec<f64> = self.values.iter().map(exact).collect();
            return device.upload(self.csr.num_edges(), self.width, &values, Tag::Graph).map(Some);
        }
        let rows = device.upload(self.csr.num_edges(), self.width, &self.values, Tag::Graph)?;
        match dtype {
            DType::F64 => device.convert("edge features", &rows, dtype).map(Some),
            _ => Ok(Some(rows)),
        }
    }
}
