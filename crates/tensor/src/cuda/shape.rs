//! How kernels cut their work: by the data alone.

use super::Cuda;
use super::compile::{Defines, Source};
use super::launch::{Launch, THREADS};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::Result;
use crate::ledger::Tag;
use crate::matrix::Matrix;

/// Bytes of the widest access.
const ACCESS: usize = 16;
/// Lanes of a warp.
pub(super) const WARP: usize = 32;

/// How a row is shared by neighbouring threads: each takes `vec` columns at a time, `turns` times.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowShape {
    rows: usize,
    vec: usize,
    lanes: usize,
    turns: usize,
}

impl RowShape {
    /// For rows of `cols` elements of this type.
    pub(super) fn new(rows: usize, cols: usize, dtype: DType) -> Self {
        Self::strided(rows, cols, dtype, &[])
    }

    /// The same for rows that lie apart: `strides` are all other distances between elements that are accessed at once.
    pub(super) fn strided(rows: usize, cols: usize, dtype: DType, strides: &[usize]) -> Self {
        let wide = ACCESS / dtype.size();
        let vec = if cols.is_multiple_of(wide) && strides.iter().all(|s| s.is_multiple_of(wide)) { wide } else { 1 };
        let chunks = cols.div_ceil(vec).max(1);
        let lanes = chunks.next_power_of_two().min(WARP);
        Self { rows, vec, lanes, turns: chunks.div_ceil(lanes) }
    }

    /// What the sources are specialised for.
    pub(super) fn defines(self, dtype: DType) -> Defines {
        Defines::of(dtype).with("VEC", self.vec).with("LANES", self.lanes).with("TURNS", self.turns)
    }

    /// Blocks that have all rows.
    pub(super) fn grid(self) -> [usize; 2] {
        [self.rows.div_ceil(THREADS / self.lanes), 1]
    }
}

impl Cuda {
    /// The kernel `name` for rows like those of `x`, and how these are shared.
    pub(super) fn row_kernel(
        &self,
        op: &'static str,
        source: &'static Source,
        name: &'static str,
        x: &Matrix,
    ) -> Result<(Launch<'_>, RowShape)> {
        let shape = RowShape::new(x.rows(), x.cols(), x.dtype());
        Ok((self.kernel(op, source, shape.defines(x.dtype()), name)?, shape))
    }
}

/// How sums over rows are cut: into parts of so many rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    /// How many.
    pub(super) count: usize,
    /// Rows of one.
    pub(super) rows: usize,
}

impl Parts {
    /// Enough to fill a large GPU, not so many that adding them up takes long.
    pub(super) fn of(rows: usize) -> Self {
        let per = rows.div_ceil(1024).max(64);
        Self { count: rows.div_ceil(per), rows: per }
    }

    /// Room for `width` sums of each part.
    pub(super) fn room(self, device: &Device, op: &'static str, width: usize, dtype: DType) -> Result<Matrix> {
        device.uninit(op, self.count, width, dtype, Tag::Workspace)
    }
}
