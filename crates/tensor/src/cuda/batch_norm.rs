//! Batch norm on the GPU: sums over rows in f64.

use super::elementwise::typed;
use super::launch::THREADS;
use super::shape::{Parts, RowShape};
use super::{Cuda, columns};
use crate::dtype::DType;
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::batch_norm::{BatchNormKernels, Normaliser};
use crate::ops::norm::NormNumbers;

const OP: &str = "batch norm";

impl BatchNormKernels for Cuda {
    fn moment_sums(&self, x: &Matrix, shift: &Matrix, sums: &mut Matrix) -> Result<()> {
        let ((rows, cols), dtype) = (x.shape(), x.dtype());
        let (parts, shape) = (Parts::of(rows), RowShape::new(rows, cols, dtype));
        let mut partial = parts.room(x.device(), OP, 2 * cols, DType::F64)?;
        let launch = self
            .kernel(OP, &columns::SOURCE, shape.defines(dtype).with("SUMS", 1), "moment_sums")?
            .read("x", x)?
            .read("shift", shift)?
            .write("partial sums", &mut partial)?
            .arg(rows as i64)
            .arg(cols as i32)
            .arg(parts.rows as i64);
        // SAFETY: the arguments are those of the kernel; a block has a row of partial sums.
        unsafe { launch.run([parts.count, 1], THREADS, 0) }?;
        self.add_parts(OP, &partial, 0, sums)
    }

    fn normalise(&self, x: &Matrix, by: &Normaliser<'_>, norm: &NormNumbers<'_>, y: &mut Matrix) -> Result<()> {
        let ((rows, cols), dtype) = (x.shape(), x.dtype());
        typed(OP, "y", y, dtype)?;
        let shape = RowShape::new(rows, cols, dtype);
        let launch = self
            .rowwise(OP, "normalise", shape, dtype)?
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
        let (parts, shape) = (Parts::of(rows), RowShape::new(rows, cols, dtype));
        let mut partial = parts.room(x.device(), OP, 2 * cols, DType::F64)?;
        let launch = self
            .kernel(OP, &columns::SOURCE, shape.defines(dtype).with("SUMS", 1), "batch_norm_sums")?
            .read("x", x)?
            .read("mean", by.mean)?
            .read("scale", by.scale)?
            .read("dy", dy)?
            .write("partial sums", &mut partial)?
            .arg(rows as i64)
            .arg(cols as i32)
            .arg(parts.rows as i64);
        // SAFETY: as for the moments.
        unsafe { launch.run([parts.count, 1], THREADS, 0) }?;
        self.add_parts(OP, &partial, 0, sums)
    }

    fn batch_norm_dx(
        &self,
        x: &Matrix,
        by: &Normaliser<'_>,
        weight: &Matrix,
        means: &Matrix,
        g: &mut Matrix,
        plus: Option<&Matrix>,
    ) -> Result<()> {
        let ((rows, cols), dtype) = (g.shape(), g.dtype());
        x.expect(OP, "x", rows, cols)?;
        typed(OP, "x", x, dtype)?;
        if let Some(plus) = plus {
            typed(OP, "gradient", plus, dtype)?;
        }
        let shape = RowShape::new(rows, cols, dtype);
        let launch = self
            .rowwise(OP, "batch_norm_dx", shape, dtype)?
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
