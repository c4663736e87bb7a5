//! Rows of length one, on the GPU.

use super::compile::Source;
use super::elementwise::typed;
use super::launch::THREADS;
use super::shape::RowShape;
use super::{Cuda, source};
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::l2norm::{EPSILON, L2NormKernels};

const OP: &str = "l2 norm";
pub(super) static SOURCE: Source = source!("l2norm", ["numbers", "lanes", "row_shape"]);

impl L2NormKernels for Cuda {
    fn l2_norm(&self, x: &Matrix, y: &mut Matrix, norms: &mut Matrix) -> Result<()> {
        let ((rows, cols), dtype) = (x.shape(), x.dtype());
        typed(OP, "y", y, dtype)?;
        let shape = RowShape::new(rows, cols, dtype);
        let launch = self
            .kernel(OP, &SOURCE, shape.defines(dtype), "l2_norm")?
            .read("x", x)?
            .write("y", y)?
            .write("norms", norms)?
            .arg(rows as i64)
            .arg(cols as i32)
            .arg(EPSILON);
        // SAFETY: the arguments are those of the kernel, which stays inside the shapes.
        unsafe { launch.run(shape.grid(), THREADS, 0) }
    }

    fn l2_norm_backward(&self, y: &Matrix, norms: &Matrix, g: &mut Matrix) -> Result<()> {
        let ((rows, cols), dtype) = (g.shape(), g.dtype());
        y.expect(OP, "saved", rows, cols)?;
        typed(OP, "saved", y, dtype)?;
        let shape = RowShape::new(rows, cols, dtype);
        let launch = self
            .kernel(OP, &SOURCE, shape.defines(dtype), "l2_norm_backward")?
            .read("saved", y)?
            .read("norms", norms)?
            .write("gradient", g)?
            .arg(rows as i64)
            .arg(cols as i32)
            .arg(EPSILON);
        // SAFETY: as above.
        unsafe { launch.run(shape.grid(), THREADS, 0) }
    }
}
