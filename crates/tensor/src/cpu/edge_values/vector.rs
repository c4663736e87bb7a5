//! The same with vector instructions, for f32 and bf16: products of a few rows at a time with the part of the weight
//! that belongs to a head. The sums of these rows are in registers, and each vector of the weight serves all of them.

#![allow(unsafe_op_in_unsafe_fn)]

use super::Shape;
use crate::cpu::elementwise::{Convert, Real};
use crate::cpu::simd::{Simd, Sink, Source};

/// Rows, or columns, whose sums are in registers: as many as keep the units busy that multiply and add.
const FEW: usize = 8;
/// Rows that are multiplied with their tails while sums are in registers.
const MANY: usize = 16;
/// Lanes of the widest vectors.
const WIDEST: usize = 16;

/// Writes `from` as numbers that are computed with.
#[inline(always)]
unsafe fn numbers<S: Simd, T: Convert + Source<S>>(from: &[T], to: &mut [f32]) {
    let whole = from.len() - from.len() % S::LANES;
    for t in (0..whole).step_by(S::LANES) {
        S::store(to.as_mut_ptr().add(t), T::load(from.as_ptr().add(t)));
    }
    for (to, x) in to[whole..].iter_mut().zip(&from[whole..]) {
        *to = f32::of(*x);
    }
}

/// The first `n` numbers, or as many as a vector has.
#[inline(always)]
unsafe fn first<S: Simd>(from: *const f32, n: usize) -> S::V {
    if n < S::LANES { S::load_first(from, n) } else { S::load(from) }
}

/// The same the other way.
#[inline(always)]
unsafe fn write_first<S: Simd, T: Convert + Sink<S>>(to: *mut T, n: usize, v: S::V) {
    if n >= S::LANES {
        return T::store(to, v);
    }
    let mut lanes = [0f32; WIDEST];
    S::store(lanes.as_mut_ptr(), v);
    for (k, x) in lanes.into_iter().enumerate().take(n) {
        to.add(k).write(T::narrow(x.widen()));
    }
}

/// Some columns of a matrix.
#[derive(Clone, Copy)]
struct Part {
    at: *const f32,
    rows: usize,
    /// From one row to the next.
    stride: usize,
    /// Those from `at` on; only as many as a vector has are meant.
    cols: usize,
}

/// `sums[r] += x[r]·part`, where x[r] are `stride` apart.
#[inline(always)]
unsafe fn multiply<S: Simd>(x: *const f32, stride: usize, part: Part, sums: &mut [S::V; FEW]) {
    for k in 0..part.rows {
        let weight = first::<S>(part.at.add(k * part.stride), part.cols);
        for (r, sum) in sums.iter_mut().enumerate() {
            *sum = S::fma(S::splat(*x.add(r * stride + k)), weight, *sum);
        }
    }
}

/// Safety of this and the others: the processor has the instructions, and all slices are as many whole rows, or as many
/// numbers, as the shape says.
#[inline(always)]
pub(super) unsafe fn widen<S: Simd, T: Convert + Sink<S>>(shape: Shape, x: &[T], weight: &[f32], to: &mut [T]) {
    let (Shape { heads, width, tail, features: f }, [narrow, cols]) = (shape, shape.cols());
    // A last chunk of fewer rows leaves others' numbers in the rest, whose sums nobody writes.
    let mut own = vec![0f32; FEW * narrow];
    for (x, to) in x.chunks(FEW * narrow).zip(to.chunks_mut(FEW * cols)) {
        let rows = x.len() / narrow;
        numbers::<S, T>(x, &mut own[..x.len()]);
        for h in 0..heads {
            let at = h * (width + tail);
            for (x, to) in x.chunks_exact(narrow).zip(to.chunks_exact_mut(cols)) {
                to[at..at + width].copy_from_slice(&x[h * width..(h + 1) * width]);
            }
            for t in (0..tail).step_by(S::LANES) {
                let mut sums = [S::splat(0.0); FEW];
                let part = Part { at: weight.as_ptr().add(h * width * f + t), rows: width, stride: f, cols: f - t };
                multiply::<S>(own.as_ptr().add(h * width), narrow, part, &mut sums);
                for (r, sum) in sums.into_iter().enumerate().take(rows) {
                    write_first::<S, T>(to.as_mut_ptr().add(r * cols + at + width + t), tail - t, sum);
                }
            }
        }
    }
}

#[inline(always)]
pub(super) unsafe fn absorb<S: Simd, T: Convert + Sink<S>>(shape: Shape, wide: &[T], turned: &[f32], to: &mut [T]) {
    let (Shape { heads, width, tail, features: f }, [narrow, cols]) = (shape, shape.cols());
    // As above.
    let mut all = vec![0f32; FEW * cols];
    for (wide, to) in wide.chunks(FEW * cols).zip(to.chunks_mut(FEW * narrow)) {
        let rows = wide.len() / cols;
        numbers::<S, T>(wide, &mut all[..wide.len()]);
        for h in 0..heads {
            let own = all.as_ptr().add(h * (width + tail));
            for t in (0..width).step_by(S::LANES) {
                let mut sums = [S::splat(0.0); FEW];
                for (r, sum) in sums.iter_mut().enumerate() {
                    *sum = first::<S>(own.add(r * cols + t), width - t);
                }
                let at = turned.as_ptr().add(h * width * f + t);
                multiply::<S>(own.add(width), cols, Part { at, rows: f, stride: width, cols: width - t }, &mut sums);
                for (r, sum) in sums.into_iter().enumerate().take(rows) {
                    write_first::<S, T>(to.as_mut_ptr().add(r * narrow + h * width + t), width - t, sum);
                }
            }
        }
    }
}

/// Rows that are multiplied with their tails: where both begin, and how far apart they are.
#[derive(Clone, Copy)]
struct Products {
    rows: usize,
    x: *const f32,
    narrow: usize,
    tails: *const f32,
    cols: usize,
}

impl Products {
    /// Adds those of `N` columns with the first `n` numbers of tails; the sums of a column are `f` behind those of the
    /// one before.
    #[inline(always)]
    unsafe fn add<S: Simd, const N: usize>(self, n: usize, f: usize, to: *mut f32) {
        let mut sums = [S::splat(0.0); N];
        for (c, sum) in sums.iter_mut().enumerate() {
            *sum = first::<S>(to.add(c * f), n);
        }
        for r in 0..self.rows {
            let tail = first::<S>(self.tails.add(r * self.cols), n);
            for (c, sum) in sums.iter_mut().enumerate() {
                *sum = S::fma(S::splat(*self.x.add(r * self.narrow + c)), tail, *sum);
            }
        }
        for (c, sum) in sums.into_iter().enumerate() {
            write_first::<S, f32>(to.add(c * f), n, sum);
        }
    }
}

#[inline(always)]
pub(super) unsafe fn tail_products<S: Simd, T: Convert + Sink<S>>(shape: Shape, x: &[T], wide: &[T], sums: &mut [f32]) {
    let (Shape { heads, width, tail, features: f }, [narrow, cols]) = (shape, shape.cols());
    let (mut own, mut all) = (vec![0f32; MANY * narrow], vec![0f32; MANY * cols]);
    for (x, wide) in x.chunks(MANY * narrow).zip(wide.chunks(MANY * cols)) {
        numbers::<S, T>(x, &mut own[..x.len()]);
        numbers::<S, T>(wide, &mut all[..wide.len()]);
        for h in 0..heads {
            for t in (0..f).step_by(S::LANES) {
                let tails = all.as_ptr().add(h * (width + tail) + width + t);
                let products =
                    |c| Products { rows: x.len() / narrow, x: own.as_ptr().add(h * width + c), narrow, tails, cols };
                let mut to = |c| sums.as_mut_ptr().add((h * width + c) * f + t);
                let whole = width - width % FEW;
                for c in (0..whole).step_by(FEW) {
                    products(c).add::<S, FEW>(f - t, f, to(c));
                }
                for c in whole..width {
                    products(c).add::<S, 1>(f - t, f, to(c));
                }
            }
        }
    }
}
