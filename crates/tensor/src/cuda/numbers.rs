//! What kernels over edges are told, as they take it: addresses of a known type, numbers of types.

use super::elementwise::typed;
use super::{Cuda, place, place_mut};
use crate::dtype::DType;
use crate::error::Result;
use crate::matrix::Matrix;

/// The number of a type, as `STORAGE` in numbers.cuh.
pub(super) fn number(dtype: DType) -> usize {
    match dtype {
        DType::F32 => 0,
        DType::F64 => 1,
        DType::Bf16 => 2,
    }
}

impl Cuda {
    /// Where the elements of a matrix are, which kernels only read.
    pub(super) fn address(&self, op: &'static str, what: &'static str, m: &Matrix, dtype: DType) -> Result<u64> {
        typed(op, what, m, dtype)?;
        place(self, op, what, m)
    }

    /// Where the elements of a matrix are, which kernels write.
    pub(super) fn address_mut(
        &self,
        op: &'static str,
        what: &'static str,
        m: &mut Matrix,
        dtype: DType,
    ) -> Result<u64> {
        typed(op, what, m, dtype)?;
        place_mut(self, op, what, m)
    }

    /// [`Cuda::address`], null where there is no matrix.
    pub(super) fn maybe_address(
        &self,
        op: &'static str,
        what: &'static str,
        m: Option<&Matrix>,
        dtype: DType,
    ) -> Result<u64> {
        m.map_or(Ok(0), |m| self.address(op, what, m, dtype))
    }
}
