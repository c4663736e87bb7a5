//! Matrix products for linear layers on the CPU.
//!
//! Rows are cut into blocks of fixed size, one task each; bias and activation are applied on the way out. dW sums over
//! all rows: fixed chunks of rows give partial products, summed in order. With AVX-512 the products are our own
//! ([`tile`]): they read tall operands where they lie. Elsewhere, and in f64, they are the `gemm` crate's.

mod finish;
mod pack;
mod tile;

use half::bf16;
use rayon::prelude::*;

use super::activation::{self, Smooth};
use super::elementwise::{Convert, Real};
use super::parallel::{each_apart_with, each_chunk_apart};
use super::rowwise::Storage;
use super::share::Shared;
use super::{Cpu, Isa, host, host_mut, scratch};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::ops::activation::{Activated, Activation};
use crate::ops::linear::{Columns, LinearKernels, Weights};
use finish::Finish;
use pack::{Panels, Small, interleave};
use tile::{Cell, Left, Right};

const OP: &str = "linear";
/// Rows per task: with 128 columns, input and output of a block share a core's L2 cache with the weights.
const BLOCK: usize = 192;
/// Rows per step of dW: what one pass of all tiles reads must stay in L2.
pub(super) const STEP: usize = 256;

/// Who multiplies.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Engine {
    /// The `gemm` crate.
    Crate,
    /// Our tiles, in f32.
    Single,
    /// Our tiles, with pairs of bf16.
    Pairs,
}

/// A type that products are computed in.
pub(super) trait Compute: Smooth {
    fn engine(isa: Isa, storage: DType) -> Engine;

    /// `c (+)= a·b` of `size` [m, n, k], element (i, j) of each operand at `start[i·row + j·col]`; one of a's strides
    /// is 1, and b's columns are contiguous.
    ///
    /// # Safety
    /// The views lie within memory that may be read and, for `c`, written.
    unsafe fn multiply(e: Engine, size: [usize; 3], a: View<Self>, b: View<Self>, c: ViewMut<Self>, write: Write);
}

/// A strided matrix.
#[derive(Clone, Copy)]
pub(super) struct View<T> {
    pub(super) start: *const T,
    pub(super) row: usize,
    pub(super) col: usize,
}

/// A matrix whose columns are contiguous, for writing.
#[derive(Clone, Copy)]
pub(super) struct ViewMut<T> {
    pub(super) start: *mut T,
    pub(super) row: usize,
}

impl Compute for f64 {
    fn engine(_: Isa, _: DType) -> Engine {
        Engine::Crate
    }

    unsafe fn multiply(_: Engine, size: [usize; 3], a: View<Self>, b: View<Self>, c: ViewMut<Self>, write: Write) {
        // SAFETY: passed on from the caller.
        unsafe { by_crate(size, a, b, c, write) }
    }
}

impl Compute for f32 {
    fn engine(isa: Isa, storage: DType) -> Engine {
        match isa {
            Isa::Avx512Bf16 if storage == DType::Bf16 => Engine::Pairs,
            Isa::Avx512 | Isa::Avx512Bf16 => Engine::Single,
            _ => Engine::Crate,
        }
    }

    unsafe fn multiply(e: Engine, size: [usize; 3], a: View<Self>, b: View<Self>, c: ViewMut<Self>, write: Write) {
        // SAFETY: passed on from the caller; the tiles are only chosen where the processor has AVX-512.
        unsafe {
            match e {
                Engine::Crate => by_crate(size, a, b, c, write),
                _ => {
                    debug_assert!(b.col == 1 && (a.row == 1 || a.col == 1));
                    let start = a.start.cast();
                    let a = if a.col == 1 {
                        Left::Rows { start, stride: a.row }
                    } else {
                        Left::Columns { start, stride: a.col }
                    };
                    let b = Right { start: b.start.cast(), row: b.row, panel: tile::COLS };
                    tile::single(size, a, b, &tile::Finish::plain(c.start, c.row, write));
                }
            }
        }
    }
}

/// # Safety
/// As [`Compute::multiply`].
unsafe fn by_crate<C: Compute>([m, n, k]: [usize; 3], a: View<C>, b: View<C>, c: ViewMut<C>, write: Write) {
    let stride = |x: usize| x as isize;
    let (alpha, beta) = (C::one(), C::one());
    // SAFETY: the views are valid by the caller's promise. The crate computes c = alpha·c + beta·a·b.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            c.start,
            1,
            stride(c.row),
            write == Write::Add,
            a.start,
            stride(a.col),
            stride(a.row),
            b.start,
            stride(b.col),
            stride(b.row),
            alpha,
            beta,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

/// The elements of `from` as `C`: themselves where they are, else converted into `scratch`.
pub(super) fn widen<'a, C: Real, T: Convert>(from: &'a [T], scratch: &'a mut Vec<C>) -> &'a [C] {
    if let Ok(same) = bytemuck::try_cast_slice::<T, C>(from)
        && T::DTYPE == C::DTYPE
    {
        return same;
    }
    scratch.clear();
    scratch.extend(from.iter().map(|x| C::of(*x)));
    scratch
}

/// Calls `$f` for the types of the tall operand and of the result, with what multiplies them.
macro_rules! by_types {
    ($a:expr, $y:expr, $what:literal, $f:ident ( $($x:expr),* )) => {
        match ($a.dtype(), $y.dtype()) {
            (DType::F64, DType::F64) => $f::<f64, f64, f64>($($x),*, by_crate_blocks),
            (DType::F32, DType::F32) => $f::<f32, f32, f32>($($x),*, by_blocks),
            (DType::F32, DType::Bf16) => $f::<f32, f32, bf16>($($x),*, by_blocks),
            (DType::Bf16, DType::F32) => $f::<f32, bf16, f32>($($x),*, by_blocks),
            (DType::Bf16, DType::Bf16) => $f::<f32, bf16, bf16>($($x),*, by_blocks),
            (_, got) => Err(Error::Type { op: OP, what: $what, got }),
        }
    };
}

impl LinearKernels for Cpu {
    fn linear(&self, x: &Matrix, layer: &Weights<'_>, y: &mut Matrix, pre: Option<&mut Matrix>) -> Result<()> {
        by_types!(x, y, "y", forward(self.isa, x, layer, y, pre))
    }

    fn linear_dx(&self, dy: &Matrix, layer: &Weights<'_>, dx: &mut Matrix, write: Write) -> Result<()> {
        by_types!(dy, dx, "dx", backward_x(self.isa, dy, layer, dx, write))
    }

    fn linear_dw(&self, x: &Activated, dy: Columns<'_>, dw: &mut Matrix, db: Option<&mut Matrix>) -> Result<()> {
        match (x.of.dtype(), dy.of.dtype()) {
            (DType::F64, DType::F64) => backward_w::<f64, f64, f64>(self.isa, x, dy, dw, db),
            (DType::F32, DType::F32) => backward_w::<f32, f32, f32>(self.isa, x, dy, dw, db),
            (DType::F32, DType::Bf16) => backward_w::<f32, f32, bf16>(self.isa, x, dy, dw, db),
            (DType::Bf16, DType::F32) => backward_w::<f32, bf16, f32>(self.isa, x, dy, dw, db),
            (DType::Bf16, DType::Bf16) => backward_w::<f32, bf16, bf16>(self.isa, x, dy, dw, db),
            (_, got) => Err(Error::Type { op: OP, what: "dy", got }),
        }
    }
}

/// A tall matrix times a small one.
struct Product<'a, C, A, Y> {
    rows: usize,
    /// Rows of `stride` elements; the product takes k of them, from `first` on.
    a: &'a [A],
    stride: usize,
    first: usize,
    /// k × n.
    b: Small<'a, C>,
    k: usize,
    n: usize,
    to: Finish<'a, C, Y>,
}

impl<C, A: Sync, Y> Product<'_, C, A, Y> {
    /// Runs `f` over all blocks, with a scratch of its own per thread: the rows of a block, and its part of `a` from
    /// `first` on.
    fn blocks<S: Default>(&self, f: impl Fn(&mut S, std::ops::Range<usize>, &[A]) + Sync + Send)
    where
        Self: Sync,
    {
        if self.n == 0 {
            return;
        }
        each_apart_with::<S>(self.rows.div_ceil(BLOCK), &S::default, &|scratch, at| {
            let rows = at * BLOCK..self.rows.min((at + 1) * BLOCK);
            let a = &self.a[rows.start * self.stride..rows.end * self.stride];
            f(scratch, rows, &a[self.first..]);
        });
    }
}

/// By the `gemm` crate, through a buffer of one block.
fn by_crate_blocks<C: Compute, A: Convert, Y: Convert>(isa: Isa, p: &Product<'_, C, A, Y>) {
    let (k, n) = (p.k, p.n);
    p.blocks(|(scratch, block): &mut (Vec<C>, Vec<C>), rows, a| {
        block.clear();
        block.resize(rows.len() * n, C::zero());
        let a = View { start: widen::<C, A>(a, scratch).as_ptr(), row: p.stride, col: 1 };
        let b = match p.b {
            Small::Weight(w) => View { start: w.as_ptr(), row: n, col: 1 },
            Small::Transposed(w) => View { start: w.as_ptr(), row: 1, col: k },
        };
        let c = ViewMut { start: block.as_mut_ptr(), row: n };
        // SAFETY: a has these rows, b is k × n, c is the block; blocks have rows of their own.
        unsafe {
            by_crate([rows.len(), n, k], a, b, c, Write::Add);
            p.to.block(isa, rows, block, n);
        }
    });
}

/// By tiles where the processor has AVX-512.
fn by_blocks<A: Convert, Y: Convert + Cell>(isa: Isa, p: &Product<'_, f32, A, Y>) {
    let (k, n, stride) = (p.k, p.n, p.stride);
    // Pairs must not straddle rows.
    let even = [k, stride, p.first].iter().all(|x| x.is_multiple_of(2));
    match f32::engine(isa, if even { A::DTYPE } else { DType::F32 }) {
        Engine::Crate => by_crate_blocks(isa, p),
        Engine::Single => {
            let b = Panels::single(p.b, k, n);
            p.blocks(|scratch: &mut Vec<f32>, rows, a| {
                let a = Left::Rows { start: widen::<f32, A>(a, scratch).as_ptr().cast(), stride };
                // SAFETY: the engine is chosen by the processor; a has these rows, b is k × n, blocks have rows of
                // their own.
                unsafe { tile::single([rows.len(), n, k], a, b.right(), &p.to.tiles(rows)) };
            });
        }
        Engine::Pairs => {
            let b = Panels::pairs(p.b, k, n);
            p.blocks(|_: &mut (), rows, a| {
                let a = Left::Rows { start: a.as_ptr().cast(), stride: stride / 2 };
                // SAFETY: as above, in pairs.
                unsafe { tile::pairs([rows.len(), n, k / 2], a, b.right(), &p.to.tiles(rows)) };
            });
        }
    }
}

fn forward<C: Compute, X: Convert, Y: Convert>(
    isa: Isa,
    x: &Matrix,
    layer: &Weights<'_>,
    y: &mut Matrix,
    pre: Option<&mut Matrix>,
    multiply: impl FnOnce(Isa, &Product<'_, C, X, Y>),
) -> Result<()> {
    let (n, k) = layer.weight.shape();
    let (rows, width) = y.shape();
    let product = Product {
        rows,
        a: host::<X>(OP, "x", x)?,
        stride: k,
        first: 0,
        b: Small::Transposed(host::<C>(OP, "weight", layer.weight)?),
        k,
        n,
        to: Finish {
            y: Shared::new(host_mut::<Y>(OP, "y", y)?),
            pre: pre.map(|p| host_mut::<Y>(OP, "pre", p)).transpose()?.map(Shared::new),
            width,
            first: layer.first,
            bias: layer.bias.map(|b| host::<C>(OP, "bias", b)).transpose()?,
            activation: layer.activation,
            write: Write::Set,
        },
    };
    multiply(isa, &product);
    Ok(())
}

fn backward_x<C: Compute, D: Convert, X: Convert>(
    isa: Isa,
    dy: &Matrix,
    layer: &Weights<'_>,
    dx: &mut Matrix,
    write: Write,
    multiply: impl FnOnce(Isa, &Product<'_, C, D, X>),
) -> Result<()> {
    let (k, n) = layer.weight.shape();
    let product = Product {
        rows: dx.rows(),
        a: host::<D>(OP, "dy", dy)?,
        stride: dy.cols(),
        first: layer.first,
        b: Small::Weight(host::<C>(OP, "weight", layer.weight)?),
        k,
        n,
        to: Finish {
            y: Shared::new(host_mut::<X>(OP, "dx", dx)?),
            pre: None,
            width: n,
            first: 0,
            bias: None,
            activation: Activation::None,
            write,
        },
    };
    multiply(isa, &product);
    Ok(())
}

fn backward_w<C: Compute, X: Storage<C = C>, D: Convert>(
    isa: Isa,
    x: &Activated,
    Columns { of: dy, first }: Columns<'_>,
    dw: &mut Matrix,
    db: Option<&mut Matrix>,
) -> Result<()> {
    let (out, k) = dw.shape();
    let (rows, width) = dy.shape();
    let both_bf16 = X::DTYPE == DType::Bf16 && D::DTYPE == DType::Bf16;
    let engine = C::engine(isa, if both_bf16 { DType::Bf16 } else { C::DTYPE });
    let (x, dy, activation) = (host::<X>(OP, "x", &x.of)?, host::<D>(OP, "dy", dy)?, x.activation);

    if out == 0 {
        return Ok(());
    }
    let wants_bias = db.is_some();
    let (chunk, mut partial) = scratch::linear_dw(dw, rows)?;
    let partial = host_mut::<C>(OP, "partial", &mut partial)?;
    each_chunk_apart(partial, out * k + out, &|at, partial| {
        let (dw, db) = partial.split_at_mut(out * k);
        let (mut xa, mut xs, mut ds) = (Vec::new(), Vec::new(), Vec::new());
        let (mut xp, mut dp) = (Vec::new(), Vec::new());
        for start in (at * chunk..rows.min((at + 1) * chunk)).step_by(STEP) {
            let m = STEP.min(rows - start);
            let (x, d) = (&x[start * k..][..m * k], &dy[start * width..][..m * width]);
            if wants_bias {
                isa.run(
                    #[inline(always)]
                    || {
                        for row in d.chunks(width) {
                            db.iter_mut().zip(&row[first..]).for_each(|(sum, x)| *sum = *sum + C::of(*x));
                        }
                    },
                );
            }
            let x = activated(isa, activation, x, &mut xa);
            if engine == Engine::Pairs && k > 0 {
                let (x, d) = (bytemuck::cast_slice(x), bytemuck::cast_slice(d));
                isa.run(
                    #[inline(always)]
                    || {
                        interleave(&mut xp, x, k, 0..k);
                        interleave(&mut dp, d, width, first..first + out);
                    },
                );
                let a = Left::Columns { start: dp.as_ptr(), stride: out };
                let b = Right { start: xp.as_ptr(), row: k, panel: tile::COLS };
                let c = tile::Finish::plain(dw.as_mut_ptr().cast::<f32>(), k, Write::Add);
                // SAFETY: the engine is chosen by the processor; the packed operands have ⌈m/2⌉ rows, C is f32 here.
                unsafe { tile::pairs([out, k, m.div_ceil(2)], a, b, &c) };
                continue;
            }
            let (x, d) = (widen::<C, X>(x, &mut xs), widen::<C, D>(d, &mut ds));
            let a = View { start: d[first..].as_ptr(), row: 1, col: width };
            let b = View { start: x.as_ptr(), row: k, col: 1 };
            // SAFETY: x and d have m rows; dw is out × k.
            unsafe { C::multiply(engine, [out, k, m], a, b, ViewMut { start: dw.as_mut_ptr(), row: k }, Write::Add) };
        }
    });
    let sum = |at: usize| partial.chunks(out * k + out).fold(C::zero(), |s, p| s + p[at]);
    let dw = host_mut::<C>(OP, "dw", dw)?;
    dw.par_iter_mut().enumerate().with_min_len(4096).for_each(|(at, x)| *x = sum(at));
    if let Some(db) = db {
        host_mut::<C>(OP, "db", db)?.iter_mut().enumerate().for_each(|(j, x)| *x = sum(out * k + j));
    }
    Ok(())
}

/// The activation of some elements as it was stored: themselves where there is none, else computed into `scratch`.
fn activated<'a, X: Storage<C: Smooth>>(
    isa: Isa,
    activation: Activation,
    from: &'a [X],
    scratch: &'a mut Vec<X>,
) -> &'a [X] {
    if activation == Activation::None {
        return from;
    }
    scratch.resize(from.len(), X::zeroed());
    isa.run(
        #[inline(always)]
        || activation::forward(activation, from, scratch),
    );
    scratch
}
