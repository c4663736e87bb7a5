//! Batch norm on the GPU: sums over rows in f64.

use super::compile::{Defines, Source};
use super::elementwise::typed;
use super::launch::THREADS;
use super::shape::{Parts, RowShape};
use super::{Cuda, source};
use crate::dtype::DType;
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::batch_norm::{BatchNormKernels, BatchNormSaved, Normaliser};
use crate::ops::norm::NormNumbers;

const OP: &str = "batch norm";
pub(super) static SOURCE: Source = source!("batch_norm", ["numbers", "row_shape", "sum_columns"]);

/// Sums are of f64.
fn defines(shape: RowShape, dtype: DType) -> Defines {
    shape.defines(dtype).with("SUMS", 1)
}

impl Cuda {
    /// Two sums over the rows of `x` for each column, by a kernel that reads `beside` too.
    fn two_sums(
        &self,
        name: &'static str,
        x: &Matrix,
        beside: &[(&'static str, &Matrix)],
        sums: &mut Matrix,
    ) -> Result<()> {
        let ((rows, cols), dtype) = (x.shape(), x.dtype());
        let (parts, shape) = (Parts::of(rows), RowShape::new(rows, cols, dtype));
        let mut partial = parts.room(x.device(), OP, 2 * cols, DType::F64)?;
        let mut launch = self.kernel(OP, &SOURCE, defines(shape, dtype), name)?.read("x", x)?;
        for (what, m) in beside {
            launch = launch.read(what, m)?;
        }
        let launch = launch.write("partial sums", &mut partial)?;
        let launch = launch.arg(rows as i64).arg(cols as i32).arg(parts.rows as i64);
        // SAFETY: the arguments are those of the kernel; a block has a row of partial sums.
        unsafe { launch.run([parts.count, 1], THREADS, 0) }?;
        self.add_parts(OP, &partial, 0, sums)
    }
}

impl BatchNormKernels for Cuda {
    fn moment_sums(&self, x: &Matrix, shift: &Matrix, sums: &mut Matrix) -> Result<()> {
        self.two_sums("moment_sums", x, &[("shift", shift)], sums)
    }

    fn normalise(&self, x: &Matrix, by: &Normaliser<'_>, norm: &NormNumbers<'_>, y: &mut Matrix) -> Result<()> {
        let ((rows, cols), dtype) = (x.shape(), x.dtype());
        typed(OP, "y", y, dtype)?;
        let shape = RowShape::new(rows, cols, dtype);
        let launch = self
            .kernel(OP, &SOURCE, defines(shape, dtype), "normalise")?
            .read("x", x)?
            .read("mean", by.mean)?
            .read("scale", by.scale)?
            .read("weight", norm.weight)?
            .read("bias", norm.bias)?
            .write("y", y)?
            .arg(rows as i64)
            .arg(cols as i32);
        // SAFETY: the arguments are those of the kernel, which stays inside the shapes.
        unsafe { launch.run(shape.grid(), THREADS, 0) }
    }

    fn batch_norm_sums(&self, x: &Matrix, by: &Normaliser<'_>, dy: &Matrix, sums: &mut Matrix) -> Result<()> {
        let ((rows, cols), dtype) = (x.shape(), x.dtype());
        dy.expect(OP, "dy", rows, cols)?;
        typed(OP, "dy", dy, dtype)?;
        self.two_sums("batch_norm_sums", x, &[("mean", by.mean), ("scale", by.scale), ("dy", dy)], sums)
    }

    fn batch_norm_dx(&self, saved: &BatchNormSaved<'_>, g: &mut Matrix, plus: Option<&Matrix>) -> Result<()> {
        let BatchNormSaved { x, by, weight, means } = *saved;
        let ((rows, cols), dtype) = (g.shape(), g.dtype());
        x.expect(OP, "x", rows, cols)?;
        typed(OP, "x", x, dtype)?;
        if let Some(plus) = plus {
            typed(OP, "gradient", plus, dtype)?;
        }
        let shape = RowShape::new(rows, cols, dtype);
        let launch = self
            .kernel(OP, &SOURCE, defines(shape, dtype), "batch_norm_dx")?
            .read("x", x)?
            .read("mean", by.mean)?
            .read("scale", by.scale)?
            .read("weight", weight)?
            .read("means", means)?
            .write("gradient", g)?
            .maybe_read("gradient", plus)?
            .arg(rows as i64)
            .arg(cols as i32);
        // SAFETY: as above.
        unsafe { launch.run(shape.grid(), THREADS, 0) }
    }
}
