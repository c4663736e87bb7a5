//! e_ij = q_i·k_j / √w per head. Keys and values of a source are one row `k ‖ v`. Queries may have tails for features
//! of edges behind their heads.

#![allow(unsafe_op_in_unsafe_fn)]

use super::OP;
use super::edges::FourEdges;
use super::score::{
    Any, Collected, Edge, GradientRows, Gradients, Operands, Plain, Rows, Score, SourceGradients, Widths, accumulate,
    add_scaled, dot, dots, far_dots, store,
};
use crate::cpu::elementwise::{Convert, Real};
use crate::cpu::neighbours::{FOUR, prefetch};
use crate::cpu::share::Shared;
use crate::cpu::simd::{Simd, Sink};
use crate::cpu::{host, host_mut};
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::ops::attention::SrcGrads;

pub(super) struct Dot<'a, Q, K> {
    heads: usize,
    d: usize,
    /// Columns of the queries.
    wide: usize,
    q: &'a [Q],
    kv: &'a [K],
}

impl<'a, Q: Convert, K: Convert> Dot<'a, Q, K> {
    pub(super) fn new(heads: usize, q: &'a Matrix, kv: &'a Matrix) -> Result<Self> {
        Ok(Self { heads, d: kv.cols() / 2, wide: q.cols(), q: host(OP, "q", q)?, kv: host(OP, "kv", kv)? })
    }

    #[inline(always)]
    pub(super) fn q(&self, i: usize) -> *const Q {
        self.q.as_ptr().wrapping_add(i * self.wide)
    }

    #[inline(always)]
    pub(super) fn k(&self, j: usize) -> *const K {
        self.kv.as_ptr().wrapping_add(2 * j * self.d)
    }

    /// Numbers behind each head of a query.
    #[inline(always)]
    pub(super) fn numbers_behind(&self) -> usize {
        (self.wide - self.d) / self.heads
    }

    /// One head's query and key.
    fn pair(&self, Edge { j, i, .. }: Edge, h: usize) -> (&[Q], &[K]) {
        let w = self.d / self.heads;
        (&self.q[i * self.wide + h * (self.wide / self.heads)..][..w], &self.kv[2 * j * self.d + h * w..][..w])
    }

    fn root<C: Real>(&self) -> C {
        C::of((self.d / self.heads) as f64).sqrt()
    }
}

impl<Q: Convert, K: Convert> Operands for Dot<'_, Q, K> {
    type Out = Q;
    type Value = K;
    type Dst = Q;
    type Src = K;

    fn heads(&self) -> usize {
        self.heads
    }

    fn head_width(&self) -> usize {
        self.d / self.heads
    }

    fn tail(&self) -> usize {
        self.numbers_behind()
    }

    fn widths(&self) -> Widths {
        Widths { dst: self.wide / self.heads, src: self.head_width(), shared: 0 }
    }

    fn values(&self) -> Rows<'_, K> {
        Rows { all: self.kv, stride: 2 * self.d, offset: self.d }
    }

    fn source_gradients<'a>(&self, to: SrcGrads<'a>) -> Result<SourceGradients<'a, Self>> {
        let (all, stride) = (Shared::new(host_mut(OP, "dkv", to.row)?), 2 * self.d);
        let values = Some(GradientRows { all, stride, offset: self.d });
        Ok(SourceGradients { through: GradientRows { all, stride, offset: 0 }, values })
    }
}

impl<C: Real, Q: Convert, K: Convert> Plain<C> for Dot<'_, Q, K> {
    fn score(&self, edge: Edge, h: usize) -> C {
        let (q, k) = self.pair(edge, h);
        dot::<C, _, _>(q, k) / self.root()
    }

    fn tail_of(&self, i: usize, h: usize) -> &[Q] {
        let (w, stride) = (self.head_width(), self.wide / self.heads);
        &self.q[i * self.wide + h * stride + w..][..stride - w]
    }

    fn tail_scale(&self) -> C {
        C::one() / self.root()
    }

    fn grad_dst(&self, edge: Edge, h: usize, de: C, dst: &mut [C], _: &mut [C], _: &mut [C]) {
        add_scaled(dst, de / self.root(), self.pair(edge, h).1);
    }

    fn grad_src(&self, edge: Edge, h: usize, de: C, src: &mut [C]) {
        add_scaled(src, de / self.root(), self.pair(edge, h).0);
    }
}

impl<S: Simd, Q: Convert + Sink<S>, K: Convert + Sink<S>> Score<S> for Dot<'_, Q, K> {
    fn scale(&self) -> f32 {
        1.0 / self.root::<f32>()
    }

    #[inline(always)]
    fn prefetch_src(&self, j: usize) {
        prefetch(self.k(j), 2 * self.d);
    }

    #[inline(always)]
    fn prefetch_dst(&self, i: usize) {
        prefetch(self.q(i), self.wide);
    }

    #[inline(always)]
    unsafe fn by_dst(&self, i: usize, j: [usize; FOUR], edges: Option<FourEdges<'_>>, to: *mut f32, _: *mut f32) {
        dots::<S, Q, K>(self.columns(), self.q(i), j.map(|j| self.k(j)), edges, to);
    }

    #[inline(always)]
    unsafe fn by_src(&self, j: usize, i: [usize; FOUR], edges: Option<FourEdges<'_>>, to: *mut f32, _: *mut f32) {
        far_dots::<S, K, Q>(self.columns().turned(), self.k(j), i.map(|i| self.q(i)), edges, to);
    }

    #[inline(always)]
    unsafe fn grad_dst(&self, _: usize, j: [usize; FOUR], of: Gradients<'_>, to: Collected) {
        accumulate::<S, K>(self.columns(), of.de, None, j.map(|j| self.k(j)), to.dst);
    }

    #[inline(always)]
    unsafe fn grad_src(&self, _: usize, i: [usize; FOUR], of: Gradients<'_>, src: *mut f32) {
        accumulate::<S, Q>(self.columns().turned(), of.de, None, i.map(|i| self.q(i)), src);
    }

    #[inline(always)]
    unsafe fn store_dst(&self, collected: *const f32, to: *mut Q, write: Write) {
        store::<S, Q>(self.wide, collected, to, write);
    }

    #[inline(always)]
    unsafe fn store_src(&self, collected: *const f32, to: *mut K) {
        store::<S, K>(self.d, collected, to, Write::Set);
    }
}

impl Any for Dot<'_, f32, half::bf16> {}
