//! What kernels over rows that have nothing to do with each other share: one source, specialised for the shape of a row.

use super::compile::Source;
use super::elementwise::numbered;
use super::launch::{Launch, THREADS};
use super::shape::RowShape;
use super::{Cuda, place_mut, source};
use crate::dtype::DType;
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::activation::Activation;

pub(super) static SOURCE: Source = source!("rowwise");

impl Cuda {
    /// A kernel over rows of this shape.
    pub(super) fn rowwise(
        &self,
        op: &'static str,
        name: &'static str,
        shape: RowShape,
        dtype: DType,
    ) -> Result<Launch<'_>> {
        self.kernel(op, &SOURCE, shape.defines(dtype).with("WIDE", 0), name)
    }

    /// The end of a product in columns `first..first + cols` of `y`: what is there (or in `pre`), plus a bias, goes to `pre`, its
    /// activation to `y`.
    pub(super) fn finish_product(
        &self,
        op: &'static str,
        bias: Option<&Matrix>,
        activation: Activation,
        (first, cols): (usize, usize),
        y: &mut Matrix,
        pre: Option<&mut Matrix>,
    ) -> Result<()> {
        let ((rows, width), dtype) = (y.shape(), y.dtype());
        let shape = RowShape::strided(rows, cols, dtype, &[width, first]);
        let (number, slope) = numbered(activation);
        let place = place_mut(self, op, "y", y)?;
        let pre = pre.map(|m| place_mut(self, op, "pre", m)).transpose()?;
        let launch = self
            .rowwise(op, "finish", shape, dtype)?
            .arg(pre.unwrap_or(place))
            .maybe_read("bias", bias)?
            .arg(place)
            // Without a bias it is what it will be.
            .arg(pre.filter(|_| bias.is_some()).unwrap_or(0))
            .arg(rows as i64)
            .arg(cols as i32)
            .arg(width as i32)
            .arg(first as i32)
            .arg(number)
            .arg(slope);
        // SAFETY: the arguments are those of the kernel; columns are inside y, and pre is as large.
        unsafe { launch.run(shape.grid(), THREADS, 0) }
    }
}
