//! Batch norm on the GPU: sums over rows in f64.

use super::compile::{Defines, Source};
use super::elementwise::typed;
use super::launch::{Launch, THREADS};
use super::shape::{Parts, RowShape};
use super::{Cuda, source};
use crate::dtype::DType;
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::batch_norm::{BatchNormKernels, BatchNormSaved, Normaliser};
use crate::ops::norm::NormNumbers;

const OP: &str = "batch norm";
pub(super) static SOURCE: Source = source!("batch_norm", ["numbers", "row_shape", "sum_columns"]);
pub(super) static MOMENTS: Source = source!("moments", ["numbers", "lanes"]);

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
        self.add_parts_of(OP, &partial, 0, sums, 2 * cols)
    }

    /// A kernel over the moments of columns, which are few.
    fn over_columns(&self, name: &'static str, computed: DType) -> Result<Launch<'_>> {
        self.kernel(OP, &MOMENTS, Defines::of(computed), name)
    }
}

impl BatchNormKernels for Cuda {
    fn moment_sums(&self, x: &Matrix, shift: &Matrix, sums: &mut Matrix) -> Result<()> {
        let (rows, cols) = x.shape();
        sums.expect(OP, "sums", 1, 2 * cols + 1)?;
        self.two_sums("moment_sums", x, &[("shift", shift)], sums)?;
        let launch = self.over_columns("count_rows", DType::F64)?.write("sums", sums)?;
        // SAFETY: the arguments are those of the kernel; there is a number after the sums.
        unsafe { launch.arg(2 * cols as i64).arg(rows as f64).run([1, 1], 1, 0) }
    }

    fn settle_moments(&self, sums: &Matrix, shift: &Matrix, moments: &mut Matrix) -> Result<()> {
        let cols = moments.cols();
        sums.expect(OP, "sums", 1, 2 * cols + 1)?;
        shift.expect(OP, "shift", 1, cols)?;
        moments.expect(OP, "moments", 2, cols)?;
        let launch = self.over_columns("settle_moments", shift.dtype())?;
        let launch = launch.read("sums", sums)?.read("shift", shift)?.write("moments", moments)?.arg(cols as i32);
        // SAFETY: the arguments are those of the kernel, and the shapes were checked; so below.
        unsafe { launch.run_each(cols) }
    }

    fn follow_moments(&self, sums: &Matrix, moments: &Matrix, momentum: f64, running: &mut Matrix) -> Result<()> {
        let cols = running.cols();
        sums.expect(OP, "sums", 1, 2 * cols + 1)?;
        moments.expect(OP, "moments", 2, cols)?;
        running.expect(OP, "running moments", 2, cols)?;
        let launch = self.over_columns("follow_moments", DType::F64)?.read("sums", sums)?.read("moments", moments)?;
        let launch = launch.arg(momentum).write("running moments", running)?.arg(cols as i32);
        // SAFETY: as above.
        unsafe { launch.run_each(2 * cols) }
    }

    fn normaliser(&self, moments: &Matrix, epsilon: f64, mean: &mut Matrix, scale: &mut Matrix) -> Result<()> {
        let (cols, computed) = (mean.cols(), mean.dtype());
        moments.expect(OP, "moments", 2, cols)?;
        scale.expect(OP, "scale", 1, cols)?;
        typed(OP, "scale", scale, computed)?;
        let launch = self.over_columns("normaliser", computed)?.read("moments", moments)?.arg(epsilon);
        let launch = launch.write("mean", mean)?.write("scale", scale)?.arg(cols as i32);
        // SAFETY: as above.
        unsafe { launch.run_each(cols) }
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

    fn batch_norm_shares(&self, sums: &Matrix, first: usize, counted: Option<&Matrix>, to: &mut Matrix) -> Result<()> {
        let (count, last) = (to.cols(), counted.map_or(0, |m| m.cols().saturating_sub(1)));
        sums.expect_part(OP, first, count)?;
        to.expect(OP, "shares", 1, count)?;
        let launch = self.over_columns("shares", to.dtype())?.read("sums", sums)?.arg(first as i64);
        let launch = launch.maybe_read("sums", counted)?.arg(last as i64).write("shares", to)?.arg(count as i32);
        // SAFETY: the arguments are those of the kernel; there are so many sums, and a number of rows at the end.
        unsafe { launch.run_each(count) }
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
