//! Sums with coefficients and moved columns, on the GPU.

use super::Cuda;
use super::elementwise::typed;
use super::launch::THREADS;
use super::shape::RowShape;
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::ops::combine::{Columns, CombineKernels};

const OP: &str = "combine";

impl CombineKernels for Cuda {
    fn combine(&self, a: f64, x: &Matrix, other: Option<(f64, &Matrix)>, to: &mut Matrix) -> Result<()> {
        self.combine_elements(OP, a, x, other, to)
    }

    fn scale(&self, a: f64, m: &mut Matrix) -> Result<()> {
        self.scale_elements(OP, a, m)
    }

    fn copy_columns(&self, from: &Matrix, to: &mut Matrix, c: Columns, add: bool) -> Result<()> {
        let (rows, from_cols, to_cols, dtype) = (from.rows(), from.cols(), to.cols(), from.dtype());
        to.expect(OP, "target", rows, to_cols)?;
        typed(OP, "target", to, dtype)?;
        if c.from + c.count > from_cols || c.to + c.count > to_cols {
            return Err(Error::Argument { op: OP, problem: format!("{c:?} of {from_cols} and {to_cols}") });
        }
        let shape = RowShape::strided(rows, c.count, dtype, &[from_cols, to_cols, c.from, c.to]);
        let launch = self
            .rowwise(OP, "copy_columns", shape, dtype)?
            .read("source", from)?
            .write("target", to)?
            .arg(rows as i64)
            .arg(c.count as i32)
            .arg(from_cols as i32)
            .arg(c.from as i32)
            .arg(to_cols as i32)
            .arg(c.to as i32)
            .arg(i32::from(add));
        // SAFETY: the arguments are those of the kernel, which stays inside the columns that were checked.
        unsafe { launch.run(shape.grid(), THREADS, 0) }
    }
}
