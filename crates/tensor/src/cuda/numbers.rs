//! What kernels are told, as they take it: addresses, numbers of types, dropouts.

use bytemuck::{Pod, Zeroable};
use cudarc::driver::{DevicePtr, DevicePtrMut};

use super::{Cuda, slice, slice_mut};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::random::Dropout;

/// The number of a type, as `STORAGE` in common.cuh.
pub(super) fn number(dtype: DType) -> usize {
    match dtype {
        DType::F32 => 0,
        DType::F64 => 1,
        DType::Bf16 => 2,
    }
}

/// `Dropout` of common.cuh.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(super) struct DropoutNumbers {
    key: [u32; 2],
    stream: u32,
    threshold: u32,
    scale: f32,
    unused: u32,
    ids: u64,
}

impl DropoutNumbers {
    /// Without ids of rows.
    pub(super) fn of(dropout: &Dropout) -> Self {
        let (key, stream, threshold, scale) = dropout.numbers();
        Self { key, stream, threshold, scale, unused: 0, ids: 0 }
    }

    /// With ids of rows, or null.
    pub(super) fn of_rows(dropout: &Dropout, ids: u64) -> Self {
        Self { ids, ..Self::of(dropout) }
    }
}

impl Cuda {
    /// Where the elements of a matrix are, which kernels only read.
    pub(super) fn address(&self, op: &'static str, what: &'static str, m: &Matrix, dtype: DType) -> Result<u64> {
        expect_type(op, what, m, dtype)?;
        Ok(slice(op, what, m)?.device_ptr(&self.stream).0)
    }

    /// Where the elements of a matrix are, which kernels write.
    pub(super) fn address_mut(
        &self,
        op: &'static str,
        what: &'static str,
        m: &mut Matrix,
        dtype: DType,
    ) -> Result<u64> {
        expect_type(op, what, m, dtype)?;
        Ok(slice_mut(op, what, m)?.device_ptr_mut(&self.stream).0)
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

fn expect_type(op: &'static str, what: &'static str, m: &Matrix, dtype: DType) -> Result<()> {
    if m.dtype() == dtype { Ok(()) } else { Err(Error::Type { op, what, got: m.dtype() }) }
}
