//! What pieces and rows come to: sums in a fixed order.

use bytemuck::{Pod, Zeroable};

use super::compile::{Defines, Source};
use super::graph::Resident;
use super::launch::THREADS;
use super::numbers::number;
use super::{Cuda, source};
use crate::dtype::DType;
use crate::error::Result;
use crate::ledger::Tag;
use crate::matrix::Matrix;

pub(super) static PIECES: Source = source!("sums", ["numbers", "random", "edges"]);
pub(super) static ROWS: Source = source!("sum_rows", ["numbers"]);
/// Columns of a warp's sums of pieces, as in the source.
const PIECE_COLUMNS: usize = 128;
/// Rows and columns of a block's sums of rows, as in the source.
const BLOCK_ROWS: usize = 256;
const BLOCK_COLUMNS: usize = 32;

/// Columns of pieces that belong to the rows of one matrix.
#[derive(Clone, Copy)]
pub(super) struct Part {
    /// The matrix, on the GPU.
    pub(super) to: u64,
    pub(super) width: usize,
    pub(super) dtype: DType,
}

impl Part {
    pub(super) const NONE: Self = Self { to: 0, width: 0, dtype: DType::F32 };
}

/// What the pieces of rows came to.
pub(super) struct Pieces<'a> {
    /// A row per piece, of a multiple of 8 columns.
    pub(super) of: &'a Matrix,
    /// A factor per row of the graph, or null.
    pub(super) factors: u64,
    /// The columns, in order.
    pub(super) parts: [Part; 2],
    /// Whether sums are added to the first part's matrix.
    pub(super) add: bool,
}

/// As in sums.cu.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Sums {
    merges: u64,
    pieces: u64,
    factors: u64,
    a: u64,
    b: u64,
    count: u32,
    size: u32,
    a_width: u32,
    b_width: u32,
    add: u32,
    unused: u32,
}

impl Cuda {
    /// Writes the rows of a graph that were cut into pieces.
    pub(super) fn sum_pieces(&self, op: &'static str, graph: &Resident, pieces: &Pieces<'_>) -> Result<()> {
        let [a, b] = pieces.parts;
        let (size, dtype) = (pieces.of.cols(), pieces.of.dtype());
        for (merges, count) in graph.merges(self) {
            let sums = Sums {
                merges,
                pieces: self.address(op, "pieces", pieces.of, dtype)?,
                factors: pieces.factors,
                a: a.to,
                b: b.to,
                count: count as u32,
                size: size as u32,
                a_width: a.width as u32,
                b_width: b.width as u32,
                add: pieces.add.into(),
                unused: 0,
            };
            let defines = Defines::of(dtype)
                .with("A_TYPE", number(a.dtype))
                .with("B_TYPE", number(b.dtype))
                .with("THREADS", THREADS);
            let launch = self.kernel(op, &PIECES, defines, "sum_pieces")?.arg(sums);
            let grid = [count.div_ceil(THREADS / 32), size.div_ceil(PIECE_COLUMNS)];
            // SAFETY: the argument is the kernel's; merges name pieces and rows of this graph, for which there is
            // memory.
            unsafe { launch.run(grid, THREADS, 0)? };
        }
        Ok(())
    }

    /// Overwrites `to`, which has as many elements as `from` has columns, with the sums of the columns of `from`.
    pub(super) fn add_up_rows(&self, op: &'static str, from: &Matrix, to: &mut Matrix) -> Result<()> {
        let (compute, columns) = (from.dtype().compute(), from.cols());
        let target = self.address_mut(op, "sum", to, compute)?;
        let mut rows = from.rows();
        let mut at = self.address(op, "matrix", from, from.dtype())?;
        let mut stored = from.dtype();
        // What the sums are made of stays until they are complete.
        let mut steps = Vec::new();
        loop {
            let blocks = rows.div_ceil(BLOCK_ROWS).max(1);
            let next = match blocks {
                1 => target,
                _ => {
                    let mut step = from.device().uninit(op, blocks, columns, compute, Tag::Workspace)?;
                    let next = self.address_mut(op, "partial", &mut step, compute)?;
                    steps.push(step);
                    next
                }
            };
            let defines = Defines::of(stored);
            let launch = self.kernel(op, &ROWS, defines, "sum_rows")?;
            let launch = launch.arg(at).arg(next).arg(rows as u64).arg(columns as u64);
            // SAFETY: the arguments are the kernel's, and there is a row of `next` for every block of rows.
            unsafe { launch.run([blocks, columns.div_ceil(BLOCK_COLUMNS)], BLOCK_ROWS, 0)? };
            if blocks == 1 {
                return Ok(());
            }
            (rows, at, stored) = (blocks, next, compute);
        }
    }
}
