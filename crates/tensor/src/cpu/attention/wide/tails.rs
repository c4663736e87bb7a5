//! Rows with tails for features of edges, in registers: what the passes do with rows, for plain ones and for those.
//!
//! A head's tail is at most one vector, and so are an edge's features, categories as ones among zeros. They are loaded
//! once for an edge and serve all eight heads; products with tails are added to those with keys before both are summed
//! over lanes.

#![allow(unsafe_op_in_unsafe_fn)]

mod pairs;

use std::arch::x86_64::*;

use super::storage::{COLUMNS, HEAD, HEADS, Lanes, Storage, Sums, V, halves, load_columns, quarters, store_columns};
use crate::cpu::attention::dot::Dot;
use crate::cpu::attention::vector::Pass;
use crate::cpu::neighbours::{FOUR, prefetch};
use crate::ops::Write;

/// How the columns of destinations' rows lie, and what edges bring for them. Safety of all methods: as for [`Storage`].
pub(super) trait Shape<T: Storage>: Copy {
    /// Sums of a group of heads.
    type Sums: Copy;
    /// Features of four edges.
    type Four: Copy;

    fn new(score: &Dot<'_, T, T>) -> Self;

    /// From one group of heads to the next.
    fn group(self) -> usize;

    unsafe fn four(self, o: &Pass<'_, Dot<'_, T, T>>, at: usize, count: usize) -> Self::Four;

    unsafe fn zero() -> Self::Sums;

    /// `x·rows[e]` per head, of a row with tails and rows without.
    unsafe fn dots(self, x: *const T, rows: [*const T; FOUR], next: [*const T; FOUR], four: &Self::Four) -> Lanes;

    /// The same of a row without and rows with tails.
    unsafe fn far_dots(self, x: *const T, rows: [*const T; FOUR], next: [*const T; FOUR], four: &Self::Four) -> Lanes;

    /// `sums += Σ_e weights_e·rows[e]`, and of the features for tails.
    unsafe fn accumulate(
        self,
        sums: &mut Self::Sums,
        weights: Lanes,
        rows: [*const T; FOUR],
        next: Option<[*const T; FOUR]>,
        four: &Self::Four,
    );

    /// `sums += Σ_e weights_e·rows[e]` of rows with tails, which are passed over.
    unsafe fn accumulate_far(self, sums: &mut Sums, weights: Lanes, rows: [*const T; FOUR]);

    unsafe fn scale(sums: &mut Self::Sums, by: V);

    unsafe fn load(self, from: *const f32) -> Self::Sums;

    unsafe fn store(self, sums: Self::Sums, to: *mut f32);

    unsafe fn write(self, sums: &Self::Sums, to: *mut T, write: Write);
}

/// Of edges that bring none.
#[derive(Clone, Copy)]
pub(super) struct NoFeatures;

/// Without tails.
#[derive(Clone, Copy)]
pub(super) struct Plain;

impl<T: Storage> Shape<T> for Plain {
    type Sums = Sums;
    type Four = NoFeatures;

    #[inline(always)]
    fn new(_: &Dot<'_, T, T>) -> Self {
        Self
    }

    #[inline(always)]
    fn group(self) -> usize {
        COLUMNS
    }

    #[inline(always)]
    unsafe fn four(self, _: &Pass<'_, Dot<'_, T, T>>, _: usize, _: usize) -> NoFeatures {
        NoFeatures
    }

    #[inline(always)]
    unsafe fn zero() -> Sums {
        [_mm512_setzero_ps(); HEADS]
    }

    #[inline(always)]
    unsafe fn dots(self, x: *const T, rows: [*const T; FOUR], next: [*const T; FOUR], _: &NoFeatures) -> Lanes {
        T::dots(x, rows, next)
    }

    #[inline(always)]
    unsafe fn far_dots(self, x: *const T, rows: [*const T; FOUR], next: [*const T; FOUR], _: &NoFeatures) -> Lanes {
        T::dots(x, rows, next)
    }

    #[inline(always)]
    unsafe fn accumulate(
        self,
        sums: &mut Sums,
        weights: Lanes,
        rows: [*const T; FOUR],
        next: Option<[*const T; FOUR]>,
        _: &NoFeatures,
    ) {
        T::accumulate(sums, weights, rows, next);
    }

    #[inline(always)]
    unsafe fn accumulate_far(self, sums: &mut Sums, weights: Lanes, rows: [*const T; FOUR]) {
        T::accumulate(sums, weights, rows, None);
    }

    #[inline(always)]
    unsafe fn scale(sums: &mut Sums, by: V) {
        T::scale(sums, by);
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> Sums {
        load_columns::<T>(from)
    }

    #[inline(always)]
    unsafe fn store(self, sums: Sums, to: *mut f32) {
        store_columns::<T>(sums, to);
    }

    #[inline(always)]
    unsafe fn write(self, sums: &Sums, to: *mut T, write: Write) {
        T::write(sums, to, write);
    }
}

/// With tails of at most a vector.
#[derive(Clone, Copy)]
pub(super) struct Tailed {
    /// From one head to the next.
    by: usize,
    /// The numbers of a tail.
    tail: __mmask16,
}

/// A number of each of four edges and eight heads, where a vector can be made of it.
#[repr(align(64))]
struct Spread([f32; FOUR * HEADS]);

impl Spread {
    /// As in [`Storage::accumulate`] of f32.
    #[inline(always)]
    unsafe fn of(weights: Lanes) -> Self {
        let mut spread = Self([0.0; FOUR * HEADS]);
        let start = spread.0.as_mut_ptr().cast::<V>();
        start.write_volatile(weights[0]);
        start.add(1).write_volatile(weights[1]);
        spread
    }

    #[inline(always)]
    unsafe fn weight(&self, e: usize, h: usize) -> V {
        _mm512_set1_ps(*self.0.as_ptr().add(HEADS * e + h))
    }
}

impl Shape<f32> for Tailed {
    type Sums = [Sums; 2];
    type Four = [V; FOUR];

    #[inline(always)]
    fn new(score: &Dot<'_, f32, f32>) -> Self {
        Self::with(score.numbers_behind())
    }

    #[inline(always)]
    fn group(self) -> usize {
        HEADS * self.by
    }

    #[inline(always)]
    unsafe fn four(self, o: &Pass<'_, Dot<'_, f32, f32>>, at: usize, count: usize) -> [V; FOUR] {
        vectors(o, at, count)
    }

    #[inline(always)]
    unsafe fn zero() -> [Sums; 2] {
        [[_mm512_setzero_ps(); HEADS]; 2]
    }

    #[inline(always)]
    unsafe fn dots(self, x: *const f32, rows: [*const f32; FOUR], next: [*const f32; FOUR], four: &[V; FOUR]) -> Lanes {
        let mut sums = [[_mm512_setzero_ps(); FOUR]; 2];
        for (half, sums) in sums.iter_mut().enumerate() {
            let (mut own, mut tail) = ([_mm512_setzero_ps(); 4], [_mm512_setzero_ps(); 4]);
            for h in 0..4 {
                let at = x.add(self.by * (4 * half + h));
                own[h] = _mm512_loadu_ps(at);
                tail[h] = _mm512_maskz_loadu_ps(self.tail, at.add(HEAD));
            }
            for (e, sum) in sums.iter_mut().enumerate() {
                let mut products = [_mm512_setzero_ps(); 4];
                for (h, product) in products.iter_mut().enumerate() {
                    let column = HEAD * (4 * half + h);
                    prefetch(next[e].wrapping_add(column), HEAD);
                    let of_key = _mm512_mul_ps(own[h], _mm512_loadu_ps(rows[e].add(column)));
                    *product = _mm512_fmadd_ps(tail[h], four[e], of_key);
                }
                *sum = quarters(products);
            }
        }
        together(sums)
    }

    #[inline(always)]
    unsafe fn far_dots(
        self,
        x: *const f32,
        rows: [*const f32; FOUR],
        next: [*const f32; FOUR],
        four: &[V; FOUR],
    ) -> Lanes {
        let mut sums = [[_mm512_setzero_ps(); FOUR]; 2];
        for (half, sums) in sums.iter_mut().enumerate() {
            let mut own = [_mm512_setzero_ps(); 4];
            for (h, own) in own.iter_mut().enumerate() {
                *own = _mm512_loadu_ps(x.add(HEAD * (4 * half + h)));
            }
            for (e, sum) in sums.iter_mut().enumerate() {
                let mut products = [_mm512_setzero_ps(); 4];
                for (h, product) in products.iter_mut().enumerate() {
                    let column = self.by * (4 * half + h);
                    prefetch(next[e].wrapping_add(column), self.by);
                    let at = rows[e].add(column);
                    let of_key = _mm512_mul_ps(own[h], _mm512_loadu_ps(at));
                    *product = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(self.tail, at.add(HEAD)), four[e], of_key);
                }
                *sum = quarters(products);
            }
        }
        together(sums)
    }

    #[inline(always)]
    unsafe fn accumulate(
        self,
        sums: &mut [Sums; 2],
        weights: Lanes,
        rows: [*const f32; FOUR],
        next: Option<[*const f32; FOUR]>,
        four: &[V; FOUR],
    ) {
        let spread = Spread::of(weights);
        let [own, tails] = sums;
        for e in 0..FOUR {
            for (h, sum) in own.iter_mut().enumerate() {
                if let Some(next) = next {
                    prefetch(next[e].wrapping_add(HEAD * h), HEAD);
                }
                *sum = _mm512_fmadd_ps(spread.weight(e, h), _mm512_loadu_ps(rows[e].add(HEAD * h)), *sum);
            }
        }
        for (e, features) in four.iter().enumerate() {
            for (h, tail) in tails.iter_mut().enumerate() {
                *tail = _mm512_fmadd_ps(spread.weight(e, h), *features, *tail);
            }
        }
    }

    #[inline(always)]
    unsafe fn accumulate_far(self, sums: &mut Sums, weights: Lanes, rows: [*const f32; FOUR]) {
        let spread = Spread::of(weights);
        for (e, row) in rows.into_iter().enumerate() {
            for (h, sum) in sums.iter_mut().enumerate() {
                *sum = _mm512_fmadd_ps(spread.weight(e, h), _mm512_loadu_ps(row.add(self.by * h)), *sum);
            }
        }
    }

    #[inline(always)]
    unsafe fn scale(sums: &mut [Sums; 2], by: V) {
        for sums in sums {
            <f32 as Storage>::scale(sums, by);
        }
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> [Sums; 2] {
        self.load_sums::<f32>(from)
    }

    #[inline(always)]
    unsafe fn store(self, sums: [Sums; 2], to: *mut f32) {
        self.store_sums::<f32>(sums, to);
    }

    #[inline(always)]
    unsafe fn write(self, sums: &[Sums; 2], to: *mut f32, write: Write) {
        let mut sums = *sums;
        if write == Write::Add {
            let old = self.load_sums::<f32>(to);
            for (sums, old) in sums.iter_mut().zip(old) {
                for (sum, old) in sums.iter_mut().zip(old) {
                    *sum = _mm512_add_ps(*sum, old);
                }
            }
        }
        self.store_sums::<f32>(sums, to);
    }
}

impl Tailed {
    /// With tails of so many numbers.
    fn with(tail: usize) -> Self {
        Self { by: HEAD + tail, tail: ((1_u32 << tail) - 1) as u16 }
    }

    /// Sums from columns in order.
    #[inline(always)]
    unsafe fn load_sums<T: Storage>(self, from: *const f32) -> [Sums; 2] {
        let [mut heads, mut tails] = [[_mm512_setzero_ps(); HEADS]; 2];
        for (h, (head, tail)) in heads.iter_mut().zip(&mut tails).enumerate() {
            let at = from.add(self.by * h);
            *head = _mm512_loadu_ps(at);
            *tail = _mm512_maskz_loadu_ps(self.tail, at.add(HEAD));
        }
        [T::from_columns(heads), tails]
    }

    /// Columns in order from sums.
    #[inline(always)]
    unsafe fn store_sums<T: Storage>(self, [heads, tails]: [Sums; 2], to: *mut f32) {
        for (h, (head, tail)) in T::to_columns(heads).into_iter().zip(tails).enumerate() {
            let at = to.add(self.by * h);
            _mm512_storeu_ps(at, head);
            _mm512_mask_storeu_ps(at.add(HEAD), self.tail, tail);
        }
    }
}

/// The features of up to four edges, those of later ones being asked for.
#[inline(always)]
unsafe fn vectors<T: Storage>(o: &Pass<'_, Dot<'_, T, T>>, at: usize, count: usize) -> [V; FOUR] {
    let mut all = [_mm512_setzero_ps(); FOUR];
    if let Some(edges) = o.extras.edges() {
        o.extras.prefetch_features(at);
        for (e, x) in all.iter_mut().enumerate() {
            *x = edges.vector(o.extras.edge(at + e.min(count - 1)));
        }
    }
    all
}

/// Lanes from the parts of the sums of the first four heads and of the others.
#[inline(always)]
unsafe fn together(sums: [[V; FOUR]; 2]) -> Lanes {
    let mut edges = [_mm512_setzero_ps(); FOUR];
    for (e, edge) in edges.iter_mut().enumerate() {
        *edge = halves(sums[0][e], sums[1][e]);
    }
    [halves(edges[0], edges[1]), halves(edges[2], edges[3])]
}
