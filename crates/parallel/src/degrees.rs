//! 1/√degree of nodes: the factors of GCN's weights.

use graphweft_tensor::{DType, Device, Matrix, Result, Tag};

/// 1/√degree, a column, and 0 where there is no edge.
pub(crate) struct InverseRoots {
    narrow: Matrix,
    /// For computations in f64.
    wide: Matrix,
}

impl InverseRoots {
    pub(crate) fn new(device: &Device, degrees: &[u32]) -> Result<Self> {
        let root = |degree: &u32| if *degree > 0 { f64::from(*degree).sqrt().recip() } else { 0.0 };
        let wide: Vec<f64> = degrees.iter().map(root).collect();
        let narrow: Vec<f32> = wide.iter().map(|x| *x as f32).collect();
        Ok(Self {
            narrow: device.upload(narrow.len(), 1, &narrow, Tag::Graph)?,
            wide: device.upload(wide.len(), 1, &wide, Tag::Graph)?,
        })
    }

    /// In the type in which rows of type `dtype` are computed.
    pub(crate) fn of(&self, dtype: DType) -> &Matrix {
        if dtype == DType::F64 { &self.wide } else { &self.narrow }
    }
}
