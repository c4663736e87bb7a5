//! Dropout on the GPU.

use bytemuck::{Pod, Zeroable};

use super::compile::Source;
use super::elementwise::typed;
use super::launch::THREADS;
use super::{Cuda, place_mut, source};
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::dropout::{DropoutKernels, RowDropout};
use crate::random::{Dropout, Ids};

const OP: &str = "dropout";
pub(super) static SOURCE: Source = source!("dropout", ["numbers", "random", "row_shape"]);

/// A dropout as kernels take it.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(super) struct DropoutArg {
    key: [u32; 2],
    stream: u32,
    threshold: u32,
    scale: f32,
    first_head: u32,
    ids: u64,
    /// Where the key is, while a step is captured.
    keys: u64,
}

impl Cuda {
    /// Dropout of rows, or of nothing.
    pub(super) fn row_dropout(&self, d: Option<&RowDropout>) -> Result<DropoutArg> {
        match d {
            Some(d) => self.dropout_arg(&d.dropout, &d.ids),
            None => Ok(DropoutArg::zeroed()),
        }
    }

    /// Dropout keyed by these ids.
    pub(super) fn dropout_arg(&self, d: &Dropout, ids: &Ids) -> Result<DropoutArg> {
        let (key, stream, threshold, scale, first_head) = d.numbers();
        let keys = self.captured_key(d.origin())?;
        Ok(DropoutArg { key, stream, threshold, scale, first_head, ids: self.ids(ids)?, keys })
    }
}

impl DropoutKernels for Cuda {
    fn dropout(&self, d: &RowDropout, x: &Matrix, y: &mut Matrix) -> Result<()> {
        y.expect(OP, "y", x.rows(), x.cols())?;
        typed(OP, "y", y, x.dtype())?;
        let (launch, shape) = self.row_kernel(OP, &SOURCE, "dropout", x)?;
        let launch = launch.read("x", x)?.write("y", y)?.size(x).arg(self.row_dropout(Some(d))?);
        // SAFETY: the arguments are those of the kernel, which stays inside the shapes; so below.
        unsafe { launch.run(shape.grid(), THREADS, 0) }
    }

    fn dropout_in_place(&self, d: &RowDropout, m: &mut Matrix) -> Result<()> {
        let place = place_mut(self, OP, "matrix", m)?;
        let (launch, shape) = self.row_kernel(OP, &SOURCE, "dropout", m)?;
        let launch = launch.arg(place).arg(place).size(m).arg(self.row_dropout(Some(d))?);
        // SAFETY: as above.
        unsafe { launch.run(shape.grid(), THREADS, 0) }
    }
}
