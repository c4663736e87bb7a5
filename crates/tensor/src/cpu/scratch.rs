//! Memory that a kernel takes for the time of one call: what pieces of hubs, tasks, blocks and chunks of rows come to
//! before it is added up.
//!
//! How much it is depends on the operands and the processor only. It is all here because a [rehearsal](crate::dry),
//! which runs no kernel, takes as much.

use super::neighbours::FOUR;
use super::rowwise::Blocks;
use super::simd::Version;
use super::{Cpu, bag, gemm, global, spmm};
use crate::adjacency::Direction;
use crate::dry::Pass;
use crate::dtype::DType;
use crate::error::Result;
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::ops::attention::{Attention, Score};
use crate::ops::global::GlobalRows;

/// Sums over rows have at most this many chunks, however many rows there are.
const MOST_CHUNKS: usize = 64;

/// Rows of a chunk, a multiple of the `step` in which a kernel goes through it.
fn chunk(rows: usize, step: usize) -> usize {
    rows.div_ceil(MOST_CHUNKS).next_multiple_of(step).max(8 * step)
}

/// For each block of the rows of `like`, `cols` sums.
fn of_blocks(op: &'static str, like: &Matrix, cols: usize, dtype: DType) -> Result<Matrix> {
    let blocks = Blocks::few(like.rows(), like.cols()).count();
    like.device().zeros(op, blocks, cols, dtype, Tag::Workspace)
}

/// For each chunk of rows, the gradients of weights and bias; also gives the rows of a chunk.
pub(crate) fn linear_dw(dw: &Matrix, rows: usize) -> Result<(usize, Matrix)> {
    let ((out, k), per) = (dw.shape(), chunk(rows, gemm::STEP));
    let sums = dw.device().zeros("linear", rows.div_ceil(per), out * k + out, dw.dtype(), Tag::Workspace)?;
    Ok((per, sums))
}

/// For each chunk of rows, its S ‖ z; also gives the rows of a chunk.
pub(crate) fn global_sums(a: &GlobalRows<'_>) -> Result<(usize, Matrix)> {
    let ((rows, cols), n, per) = (a.sums_shape(), a.q.rows(), chunk(a.q.rows(), global::BLOCK));
    let dtype = a.q.dtype().compute();
    let sums = a.q.device().zeros("global attention", n.div_ceil(per), rows * cols, dtype, Tag::Workspace)?;
    Ok((per, sums))
}

/// For each block of the rows of z, the gradients of `count` vectors.
pub(crate) fn head_dot_backward(z: &Matrix, count: usize) -> Result<Matrix> {
    of_blocks("products by head", z, count * z.cols(), z.dtype().compute())
}

/// For each block of the rows of `x`, the products with what stands behind them.
pub(crate) fn tail_products(x: &Matrix, dw: &Matrix) -> Result<Matrix> {
    of_blocks("edge features", x, dw.rows() * dw.cols(), dw.dtype())
}

/// For each block of the rows of `g`, a table like `da`.
pub(crate) fn tables(g: &Matrix, da: &Matrix) -> Result<Matrix> {
    of_blocks("sums by relation", g, da.rows() * da.cols(), da.dtype())
}

/// For each block of the rows of `g`, the gradients of weight and bias.
pub(crate) fn layer_norm_backward(g: &Matrix) -> Result<Matrix> {
    of_blocks("layer norm", g, 2 * g.cols(), g.dtype().compute())
}

/// For each block of the rows of `g`, the gradient of the bias if that is wanted.
pub(crate) fn epilogue_backward(g: &Matrix, db: Option<&Matrix>) -> Result<Matrix> {
    of_blocks("epilogue", g, db.map_or(0, |_| g.cols()), g.dtype().compute())
}

/// For each block of the rows of `x`, two sums per column.
pub(crate) fn batch_norm(x: &Matrix) -> Result<Matrix> {
    of_blocks("batch norm", x, 2 * x.cols(), DType::F64)
}

/// For each so many rows, their sum.
pub(crate) fn sum_rows(from: &Matrix) -> Result<Matrix> {
    let parts = from.rows().div_ceil(bag::ROWS);
    from.device().zeros("bag", parts, from.cols(), from.dtype().compute(), Tag::Workspace)
}

/// For each piece of a hub, what a pass of attention collects.
pub(super) fn attention_pieces(a: &Attention<'_>, pass: Pass) -> Result<Matrix> {
    let (heads, d) = (a.heads, a.output().0);
    let (values, gradient) = match a.score {
        Score::Dot { .. } | Score::Gatv2 { .. } => (a.values(), d),
        Score::Gat { .. } => (d, FOUR * heads),
    };
    let (direction, size) = match pass {
        Pass::Forward => (&a.graph.forward, 2 * heads + d),
        Pass::ByDestination => (&a.graph.forward, gradient),
        Pass::BySource => (&a.graph.transpose, gradient - heads * a.tail() + values),
    };
    a.device().uninit("attention", direction.portions.pieces, size, DType::F32, Tag::Workspace)
}

/// For each piece of a hub, what an aggregation collects: `size` numbers.
pub(super) fn spmm_pieces(x: &Matrix, direction: &Direction, size: usize) -> Result<Matrix> {
    x.device().uninit("aggregate", direction.portions.pieces, size, DType::F32, Tag::Workspace)
}

/// For each piece of a hub, what its edges' messages, or gradients of these, come to.
pub(crate) fn gine_pieces(x: &Matrix, direction: &Direction) -> Result<Matrix> {
    x.device().uninit("messages of edges", direction.portions.pieces, x.cols(), x.dtype().compute(), Tag::Workspace)
}

/// For each task of the pass by destination, the gradient of what all edges share: of GATv2's `a`, or nothing.
pub(crate) fn attention_shared(a: &Attention<'_>) -> Result<Matrix> {
    let size = if let Score::Gatv2 { l, .. } = a.score { l.cols() } else { 0 };
    of_tasks(a, size)
}

/// For each task of the pass by destination, the gradient of what features of edges are multiplied by, if that is a
/// weight.
pub(crate) fn attention_edges(a: &Attention<'_>) -> Result<Matrix> {
    of_tasks(a, a.edge_weight.map_or(0, |weight| weight.rows() * weight.cols()))
}

/// For each task of the pass by destination, the gradient of the bias's weight, for `width` features of edges.
pub(crate) fn attention_bias(a: &Attention<'_>, width: usize) -> Result<Matrix> {
    of_tasks(a, a.heads * width)
}

fn of_tasks(a: &Attention<'_>, size: usize) -> Result<Matrix> {
    let tasks = a.graph.forward.portions.all.len();
    a.device().zeros("attention", tasks, size, a.output().1.compute(), Tag::Workspace)
}

impl Cpu {
    /// As [`attention_pieces`], where kernels with vectors run.
    pub(crate) fn attention_pieces(self, a: &Attention<'_>, pass: Pass) -> Result<Option<Matrix>> {
        let (width, dtype) = (a.values(), a.output().1);
        let version = Version::new(self.isa, |lanes| (width / a.heads).is_multiple_of(lanes));
        let vectors = dtype != DType::F64 && version != Version::Portable;
        vectors.then(|| attention_pieces(a, pass)).transpose()
    }

    /// As [`spmm_pieces`], where kernels with vectors run.
    pub(crate) fn spmm_pieces(self, x: &Matrix, direction: &Direction, size: usize) -> Result<Option<Matrix>> {
        let vectors = x.dtype() != DType::F64 && spmm::version(self.isa, x.cols()) != Version::Portable;
        vectors.then(|| spmm_pieces(x, direction, size)).transpose()
    }
}
