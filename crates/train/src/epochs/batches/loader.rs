//! Puts batches together: what is read and cut on the host before a batch can be learned from. Any thread may do that.

use std::sync::Arc;

use graphweft_graph::dataset::Features;
use graphweft_graph::{Buf, Csr};
use graphweft_model::ModelConfig;
use graphweft_tensor::Error as Computation;
use graphweft_tensor::Ids;

use super::order::{Share, work};
use crate::data::rows::{self, Rows};
use crate::data::{Data, EdgeFeatures};
use crate::error::Result;
use crate::ranks::rank::Rank;
use crate::task::Labels;

/// A rank's graphs of a batch, on the host.
pub(crate) struct Loaded {
    /// Block after block.
    pub(crate) csr: Csr<u32>,
    /// Where graphs begin and end.
    pub(crate) ptr: Vec<u64>,
    /// Ids of nodes and of graphs in the data.
    pub(crate) nodes: Vec<u64>,
    pub(crate) graphs: Vec<u64>,
    pub(crate) features: Rows<'static>,
    /// Of edges, row by row, where the model looks at any.
    pub(crate) edges: Option<EdgeFeatures>,
    /// Row by row.
    pub(crate) encodings: Vec<f32>,
    pub(crate) batch: LoadedBatch,
}

/// What is known of the whole batch, and what of it is learned here.
pub(crate) struct LoadedBatch {
    /// Nodes of all ranks.
    pub(crate) rows: u64,
    /// Known labels on all ranks.
    pub(crate) known: f64,
    /// Of this rank's graphs; nothing where there are none.
    pub(crate) labels: Option<Labels>,
}

/// Where batches come from.
pub(crate) struct Loader {
    data: Arc<Data>,
    ptr: Buf<u64>,
    /// Features of all edges, where the model looks at any.
    edges: Option<EdgeFeatures>,
}

impl Loader {
    /// Batches of the graphs of `data`, for `model`.
    ///
    /// # Errors
    /// If that is one graph.
    pub(crate) fn new(data: &Arc<Data>, model: &ModelConfig) -> Result<Self> {
        let problem = || Computation::Argument { op: "batches", problem: format!("{} is one graph", data.name) };
        let ptr = data.graphs.clone().ok_or_else(problem)?;
        Ok(Self { data: Arc::clone(data), ptr, edges: data.edges_for(model).cloned() })
    }

    pub(crate) fn data(&self) -> &Data {
        &self.data
    }

    /// How many graphs there are.
    pub(crate) fn count(&self) -> usize {
        self.ptr.len() - 1
    }

    /// What `rank` has of a batch.
    pub(crate) fn share(&self, graphs: &[u64], rank: &Rank) -> Share {
        let all: Vec<u64> = graphs.iter().map(|graph| work(&self.data, &self.ptr, *graph)).collect();
        Share::of(&all, rank)
    }

    /// Puts a share of a batch together.
    pub(crate) fn load(&self, batch: &[u64], share: &Share) -> Result<Loaded> {
        let (data, graphs) = (&*self.data, batch[share.own.clone()].to_vec());
        let range = |graph: &u64| self.ptr[*graph as usize]..self.ptr[*graph as usize + 1];
        let mut ptr = vec![0u64];
        let (mut nodes, mut indptr, mut indices) = (Vec::new(), vec![0u64], Vec::new());
        for graph in &graphs {
            let (own, base) = (range(graph), nodes.len() as u32);
            let first = own.start as u32;
            for node in own.clone() {
                // No edge leads out of a graph: this does not wrap.
                let sources = data.graph.row(node as usize).iter();
                indices.extend(sources.map(|source| source.wrapping_sub(first).wrapping_add(base)));
                indptr.push(indices.len() as u64);
            }
            nodes.extend(own);
            ptr.push(nodes.len() as u64);
        }
        let csr = Csr::from_valid(indptr, indices, nodes.len());
        let features = match &data.features {
            Features::Dense(m) => {
                let mut values = vec![0.0; nodes.len() * m.width()];
                // A rehearsal has no numbers.
                if !m.is_empty() {
                    rows::copy_dense(m, &nodes, &mut values);
                }
                Rows::Dense { values: values.into(), width: m.width() }
            }
            Features::Sparse(m) => Rows::Sparse(rows::sparse(m, Some(&nodes))),
        };
        let edges = self.edges.as_ref().map(|edges| {
            let width = edges.columns.stored();
            let of = |node: &u64| data.graph.edges_of(*node as usize);
            let rows = nodes.iter().flat_map(|node| &edges.rows[of(node).start * width..of(node).end * width]);
            EdgeFeatures { columns: edges.columns, rows: rows.copied().collect() }
        });
        let encodings = rows::numbers(&data.encodings, data.encoding_width(), Some(&nodes)).into_owned();
        let rows = batch.iter().map(|graph| range(graph).end - range(graph).start).sum();
        let batch = LoadedBatch { rows, known: self.known(batch), labels: self.labels(&graphs) };
        Ok(Loaded { csr, ptr, nodes, graphs, features, edges, encodings, batch })
    }

    /// Known labels of these graphs.
    fn known(&self, graphs: &[u64]) -> f64 {
        let (data, labels) = (&self.data, self.data.labels.as_ref());
        let known = |graph: &u64| labels.map_or(0, |all| data.task.known(all.view(), *graph as usize, data.classes));
        graphs.iter().map(known).sum::<usize>() as f64
    }

    fn labels(&self, graphs: &[u64]) -> Option<Labels> {
        let ids = Ids::Listed(graphs.into());
        self.data.labels.as_ref().map(|labels| labels.of_rows(&ids, self.data.classes))
    }
}
