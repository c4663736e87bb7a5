//! e_ij = a·LeakyReLU(l_i + r_j) per head, or with W·(features of the edge) in the sum, which is made column by column
//! where the sum is: there is no row per edge. The values are the sources' rows r, or rows of their own.

#![allow(unsafe_op_in_unsafe_fn)]

use super::OP;
use super::edges::{EdgeSlices, FourEdges, WeightRows};
use super::score::{Any, Collected, Edge, Gradients, Operands, Plain, Rows, Score, Widths, store};
use crate::cpu::elementwise::{Convert, Real};
use crate::cpu::host;
use crate::cpu::neighbours::{FOUR, prefetch};
use crate::cpu::simd::{Simd, Sink, Source, Stored};
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::ops::attention::Attention;

pub(super) struct Gatv2<'a, C, L, R> {
    heads: usize,
    d: usize,
    l: &'a [L],
    r: &'a [R],
    /// Where they are not r.
    value: Option<&'a [R]>,
    a: &'a [C],
    slope: f64,
    term: Option<Term<'a, C>>,
}

/// What features of edges add to the sum.
struct Term<'a, C> {
    edges: EdgeSlices<'a, C>,
    /// A row of columns per feature: the weight, turned round.
    weight: Vec<C>,
}

impl<'a, C: Real, L: Convert, R: Convert> Gatv2<'a, C, L, R> {
    pub(super) fn new(
        of: &Attention<'a>,
        [l, r, a]: [&'a Matrix; 3],
        value: Option<&'a Matrix>,
        slope: f64,
    ) -> Result<Self> {
        let term = match (of.edges, of.edge_weight) {
            (Some(edges), Some(weight)) => {
                let (rows, features) = (host::<C>(OP, "edge weight", weight)?, weight.cols());
                let weight = || (0..features).flat_map(|f| rows.iter().skip(f).step_by(features)).copied().collect();
                EdgeSlices::new(edges)?.map(|edges| Term { edges, weight: weight() })
            }
            _ => None,
        };
        let value = value.map(|m| host(OP, "value", m)).transpose()?;
        let (l, r, d) = (host(OP, "l", l)?, host(OP, "r", r)?, l.cols());
        Ok(Self { heads: of.heads, d, l, r, value, a: host(OP, "a", a)?, slope, term })
    }

    /// What features of an edge add in a column.
    fn term(&self, edge: usize, c: usize) -> C {
        let mut sum = C::zero();
        if let Some(Term { edges, weight }) = &self.term {
            edges.each(edge, |f, x| sum = sum + x * weight[f * self.d + c]);
        }
        sum
    }

    /// For each column of a head: a, the sum before the activation, and the activation's slope there.
    fn columns(&self, Edge { j, i, number }: Edge, h: usize) -> impl Iterator<Item = (C, C, C)> {
        let w = self.d / self.heads;
        (h * w..(h + 1) * w).map(move |c| {
            let x = C::of(self.l[i * self.d + c]) + C::of(self.r[j * self.d + c]) + self.term(number, c);
            (self.a[c], x, if x > C::zero() { C::one() } else { C::of(self.slope) })
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

    fn edge_weights(&self) -> usize {
        self.term.as_ref().map_or(0, |term| term.weight.len())
    }

    fn values(&self) -> Rows<'_, R> {
        Rows { all: self.value.unwrap_or(self.r), stride: self.d, offset: 0 }
    }
}

impl<C: Real, L: Convert, R: Convert> Plain<C> for Gatv2<'_, C, L, R> {
    fn score(&self, edge: Edge, h: usize) -> C {
        self.columns(edge, h).fold(C::zero(), |sum, (a, x, slope)| sum + a * x * slope)
    }

    fn grad_dst(&self, edge: Edge, h: usize, de: C, dst: &mut [C], shared: &mut [C], weight: &mut [C]) {
        let first = h * self.head_width();
        for (k, (a, x, slope)) in self.columns(edge, h).enumerate() {
            dst[k] = dst[k] + de * a * slope;
            shared[k] = shared[k] + de * x * slope;
            if let Some(Term { edges, .. }) = &self.term {
                let (c, dx) = (first + k, de * a * slope);
                edges.each(edge.number, |f, x| weight[f * self.d + c] = weight[f * self.d + c] + dx * x);
            }
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
struct Columns<'a> {
    heads: usize,
    /// Columns of one head.
    w: usize,
    /// Of the LeakyReLU.
    slope: f32,
    a: *const f32,
    term: Option<FourTerms<'a>>,
}

/// What the features of four edges add to their sums.
#[derive(Clone, Copy)]
struct FourTerms<'a> {
    edges: FourEdges<'a>,
    weight: WeightRows<*const f32>,
}

impl FourTerms<'_> {
    /// In the columns of one vector.
    #[inline(always)]
    unsafe fn add<S: Simd>(&self, t: usize, x: &mut [S::V; FOUR]) {
        self.edges.add_columns::<S>(WeightRows { at: self.weight.at.add(t), ..self.weight }, x);
    }

    #[inline(always)]
    unsafe fn add_back<S: Simd>(&self, t: usize, dx: [S::V; FOUR], to: *mut f32) {
        self.edges.add_back::<S>(dx, WeightRows { at: to.add(t), d: self.weight.d });
    }
}

/// near + far, and what features of edges add, in the columns of one vector.
#[inline(always)]
unsafe fn sums<S: Simd, F: Source<S>>(
    near: S::V,
    far: [*const F; FOUR],
    term: Option<FourTerms<'_>>,
    t: usize,
) -> [S::V; FOUR] {
    let mut x = far.map(|far| S::add(near, F::load(far.add(t))));
    if let Some(term) = term {
        term.add::<S>(t, &mut x);
    }
    x
}

/// Σ_c a_c·LeakyReLU(near_c + far_c) for every head and four far rows.
#[inline(always)]
unsafe fn scores<S: Simd, N: Source<S>, F: Source<S>>(
    Columns { heads, w, slope, a, term }: Columns<'_>,
    near: *const N,
    far: [*const F; FOUR],
    scores: *mut f32,
) {
    let (one, slope) = (S::splat(1.0), S::splat(slope));
    for h in 0..heads {
        let mut found = [S::splat(0.0); FOUR];
        let mut t = h * w;
        while t < (h + 1) * w {
            let a = S::load(a.add(t));
            let x = sums::<S, F>(N::load(near.add(t)), far, term, t);
            for (found, x) in found.iter_mut().zip(x) {
                *found = S::fma(a, S::mul(x, S::if_positive(x, one, slope)), *found);
            }
            t += S::LANES;
        }
        S::sum4(found, scores.add(FOUR * h));
    }
}

/// Gradients of what all edges share.
#[derive(Clone, Copy)]
struct SharedGrads {
    a: *mut f32,
    weight: *mut f32,
}

/// `acc_c += Σ_e de_e·a_c·slope`, and where they are given `da_c += Σ_e de_e·LeakyReLU(near_c + far_c)` and the
/// weight's gradient.
#[inline(always)]
unsafe fn grads<S: Simd, N: Source<S>, F: Source<S>>(
    Columns { heads, w, slope, a, term }: Columns<'_>,
    near: *const N,
    far: [*const F; FOUR],
    de: *const f32,
    acc: *mut f32,
    shared: Option<SharedGrads>,
) {
    for h in 0..heads {
        let steep: [S::V; FOUR] = std::array::from_fn(|e| S::splat(*de.add(FOUR * h + e)));
        let flat = steep.map(|de| S::mul(de, S::splat(slope)));
        let mut t = h * w;
        while t < (h + 1) * w {
            let (mut sum, mut sum_a) = (S::splat(0.0), S::splat(0.0));
            let mut x = sums::<S, F>(N::load(near.add(t)), far, term, t);
            let a = S::load(a.add(t));
            for e in 0..FOUR {
                let de = S::if_positive(x[e], steep[e], flat[e]);
                sum = S::add(sum, de);
                sum_a = S::fma(de, x[e], sum_a);
                x[e] = S::mul(a, de);
            }
            S::store(acc.add(t), S::fma(a, sum, S::load(acc.add(t))));
            if let Some(to) = shared {
                S::store(to.a.add(t), S::add(sum_a, S::load(to.a.add(t))));
                if let Some(term) = term {
                    term.add_back::<S>(t, x, to.weight);
                }
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
    fn shape<'e>(&self, edges: Option<FourEdges<'e>>) -> Columns<'e> {
        let weight = |term: &Term<'_, f32>| WeightRows { at: term.weight.as_ptr(), d: self.d };
        let term = edges.zip(self.term.as_ref()).map(|(edges, term)| FourTerms { edges, weight: weight(term) });
        Columns { heads: self.heads, w: self.d / self.heads, slope: self.slope as f32, a: self.a.as_ptr(), term }
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
    unsafe fn by_dst(&self, i: usize, j: [usize; FOUR], edges: Option<FourEdges<'_>>, to: *mut f32, _: *mut f32) {
        scores::<S, L, R>(self.shape(edges), self.l(i), j.map(|j| self.r(j)), to);
    }

    #[inline(always)]
    unsafe fn by_src(&self, j: usize, i: [usize; FOUR], edges: Option<FourEdges<'_>>, to: *mut f32, _: *mut f32) {
        scores::<S, R, L>(self.shape(edges), self.r(j), i.map(|i| self.l(i)), to);
    }

    #[inline(always)]
    unsafe fn grad_dst(&self, i: usize, j: [usize; FOUR], of: Gradients<'_>, to: Collected) {
        let shared = Some(SharedGrads { a: to.shared, weight: to.weight });
        grads::<S, L, R>(self.shape(of.edges), self.l(i), j.map(|j| self.r(j)), of.de, to.dst, shared);
    }

    #[inline(always)]
    unsafe fn grad_src(&self, j: usize, i: [usize; FOUR], of: Gradients<'_>, src: *mut f32) {
        grads::<S, R, L>(self.shape(of.edges), self.r(j), i.map(|i| self.l(i)), of.de, src, None);
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
