//! Numbers per node that rows of neighbours are multiplied with.

use graphweft_tensor::{DType, Device, Matrix, Result, Tag};

/// A column of factors.
pub(crate) struct Factors {
    narrow: Matrix,
    /// For computations in f64.
    wide: Matrix,
}

impl Factors {
    pub(crate) fn new(device: &Device, wide: &[f64]) -> Result<Self> {
        let narrow: Vec<f32> = wide.iter().map(|x| *x as f32).collect();
        Ok(Self {
            narrow: device.upload(narrow.len(), 1, &narrow, Tag::Graph)?,
            wide: device.upload(wide.len(), 1, wide, Tag::Graph)?,
        })
    }

    /// 1/√degree, and 0 where there is no edge: the factors of GCN's weights.
    pub(crate) fn inverse_roots(device: &Device, degrees: &[u32]) -> Result<Self> {
        Self::new(device, &degrees.iter().map(|degree| inverse_root(*degree)).collect::<Vec<_>>())
    }

    /// In the type in which rows of type `dtype` are computed.
    pub(crate) fn of(&self, dtype: DType) -> &Matrix {
        if dtype == DType::F64 { &self.wide } else { &self.narrow }
    }
}

/// 1/√degree, and 0 where there is no edge.
pub(crate) fn inverse_root(degree: u32) -> f64 {
    if degree > 0 { f64::from(degree).sqrt().recip() } else { 0.0 }
}
