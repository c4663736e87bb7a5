//! The same of bf16, with the processor's products of pairs: features of edges are rounded to bf16 as well, as rows
//! and weights are.
//!
//! Where heads have tails, two heads of a row, or two tails, are put together to one vector; the features of an edge
//! stand in it twice.

use std::arch::x86_64::*;

use half::bf16;

use super::{Shape, Tailed, vectors};
use crate::cpu::attention::dot::Dot;
use crate::cpu::attention::vector::Pass;
use crate::cpu::attention::wide::storage::{
    HEAD, HEADS, Lanes, Storage, Sums, V, accumulate_pairs, halves, packed, pairs, quarters, weight_pairs,
};
use crate::cpu::neighbours::{FOUR, prefetch};
use crate::cpu::simd::{Avx512, Simd};
use crate::ops::Write;

/// The features of four edges.
#[derive(Clone, Copy)]
pub(in super::super) struct Features {
    /// Of each edge, twice.
    twice: [__m512i; FOUR],
    /// Of two edges, a feature of both in one lane.
    both: [__m512i; 2],
}

/// The head of a lane.
const ORDER: [usize; HEADS] = [0, 2, 4, 6, 1, 3, 5, 7];

/// The weights of two edges and eight heads, where a vector can be made of them.
#[repr(align(32))]
struct Spread([i32; HEADS]);

#[inline(always)]
unsafe fn joined(low: __m256i, high: __m256i) -> __m512i {
    _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
}

impl Tailed {
    /// Heads 2k and 2k + 1 of a row with tails.
    #[inline(always)]
    unsafe fn heads(self, row: *const bf16, k: usize) -> __m512i {
        let at = row.add(2 * k * self.by);
        joined(_mm256_loadu_si256(at.cast()), _mm256_loadu_si256(at.add(self.by).cast()))
    }

    /// What stands behind them.
    #[inline(always)]
    unsafe fn tails(self, row: *const bf16, k: usize) -> __m512i {
        let at = row.add(2 * k * self.by + HEAD);
        let tail = |at: *const bf16| _mm256_maskz_loadu_epi16(self.tail, at.cast());
        joined(tail(at), tail(at.add(self.by)))
    }
}

/// Lanes from the products of two heads each.
#[inline(always)]
unsafe fn summed(products: [[V; HEADS / 2]; FOUR]) -> Lanes {
    let [a, b, c, d] = products;
    [halves(quarters(a), quarters(b)), halves(quarters(c), quarters(d))]
}

/// x·y + u·v, in the lanes of pairs.
#[inline(always)]
unsafe fn product([x, y]: [__m512i; 2], [u, v]: [__m512i; 2]) -> V {
    let sum = _mm512_dpbf16_ps(_mm512_setzero_ps(), packed(x), packed(y));
    _mm512_dpbf16_ps(sum, packed(u), packed(v))
}

impl Shape<bf16> for Tailed {
    type Sums = [Sums; 2];
    type Four = Features;

    #[inline(always)]
    fn new(score: &Dot<'_, bf16, bf16>) -> Self {
        Self::with(score.numbers_behind())
    }

    #[inline(always)]
    fn group(self) -> usize {
        HEADS * self.by
    }

    #[inline(always)]
    unsafe fn four(self, o: &Pass<'_, Dot<'_, bf16, bf16>>, at: usize, count: usize) -> Features {
        let mut narrow = [_mm256_setzero_si256(); FOUR];
        for (narrow, x) in narrow.iter_mut().zip(vectors(o, at, count)) {
            *narrow = std::mem::transmute::<__m256bh, __m256i>(_mm512_cvtneps_pbh(x));
        }
        let [a, b, c, d] = narrow;
        let both = |low, high| {
            _mm512_or_si512(_mm512_cvtepu16_epi32(low), _mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(high)))
        };
        let twice = |x| joined(x, x);
        Features { twice: [twice(a), twice(b), twice(c), twice(d)], both: [both(a, b), both(c, d)] }
    }

    #[inline(always)]
    unsafe fn zero() -> [Sums; 2] {
        [[_mm512_setzero_ps(); HEADS]; 2]
    }

    #[inline(always)]
    unsafe fn dots(
        self,
        x: *const bf16,
        rows: [*const bf16; FOUR],
        next: [*const bf16; FOUR],
        four: &Features,
    ) -> Lanes {
        let mut products = [[_mm512_setzero_ps(); HEADS / 2]; FOUR];
        for k in 0..HEADS / 2 {
            let (column, own, tails) = (2 * HEAD * k, self.heads(x, k), self.tails(x, k));
            for (e, products) in products.iter_mut().enumerate() {
                prefetch(next[e].wrapping_add(column), 2 * HEAD);
                products[k] = product([own, pairs(rows[e].add(column))], [tails, four.twice[e]]);
            }
        }
        summed(products)
    }

    #[inline(always)]
    unsafe fn far_dots(
        self,
        x: *const bf16,
        rows: [*const bf16; FOUR],
        next: [*const bf16; FOUR],
        four: &Features,
    ) -> Lanes {
        let mut products = [[_mm512_setzero_ps(); HEADS / 2]; FOUR];
        for k in 0..HEADS / 2 {
            let own = pairs(x.add(2 * HEAD * k));
            for (e, products) in products.iter_mut().enumerate() {
                prefetch(next[e].wrapping_add(2 * k * self.by), 2 * self.by);
                products[k] = product([own, self.heads(rows[e], k)], [self.tails(rows[e], k), four.twice[e]]);
            }
        }
        summed(products)
    }

    #[inline(always)]
    unsafe fn accumulate(
        self,
        sums: &mut [Sums; 2],
        weights: Lanes,
        rows: [*const bf16; FOUR],
        next: Option<[*const bf16; FOUR]>,
        four: &Features,
    ) {
        let [own, tails] = sums;
        <bf16 as Storage>::accumulate(own, weights, rows, next);
        for (both, lanes) in four.both.into_iter().zip(weights) {
            // From memory, as in `Storage::accumulate` of f32.
            let mut spread = Spread([0; HEADS]);
            let [evens, odds] = weight_pairs(lanes);
            let start = spread.0.as_mut_ptr().cast::<__m128i>();
            start.write_volatile(evens);
            start.add(1).write_volatile(odds);
            for (lane, h) in ORDER.into_iter().enumerate() {
                let weight = _mm512_set1_epi32(*spread.0.as_ptr().add(lane));
                tails[h] = _mm512_dpbf16_ps(tails[h], packed(both), packed(weight));
            }
        }
    }

    #[inline(always)]
    unsafe fn accumulate_far(self, sums: &mut Sums, weights: Lanes, rows: [*const bf16; FOUR]) {
        accumulate_pairs(
            sums,
            weights,
            #[inline(always)]
            |e, k| self.heads(rows[e], k),
        );
    }

    #[inline(always)]
    unsafe fn scale([own, tails]: &mut [Sums; 2], by: V) {
        <bf16 as Storage>::scale(own, by);
        for (lane, h) in ORDER.into_iter().enumerate() {
            tails[h] = _mm512_mul_ps(tails[h], _mm512_permutexvar_ps(_mm512_set1_epi32(lane as i32), by));
        }
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> [Sums; 2] {
        self.load_sums::<bf16>(from)
    }

    #[inline(always)]
    unsafe fn store(self, sums: [Sums; 2], to: *mut f32) {
        self.store_sums::<bf16>(sums, to);
    }

    #[inline(always)]
    unsafe fn write(self, [own, tails]: &[Sums; 2], to: *mut bf16, write: Write) {
        let mut last = [bf16::ZERO; HEAD];
        for (h, (head, tail)) in bf16::to_columns(*own).into_iter().zip(tails).enumerate() {
            let at = to.add(self.by * h);
            let (behind, n) = (at.add(HEAD), self.by - HEAD);
            let (mut head, mut tail) = (head, *tail);
            if write == Write::Add {
                head = _mm512_add_ps(head, Avx512::load_bf16(at));
                let old = _mm256_maskz_loadu_epi16(self.tail, behind.cast());
                let old = _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(old)));
                tail = _mm512_add_ps(tail, old);
            }
            Avx512::store_bf16(at, head);
            Avx512::store_bf16(last.as_mut_ptr(), tail);
            last.as_ptr().copy_to_nonoverlapping(behind, n);
        }
    }
}
