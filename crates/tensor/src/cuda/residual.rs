//! Residual connections on the GPU.

use super::compile::Source;
use super::elementwise::typed;
use super::launch::THREADS;
use super::shape::RowShape;
use super::{Cuda, source};
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::norm::{BranchSum, NormNumbers, NormTarget};
use crate::ops::residual::{Branches, NormedSum, ResidualKernels};

const OP: &str = "residual";
pub(super) static SOURCE: Source = source!("residual", ["numbers", "random", "row_shape"]);

impl ResidualKernels for Cuda {
    fn residual(&self, b: &Branches<'_>, sum: &mut Matrix) -> Result<()> {
        let ((rows, cols), dtype) = (b.x.shape(), b.x.dtype());
        typed(OP, "z", b.z, dtype)?;
        typed(OP, "sum", sum, dtype)?;
        let shape = RowShape::new(rows, cols, dtype);
        let launch = self
            .kernel(OP, &SOURCE, shape.defines(dtype), "residual")?
            .read("x", b.x)?
            .read("z", b.z)?
            .write("sum", sum)?
            .arg(rows as i64)
            .arg(cols as i32)
            .arg(self.row_dropout(b.dropout)?);
        // SAFETY: the arguments are those of the kernel, which stays inside the shapes.
        unsafe { launch.run(shape.grid(), THREADS, 0) }
    }

    fn residual_norm(&self, b: &Branches<'_>, norm: &NormNumbers<'_>, to: NormedSum<'_>) -> Result<()> {
        let NormedSum { sum, y, stats } = to;
        self.norm_forward(b.x, norm, NormTarget { sum: Some(BranchSum { branches: b, to: sum }), y, stats })
    }
}
