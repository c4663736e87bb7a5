//! The graph that a model works on: the data's, with the edges that the model adds to it.

use graphweft_graph::Csr;
use graphweft_tensor::{DType, Device, Matrix, Result, Tag};

/// A graph with the features of its edges.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The structure.
    pub csr: Csr<u32>,
    /// Features per edge.
    pub width: usize,
    /// A row per edge.
    values: Vec<f32>,
}

impl Prepared {
    /// A graph as it is.
    pub fn plain(csr: Csr<u32>) -> Self {
        Self { csr, width: 0, values: Vec::new() }
    }

    /// The features of the edges, a row each, if there are any: in f32, or f64 for tests.
    pub fn features(&self, device: &Device, dtype: DType) -> Result<Option<Matrix>> {
        if self.width == 0 {
            return Ok(None);
        }
        let rows = device.upload(self.csr.num_edges(), self.width, &self.values, Tag::Graph)?;
        match dtype {
            DType::F64 => device.convert("edge features", &rows, dtype).map(Some),
            _ => Ok(Some(rows)),
        }
    }
}
