//! Layer norm on the GPU, with the residual connection before it where there is one.

use super::compile::Source;
use super::elementwise::typed;
use super::launch::THREADS;
use super::shape::{Parts, RowShape};
use super::{Cuda, source};
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::norm::{BranchSum, NormGrads, NormKernels, NormNumbers, NormSaved, NormTarget};

const OP: &str = "layer norm";
pub(super) static SOURCE: Source = source!("norm", ["numbers", "lanes", "random", "row_shape"]);

impl Cuda {
    /// Normalises `x`; or, given branches, their sum, which is written too.
    pub(super) fn norm_forward(&self, x: &Matrix, norm: &NormNumbers<'_>, to: NormTarget<'_>) -> Result<()> {
        let NormTarget { sum: add, y, stats } = to;
        let ((rows, cols), dtype) = (x.shape(), x.dtype());
        y.expect(OP, "y", rows, cols)?;
        typed(OP, "y", y, dtype)?;
        let shape = RowShape::new(rows, cols, dtype);
        let (z, dropout, sum) = match add {
            Some(BranchSum { branches, to }) => (Some(branches.z), branches.dropout, Some(to)),
            None => (None, None, None),
        };
        if let Some(z) = z {
            typed(OP, "z", z, dtype)?;
        }
        let launch = self
            .kernel(OP, &SOURCE, shape.defines(dtype), "layer_norm")?
            .read("x", x)?
            .maybe_read("z", z)?
            .maybe_write("sum", sum)?
            .read("weight", norm.weight)?
            .read("bias", norm.bias)?
            .write("y", y)?
            .write("stats", stats)?
            .arg(rows as i64)
            .arg(cols as i32)
            .arg(norm.epsilon)
            .arg(self.row_dropout(dropout)?);
        // SAFETY: the arguments are those of the kernel, which stays inside the shapes.
        unsafe { launch.run(shape.grid(), THREADS, 0) }
    }
}

impl NormKernels for Cuda {
    fn layer_norm(&self, x: &Matrix, norm: &NormNumbers<'_>, y: &mut Matrix, stats: &mut Matrix) -> Result<()> {
        self.norm_forward(x, norm, NormTarget { sum: None, y, stats })
    }

    fn layer_norm_backward(&self, saved: &NormSaved<'_>, to: NormGrads<'_>) -> Result<()> {
        let NormGrads { g, plus, dropped, dw, db } = to;
        let ((rows, cols), dtype) = (g.shape(), g.dtype());
        saved.x.expect(OP, "saved", rows, cols)?;
        typed(OP, "saved", saved.x, dtype)?;
        if let Some(plus) = plus {
            plus.expect(OP, "gradient", rows, cols)?;
            typed(OP, "gradient", plus, dtype)?;
        }
        let (dropout, dropped) = dropped.map(|dropped| (dropped.dropout, dropped.to)).unzip();
        let (parts, shape) = (Parts::of(rows), RowShape::new(rows, cols, dtype));
        let mut partial = parts.room(g.device(), OP, 2 * cols, dtype.compute())?;
        let launch = self
            .kernel(OP, &SOURCE, shape.defines(dtype), "layer_norm_backward")?
            .read("saved", saved.x)?
            .read("stats", saved.stats)?
            .read("weight", saved.weight)?
            .write("gradient", g)?
            .maybe_read("gradient", plus)?
            .maybe_write("dropped gradient", dropped)?
            .write("partial sums", &mut partial)?
            .arg(rows as i64)
            .arg(cols as i32)
            .arg(parts.rows as i64)
            .arg(self.row_dropout(dropout)?);
        // SAFETY: as above; a block for each part.
        unsafe { launch.run([parts.count, 1], THREADS, 0) }?;
        self.add_parts(OP, &partial, 0, dw)?;
        self.add_parts(OP, &partial, cols, db)
    }
}
