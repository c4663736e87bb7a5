//! e_ij = LeakyReLU(l_i + r_j) with a number per node and head, and one more that features of edges make; the values
//! are rows of their own.

#![allow(unsafe_op_in_unsafe_fn)]

use std::arch::x86_64::*;

use super::OP;
use super::edges::{EdgeSlices, FourEdges, Stride};
use super::score::{Any, Collected, Edge, Gradients, Operands, Plain, Rows, Score, Widths};
use crate::cpu::elementwise::{Convert, Real};
use crate::cpu::host;
use crate::cpu::neighbours::{FOUR, prefetch};
use crate::cpu::simd::{Simd, Sink, Stored, by_heads};
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::ops::attention::Attention;

pub(super) struct Gat<'a, C, V> {
    heads: usize,
    d: usize,
    l: &'a [C],
    r: &'a [C],
    z: &'a [V],
    slope: f64,
    term: Option<Term<'a, C>>,
}

/// What features of edges add to the sum.
struct Term<'a, C> {
    edges: EdgeSlices<'a, C>,
    /// A row of `features` per head.
    weight: &'a [C],
    features: usize,
}

impl<C: Real> Term<'_, C> {
    fn of(&self, edge: usize, h: usize) -> C {
        self.edges.dot(edge, &self.weight[h * self.features..][..self.features])
    }
}

impl<'a, C: Real, V: Convert> Gat<'a, C, V> {
    pub(super) fn new(a: &Attention<'a>, [l, r, z]: [&'a Matrix; 3], slope: f64) -> Result<Self> {
        let term = match (a.edges, a.edge_weight) {
            (Some(edges), Some(weight)) => {
                let (rows, features) = (host(OP, "edge weight", weight)?, weight.cols());
                EdgeSlices::new(edges)?.map(|edges| Term { edges, weight: rows, features })
            }
            _ => None,
        };
        let (l, r) = (host(OP, "l", l)?, host(OP, "r", r)?);
        Ok(Self { heads: a.heads, d: z.cols(), l, r, z: host(OP, "z", z)?, slope, term })
    }

    /// Before the activation, and its slope there.
    fn sum(&self, Edge { j, i, number }: Edge, h: usize) -> (C, C) {
        let term = self.term.as_ref().map_or(C::zero(), |term| term.of(number, h));
        let x = self.l[i * self.heads + h] + self.r[j * self.heads + h] + term;
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

    fn edge_weights(&self) -> usize {
        self.term.as_ref().map_or(0, |term| term.weight.len())
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

    fn grad_dst(&self, edge: Edge, h: usize, de: C, dst: &mut [C], _: &mut [C], weight: &mut [C]) {
        let through = de * self.sum(edge, h).1;
        dst[0] = dst[0] + through;
        if let Some(Term { edges, features, .. }) = &self.term {
            edges.add(edge.number, through, &mut weight[h * features..][..*features]);
        }
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

    /// What features of edges add; whether they do.
    #[inline(always)]
    unsafe fn terms<S: Simd>(&self, edges: Option<FourEdges<'_>>, to: *mut f32) -> bool {
        let (Some(edges), Some(Term { weight, features, .. })) = (edges, &self.term) else { return false };
        for h in 0..self.heads {
            let mut sums = [S::splat(0.0); FOUR];
            edges.dots::<S, f32>(weight.as_ptr().add(h * features), &mut sums);
            S::sum4(sums, to.add(FOUR * h));
        }
        edges.look_up(Stride { heads: self.heads, by: *features }, [weight.as_ptr(); FOUR], to);
        true
    }

    /// The scores between a row's numbers and those of four others, and the slopes of the activation there.
    #[inline(always)]
    unsafe fn scores<S: Simd>(
        &self,
        near: *const f32,
        far: [*const f32; FOUR],
        edges: Option<FourEdges<'_>>,
        to: *mut f32,
        slopes: *mut f32,
    ) {
        let more = self.terms::<S>(edges, to);
        by_heads(self.heads, far, |h, far| {
            let (to, mut x) = (to.add(FOUR * h), _mm_add_ps(_mm_set1_ps(*near.add(h)), far));
            if more {
                x = _mm_add_ps(x, _mm_loadu_ps(to));
            }
            let slope = self.slopes(x);
            _mm_storeu_ps(slopes.add(FOUR * h), slope);
            _mm_storeu_ps(to, _mm_mul_ps(x, slope));
        });
    }

    /// `acc[4h + e] += de[4h + e] · slope`; what is added is left where the slopes were.
    #[inline(always)]
    unsafe fn grads(&self, de: *const f32, slopes: *mut f32, acc: *mut f32) {
        for at in (0..self.heads).map(|h| FOUR * h) {
            let through = _mm_mul_ps(_mm_loadu_ps(de.add(at)), _mm_loadu_ps(slopes.add(at)));
            _mm_storeu_ps(slopes.add(at), through);
            _mm_storeu_ps(acc.add(at), _mm_add_ps(_mm_loadu_ps(acc.add(at)), through));
        }
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
    unsafe fn by_dst(&self, i: usize, j: [usize; FOUR], edges: Option<FourEdges<'_>>, to: *mut f32, slopes: *mut f32) {
        self.scores::<S>(self.l(i), j.map(|j| self.r(j)), edges, to, slopes);
    }

    #[inline(always)]
    unsafe fn by_src(&self, j: usize, i: [usize; FOUR], edges: Option<FourEdges<'_>>, to: *mut f32, slopes: *mut f32) {
        self.scores::<S>(self.r(j), i.map(|i| self.l(i)), edges, to, slopes);
    }

    #[inline(always)]
    unsafe fn grad_dst(&self, _: usize, _: [usize; FOUR], of: Gradients<'_>, to: Collected) {
        self.grads(of.de, of.slopes, to.dst);
        if let (Some(edges), Some(Term { features, .. })) = (of.edges, &self.term) {
            edges.accumulate::<S>(Stride { heads: self.heads, by: *features }, of.slopes, to.weight);
        }
    }

    #[inline(always)]
    unsafe fn grad_src(&self, _: usize, _: [usize; FOUR], of: Gradients<'_>, src: *mut f32) {
        self.grads(of.de, of.slopes, src);
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
