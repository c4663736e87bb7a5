//! e_ij = LeakyReLU(l_i + r_j) with a number per node and head; the values are rows of their own.

#![allow(unsafe_op_in_unsafe_fn)]

use std::arch::x86_64::*;

use super::OP;
use super::edges::FourEdges;
use super::score::{Any, Edge, Operands, Plain, Rows, Score, Widths};
use crate::cpu::elementwise::{Convert, Real};
use crate::cpu::host;
use crate::cpu::neighbours::{FOUR, prefetch};
use crate::cpu::simd::{Simd, Sink, Stored, by_heads};
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::Write;

pub(super) struct Gat<'a, C, V> {
    heads: usize,
    d: usize,
    l: &'a [C],
    r: &'a [C],
    z: &'a [V],
    slope: f64,
}

impl<'a, C: Real, V: Convert> Gat<'a, C, V> {
    pub(super) fn new(heads: usize, l: &'a Matrix, r: &'a Matrix, z: &'a Matrix, slope: f64) -> Result<Self> {
        let (l, r) = (host(OP, "l", l)?, host(OP, "r", r)?);
        Ok(Self { heads, d: z.cols(), l, r, z: host(OP, "z", z)?, slope })
    }

    /// Before the activation, and its slope there.
    fn sum(&self, Edge { j, i }: Edge, h: usize) -> (C, C) {
        let x = self.l[i * self.heads + h] + self.r[j * self.heads + h];
        (x, if x > C::zero() { C::one() } else { C::of(self.slope) })
    }
}

impl<C: Real, V: Convert> Operands for Gat<'_, C, V> {
    type Out = V;
    type Value = V;
    type Dst = C;
    type Src = C;

    fn heads(&self) -> usize {
        self.heads
    }

    fn head_width(&self) -> usize {
        self.d / self.heads
    }

    fn widths(&self) -> Widths {
        Widths { dst: 1, src: 1, shared: 0 }
    }

    fn values(&self) -> Rows<'_, V> {
        Rows { all: self.z, stride: self.d, offset: 0 }
    }

    /// Four edges side by side: they are added up at the end of a row.
    fn dst_size(&self) -> usize {
        FOUR * self.heads
    }

    fn src_size(&self) -> usize {
        FOUR * self.heads
    }
}

impl<C: Real, V: Convert> Plain<C> for Gat<'_, C, V> {
    fn score(&self, edge: Edge, h: usize) -> C {
        let (x, slope) = self.sum(edge, h);
        x * slope
    }

    fn grad_dst(&self, edge: Edge, h: usize, de: C, dst: &mut [C], _: &mut [C]) {
        dst[0] = dst[0] + de * self.sum(edge, h).1;
    }

    fn grad_src(&self, edge: Edge, h: usize, de: C, src: &mut [C]) {
        src[0] = src[0] + de * self.sum(edge, h).1;
    }
}

impl<V> Gat<'_, f32, V> {
    #[inline(always)]
    fn l(&self, i: usize) -> *const f32 {
        self.l.as_ptr().wrapping_add(i * self.heads)
    }

    #[inline(always)]
    fn r(&self, j: usize) -> *const f32 {
        self.r.as_ptr().wrapping_add(j * self.heads)
    }

    /// Four edges of one head, before the activation: the slope there.
    #[inline(always)]
    unsafe fn slopes(&self, x: __m128) -> __m128 {
        let positive = _mm_cmpgt_ps(x, _mm_setzero_ps());
        let (one, slope) = (_mm_set1_ps(1.0), _mm_set1_ps(self.slope as f32));
        _mm_or_ps(_mm_and_ps(positive, one), _mm_andnot_ps(positive, slope))
    }

    #[inline(always)]
    unsafe fn scores(&self, near: *const f32, far: [*const f32; FOUR], scores: *mut f32) {
        by_heads(self.heads, far, |h, far| {
            let x = _mm_add_ps(_mm_set1_ps(*near.add(h)), far);
            _mm_storeu_ps(scores.add(FOUR * h), _mm_mul_ps(x, self.slopes(x)));
        });
    }

    /// `acc[4h + e] += de[4h + e] · slope`
    #[inline(always)]
    unsafe fn grads(&self, near: *const f32, far: [*const f32; FOUR], de: *const f32, acc: *mut f32) {
        by_heads(self.heads, far, |h, far| {
            let slopes = self.slopes(_mm_add_ps(_mm_set1_ps(*near.add(h)), far));
            let (de, acc) = (_mm_loadu_ps(de.add(FOUR * h)), acc.add(FOUR * h));
            _mm_storeu_ps(acc, _mm_add_ps(_mm_loadu_ps(acc), _mm_mul_ps(de, slopes)));
        });
    }

    /// `to[h] (+)= Σ_e acc[4h + e]`
    #[inline(always)]
    unsafe fn store(&self, acc: *const f32, to: *mut f32, write: Write) {
        for h in 0..self.heads {
            let sum = (0..FOUR).fold(0.0, |sum, e| sum + *acc.add(FOUR * h + e));
            let old = if write == Write::Add { *to.add(h) } else { 0.0 };
            to.add(h).write(old + sum);
        }
    }
}

impl<S: Simd, V: Convert + Sink<S>> Score<S> for Gat<'_, f32, V> {
    #[inline(always)]
    fn prefetch_src(&self, j: usize) {
        prefetch(self.r(j), self.heads);
        prefetch(self.z.as_ptr().wrapping_add(j * self.d), self.d);
    }

    #[inline(always)]
    fn prefetch_dst(&self, i: usize) {
        prefetch(self.l(i), self.heads);
    }

    #[inline(always)]
    unsafe fn by_dst(&self, i: usize, j: [usize; FOUR], _: Option<FourEdges<'_>>, scores: *mut f32) {
        self.scores(self.l(i), j.map(|j| self.r(j)), scores);
    }

    #[inline(always)]
    unsafe fn by_src(&self, j: usize, i: [usize; FOUR], _: Option<FourEdges<'_>>, scores: *mut f32) {
        self.scores(self.r(j), i.map(|i| self.l(i)), scores);
    }

    #[inline(always)]
    unsafe fn grad_dst(&self, i: usize, j: [usize; FOUR], de: *const f32, dst: *mut f32, _: *mut f32) {
        self.grads(self.l(i), j.map(|j| self.r(j)), de, dst);
    }

    #[inline(always)]
    unsafe fn grad_src(&self, j: usize, i: [usize; FOUR], de: *const f32, src: *mut f32) {
        self.grads(self.r(j), i.map(|i| self.l(i)), de, src);
    }

    #[inline(always)]
    unsafe fn store_dst(&self, collected: *const f32, to: *mut f32, write: Write) {
        self.store(collected, to, write);
    }

    #[inline(always)]
    unsafe fn store_src(&self, collected: *const f32, to: *mut f32) {
        self.store(collected, to, Write::Set);
    }
}

impl<V: Stored> Any for Gat<'_, f32, V> {}
