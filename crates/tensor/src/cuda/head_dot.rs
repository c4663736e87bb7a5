//! Products of heads with vectors on the GPU.

use super::compile::Source;
use super::elementwise::typed;
use super::launch::THREADS;
use super::shape::{Parts, RowShape};
use super::{Cuda, source};
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::ops::head_dot::{HeadDot, HeadDotKernels};

const OP: &str = "products by head";
pub(super) static SOURCE: Source = source!("head_dot", ["numbers", "lanes", "row_shape", "sum_columns"]);

/// One thing of a kind, or two.
fn one_or_two<X>(things: impl IntoIterator<Item = X>) -> Result<(X, Option<X>)> {
    let mut things = things.into_iter();
    match (things.next(), things.next(), things.next()) {
        (Some(first), second, None) => Ok((first, second)),
        _ => Err(Error::Argument { op: OP, problem: "there is one vector, or there are two".into() }),
    }
}

impl HeadDotKernels for Cuda {
    fn head_dot(&self, z: &Matrix, vectors: &[&Matrix], to: &mut [&mut Matrix]) -> Result<()> {
        let ((a, b), (l, r)) = (one_or_two(vectors)?, one_or_two(to)?);
        let (heads, width) = a.shape();
        let count = z.rows() * heads;
        let launch = self
            .kernel(OP, &SOURCE, RowShape::new(z.rows(), z.cols(), z.dtype()).defines(z.dtype()), "head_dot")?
            .read("z", z)?
            .read("vectors", a)?
            .maybe_read("vectors", b.copied())?
            .write("l", l)?
            .maybe_write("r", r.map(|r| &mut **r))?
            .arg(count as i64)
            .arg(heads as i32)
            .arg(width as i32);
        // SAFETY: the arguments are those of the kernel, which stays inside the shapes that the operation checked.
        unsafe { launch.run_each(count) }
    }

    fn head_dot_backward(&self, a: &HeadDot<'_>, dz: &mut Matrix, write: Write, to: &mut [&mut Matrix]) -> Result<()> {
        let HeadDot { z, vectors, g } = *a;
        let ((a, b), (dl, dr)) = (one_or_two(vectors)?, one_or_two(g)?);
        let ((rows, cols), (heads, width), dtype) = (z.shape(), a.shape(), z.dtype());
        for g in g {
            g.expect(OP, "gradient", rows, heads)?;
        }
        typed(OP, "dz", dz, dtype)?;
        let (parts, shape) = (Parts::of(rows), RowShape::new(rows, cols, dtype));
        let mut partial = parts.room(z.device(), OP, 2 * cols, dtype.compute())?;
        let launch = self
            .kernel(OP, &SOURCE, shape.defines(dtype), "head_dot_backward")?
            .read("z", z)?
            .read("vectors", a)?
            .maybe_read("vectors", b.copied())?
            .read("gradient", dl)?
            .maybe_read("gradient", dr.copied())?
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
        to.iter_mut().enumerate().try_for_each(|(k, to)| self.add_parts(OP, &partial, k * cols, to))
    }
}
