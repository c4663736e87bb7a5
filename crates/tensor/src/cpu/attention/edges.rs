//! What features of edges do with the tails of rows: dot products with them, and sums of them.

#![allow(unsafe_op_in_unsafe_fn)]

use std::arch::x86_64::{__m512, _mm512_mask_mov_ps, _mm512_maskz_loadu_ps, _mm512_set1_ps};

use super::OP;
use crate::cpu::elementwise::{Convert, Real};
use crate::cpu::host;
use crate::cpu::neighbours::FOUR;
use crate::cpu::simd::{Simd, Source};
use crate::dtype::Element;
use crate::error::Result;
use crate::ops::edge_values::EdgeTail;

/// The features of all edges.
pub(super) struct EdgeSlices<'a, C> {
    rows: &'a [C],
    /// Columns of a row.
    stored: usize,
    /// Those that are numbers.
    dense: usize,
    /// For each of the others, the place of its first category in a tail, and their number.
    places: Vec<[usize; 2]>,
}

impl<'a, C: Element> EdgeSlices<'a, C> {
    /// Those of `tail`, where its edges have any.
    pub(super) fn new(tail: &'a EdgeTail) -> Result<Option<Self>> {
        let Some(rows) = &tail.rows else { return Ok(None) };
        let (columns, rows) = (&tail.columns, host(OP, "edge features", rows)?);
        let (stored, dense, places) = (columns.stored(), columns.dense(), columns.places().collect());
        Ok(Some(Self { rows, stored, dense, places }))
    }
}

/// The place in a tail that the id of a category stands for. An id is a number from a file, and is kept inside the tail
/// whatever it is.
#[inline(always)]
fn place([first, count]: [usize; 2], id: f64) -> usize {
    first + (id as usize).min(count - 1)
}

impl<C: Real> EdgeSlices<'_, C> {
    fn row(&self, edge: usize) -> (&[C], &[C]) {
        self.rows[edge * self.stored..][..self.stored].split_at(self.dense)
    }

    /// Hands `f` the features of an edge that are not 0 because they are another category's, each with its place.
    pub(super) fn each(&self, edge: usize, mut f: impl FnMut(usize, C)) {
        let (numbers, ids) = self.row(edge);
        numbers.iter().enumerate().for_each(|(k, x)| f(k, *x));
        self.places.iter().zip(ids).for_each(|(at, id)| f(place(*at, id.widen()), C::one()));
    }

    /// What `tail`, which stands behind a head, comes to for an edge.
    pub(super) fn dot<Q: Convert>(&self, edge: usize, tail: &[Q]) -> C {
        let (numbers, ids) = self.row(edge);
        let sum = numbers.iter().zip(tail).fold(C::zero(), |sum, (x, y)| sum + *x * C::of(*y));
        self.places.iter().zip(ids).fold(sum, |sum, (at, id)| sum + C::of(tail[place(*at, id.widen())]))
    }

    /// Adds `weight` times an edge's features to `tail`.
    pub(super) fn add(&self, edge: usize, weight: C, tail: &mut [C]) {
        self.each(edge, |k, x| tail[k] = tail[k] + weight * x);
    }
}

/// Heads in a row: how many, and the distance from one to the next.
#[derive(Clone, Copy)]
pub(super) struct Stride {
    pub(super) heads: usize,
    pub(super) by: usize,
}

/// The features of four edges. Numbers for kernels lie as `[4h + e]`.
///
/// Safety of the methods: as for [`Score`](super::score::Score); tails are behind the pointers of all heads.
#[derive(Clone, Copy)]
pub(super) struct FourEdges<'a> {
    rows: [*const f32; FOUR],
    of: &'a EdgeSlices<'a, f32>,
}

impl<'a> EdgeSlices<'a, f32> {
    /// Those of these edges.
    #[inline(always)]
    pub(super) fn four(&'a self, edges: [usize; FOUR]) -> FourEdges<'a> {
        FourEdges { rows: edges.map(|edge| self.rows.as_ptr().wrapping_add(edge * self.stored)), of: self }
    }

    /// An edge's features in the lanes of a vector: as many as there are, and ones where its categories are.
    ///
    /// # Safety
    /// The processor has AVX-512 F, and there are at most 16 features.
    #[inline(always)]
    pub(super) unsafe fn vector(&self, edge: usize) -> __m512 {
        let row = self.rows.as_ptr().add(edge * self.stored);
        let mut x = _mm512_maskz_loadu_ps(((1_u32 << self.dense) - 1) as u16, row);
        for (k, [first, count]) in self.places.iter().enumerate() {
            let id = (*row.add(self.dense + k) as i32).max(0) as usize;
            x = _mm512_mask_mov_ps(x, 1 << (first + id.min(count - 1)), _mm512_set1_ps(1.0));
        }
        x
    }

    /// Where an edge's begin, and how many there are, to be prefetched.
    #[inline(always)]
    pub(super) fn at(&self, edge: usize) -> (*const f32, usize) {
        (self.rows.as_ptr().wrapping_add(edge * self.stored), self.stored)
    }
}

impl FourEdges<'_> {
    /// `sums[e] +=` parts of e's numbers times one tail.
    #[inline(always)]
    pub(super) unsafe fn dots<S: Simd, X: Source<S>>(&self, tail: *const X, sums: &mut [S::V; FOUR]) {
        let rows = self.rows;
        let (dense, whole) = (self.of.dense, self.of.dense - self.of.dense % S::LANES);
        for t in (0..whole).step_by(S::LANES) {
            let x = X::load(tail.add(t));
            for e in 0..FOUR {
                sums[e] = S::fma(x, S::load(rows[e].add(t)), sums[e]);
            }
        }
        if whole < dense {
            let x = X::load_first(tail.add(whole), dense - whole);
            for e in 0..FOUR {
                sums[e] = S::fma(x, S::load_first(rows[e].add(whole), dense - whole), sums[e]);
            }
        }
    }

    /// `sums[e] +=` parts of e's numbers times a tail of its own.
    #[inline(always)]
    pub(super) unsafe fn far_dots<S: Simd, X: Source<S>>(&self, tails: [*const X; FOUR], sums: &mut [S::V; FOUR]) {
        let (dense, whole) = (self.of.dense, self.of.dense - self.of.dense % S::LANES);
        for t in (0..whole).step_by(S::LANES) {
            for e in 0..FOUR {
                sums[e] = S::fma(X::load(tails[e].add(t)), S::load(self.rows[e].add(t)), sums[e]);
            }
        }
        if whole < dense {
            for e in 0..FOUR {
                let x = X::load_first(tails[e].add(whole), dense - whole);
                sums[e] = S::fma(x, S::load_first(self.rows[e].add(whole), dense - whole), sums[e]);
            }
        }
    }

    /// Adds what the categories of each edge look up in tails: those behind the heads of `rows[e]`.
    #[inline(always)]
    pub(super) unsafe fn look_up<X: Convert>(&self, heads: Stride, rows: [*const X; FOUR], scores: *mut f32) {
        for (k, at) in self.of.places.iter().enumerate() {
            for (e, row) in rows.into_iter().enumerate() {
                let from = row.add(self.place(k, *at, e));
                for h in 0..heads.heads {
                    *scores.add(FOUR * h + e) += f32::of(*from.add(h * heads.by));
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn place(&self, k: usize, [first, count]: [usize; 2], e: usize) -> usize {
        // Through 32 bits, which processors convert to.
        let id = *self.rows[e].add(self.of.dense + k) as i32;
        first + (id.max(0) as usize).min(count - 1)
    }

    /// Adds to the tails behind heads: the edges' features, each times a weight.
    #[inline(always)]
    pub(super) unsafe fn accumulate<S: Simd>(&self, heads: Stride, weights: *const f32, tails: *mut f32) {
        let (dense, whole) = (self.of.dense, self.of.dense - self.of.dense % S::LANES);
        for t in (0..dense).step_by(S::LANES) {
            let n = if t < whole { S::LANES } else { dense - whole };
            let load = |p: *const f32| if t < whole { S::load(p) } else { S::load_first(p, n) };
            let rows = self.rows.map(|row| load(row.add(t)));
            for h in 0..heads.heads {
                let to = tails.add(h * heads.by + t);
                let mut sum = load(to);
                for (e, row) in rows.into_iter().enumerate() {
                    sum = S::fma(S::splat(*weights.add(FOUR * h + e)), row, sum);
                }
                if t < whole {
                    S::store(to, sum);
                } else {
                    S::store_first(to, n, sum);
                }
            }
        }
        for (k, at) in self.of.places.iter().enumerate() {
            for e in 0..FOUR {
                let to = tails.add(self.place(k, *at, e));
                for h in 0..heads.heads {
                    *to.add(h * heads.by) += *weights.add(FOUR * h + e);
                }
            }
        }
    }
}

/// Weights of features, a row of `d` columns for each; `at` is a column of the first.
#[derive(Clone, Copy)]
pub(super) struct WeightRows<P> {
    pub(super) at: P,
    pub(super) d: usize,
}

impl FourEdges<'_> {
    /// `x[e] +=` what weights make of e's features, in as many columns as a vector has.
    #[inline(always)]
    pub(super) unsafe fn add_columns<S: Simd>(
        &self,
        WeightRows { at: weight, d }: WeightRows<*const f32>,
        x: &mut [S::V; FOUR],
    ) {
        for f in 0..self.of.dense {
            let weight = S::load(weight.add(f * d));
            for (x, row) in x.iter_mut().zip(self.rows) {
                *x = S::fma(S::splat(*row.add(f)), weight, *x);
            }
        }
        for (k, at) in self.of.places.iter().enumerate() {
            for (e, x) in x.iter_mut().enumerate() {
                *x = S::add(*x, S::load(weight.add(self.place(k, *at, e) * d)));
            }
        }
    }

    /// The way back: the weights' gradients `+=` what those of four edges in these columns come to.
    #[inline(always)]
    pub(super) unsafe fn add_back<S: Simd>(&self, dx: [S::V; FOUR], WeightRows { at: to, d }: WeightRows<*mut f32>) {
        for f in 0..self.of.dense {
            let mut sum = S::load(to.add(f * d));
            for (dx, row) in dx.into_iter().zip(self.rows) {
                sum = S::fma(S::splat(*row.add(f)), dx, sum);
            }
            S::store(to.add(f * d), sum);
        }
        for (k, at) in self.of.places.iter().enumerate() {
            for (e, dx) in dx.into_iter().enumerate() {
                let to = to.add(self.place(k, *at, e) * d);
                S::store(to, S::add(S::load(to), dx));
            }
        }
    }
}

/// `tails[h] *= keep[4h]`, of `count` numbers each.
#[inline(always)]
pub(super) unsafe fn scale_tails(heads: Stride, count: usize, keep: *const f32, tails: *mut f32) {
    for h in 0..heads.heads {
        let keep = *keep.add(FOUR * h);
        for t in 0..count {
            *tails.add(h * heads.by + t) *= keep;
        }
    }
}
