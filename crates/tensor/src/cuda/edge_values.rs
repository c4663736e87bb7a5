//! Rows of attention with tails for features of edges, on the GPU.

use super::compile::{Defines, Source};
use super::elementwise::typed;
use super::launch::{Launch, THREADS};
use super::shape::{Parts, WARP};
use super::{Cuda, source};
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::edge_values::EdgeValueKernels;

const OP: &str = "edge features";
/// Rows that a thread goes through together, as in the source.
const ROWS: usize = 8;
/// Sums that a thread has side by side, as in the source.
const FEW: usize = 4;
/// Bytes of rows that are near at a time, and how many rows at most.
const NEAR: (usize, usize) = (1 << 15, 32);
pub(super) static SOURCE: Source = source!("edge_values", ["numbers", "lanes"]);

/// The numbers of heads, of a head's columns, of those behind them, and of features.
fn shape<'a>(launch: Launch<'a>, narrow: usize, wide: usize, heads: usize, features: usize) -> Launch<'a> {
    let width = narrow / heads.max(1);
    let tail = wide / heads.max(1) - width;
    launch.arg(heads as i32).arg(width as i32).arg(tail as i32).arg(features as i32)
}

impl Cuda {
    /// From rows with tails to rows without, or the other way: of so many columns they are.
    fn change_tails(
        &self,
        kernel: &'static str,
        from: &Matrix,
        weight: &Matrix,
        to: &mut Matrix,
        heads: usize,
        [narrow, wide]: [usize; 2],
    ) -> Result<()> {
        typed(OP, "weight", weight, from.dtype().compute())?;
        typed(OP, kernel, to, from.dtype())?;
        let (rows, cols) = to.shape();
        let launch = self
            .kernel(OP, &SOURCE, Defines::of(from.dtype()), kernel)?
            .read("rows", from)?
            .read("weight", weight)?
            .write(kernel, to)?
            .arg(rows as i64);
        let launch = shape(launch, narrow, wide, heads, weight.cols());
        // SAFETY: the arguments are those of the kernel, which stays inside the shapes that the operation checked.
        unsafe { launch.run_each(rows.div_ceil(ROWS) * cols) }
    }
}

impl EdgeValueKernels for Cuda {
    fn widen(&self, x: &Matrix, weight: &Matrix, heads: usize, wide: &mut Matrix) -> Result<()> {
        let cols = [x.cols(), wide.cols()];
        self.change_tails("widen", x, weight, wide, heads, cols)
    }

    fn absorb(&self, wide: &Matrix, weight: &Matrix, heads: usize, x: &mut Matrix) -> Result<()> {
        let cols = [x.cols(), wide.cols()];
        self.change_tails("absorb", wide, weight, x, heads, cols)
    }

    fn tail_products(&self, x: &Matrix, wide: &Matrix, heads: usize, dw: &mut Matrix) -> Result<()> {
        typed(OP, "gradient", dw, x.dtype().compute())?;
        typed(OP, "widened rows", wide, x.dtype())?;
        let parts = Parts::of(x.rows());
        let mut partial = parts.room(x.device(), OP, dw.rows() * dw.cols(), dw.dtype())?;
        let launch = self
            .kernel(OP, &SOURCE, Defines::of(x.dtype()), "tail_products")?
            .read("rows", x)?
            .read("widened rows", wide)?
            .write("partial sums", &mut partial)?
            .arg(x.rows() as i64)
            .arg(parts.rows as i64);
        let (width, few) = (x.cols() / heads.max(1), dw.cols().div_ceil(FEW));
        let row = (width.next_multiple_of(FEW) + few * FEW) * dw.dtype().size();
        let staged = (NEAR.0 / row.max(1)).clamp(1, NEAR.1);
        let threads = (width * few).next_multiple_of(WARP).clamp(WARP, THREADS);
        let launch = shape(launch, x.cols(), wide.cols(), heads, dw.cols()).arg(staged as i32);
        // SAFETY: as above; a block has its head's part of a row of partial sums.
        unsafe { launch.run([parts.count, heads], threads, staged * row) }?;
        self.add_parts(OP, &partial, 0, dw)
    }
}
