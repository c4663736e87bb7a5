//! Products of heads with vectors on the GPU.

use super::compile::{Defines, Source};
use super::elementwise::typed;
use super::launch::THREADS;
use super::shape::{Parts, RowShape};
use super::{Cuda, columns, source};
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::ops::head_dot::HeadDotKernels;

const OP: &str = "products by head";
pub(super) static SOURCE: Source = source!("head_dot");

impl HeadDotKernels for Cuda {
    fn head_dot(&self, z: &Matrix, [a, b]: [&Matrix; 2], [l, r]: [&mut Matrix; 2]) -> Result<()> {
        let (heads, width) = a.shape();
        let count = z.rows() * heads;
        let launch = self
            .kernel(OP, &SOURCE, Defines::of(z.dtype()), "head_dot")?
            .read("z", z)?
            .read("vectors", a)?
            .read("vectors", b)?
            .write("l", l)?
            .write("r", r)?
            .arg(count as i64)
            .arg(heads as i32)
            .arg(width as i32);
        // SAFETY: the arguments are those of the kernel, which stays inside the shapes that the operation checked.
        unsafe { launch.run_each(count) }
    }

    fn head_dot_backward(
        &self,
        z: &Matrix,
        [a, b]: [&Matrix; 2],
        [dl, dr]: [&Matrix; 2],
        (dz, write): (&mut Matrix, Write),
        [da, db]: [&mut Matrix; 2],
    ) -> Result<()> {
        let ((rows, cols), (heads, width), dtype) = (z.shape(), a.shape(), z.dtype());
        dl.expect(OP, "gradient", rows, heads)?;
        dr.expect(OP, "gradient", rows, heads)?;
        typed(OP, "dz", dz, dtype)?;
        let (parts, shape) = (Parts::of(rows), RowShape::new(rows, cols, dtype));
        let mut partial = parts.room(z.device(), OP, 2 * cols, dtype.compute())?;
        let launch = self
            .kernel(OP, &columns::SOURCE, shape.defines(dtype).with("SUMS", 0), "head_dot_backward")?
            .read("z", z)?
            .read("vectors", a)?
            .read("vectors", b)?
            .read("gradient", dl)?
            .read("gradient", dr)?
            .write("dz", dz)?
            .write("partial sums", &mut partial)?
            .arg(rows as i64)
            .arg(cols as i32)
            .arg(parts.rows as i64)
            .arg(heads as i32)
            .arg(width as i32)
            .arg(i32::from(write == Write::Add));
        // SAFETY: as above; a block has a row of partial sums.
        unsafe { launch.run([parts.count, 1], THREADS, 0) }?;
        self.add_parts(OP, &partial, 0, da)?;
        self.add_parts(OP, &partial, cols, db)
    }
}
