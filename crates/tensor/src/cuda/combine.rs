//! Sums with coefficients and moved columns, on the GPU.

use super::Cuda;
use super::elementwise::typed;
use super::launch::THREADS;
use super::shape::RowShape;
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::combine::{CombineKernels, Patch};

const OP: &str = "combine";

impl CombineKernels for Cuda {
    fn combine(&self, a: f64, x: &Matrix, other: Option<(f64, &Matrix)>, to: &mut Matrix) -> Result<()> {
        self.combine_elements(OP, a, x, other, to)
    }

    fn scale(&self, a: f64, m: &mut Matrix) -> Result<()> {
        self.scale_elements(OP, a, m)
    }

    fn copy_patch(&self, from: &Matrix, to: &mut Matrix, patch: Patch, add: bool) -> Result<()> {
        patch.check(from, to)?;
        let (from_cols, to_cols, dtype) = (from.cols(), to.cols(), from.dtype());
        typed(OP, "target", to, dtype)?;
        let [rows, count] = patch.size;
        let first = |[row, col]: [usize; 2], cols: usize| row * cols + col;
        let shape = RowShape::strided(rows, count, dtype, &[from_cols, to_cols, patch.from[1], patch.to[1]]);
        let launch = self
            .rowwise(OP, "copy_patch", shape, dtype)?
            .read("source", from)?
            .write("target", to)?
            .arg(rows as i64)
            .arg(count as i32)
            .arg(from_cols as i32)
            .arg(first(patch.from, from_cols) as i64)
            .arg(to_cols as i32)
            .arg(first(patch.to, to_cols) as i64)
            .arg(i32::from(add));
        // SAFETY: the arguments are those of the kernel, which stays inside the patch that was checked.
        unsafe { launch.run(shape.grid(), THREADS, 0) }
    }
}
