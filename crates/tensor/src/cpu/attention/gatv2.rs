//! e_ij = a·LeakyReLU(l_i + r_j) per head. The values are the sources' rows r, or rows of their own.

#![allow(unsafe_op_in_unsafe_fn)]

use super::OP;
use super::edges::FourEdges;
use super::score::{Any, Edge, Operands, Plain, Rows, Score, Widths, store};
use crate::cpu::elementwise::{Convert, Real};
use crate::cpu::host;
use crate::cpu::neighbours::{FOUR, prefetch};
use crate::cpu::simd::{Simd, Sink, Source, Stored};
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::Write;

pub(super) struct Gatv2<'a, C, L, R> {
    heads: usize,
    d: usize,
    l: &'a [L],
    r: &'a [R],
    /// Where they are not r.
    value: Option<&'a [R]>,
    a: &'a [C],
    slope: f64,
}

impl<'a, C: Real, L: Convert, R: Convert> Gatv2<'a, C, L, R> {
    pub(super) fn new(heads: usize, [l, r, a]: [&'a Matrix; 3], value: Option<&'a Matrix>, slope: f64) -> Result<Self> {
        let value = value.map(|m| host(OP, "value", m)).transpose()?;
        let (l, r, d) = (host(OP, "l", l)?, host(OP, "r", r)?, l.cols());
        Ok(Self { heads, d, l, r, value, a: host(OP, "a", a)?, slope })
    }

    /// For each column of a head: a, the sum before the activation, and the activation's slope there.
    fn columns(&self, Edge { j, i }: Edge, h: usize) -> impl Iterator<Item = (C, C, C)> {
        let w = self.d / self.heads;
        let columns = |row: usize| row * self.d + h * w..row * self.d + (h + 1) * w;
        let both = self.l[columns(i)].iter().zip(&self.r[columns(j)]);
        both.zip(&self.a[h * w..]).map(|((l, r), a)| {
            let x = C::of(*l) + C::of(*r);
            (*a, x, if x > C::zero() { C::one() } else { C::of(self.slope) })
        })
    }
}

impl<C: Real, L: Convert, R: Convert> Operands for Gatv2<'_, C, L, R> {
    type Out = L;
    type Value = R;
    type Dst = L;
    type Src = R;

    fn heads(&self) -> usize {
        self.heads
    }

    fn head_width(&self) -> usize {
        self.d / self.heads
    }

    fn widths(&self) -> Widths {
        let w = self.head_width();
        Widths { dst: w, src: w, shared: w }
    }

    fn values(&self) -> Rows<'_, R> {
        Rows { all: self.value.unwrap_or(self.r), stride: self.d, offset: 0 }
    }
}

impl<C: Real, L: Convert, R: Convert> Plain<C> for Gatv2<'_, C, L, R> {
    fn score(&self, edge: Edge, h: usize) -> C {
        self.columns(edge, h).fold(C::zero(), |sum, (a, x, slope)| sum + a * x * slope)
    }

    fn grad_dst(&self, edge: Edge, h: usize, de: C, dst: &mut [C], shared: &mut [C]) {
        for ((a, x, slope), (dl, da)) in self.columns(edge, h).zip(dst.iter_mut().zip(shared)) {
            *dl = *dl + de * a * slope;
            *da = *da + de * x * slope;
        }
    }

    fn grad_src(&self, edge: Edge, h: usize, de: C, src: &mut [C]) {
        for ((a, _, slope), dr) in self.columns(edge, h).zip(src) {
            *dr = *dr + de * a * slope;
        }
    }
}

/// What every pass needs to know of a head.
#[derive(Clone, Copy)]
struct Columns {
    heads: usize,
    /// Columns of one head.
    w: usize,
    /// Of the LeakyReLU.
    slope: f32,
}

/// Σ_c a_c·LeakyReLU(near_c + far_c) for every head and four far rows.
#[inline(always)]
unsafe fn scores<S: Simd, N: Source<S>, F: Source<S>>(
    Columns { heads, w, slope }: Columns,
    a: *const f32,
    near: *const N,
    far: [*const F; FOUR],
    scores: *mut f32,
) {
    let (one, slope) = (S::splat(1.0), S::splat(slope));
    for h in 0..heads {
        let mut sums = [S::splat(0.0); FOUR];
        let mut t = h * w;
        while t < (h + 1) * w {
            let near = N::load(near.add(t));
            let a = S::load(a.add(t));
            for e in 0..FOUR {
                let x = S::add(near, F::load(far[e].add(t)));
                sums[e] = S::fma(a, S::mul(x, S::if_positive(x, one, slope)), sums[e]);
            }
            t += S::LANES;
        }
        S::sum4(sums, scores.add(FOUR * h));
    }
}

/// `acc_c += Σ_e de_e·a_c·slope`, and where it is given `da_c += Σ_e de_e·LeakyReLU(near_c + far_c)`.
#[inline(always)]
unsafe fn grads<S: Simd, N: Source<S>, F: Source<S>>(
    Columns { heads, w, slope }: Columns,
    a: *const f32,
    near: *const N,
    far: [*const F; FOUR],
    de: *const f32,
    acc: *mut f32,
    da: Option<*mut f32>,
) {
    for h in 0..heads {
        let steep: [S::V; FOUR] = std::array::from_fn(|e| S::splat(*de.add(FOUR * h + e)));
        let flat = steep.map(|de| S::mul(de, S::splat(slope)));
        let mut t = h * w;
        while t < (h + 1) * w {
            let near = N::load(near.add(t));
            let (mut sum, mut sum_a) = (S::splat(0.0), S::splat(0.0));
            for e in 0..FOUR {
                let x = S::add(near, F::load(far[e].add(t)));
                let de = S::if_positive(x, steep[e], flat[e]);
                sum = S::add(sum, de);
                sum_a = S::fma(de, x, sum_a);
            }
            S::store(acc.add(t), S::fma(S::load(a.add(t)), sum, S::load(acc.add(t))));
            if let Some(da) = da {
                S::store(da.add(t), S::add(sum_a, S::load(da.add(t))));
            }
            t += S::LANES;
        }
    }
}

impl<L, R> Gatv2<'_, f32, L, R> {
    #[inline(always)]
    fn l(&self, i: usize) -> *const L {
        self.l.as_ptr().wrapping_add(i * self.d)
    }

    #[inline(always)]
    fn r(&self, j: usize) -> *const R {
        self.r.as_ptr().wrapping_add(j * self.d)
    }

    #[inline(always)]
    fn shape(&self) -> Columns {
        Columns { heads: self.heads, w: self.d / self.heads, slope: self.slope as f32 }
    }
}

impl<S: Simd, L: Convert + Sink<S>, R: Convert + Sink<S>> Score<S> for Gatv2<'_, f32, L, R> {
    #[inline(always)]
    fn prefetch_src(&self, j: usize) {
        prefetch(self.r(j), self.d);
        if let Some(value) = self.value {
            prefetch(value.as_ptr().wrapping_add(j * self.d), self.d);
        }
    }

    #[inline(always)]
    fn prefetch_dst(&self, i: usize) {
        prefetch(self.l(i), self.d);
    }

    #[inline(always)]
    unsafe fn by_dst(&self, i: usize, j: [usize; FOUR], _: Option<FourEdges<'_>>, to: *mut f32) {
        scores::<S, L, R>(self.shape(), self.a.as_ptr(), self.l(i), j.map(|j| self.r(j)), to);
    }

    #[inline(always)]
    unsafe fn by_src(&self, j: usize, i: [usize; FOUR], _: Option<FourEdges<'_>>, to: *mut f32) {
        scores::<S, R, L>(self.shape(), self.a.as_ptr(), self.r(j), i.map(|i| self.l(i)), to);
    }

    #[inline(always)]
    unsafe fn grad_dst(&self, i: usize, j: [usize; FOUR], de: *const f32, dst: *mut f32, shared: *mut f32) {
        grads::<S, L, R>(self.shape(), self.a.as_ptr(), self.l(i), j.map(|j| self.r(j)), de, dst, Some(shared));
    }

    #[inline(always)]
    unsafe fn grad_src(&self, j: usize, i: [usize; FOUR], de: *const f32, src: *mut f32) {
        grads::<S, R, L>(self.shape(), self.a.as_ptr(), self.r(j), i.map(|i| self.l(i)), de, src, None);
    }

    #[inline(always)]
    unsafe fn store_dst(&self, collected: *const f32, to: *mut L, write: Write) {
        store::<S, L>(self.d, collected, to, write);
    }

    #[inline(always)]
    unsafe fn store_src(&self, collected: *const f32, to: *mut R) {
        store::<S, R>(self.d, collected, to, Write::Set);
    }
}

impl<L: Stored, R: Stored> Any for Gatv2<'_, f32, L, R> {}
