//! Dot-product attention with everything in registers: heads of 16 columns, eight at a time, with AVX-512.
//!
//! The general passes ([`vector`](super::vector)) keep their state in memory, and what one instruction stores in four
//! pieces the next one loads as a whole, which stalls. Here a group of eight heads, 128 columns, is the unit: its sums
//! are eight vectors and stay in registers over all edges of a row, and so do the numbers per head, as *lanes*: a
//! vector has the eight heads of two edges, `[8e + h]`. Four edges are taken at a time, two vectors of lanes.
//!
//! Rows that later edges need are prefetched a few at a time between the multiplications, so that they arrive while
//! others are used; asked for all at once they would wait for one another.
//!
//! The reference of the online softmax is not the largest score so far but one that no score exceeds by more than 2^8,
//! so that sums are rarely scaled: mostly once, by the first edges of a row.

#![allow(unsafe_op_in_unsafe_fn)]

mod storage;
mod tails;

use std::arch::x86_64::*;

use half::bf16;

use super::dot::Dot;
use super::extras::Extras;
use super::score::{Any, Operands};
use super::vector::{ByDst, BySrc, Forward, Pass, Passes, Statistics, Target};
use crate::adjacency::Portion;
use crate::cpu::Isa;
use crate::cpu::neighbours::{AHEAD, FOUR, prefetch};
use crate::cpu::simd::{Avx512, Simd};
use crate::ops::Write;
use storage::{COLUMNS, HEAD, HEADS, Lanes, Storage, V, load_heads, of_rows, store_columns, store_heads, swapped};
use tails::{Plain, Shape, Tailed};

const LOG2_E: f32 = std::f32::consts::LOG2_E;
const LN_2: f32 = std::f32::consts::LN_2;

/// How far, in units of log₂, a score may lie above the reference.
const SLACK: f32 = 8.0;
/// Below every score; its difference to any is finite or −∞, never NaN.
const BOTTOM: f32 = -1e38;

/// Which lanes belong to the first `count` edges.
#[inline(always)]
fn present(count: usize) -> [__mmask16; 2] {
    let all = (1_u64 << (HEADS * count)) - 1;
    [all as u16, (all >> 16) as u16]
}

/// log₂ of positive normal numbers, to about one unit in the last place: with x = 2ⁿ·y, y in [√½, √2), log y = 2·artanh
/// of (y − 1)/(y + 1).
#[inline(always)]
unsafe fn log2(x: V) -> V {
    // The mantissa in [1, 2), halved where it is above √2.
    let (n, y) = (_mm512_getexp_ps(x), _mm512_getmant_ps::<_MM_MANT_NORM_1_2, _MM_MANT_SIGN_ZERO>(x));
    let large = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(y, _mm512_set1_ps(std::f32::consts::SQRT_2));
    let one = _mm512_set1_ps(1.0);
    let (n, y) = (_mm512_mask_add_ps(n, large, n, one), _mm512_mask_mul_ps(y, large, y, _mm512_set1_ps(0.5)));
    let z = _mm512_div_ps(_mm512_sub_ps(y, one), _mm512_add_ps(y, one));
    let z2 = _mm512_mul_ps(z, z);
    let mut p = _mm512_set1_ps(1.0 / 9.0);
    for c in [1.0 / 7.0, 1.0 / 5.0, 1.0 / 3.0, 1.0] {
        p = _mm512_fmadd_ps(p, z2, _mm512_set1_ps(c));
    }
    _mm512_fmadd_ps(_mm512_mul_ps(z, p), _mm512_set1_ps(2.0 * LOG2_E), n)
}

/// What a block of four edges brings of its own.
struct Own {
    /// Added to raw scores.
    bias: Lanes,
    /// Multiplied with weights.
    factors: Lanes,
}

/// Lanes from the numbers of four edges, heads in order.
#[inline(always)]
unsafe fn lanes<T: Storage>(v: &[f32; FOUR * HEADS]) -> Lanes {
    [T::from_heads(_mm512_loadu_ps(v.as_ptr())), T::from_heads(_mm512_loadu_ps(v.as_ptr().add(2 * HEADS)))]
}

/// Up to four edges, from the position `at` on, and a group of heads.
#[derive(Clone, Copy)]
struct FewEdges {
    at: usize,
    count: usize,
    group: usize,
}

/// The extras of up to four edges at `at`, whose ends are `ends(e)` = (src, dst), for a group of heads.
#[inline(always)]
unsafe fn own<T: Storage>(
    x: &Extras<'_, f32>,
    FewEdges { at, count, group }: FewEdges,
    scale: f32,
    ends: impl Fn(usize) -> (usize, usize),
) -> Own {
    let (mut bias, mut factors) = ([0f32; FOUR * HEADS], [1f32; FOUR * HEADS]);
    for e in 0..count {
        let edge = x.edge(at + e);
        for h in 0..HEADS {
            bias[HEADS * e + h] = x.bias(edge, HEADS * group + h) / scale;
        }
        let (src, dst) = ends(e);
        x.factors_of_group(src, dst, group, &mut factors[HEADS * e..][..HEADS]);
    }
    Own { bias: lanes::<T>(&bias), factors: lanes::<T>(&factors) }
}

/// The far ends of the edges at `at`, and of those that are prefetched.
#[inline(always)]
unsafe fn ends<T: Storage>(o: &Pass<'_, Dot<'_, T, T>>, at: usize, count: usize) -> ([usize; FOUR], [usize; FOUR]) {
    let last = o.indices.len() - 1;
    (o.four(at, count), std::array::from_fn(|e| *o.indices.get_unchecked((at + AHEAD + e).min(last)) as usize))
}

/// Raw scores with their biases, scaled; −∞ where there is no edge.
#[inline(always)]
unsafe fn scaled(scores: &mut Lanes, count: usize, extra: Option<&Own>, scale2: __m512) {
    let bottom = _mm512_set1_ps(BOTTOM);
    for (half, mask) in present(count).into_iter().enumerate() {
        let mut x = scores[half];
        if let Some(extra) = extra {
            x = _mm512_add_ps(x, extra.bias[half]);
        }
        // At least BOTTOM: a bias of −∞ must not meet another. NaN stays: it is the second operand.
        scores[half] = _mm512_mask_max_ps(_mm512_set1_ps(f32::NEG_INFINITY), mask, bottom, _mm512_mul_ps(x, scale2));
    }
}

/// Moves the reference m up to `top` where that is higher.
#[inline(always)]
unsafe fn raise<T: Storage, R: Shape<T>>(top: V, m: &mut V, s: &mut V, sums: &mut R::Sums) {
    let new = _mm512_max_ps(*m, top);
    let shrink = Avx512::exp2(_mm512_sub_ps(*m, new));
    *s = _mm512_mul_ps(*s, shrink);
    R::scale(sums, shrink);
    *m = new;
}

#[inline(always)]
unsafe fn forward<T: Storage, R: Shape<T>, const PLAIN: bool>(
    o: &Pass<'_, Dot<'_, T, T>>,
    f: &Forward<'_, T>,
    portion: &Portion,
) {
    let (score, shape) = (o.score, R::new(o.score));
    let (heads, d) = (score.heads(), score.wide());
    let scale = 1.0 / (HEAD as f32).sqrt();
    let scale2 = _mm512_set1_ps(scale * LOG2_E);
    let (values, size) = (score.values(), 2 * heads + d);
    for row in portion.rows.clone() {
        let edges = portion.edges_of(o.indptr, row);
        // A row that this block has nothing for stays as it is.
        if edges.is_empty() && matches!(f.target, Target::Carry(_)) {
            continue;
        }
        for group in 0..heads / HEADS {
            let (first, column, wide) = (HEADS * group, COLUMNS * group, shape.group() * group);
            let q = score.q(row).add(wide);
            let (mut m, mut s, mut sums) = (_mm512_set1_ps(BOTTOM), _mm512_setzero_ps(), R::zero());
            if let (Target::Carry(state), None) = (&f.target, portion.piece) {
                let state = state.part(row * size..(row + 1) * size).as_ptr();
                // An empty state has −∞, from which no difference may be taken.
                m = _mm512_max_ps(m, load_heads::<T>(state.add(first), state.add(first)));
                s = _mm512_maskz_mov_ps(0xff, load_heads::<T>(state.add(heads + first), state.add(heads + first)));
                sums = shape.load(state.add(2 * heads + wide));
            }
            let mut at = edges.start;
            while at < edges.end {
                let count = FOUR.min(edges.end - at);
                let (j, next) = ends(o, at, count);
                let k = |j: [usize; FOUR]| j.map(|j| score.k(j).wrapping_add(column));
                let v = |j: [usize; FOUR]| j.map(|j| values.at(j).wrapping_add(column));
                let four = shape.four(o, at, count);
                let mut scores = shape.dots(q, k(j), k(next), &four);
                let extra = if PLAIN {
                    None
                } else {
                    Some(own::<T>(&o.extras, FewEdges { at, count, group }, scale, |e| (j[e], row)))
                };
                scaled(&mut scores, count, extra.as_ref(), scale2);
                let top = _mm512_max_ps(scores[0], scores[1]);
                let top = _mm512_max_ps(top, swapped(top));
                if _mm512_cmp_ps_mask::<_CMP_NLE_UQ>(top, _mm512_add_ps(m, _mm512_set1_ps(SLACK))) != 0 {
                    raise::<T, R>(top, &mut m, &mut s, &mut sums);
                }
                let mut weights =
                    [Avx512::exp2(_mm512_sub_ps(scores[0], m)), Avx512::exp2(_mm512_sub_ps(scores[1], m))];
                s = _mm512_add_ps(s, _mm512_add_ps(weights[0], weights[1]));
                if let Some(extra) = &extra {
                    for (weight, factor) in weights.iter_mut().zip(extra.factors) {
                        *weight = _mm512_mul_ps(*weight, factor);
                    }
                }
                shape.accumulate(&mut sums, weights, v(j), Some(v(next)), &four);
                at += count;
            }
            let s = _mm512_add_ps(s, swapped(s));
            let empty = _mm512_cmp_ps_mask::<_CMP_LE_OQ>(m, _mm512_set1_ps(BOTTOM));
            let m = _mm512_mask_blend_ps(empty, m, _mm512_set1_ps(f32::NEG_INFINITY));
            let state = match (&f.target, portion.piece) {
                (_, Some(piece)) => f.partial.part(piece * size..(piece + 1) * size),
                (Target::Carry(state), None) => state.part(row * size..(row + 1) * size),
                (Target::Finish { out, lse }, None) => {
                    let out = out.part(row * d + wide..row * d + wide + shape.group());
                    let lse = lse.part(row * heads + first..row * heads + first + HEADS);
                    let all = _mm512_mul_ps(_mm512_add_ps(m, log2(s)), _mm512_set1_ps(LN_2));
                    store_heads::<T>(_mm512_mask_blend_ps(empty, all, m), lse.as_mut_ptr());
                    R::scale(&mut sums, _mm512_maskz_div_ps(!empty, _mm512_set1_ps(1.0), s));
                    shape.write(&sums, out.as_mut_ptr(), Write::Set);
                    continue;
                }
            };
            store_heads::<T>(m, state.as_mut_ptr().add(first));
            store_heads::<T>(s, state.as_mut_ptr().add(heads + first));
            shape.store(sums, state.as_mut_ptr().add(2 * heads + wide));
        }
    }
}

#[inline(always)]
unsafe fn by_dst<'a, T: Storage, R: Shape<T>, const PLAIN: bool>(
    o: &Pass<'_, Dot<'a, T, T>>,
    b: &ByDst<'_, Dot<'a, T, T>>,
    number: usize,
    portion: &Portion,
) {
    let (score, shape) = (o.score, R::new(o.score));
    let (heads, d) = (score.heads(), score.wide());
    let scale = 1.0 / (HEAD as f32).sqrt();
    let (scale2, scale1) = (_mm512_set1_ps(scale * LOG2_E), _mm512_set1_ps(scale));
    let values = score.values();
    for row in portion.rows.clone() {
        let edges = portion.edges_of(o.indptr, row);
        if edges.is_empty() && b.write == Write::Add {
            continue;
        }
        for group in 0..heads / HEADS {
            let (first, column, wide) = (HEADS * group, COLUMNS * group, shape.group() * group);
            let (q, g) = (score.q(row).add(wide), b.known.g.as_ptr().add(row * d + wide));
            let at = row * heads + first;
            let (lse, big_d) = (b.known.lse.as_ptr().add(at), b.known.big_d.as_ptr().add(at));
            let lse = _mm512_mul_ps(load_heads::<T>(lse, lse), _mm512_set1_ps(LOG2_E));
            let big_d = load_heads::<T>(big_d, big_d);
            let mut sums = R::zero();
            let mut at = edges.start;
            while at < edges.end {
                let count = FOUR.min(edges.end - at);
                let (j, next) = ends(o, at, count);
                let k = |j: [usize; FOUR]| j.map(|j| score.k(j).wrapping_add(column));
                let v = |j: [usize; FOUR]| j.map(|j| values.at(j).wrapping_add(column));
                let four = shape.four(o, at, count);
                let scores = shape.dots(q, k(j), k(next), &four);
                let products = shape.dots(g, v(j), v(next), &four);
                let extra = if PLAIN {
                    None
                } else {
                    Some(own::<T>(&o.extras, FewEdges { at, count, group }, scale, |e| (j[e], row)))
                };
                let mut de = [_mm512_setzero_ps(); 2];
                for (half, mask) in present(count).into_iter().enumerate() {
                    let (mut x, mut dp) = (scores[half], products[half]);
                    if let Some(extra) = &extra {
                        x = _mm512_add_ps(x, extra.bias[half]);
                        dp = _mm512_mul_ps(dp, extra.factors[half]);
                    }
                    let alpha = Avx512::exp2(_mm512_fmsub_ps(x, scale2, lse));
                    let product = _mm512_mul_ps(alpha, _mm512_sub_ps(dp, big_d));
                    de[half] = _mm512_maskz_mul_ps(mask, product, scale1);
                }
                if !PLAIN && b.places.bias.is_wanted() {
                    let mut numbers = [0f32; FOUR * HEADS];
                    _mm512_storeu_ps(numbers.as_mut_ptr(), T::to_heads(de[0]));
                    _mm512_storeu_ps(numbers.as_mut_ptr().add(2 * HEADS), T::to_heads(de[1]));
                    for e in 0..count {
                        for h in 0..HEADS {
                            let db = numbers[HEADS * e + h] / scale;
                            b.places.bias.add(number, heads, o.extras.edge(at + e), first + h, db);
                        }
                    }
                }
                shape.accumulate(&mut sums, de, k(j), None, &four);
                at += count;
            }
            match portion.piece {
                Some(piece) => {
                    let to = b.partial.part(piece * d + wide..piece * d + wide + shape.group());
                    shape.store(sums, to.as_mut_ptr());
                }
                None => {
                    let to = b.to.part(row * d + wide..row * d + wide + shape.group());
                    shape.write(&sums, to.as_mut_ptr(), b.write);
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn by_src<'a, T: Storage, R: Shape<T>, const PLAIN: bool>(
    o: &Pass<'_, Dot<'a, T, T>>,
    b: &BySrc<'_, Dot<'a, T, T>>,
    portion: &Portion,
) {
    let (score, shape) = (o.score, R::new(o.score));
    let (heads, d) = (score.heads(), score.d());
    let Statistics { lse: all_lse, big_d: all_d, g: all_g } = b.known;
    let scale = 1.0 / (HEAD as f32).sqrt();
    let (scale2, scale1) = (_mm512_set1_ps(scale * LOG2_E), _mm512_set1_ps(scale));
    let values = score.values();
    for row in portion.rows.clone() {
        let edges = portion.edges_of(o.indptr, row);
        for group in 0..heads / HEADS {
            let (first, column, wide) = (HEADS * group, COLUMNS * group, shape.group() * group);
            let (k, v) = (score.k(row).add(column), values.at(row).add(column));
            let (mut dk, mut dv) = ([_mm512_setzero_ps(); HEADS], [_mm512_setzero_ps(); HEADS]);
            let mut at = edges.start;
            while at < edges.end {
                let count = FOUR.min(edges.end - at);
                let (i, next) = ends(o, at, count);
                let q = |i: [usize; FOUR]| i.map(|i| score.q(i).wrapping_add(wide));
                let g = |i: [usize; FOUR]| i.map(|i| all_g.as_ptr().wrapping_add(score.wide() * i + wide));
                for i in next {
                    prefetch(all_lse.as_ptr().wrapping_add(heads * i + first), HEADS);
                    prefetch(all_d.as_ptr().wrapping_add(heads * i + first), HEADS);
                }
                let four = shape.four(o, at, count);
                let scores = shape.far_dots(k, q(i), q(next), &four);
                let products = shape.far_dots(v, g(i), g(next), &four);
                let (lse, big_d) = (of_rows::<T>(all_lse, heads, first, i), of_rows::<T>(all_d, heads, first, i));
                let extra = if PLAIN {
                    None
                } else {
                    Some(own::<T>(&o.extras, FewEdges { at, count, group }, scale, |e| (row, i[e])))
                };
                let (mut de, mut weights) = ([_mm512_setzero_ps(); 2], [_mm512_setzero_ps(); 2]);
                for (half, mask) in present(count).into_iter().enumerate() {
                    let (mut x, mut dp) = (scores[half], products[half]);
                    if let Some(extra) = &extra {
                        x = _mm512_add_ps(x, extra.bias[half]);
                        dp = _mm512_mul_ps(dp, extra.factors[half]);
                    }
                    let reference = _mm512_mul_ps(lse[half], _mm512_set1_ps(LOG2_E));
                    let alpha = _mm512_maskz_mov_ps(mask, Avx512::exp2(_mm512_fmsub_ps(x, scale2, reference)));
                    let product = _mm512_mul_ps(alpha, _mm512_sub_ps(dp, big_d[half]));
                    de[half] = _mm512_maskz_mul_ps(mask, product, scale1);
                    weights[half] = match &extra {
                        Some(extra) => _mm512_mul_ps(alpha, extra.factors[half]),
                        None => alpha,
                    };
                }
                shape.accumulate_far(&mut dk, de, q(i));
                shape.accumulate_far(&mut dv, weights, g(i));
                at += count;
            }
            match portion.piece {
                Some(piece) => {
                    let to = b.partial.part(piece * 2 * d..(piece + 1) * 2 * d).as_mut_ptr();
                    store_columns::<T>(dk, to.add(column));
                    store_columns::<T>(dv, to.add(d + column));
                }
                None => {
                    T::write(&dk, b.to.part(row, d).as_mut_ptr().add(column), Write::Set);
                    if let Some(place) = &b.values {
                        T::write(&dv, place.part(row, d).as_mut_ptr().add(column), Write::Set);
                    }
                }
            }
        }
    }
}

/// The passes of this file, compiled for a type and a shape of rows.
macro_rules! compiled {
    ($name:ident, $type:ty, $shape:ty, $features:literal) => {
        fn $name<'a>() -> Passes<Dot<'a, $type, $type>> {
            #[target_feature(enable = $features)]
            unsafe fn forward_<'a>(o: &Pass<'_, Dot<'a, $type, $type>>, f: &Forward<'_, $type>, portion: &Portion) {
                if o.extras.is_empty() {
                    forward::<_, $shape, true>(o, f, portion)
                } else {
                    forward::<_, $shape, false>(o, f, portion)
                }
            }
            #[target_feature(enable = $features)]
            unsafe fn by_dst_<'a>(
                o: &Pass<'_, Dot<'a, $type, $type>>,
                b: &ByDst<'_, Dot<'a, $type, $type>>,
                number: usize,
                portion: &Portion,
            ) {
                if o.extras.is_empty() {
                    by_dst::<_, $shape, true>(o, b, number, portion)
                } else {
                    by_dst::<_, $shape, false>(o, b, number, portion)
                }
            }
            #[target_feature(enable = $features)]
            unsafe fn by_src_<'a>(
                o: &Pass<'_, Dot<'a, $type, $type>>,
                b: &BySrc<'_, Dot<'a, $type, $type>>,
                portion: &Portion,
            ) {
                if o.extras.is_empty() {
                    by_src::<_, $shape, true>(o, b, portion)
                } else {
                    by_src::<_, $shape, false>(o, b, portion)
                }
            }
            Passes { forward: forward_, by_dst: by_dst_, by_src: by_src_, ..Passes::avx512() }
        }
    };
}

compiled!(passes_f32, f32, Plain, "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma");
compiled!(passes_with_tails, f32, Tailed, "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma");
compiled!(passes_bf16, bf16, Plain, "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma");
compiled!(passes_bf16_with_tails, bf16, Tailed, "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma");

/// Makes the passes of dot products.
type Maker<'a, T> = fn() -> Passes<Dot<'a, T, T>>;

/// Those without tails, those with tails of at most a vector, or none.
fn that_suit<'a, T: Storage>(
    score: &Dot<'a, T, T>,
    [plain, with_tails]: [Maker<'a, T>; 2],
) -> Option<Passes<Dot<'a, T, T>>> {
    match score.numbers_behind() {
        _ if score.head_width() != HEAD || !score.heads().is_multiple_of(HEADS) => None,
        0 => Some(plain()),
        1..=HEAD => Some(with_tails()),
        _ => None,
    }
}

impl<'a> Any for Dot<'a, f32, f32> {
    fn own_passes(&self, isa: Isa) -> Option<Passes<Self>> {
        that_suit(self, [passes_f32, passes_with_tails]).filter(|_| isa >= Isa::Avx512)
    }
}

impl<'a> Any for Dot<'a, bf16, bf16> {
    fn own_passes(&self, isa: Isa) -> Option<Passes<Self>> {
        that_suit(self, [passes_bf16, passes_bf16_with_tails]).filter(|_| isa >= Isa::Avx512Bf16)
    }
}
