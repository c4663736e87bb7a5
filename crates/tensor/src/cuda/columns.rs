//! Sums over rows on the GPU: of parts of so many rows, then of the parts in order.

use super::compile::Source;
use super::launch::THREADS;
use super::shape::{Parts, RowShape};
use super::{Cuda, source};
use crate::error::Result;
use crate::matrix::Matrix;

pub(super) static SOURCE: Source = source!("columns");

impl Cuda {
    /// `to = Σ x` over rows, of as many columns as `to` has, from `first` on.
    pub(super) fn column_sums(&self, op: &'static str, x: &Matrix, first: usize, to: &mut Matrix) -> Result<()> {
        let ((rows, width), cols, dtype) = (x.shape(), to.rows() * to.cols(), x.dtype());
        let (parts, shape) = (Parts::of(rows), RowShape::strided(rows, cols, dtype, &[width, first]));
        let mut partial = parts.room(x.device(), op, cols, dtype.compute())?;
        let launch = self
            .kernel(op, &SOURCE, shape.defines(dtype).with("SUMS", 0), "column_sums")?
            .read("rows", x)?
            .write("partial sums", &mut partial)?
            .arg(rows as i64)
            .arg(cols as i32)
            .arg(parts.rows as i64)
            .arg(width as i32)
            .arg(first as i32);
        // SAFETY: the arguments are those of the kernel; the columns are inside x, a block has a row of partial sums.
        unsafe { launch.run([parts.count, 1], THREADS, 0) }?;
        self.add_parts(op, &partial, 0, to)
    }
}
