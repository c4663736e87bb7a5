//! What row-wise kernels share: storage and compute types, blocks of rows, sums along a row.

use std::ops::Range;

use half::bf16;
use num_traits::Zero;

use super::elementwise::{Convert, GRAIN, LANES, Real};
use super::parallel;
use crate::ops::Write;

/// Sums over rows have at most this many partial sums, however many rows there are.
const MOST_PARTS: usize = 256;

/// A type of stored elements with the type they are computed in.
pub(super) trait Storage: Convert {
    type C: Real;

    #[inline(always)]
    fn load(self) -> Self::C {
        Self::C::of(self)
    }

    #[inline(always)]
    fn store(x: Self::C) -> Self {
        Self::narrow(x.widen())
    }
}

impl Storage for f32 {
    type C = Self;
}

impl Storage for f64 {
    type C = Self;
}

impl Storage for bf16 {
    type C = f32;
}

/// Runs `$body` with `$T` as the Rust type of `$dtype`.
macro_rules! by_dtype {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            crate::dtype::DType::F32 => {
                type $T = f32;
                $body
            }
            crate::dtype::DType::F64 => {
                type $T = f64;
                $body
            }
            crate::dtype::DType::Bf16 => {
                type $T = half::bf16;
                $body
            }
        }
    };
}
pub(super) use by_dtype;

/// How rows are shared by tasks: blocks of this many rows.
#[derive(Clone, Copy)]
pub(super) struct Blocks {
    rows: usize,
    per: usize,
}

impl Blocks {
    /// For rows that have nothing to do with each other.
    pub(super) fn new(rows: usize, cols: usize) -> Self {
        Self { rows, per: (GRAIN / cols.max(1)).max(1) }
    }

    /// For sums over rows: each block has a partial sum, and there are not many of them.
    pub(super) fn few(rows: usize, cols: usize) -> Self {
        let all = Self::new(rows, cols);
        Self { per: all.per.max(rows.div_ceil(MOST_PARTS)), ..all }
    }

    /// How many blocks there are.
    pub(super) fn count(self) -> usize {
        self.rows.div_ceil(self.per)
    }

    /// Runs `f` for each block, with its number and its rows.
    pub(super) fn each(self, f: impl Fn(usize, Range<usize>) + Sync) {
        parallel::each(self.count(), &|k| f(k, self.block(k)));
    }

    /// Runs `f` for each block and returns what it found, in order.
    pub(super) fn map<R: Send>(self, f: impl Fn(Range<usize>) -> R + Sync) -> Vec<R> {
        parallel::map(self.count(), &|k| f(self.block(k)))
    }

    fn block(self, k: usize) -> Range<usize> {
        k * self.per..self.rows.min((k + 1) * self.per)
    }
}

/// The elements of some rows.
#[inline(always)]
pub(super) fn span(rows: &Range<usize>, cols: usize) -> Range<usize> {
    rows.start * cols..rows.end * cols
}

/// `to (+)= acc`
#[inline(always)]
pub(super) fn put<T: Storage>(to: &mut [T], acc: &[T::C], write: Write) {
    for (to, x) in to.iter_mut().zip(acc) {
        let old = if write == Write::Add { to.load() } else { T::C::zero() };
        *to = T::store(old + *x);
    }
}

/// Σ f(x) in an order that suits vectors of any width: the same bits for every instruction set.
///
/// The rest of a row has lanes of its own: lanes that are only touched by whole chunks stay in registers.
#[inline(always)]
pub(super) fn sum<C: Real>(x: &[C], f: impl Fn(C) -> C) -> C {
    let mut lanes = [C::zero(); LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for k in 0..LANES {
            lanes[k] = lanes[k] + f(chunk[k]);
        }
    }
    let whole = C::fold(lanes);
    if rest.is_empty() {
        return whole;
    }
    let mut lanes = [C::zero(); LANES];
    for (lane, x) in lanes.iter_mut().zip(rest) {
        *lane = f(*x);
    }
    whole + C::fold(lanes)
}

/// Σ x·y, in the same order.
#[inline(always)]
pub(super) fn dot<C: Real>(x: &[C], y: &[C]) -> C {
    let mut lanes = [C::zero(); LANES];
    let ((xs, x_rest), (ys, y_rest)) = (x.as_chunks::<LANES>(), y.as_chunks::<LANES>());
    for (x, y) in xs.iter().zip(ys) {
        for k in 0..LANES {
            lanes[k] = lanes[k] + x[k] * y[k];
        }
    }
    let whole = C::fold(lanes);
    if x_rest.is_empty() {
        return whole;
    }
    let mut lanes = [C::zero(); LANES];
    for (lane, (x, y)) in lanes.iter_mut().zip(x_rest.iter().zip(y_rest)) {
        *lane = *x * *y;
    }
    whole + C::fold(lanes)
}

/// The largest of `x`; −∞ if there are none. A NaN is passed over.
#[inline(always)]
pub(super) fn max<C: Real>(x: &[C]) -> C {
    let larger = |a: C, b: C| if b > a { b } else { a };
    let mut lanes = [C::neg_infinity(); LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for k in 0..LANES {
            lanes[k] = larger(lanes[k], chunk[k]);
        }
    }
    let whole = lanes.into_iter().fold(C::neg_infinity(), larger);
    rest.iter().fold(whole, |a, b| larger(a, *b))
}
