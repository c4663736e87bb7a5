//! Rows of length one, on the GPU.

use super::compile::Source;
use super::elementwise::typed;
use super::launch::THREADS;
use super::{Cuda, source};
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::l2norm::{EPSILON, L2NormKernels};

const OP: &str = "l2 norm";
pub(super) static SOURCE: Source = source!("l2norm", ["numbers", "lanes", "row_shape"]);

impl L2NormKernels for Cuda {
    fn l2_norm(&self, x: &Matrix, y: &mut Matrix, norms: &mut Matrix) -> Result<()> {
        typed(OP, "y", y, x.dtype())?;
        let (launch, shape) = self.row_kernel(OP, &SOURCE, "l2_norm", x)?;
        let launch = launch.read("x", x)?.write("y", y)?.write("norms", norms)?.size(x).arg(EPSILON);
        // SAFETY: the arguments are those of the kernel, which stays inside the shapes.
        unsafe { launch.run(shape.grid(), THREADS, 0) }
    }

    fn l2_norm_backward(&self, y: &Matrix, norms: &Matrix, g: &mut Matrix) -> Result<()> {
        y.expect(OP, "saved", g.rows(), g.cols())?;
        typed(OP, "saved", y, g.dtype())?;
        let (launch, shape) = self.row_kernel(OP, &SOURCE, "l2_norm_backward", g)?;
        let launch = launch.read("saved", y)?.read("norms", norms)?.write("gradient", g)?.size(y).arg(EPSILON);
        // SAFETY: as above.
        unsafe { launch.run(shape.grid(), THREADS, 0) }
    }
}
