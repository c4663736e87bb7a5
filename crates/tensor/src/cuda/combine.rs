//! Sums with coefficients and moved columns, on the GPU.

use super::compile::{Defines, Source};
use super::elementwise::{over, typed};
use super::launch::THREADS;
use super::shape::RowShape;
use super::{Cuda, place_mut, source};
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::ops::combine::{CombineKernels, Patch, Term};

const OP: &str = "combine";
pub(super) static SOURCE: Source = source!("combine", ["numbers", "lanes", "elementwise"]);
pub(super) static PATCH: Source = source!("copy_patch", ["numbers", "row_shape"]);

impl Cuda {
    /// `to += x`.
    pub(super) fn add_elements(&self, to: &mut Matrix, x: &Matrix) -> Result<()> {
        const OP: &str = "add";
        x.expect(OP, "addend", to.rows(), to.cols())?;
        typed(OP, "addend", x, to.dtype())?;
        let place = place_mut(self, OP, "sum", to)?;
        let launch = self
            .kernel(OP, &SOURCE, Defines::of(x.dtype()), "combine")?
            .arg(1.0f64)
            .read("addend", x)?
            .arg(1.0f64)
            .arg(place)
            .arg(place);
        // SAFETY: the arguments are those of the kernel; all matrices have so many elements.
        unsafe { over(launch, x) }
    }

    /// `to = a·x`, plus b·y where that is given.
    pub(super) fn combine_elements(
        &self,
        op: &'static str,
        a: f64,
        x: &Matrix,
        other: Option<Term<'_>>,
        to: &mut Matrix,
    ) -> Result<()> {
        x.expect(op, "x", to.rows(), to.cols())?;
        typed(op, "result", to, x.dtype())?;
        if let Some(Term { y, .. }) = other {
            y.expect(op, "y", to.rows(), to.cols())?;
            typed(op, "y", y, x.dtype())?;
        }
        let launch = self
            .kernel(op, &SOURCE, Defines::of(x.dtype()), "combine")?
            .arg(a)
            .read("x", x)?
            .arg(other.map_or(0.0, |term| term.b))
            .maybe_read("y", other.map(|term| term.y))?
            .write("result", to)?;
        // SAFETY: the arguments are those of the kernel; all matrices have so many elements.
        unsafe { over(launch, x) }
    }

    /// `m = a·m`.
    pub(super) fn scale_elements(&self, op: &'static str, a: f64, m: &mut Matrix) -> Result<()> {
        let place = place_mut(self, op, "matrix", m)?;
        let launch = self
            .kernel(op, &SOURCE, Defines::of(m.dtype()), "combine")?
            .arg(a)
            .arg(place)
            .arg(0.0f64)
            .arg(0u64)
            .arg(place);
        // SAFETY: the arguments are those of the kernel; all matrices have so many elements.
        unsafe { over(launch, m) }
    }
}

impl CombineKernels for Cuda {
    fn combine(&self, a: f64, x: &Matrix, other: Option<Term<'_>>, to: &mut Matrix) -> Result<()> {
        self.combine_elements(OP, a, x, other, to)
    }

    fn scale(&self, a: f64, m: &mut Matrix) -> Result<()> {
        self.scale_elements(OP, a, m)
    }

    fn copy_patch(&self, from: &Matrix, to: &mut Matrix, patch: Patch, write: Write) -> Result<()> {
        patch.check(from, to)?;
        let (from_cols, to_cols, dtype) = (from.cols(), to.cols(), from.dtype());
        typed(OP, "target", to, dtype)?;
        let [rows, count] = patch.size;
        let first = |[row, col]: [usize; 2], cols: usize| row * cols + col;
        let shape = RowShape::strided(rows, count, dtype, &[from_cols, to_cols, patch.from[1], patch.to[1]]);
        let launch = self
            .kernel(OP, &PATCH, shape.defines(dtype), "copy_patch")?
            .read("source", from)?
            .write("target", to)?
            .arg(rows as i64)
            .arg(count as i32)
            .arg(from_cols as i32)
            .arg(first(patch.from, from_cols) as i64)
            .arg(to_cols as i32)
            .arg(first(patch.to, to_cols) as i64)
            .arg(i32::from(write == Write::Add));
        // SAFETY: the arguments are those of the kernel, which stays inside the patch that was checked.
        unsafe { launch.run(shape.grid(), THREADS, 0) }
    }
}
