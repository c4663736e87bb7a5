//! Matrix products for linear layers on the CPU.
//!
//! Rows are cut into blocks of fixed size, one task each; a block's product, bias and activation happen while it is in cache.
//! dW sums over all rows: fixed chunks of rows give partial products, summed in order. With AVX-512 the products are our own
//! ([`tile`]): they read tall operands where they lie. Elsewhere, and in f64, they are the `gemm` crate's.

mod activate;
#[cfg(target_arch = "x86_64")]
mod tile;

use half::bf16;
use rayon::prelude::*;

use super::activation::Smooth;
use super::elementwise::{Convert, Real};
use super::share::Shared;
use super::{Cpu, Isa, host, host_mut};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::ops::linear::{LinearKernels, Weights};

const OP: &str = "linear";
/// Rows per task: with 128 columns, input and output of a block share a core's L2 cache with the weights.
const BLOCK: usize = 192;
/// Rows per step of dW: what one pass of all tiles reads must stay in L2.
const STEP: usize = 256;
/// dW has at most this many partial products, however many rows there are.
const MOST_CHUNKS: usize = 64;

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

    /// `c (+)= a·b` of `size` [m, n, k], element (i, j) of each operand at `start[i·row + j·col]`; b's columns are contiguous.
    ///
    /// # Safety
    /// The views lie within memory that may be read and, for `c`, written.
    unsafe fn multiply(e: Engine, size: [usize; 3], a: View<Self>, b: View<Self>, c: ViewMut<Self>, add: bool);
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

    unsafe fn multiply(_: Engine, size: [usize; 3], a: View<Self>, b: View<Self>, c: ViewMut<Self>, add: bool) {
        // SAFETY: passed on from the caller.
        unsafe { by_crate(size, a, b, c, add) }
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

    unsafe fn multiply(e: Engine, size: [usize; 3], a: View<Self>, b: View<Self>, c: ViewMut<Self>, add: bool) {
        // SAFETY: passed on from the caller; the tiles are only chosen where the processor has AVX-512.
        unsafe {
            match e {
                Engine::Crate => by_crate(size, a, b, c, add),
                _ => {
                    debug_assert_eq!(b.col, 1);
                    let a = tile::Left { start: a.start.cast(), row: a.row, col: a.col };
                    let b = tile::Right { start: b.start.cast(), row: b.row };
                    tile::single(size[0], size[1], size[2], a, b, tile::Out { start: c.start, row: c.row }, add);
                }
            }
        }
    }
}

/// # Safety
/// As [`Compute::multiply`].
unsafe fn by_crate<C: Compute>([m, n, k]: [usize; 3], a: View<C>, b: View<C>, c: ViewMut<C>, add: bool) {
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
            add,
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

/// Two bf16 as one 32-bit element, the first in the low half.
fn pair(low: bf16, high: bf16) -> u32 {
    u32::from(low.to_bits()) | u32::from(high.to_bits()) << 16
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

impl LinearKernels for Cpu {
    fn linear(&self, x: &Matrix, layer: &Weights<'_>, y: &mut Matrix, pre: Option<&mut Matrix>) -> Result<()> {
        match (x.dtype(), y.dtype()) {
            (DType::F64, DType::F64) => forward::<f64, f64, f64>(*self, x, layer, y, pre),
            (DType::F32, DType::F32) => forward::<f32, f32, f32>(*self, x, layer, y, pre),
            (DType::F32, DType::Bf16) => forward::<f32, f32, bf16>(*self, x, layer, y, pre),
            (DType::Bf16, DType::F32) => forward::<f32, bf16, f32>(*self, x, layer, y, pre),
            (DType::Bf16, DType::Bf16) => forward::<f32, bf16, bf16>(*self, x, layer, y, pre),
            (_, got) => Err(Error::Type { op: OP, what: "y", got }),
        }
    }

    fn linear_dx(&self, dy: &Matrix, layer: &Weights<'_>, dx: &mut Matrix, add: bool) -> Result<()> {
        match (dy.dtype(), dx.dtype()) {
            (DType::F64, DType::F64) => backward_x::<f64, f64, f64>(*self, dy, layer, dx, add),
            (DType::F32, DType::F32) => backward_x::<f32, f32, f32>(*self, dy, layer, dx, add),
            (DType::F32, DType::Bf16) => backward_x::<f32, f32, bf16>(*self, dy, layer, dx, add),
            (DType::Bf16, DType::F32) => backward_x::<f32, bf16, f32>(*self, dy, layer, dx, add),
            (DType::Bf16, DType::Bf16) => backward_x::<f32, bf16, bf16>(*self, dy, layer, dx, add),
            (_, got) => Err(Error::Type { op: OP, what: "dx", got }),
        }
    }

    fn linear_dw(&self, x: &Matrix, dy: &Matrix, first: usize, dw: &mut Matrix, db: Option<&mut Matrix>) -> Result<()> {
        match (x.dtype(), dy.dtype()) {
            (DType::F64, DType::F64) => backward_w::<f64, f64, f64>(*self, x, dy, first, dw, db),
            (DType::F32, DType::F32) => backward_w::<f32, f32, f32>(*self, x, dy, first, dw, db),
            (DType::F32, DType::Bf16) => backward_w::<f32, f32, bf16>(*self, x, dy, first, dw, db),
            (DType::Bf16, DType::F32) => backward_w::<f32, bf16, f32>(*self, x, dy, first, dw, db),
            (DType::Bf16, DType::Bf16) => backward_w::<f32, bf16, bf16>(*self, x, dy, first, dw, db),
            (_, got) => Err(Error::Type { op: OP, what: "dy", got }),
        }
    }
}

/// One row block of `a` (width `k`, row stride `row`), times a prepared right side.
struct Panel<'a, C> {
    engine: Engine,
    /// k × n, in C; or empty where `pairs` is used.
    plain: &'a [C],
    /// k/2 × n.
    pairs: &'a [u32],
    k: usize,
    n: usize,
}

impl<C: Compute> Panel<'_, C> {
    /// `c (+)= a·b` for `m` rows. `a` has row stride `row`; `c` has row stride `c.row`.
    fn times<X: Convert>(&self, m: usize, a: &[X], row: usize, c: ViewMut<C>, add: bool, scratch: &mut Vec<C>) {
        let (k, n) = (self.k, self.n);
        if self.engine == Engine::Pairs {
            let a = tile::Left { start: a.as_ptr().cast(), row: row / 2, col: 1 };
            let b = tile::Right { start: self.pairs.as_ptr(), row: n };
            // SAFETY: the engine is chosen by the processor; a has m rows of stride `row`, c as the caller says. Pairs are only
            // chosen for bf16 operands with even k, row and offset, so that pairs do not straddle rows.
            unsafe { tile::pairs(m, n, k / 2, a, b, tile::Out { start: c.start.cast(), row: c.row }, add) };
            return;
        }
        let a = widen::<C, X>(a, scratch);
        let a = View { start: a.as_ptr(), row, col: 1 };
        let b = View { start: self.plain.as_ptr(), row: n, col: 1 };
        // SAFETY: as above.
        unsafe { C::multiply(self.engine, [m, n, k], a, b, c, add) };
    }
}

fn forward<C: Compute, X: Convert, Y: Convert>(
    cpu: Cpu,
    x: &Matrix,
    layer: &Weights<'_>,
    y: &mut Matrix,
    pre: Option<&mut Matrix>,
) -> Result<()> {
    let (n, k) = layer.weight.shape();
    let w = host::<C>(OP, "weight", layer.weight)?;
    let bias = layer.bias.map(|b| host::<C>(OP, "bias", b)).transpose()?;
    let even = k.is_multiple_of(2);
    let engine = if even { C::engine(cpu.isa, X::DTYPE) } else { C::engine(cpu.isa, C::DTYPE) };
    // Wᵀ, so that a row of the right side is contiguous over outputs.
    let (mut plain, mut pairs) = (Vec::new(), Vec::new());
    if engine == Engine::Pairs {
        let b = |x: C| bf16::from_f64(x.widen());
        pairs = (0..k / 2 * n)
            .map(|at| (at / n, at % n))
            .map(|(t, j)| pair(b(w[j * k + 2 * t]), b(w[j * k + 2 * t + 1])))
            .collect();
    } else {
        plain = (0..k * n).map(|at| w[at % n * k + at / n]).collect();
    }
    let panel = Panel { engine, plain: &plain, pairs: &pairs, k, n };
    let activation = layer.activation;

    let x = host::<X>(OP, "x", x)?;
    let (width, first) = (y.cols(), layer.first);
    let y = host_mut::<Y>(OP, "y", y)?;
    let pre = pre.map(|p| host_mut::<Y>(OP, "pre", p)).transpose()?;
    let pre = pre.map(Shared::new);
    let work = y.par_chunks_mut(BLOCK * width).zip(x.par_chunks(BLOCK * k)).enumerate();
    work.for_each_init(
        || (Vec::new(), vec![C::zero(); BLOCK * n]),
        |(scratch, block), (at, (y, x))| {
            let m = x.len() / k;
            panel.times(m, x, k, ViewMut { start: block.as_mut_ptr(), row: n }, false, scratch);
            // SAFETY: blocks of rows are disjoint.
            let pre = pre.map(|p| unsafe { p.part(at * BLOCK * width..at * BLOCK * width + y.len()) });
            let to = activate::Target { y, pre, width, first };
            activate::finish(cpu.isa, activation, &mut block[..m * n], bias, n, to);
        },
    );
    Ok(())
}

fn backward_x<C: Compute, D: Convert, X: Convert>(
    cpu: Cpu,
    dy: &Matrix,
    layer: &Weights<'_>,
    dx: &mut Matrix,
    add: bool,
) -> Result<()> {
    let (k, n) = layer.weight.shape();
    let w = host::<C>(OP, "weight", layer.weight)?;
    let (width, first) = (dy.cols(), layer.first);
    let even = [k, width, first].iter().all(|x| x.is_multiple_of(2));
    let engine = if even { C::engine(cpu.isa, D::DTYPE) } else { C::engine(cpu.isa, C::DTYPE) };
    let pairs: Vec<u32> = if engine == Engine::Pairs {
        let b = |x: C| bf16::from_f64(x.widen());
        (0..k / 2 * n)
            .map(|at| (at / n, at % n))
            .map(|(t, j)| pair(b(w[2 * t * n + j]), b(w[(2 * t + 1) * n + j])))
            .collect()
    } else {
        Vec::new()
    };
    let panel = Panel { engine, plain: w, pairs: &pairs, k, n };
    let dy = host::<D>(OP, "dy", dy)?;
    let dx = host_mut::<X>(OP, "dx", dx)?;
    dx.par_chunks_mut(BLOCK * n).zip(dy.par_chunks(BLOCK * width)).for_each_init(
        || (Vec::new(), Vec::new()),
        |(scratch, block), (dx, dy)| {
            let m = dx.len() / n;
            if X::DTYPE == C::DTYPE {
                let c = ViewMut { start: dx.as_mut_ptr().cast::<C>(), row: n };
                panel.times(m, &dy[first..], width, c, add, scratch);
                return;
            }
            block.clear();
            block.resize(m * n, C::zero());
            panel.times(m, &dy[first..], width, ViewMut { start: block.as_mut_ptr(), row: n }, false, scratch);
            for (to, x) in dx.iter_mut().zip(&*block) {
                let old = if add { C::of(*to) } else { C::zero() };
                *to = X::narrow((old + *x).widen());
            }
        },
    );
    Ok(())
}

fn backward_w<C: Compute, X: Convert, D: Convert>(
    cpu: Cpu,
    x: &Matrix,
    dy: &Matrix,
    first: usize,
    dw: &mut Matrix,
    db: Option<&mut Matrix>,
) -> Result<()> {
    let (out, k) = dw.shape();
    let (rows, width) = dy.shape();
    let both_bf16 = X::DTYPE == DType::Bf16 && D::DTYPE == DType::Bf16;
    let engine = C::engine(cpu.isa, if both_bf16 { DType::Bf16 } else { C::DTYPE });
    let (x, dy) = (host::<X>(OP, "x", x)?, host::<D>(OP, "dy", dy)?);

    let chunk = rows.div_ceil(MOST_CHUNKS).next_multiple_of(STEP).max(8 * STEP);
    let mut partial = dw.device().zeros(OP, rows.div_ceil(chunk), out * k + out, C::DTYPE, Tag::Workspace)?;
    let partial = host_mut::<C>(OP, "partial", &mut partial)?;
    partial.par_chunks_mut(out * k + out).enumerate().with_max_len(1).for_each(|(at, partial)| {
        let (dw, db) = partial.split_at_mut(out * k);
        let (mut xs, mut ds) = (Vec::new(), Vec::new());
        let (mut xp, mut dp) = (Vec::new(), Vec::new());
        for start in (at * chunk..rows.min((at + 1) * chunk)).step_by(STEP) {
            let m = STEP.min(rows - start);
            let (x, d) = (&x[start * k..][..m * k], &dy[start * width..][..m * width]);
            for row in d.chunks(width) {
                for (sum, x) in db.iter_mut().zip(&row[first..]) {
                    *sum = *sum + C::of(*x);
                }
            }
            if engine == Engine::Pairs {
                let (x, d) = (bytemuck::cast_slice(x), bytemuck::cast_slice(d));
                interleave(&mut xp, x, k, 0..k);
                interleave(&mut dp, d, width, first..first + out);
                let a = tile::Left { start: dp.as_ptr(), row: 1, col: out };
                let b = tile::Right { start: xp.as_ptr(), row: k };
                let c = tile::Out { start: dw.as_mut_ptr().cast(), row: k };
                // SAFETY: the engine is chosen by the processor; the packed operands have ⌈m/2⌉ rows, C is f32 here.
                unsafe { tile::pairs(out, k, m.div_ceil(2), a, b, c, true) };
                continue;
            }
            let (x, d) = (widen::<C, X>(x, &mut xs), widen::<C, D>(d, &mut ds));
            let a = View { start: d[first..].as_ptr(), row: 1, col: width };
            let b = View { start: x.as_ptr(), row: k, col: 1 };
            // SAFETY: x and d have m rows; dw is out × k.
            unsafe { C::multiply(engine, [out, k, m], a, b, ViewMut { start: dw.as_mut_ptr(), row: k }, true) };
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

/// Rows 2t and 2t + 1 of some columns, element by element in pairs; a missing last row counts as zero.
fn interleave(to: &mut Vec<u32>, from: &[bf16], width: usize, columns: std::ops::Range<usize>) {
    to.clear();
    for rows in from.chunks(2 * width) {
        let (a, b) = rows.split_at(width);
        if b.is_empty() {
            to.extend(a[columns.clone()].iter().map(|x| pair(*x, bf16::ZERO)));
        } else {
            to.extend(a[columns.clone()].iter().zip(&b[columns.clone()]).map(|(x, y)| pair(*x, *y)));
        }
    }
}
