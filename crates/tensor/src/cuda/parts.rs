//! Partial sums, added up in order.

use super::compile::{Defines, Source};
use super::{Cuda, source};
use crate::error::Result;
use crate::matrix::Matrix;

pub(super) static SOURCE: Source = source!("parts", ["numbers"]);

impl Cuda {
    /// `to = Σ` over the rows of `partial`, of as many columns as `to` has, from `first` on.
    pub(super) fn add_parts(&self, op: &'static str, partial: &Matrix, first: usize, to: &mut Matrix) -> Result<()> {
        let count = to.rows() * to.cols();
        self.add_parts_of(op, partial, first, to, count)
    }

    /// The same for the first `count` elements of `to`, which may have more.
    pub(super) fn add_parts_of(
        &self,
        op: &'static str,
        partial: &Matrix,
        first: usize,
        to: &mut Matrix,
        count: usize,
    ) -> Result<()> {
        to.expect_part(op, 0, count)?;
        let launch = self
            .kernel(op, &SOURCE, Defines::of(to.dtype()), "add_parts")?
            .read("partial sums", partial)?
            .arg(partial.rows() as i32)
            .arg(partial.cols() as i32)
            .arg(first as i32)
            .arg(count as i32)
            .write("sums", to)?;
        // SAFETY: the arguments are those of the kernel, which stays inside both shapes.
        unsafe { launch.run([count.div_ceil(32), 1], 32 * 32, 0) }
    }
}
