//! Dot-product attention with everything in registers: heads of 16 columns, eight at a time, with AVX-512.
//!
//! The general passes ([`vector`](super::vector)) keep their state in memory, and what one instruction stores in four pieces
//! the next one loads as a whole, which stalls. Here a group of eight heads, 128 columns, is the unit: its sums are eight
//! vectors and stay in registers over all edges of a row, and so do the numbers per head, as *lanes*: a vector has the eight
//! heads of two edges, `[8e + h]`. Four edges are taken at a time, two vectors of lanes.
//!
//! Rows that later edges need are prefetched a few at a time between the multiplications, so that they arrive while others are
//! used; asked for all at once they would wait for one another.
//!
//! The reference of the online softmax is not the largest score so far but one that no score exceeds by more than 2^8, so that
//! sums are rarely scaled: mostly once, by the first edges of a row.

#![allow(unsafe_op_in_unsafe_fn)]

use std::arch::x86_64::*;

use half::bf16;

use super::dot::Dot;
use super::extras::Extras;
use super::score::{Any, Operands};
use super::vector::{ByDst, BySrc, Forward, Pass, Passes, Statistics, Target};
use crate::adjacency::Task;
use crate::cpu::Isa;
use crate::cpu::neighbours::{FOUR, prefetch};
use crate::cpu::simd::{Avx512, Simd, Stored};
use crate::ops::Write;

const LOG2_E: f32 = std::f32::consts::LOG2_E;
const LN_2: f32 = std::f32::consts::LN_2;

/// Heads of a group, and their columns.
const HEADS: usize = 8;
const HEAD: usize = 16;
const COLUMNS: usize = HEADS * HEAD;
/// How many edges ahead rows are prefetched.
const AHEAD: usize = 8;
/// How far, in units of log₂, a score may lie above the reference.
const SLACK: f32 = 8.0;
/// Below every score; its difference to any is finite or −∞, never NaN.
const BOTTOM: f32 = -1e38;

type V = __m512;
/// The numbers of four edges and eight heads.
type Lanes = [V; 2];
/// The sums of 128 columns.
type Sums = [V; HEADS];

/// How rows of a type are multiplied and summed. Safety of all methods: the processor has the instructions that the passes below
/// are compiled with, and pointers lead to a group's columns or heads.
pub(super) trait Storage: Stored {
    /// `x·rows[e]` per head, while the lines at `next` are asked for.
    unsafe fn dots(x: *const Self, rows: [*const Self; FOUR], next: [*const Self; FOUR]) -> Lanes;

    /// `sums += Σ_e weights_e·rows[e]` per head.
    unsafe fn accumulate(sums: &mut Sums, weights: Lanes, rows: [*const Self; FOUR], next: Option<[*const Self; FOUR]>);

    /// `sums *= by`, a number per head, the same in both halves.
    unsafe fn scale(sums: &mut Sums, by: V);

    /// Lanes from heads in order.
    unsafe fn from_heads(v: V) -> V;

    /// Heads in order from lanes.
    unsafe fn to_heads(v: V) -> V;

    /// Sums from columns in order.
    unsafe fn from_columns(v: Sums) -> Sums;

    /// Columns in order from sums.
    unsafe fn to_columns(v: Sums) -> Sums;

    /// `to (+)= sums`.
    unsafe fn write(sums: &Sums, to: *mut Self, write: Write);
}

/// Sums of neighbours of `a` and of `b`, in turn.
#[inline(always)]
unsafe fn pair(a: V, b: V) -> __m512d {
    _mm512_castps_pd(_mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b)))
}

/// In each quarter of a vector, parts of the sums of the four vectors.
#[inline(always)]
unsafe fn quarters([a, b, c, d]: [V; 4]) -> V {
    let (ab, cd) = (pair(a, b), pair(c, d));
    _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd)), _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd)))
}

/// Quarters 0 + 1 and 2 + 3 of `a`, then of `b`.
#[inline(always)]
unsafe fn halves(a: V, b: V) -> V {
    _mm512_add_ps(_mm512_shuffle_f32x4::<0b10_00_10_00>(a, b), _mm512_shuffle_f32x4::<0b11_01_11_01>(a, b))
}

/// The two halves, exchanged.
#[inline(always)]
unsafe fn swapped(v: V) -> V {
    _mm512_shuffle_f32x4::<0b01_00_11_10>(v, v)
}

/// Numbers that vectors are written to as a whole.
#[repr(align(64))]
struct Spread([f32; FOUR * HEADS]);

impl Storage for f32 {
    #[inline(always)]
    unsafe fn dots(x: *const f32, rows: [*const f32; FOUR], next: [*const f32; FOUR]) -> Lanes {
        let mut sums = [[_mm512_setzero_ps(); FOUR]; 2];
        for (four, sums) in sums.iter_mut().enumerate() {
            let mut own = [_mm512_setzero_ps(); 4];
            for (h, own) in own.iter_mut().enumerate() {
                *own = _mm512_loadu_ps(x.add(HEAD * (4 * four + h)));
            }
            for (e, sum) in sums.iter_mut().enumerate() {
                let mut products = [_mm512_setzero_ps(); 4];
                for (h, product) in products.iter_mut().enumerate() {
                    let column = HEAD * (4 * four + h);
                    prefetch(next[e].wrapping_add(column), HEAD);
                    *product = _mm512_mul_ps(own[h], _mm512_loadu_ps(rows[e].add(column)));
                }
                *sum = quarters(products);
            }
        }
        let mut edges = [_mm512_setzero_ps(); FOUR];
        for (e, edge) in edges.iter_mut().enumerate() {
            *edge = halves(sums[0][e], sums[1][e]);
        }
        [halves(edges[0], edges[1]), halves(edges[2], edges[3])]
    }

    #[inline(always)]
    unsafe fn accumulate(sums: &mut Sums, weights: Lanes, rows: [*const f32; FOUR], next: Option<[*const f32; FOUR]>) {
        // From memory a number is spread over a vector by the multiplication itself. The compiler would rather keep the numbers in
        // registers and spread them by two shuffles each, of which there are too many already: hence volatile.
        let mut spread = Spread([0.0; FOUR * HEADS]);
        let start = spread.0.as_mut_ptr().cast::<V>();
        start.write_volatile(weights[0]);
        start.add(1).write_volatile(weights[1]);
        for e in 0..FOUR {
            for (h, sum) in sums.iter_mut().enumerate() {
                if let Some(next) = next {
                    prefetch(next[e].wrapping_add(HEAD * h), HEAD);
                }
                let weight = _mm512_set1_ps(*spread.0.as_ptr().add(HEADS * e + h));
                *sum = _mm512_fmadd_ps(weight, _mm512_loadu_ps(rows[e].add(HEAD * h)), *sum);
            }
        }
    }

    #[inline(always)]
    unsafe fn scale(sums: &mut Sums, by: V) {
        for (h, sum) in sums.iter_mut().enumerate() {
            *sum = _mm512_mul_ps(*sum, _mm512_permutexvar_ps(_mm512_set1_epi32(h as i32), by));
        }
    }

    #[inline(always)]
    unsafe fn from_heads(v: V) -> V {
        v
    }

    #[inline(always)]
    unsafe fn to_heads(v: V) -> V {
        v
    }

    #[inline(always)]
    unsafe fn from_columns(v: Sums) -> Sums {
        v
    }

    #[inline(always)]
    unsafe fn to_columns(v: Sums) -> Sums {
        v
    }

    #[inline(always)]
    unsafe fn write(sums: &Sums, to: *mut f32, write: Write) {
        for (h, sum) in sums.iter().enumerate() {
            let to = to.add(HEAD * h);
            let sum = if write == Write::Add { _mm512_add_ps(*sum, _mm512_loadu_ps(to)) } else { *sum };
            _mm512_storeu_ps(to, sum);
        }
    }
}

/// A vector of 32 bf16 has two heads, and is never widened element by element: its even elements are shifted into place, its odd
/// ones are there but for a mask. Sums 2k and 2k + 1 are the even and odd columns of heads 2k and 2k + 1. Lanes are in the order
/// of heads 0 2 4 6 1 3 5 7, as the sums over vectors give them.
impl Storage for bf16 {
    #[inline(always)]
    unsafe fn dots(x: *const bf16, rows: [*const bf16; FOUR], next: [*const bf16; FOUR]) -> Lanes {
        let mut edges = [_mm512_setzero_ps(); FOUR];
        for (e, edge) in edges.iter_mut().enumerate() {
            let mut products = [_mm512_setzero_ps(); 4];
            for (k, product) in products.iter_mut().enumerate() {
                let column = 2 * HEAD * k;
                prefetch(next[e].wrapping_add(column), 2 * HEAD);
                // SAFETY: both are 512 bits of any content.
                let [a, b] = std::mem::transmute::<[__m512i; 2], [__m512bh; 2]>([
                    pairs(x.add(column)),
                    pairs(rows[e].add(column)),
                ]);
                *product = _mm512_dpbf16_ps(_mm512_setzero_ps(), a, b);
            }
            *edge = quarters(products);
        }
        [halves(edges[0], edges[1]), halves(edges[2], edges[3])]
    }

    #[inline(always)]
    unsafe fn accumulate(
        sums: &mut Sums,
        weights: Lanes,
        rows: [*const bf16; FOUR],
        next: Option<[*const bf16; FOUR]>,
    ) {
        for e in 0..FOUR {
            let lanes = weights[e / 2];
            // Each half of the lanes of this edge twice: evens below, odds above.
            let both = if e % 2 == 0 {
                _mm512_shuffle_f32x4::<0b01_01_00_00>(lanes, lanes)
            } else {
                _mm512_shuffle_f32x4::<0b11_11_10_10>(lanes, lanes)
            };
            for k in 0..HEADS / 2 {
                if let Some(next) = next {
                    prefetch(next[e].wrapping_add(2 * HEAD * k), 2 * HEAD);
                }
                let (even, odd) = widen(pairs(rows[e].add(2 * HEAD * k)));
                let weight = nth_of_quarters(both, k);
                sums[2 * k] = _mm512_fmadd_ps(weight, even, sums[2 * k]);
                sums[2 * k + 1] = _mm512_fmadd_ps(weight, odd, sums[2 * k + 1]);
            }
        }
    }

    #[inline(always)]
    unsafe fn scale(sums: &mut Sums, by: V) {
        let both = _mm512_shuffle_f32x4::<0b01_01_00_00>(by, by);
        for (k, pair) in sums.as_chunks_mut::<2>().0.iter_mut().enumerate() {
            let by = nth_of_quarters(both, k);
            *pair = [_mm512_mul_ps(pair[0], by), _mm512_mul_ps(pair[1], by)];
        }
    }

    #[inline(always)]
    unsafe fn from_heads(v: V) -> V {
        _mm512_permutexvar_ps(_mm512_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15), v)
    }

    #[inline(always)]
    unsafe fn to_heads(v: V) -> V {
        _mm512_permutexvar_ps(_mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15), v)
    }

    #[inline(always)]
    unsafe fn from_columns(v: Sums) -> Sums {
        let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        let odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
        each_pair(v, even, odd)
    }

    #[inline(always)]
    unsafe fn to_columns(v: Sums) -> Sums {
        let low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
        let high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
        each_pair(v, low, high)
    }

    #[inline(always)]
    unsafe fn write(sums: &Sums, to: *mut bf16, write: Write) {
        for (k, [even, odd]) in sums.as_chunks::<2>().0.iter().enumerate() {
            let to = to.add(2 * HEAD * k);
            let (mut even, mut odd) = (*even, *odd);
            if write == Write::Add {
                let (a, b) = widen(pairs(to));
                (even, odd) = (_mm512_add_ps(even, a), _mm512_add_ps(odd, b));
            }
            let low = _mm512_srli_epi32::<16>(rounded(even));
            let high = _mm512_and_si512(rounded(odd), _mm512_set1_epi32(HIGH));
            _mm512_storeu_si512(to.cast(), _mm512_or_si512(low, high));
        }
    }
}

/// The upper half of 32 bits.
const HIGH: i32 = 0xffff_0000_u32.cast_signed();

#[inline(always)]
unsafe fn pairs(p: *const bf16) -> __m512i {
    _mm512_loadu_si512(p.cast())
}

/// The even and the odd elements.
#[inline(always)]
unsafe fn widen(pairs: __m512i) -> (V, V) {
    let odd = _mm512_and_si512(pairs, _mm512_set1_epi32(HIGH));
    (_mm512_castsi512_ps(_mm512_slli_epi32::<16>(pairs)), _mm512_castsi512_ps(odd))
}

/// The bits of numbers rounded to bf16, nearest even, in their upper halves; NaN stays NaN.
#[inline(always)]
unsafe fn rounded(v: V) -> __m512i {
    let bits = _mm512_castps_si512(v);
    let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
    let up = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(v, v);
    _mm512_mask_blend_epi32(nan, up, _mm512_or_si512(bits, _mm512_set1_epi32(0x40_0000)))
}

/// In every quarter, its number k everywhere.
#[inline(always)]
unsafe fn nth_of_quarters(v: V, k: usize) -> V {
    match k {
        0 => _mm512_permute_ps::<0b00_00_00_00>(v),
        1 => _mm512_permute_ps::<0b01_01_01_01>(v),
        2 => _mm512_permute_ps::<0b10_10_10_10>(v),
        _ => _mm512_permute_ps::<0b11_11_11_11>(v),
    }
}

/// Each pair of vectors as two selections from both.
#[inline(always)]
unsafe fn each_pair(mut v: Sums, first: __m512i, second: __m512i) -> Sums {
    for pair in v.as_chunks_mut::<2>().0 {
        let [a, b] = *pair;
        *pair = [_mm512_permutex2var_ps(a, first, b), _mm512_permutex2var_ps(a, second, b)];
    }
    v
}

/// Lanes from the heads' numbers of two nodes.
#[inline(always)]
unsafe fn load_heads<T: Storage>(a: *const f32, b: *const f32) -> V {
    T::from_heads(_mm512_insertf32x8::<1>(_mm512_castps256_ps512(_mm256_loadu_ps(a)), _mm256_loadu_ps(b)))
}

/// The numbers of four nodes, from rows of all heads.
#[inline(always)]
unsafe fn of_rows<T: Storage>(x: &[f32], heads: usize, first: usize, i: [usize; FOUR]) -> Lanes {
    let [a, b, c, d] = i.map(|i| x.as_ptr().wrapping_add(heads * i + first));
    [load_heads::<T>(a, b), load_heads::<T>(c, d)]
}

/// The numbers of the eight heads in the lower half.
#[inline(always)]
unsafe fn store_heads<T: Storage>(v: V, to: *mut f32) {
    _mm256_storeu_ps(to, _mm512_castps512_ps256(T::to_heads(v)));
}

#[inline(always)]
unsafe fn load_columns<T: Storage>(from: *const f32) -> Sums {
    let mut columns = [_mm512_setzero_ps(); HEADS];
    for (h, v) in columns.iter_mut().enumerate() {
        *v = _mm512_loadu_ps(from.add(HEAD * h));
    }
    T::from_columns(columns)
}

#[inline(always)]
unsafe fn store_columns<T: Storage>(sums: Sums, to: *mut f32) {
    for (h, v) in T::to_columns(sums).into_iter().enumerate() {
        _mm512_storeu_ps(to.add(HEAD * h), v);
    }
}

/// Which lanes belong to the first `count` edges.
#[inline(always)]
fn present(count: usize) -> [__mmask16; 2] {
    let all = (1_u64 << (HEADS * count)) - 1;
    [all as u16, (all >> 16) as u16]
}

/// log₂ of positive normal numbers, to about one unit in the last place: with x = 2ⁿ·y, y in [√½, √2), log y = 2·artanh of
/// (y − 1)/(y + 1).
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

/// The extras of up to four edges at `at`, whose ends are `ends(e)` = (src, dst), for a group of heads.
#[inline(always)]
unsafe fn own<T: Storage>(
    x: &Extras<'_, f32>,
    (at, count, group): (usize, usize, usize),
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

#[inline(always)]
unsafe fn forward<T: Storage, const PLAIN: bool>(o: &Pass<'_, Dot<'_, T, T>>, f: &Forward<'_, T>, task: &Task) {
    let score = o.score;
    let (heads, d) = (score.heads(), score.d());
    let scale = 1.0 / (HEAD as f32).sqrt();
    let scale2 = _mm512_set1_ps(scale * LOG2_E);
    let (values, size) = (score.values(), 2 * heads + d);
    for row in task.rows.clone() {
        let edges = task.edges_of(o.indptr, row);
        for group in 0..heads / HEADS {
            let (first, column) = (HEADS * group, COLUMNS * group);
            let q = score.q(row).add(column);
            let (mut m, mut s, mut sums) = (_mm512_set1_ps(BOTTOM), _mm512_setzero_ps(), [_mm512_setzero_ps(); HEADS]);
            if let (Target::Carry(state), None) = (&f.target, task.piece) {
                let state = state.part(row * size..(row + 1) * size).as_ptr();
                // An empty state has −∞, from which no difference may be taken.
                m = _mm512_max_ps(m, load_heads::<T>(state.add(first), state.add(first)));
                s = _mm512_maskz_mov_ps(0xff, load_heads::<T>(state.add(heads + first), state.add(heads + first)));
                sums = load_columns::<T>(state.add(2 * heads + column));
            }
            let mut at = edges.start;
            while at < edges.end {
                let count = FOUR.min(edges.end - at);
                let (j, next) = ends(o, at, count);
                let k = |j: [usize; FOUR]| j.map(|j| score.k(j).wrapping_add(column));
                let v = |j: [usize; FOUR]| j.map(|j| values.at(j).wrapping_add(column));
                let mut scores = T::dots(q, k(j), k(next));
                let extra =
                    if PLAIN { None } else { Some(own::<T>(&o.extras, (at, count, group), scale, |e| (j[e], row))) };
                let bottom = _mm512_set1_ps(BOTTOM);
                for (half, mask) in present(count).into_iter().enumerate() {
                    let mut x = scores[half];
                    if let Some(extra) = &extra {
                        x = _mm512_add_ps(x, extra.bias[half]);
                    }
                    // At least BOTTOM: a bias of −∞ must not meet another. NaN stays: it is the second operand.
                    scores[half] =
                        _mm512_mask_max_ps(_mm512_set1_ps(f32::NEG_INFINITY), mask, bottom, _mm512_mul_ps(x, scale2));
                }
                let top = _mm512_max_ps(scores[0], scores[1]);
                let top = _mm512_max_ps(top, swapped(top));
                if _mm512_cmp_ps_mask::<_CMP_NLE_UQ>(top, _mm512_add_ps(m, _mm512_set1_ps(SLACK))) != 0 {
                    let new = _mm512_max_ps(m, top);
                    let shrink = Avx512::exp2(_mm512_sub_ps(m, new));
                    s = _mm512_mul_ps(s, shrink);
                    T::scale(&mut sums, shrink);
                    m = new;
                }
                let mut weights =
                    [Avx512::exp2(_mm512_sub_ps(scores[0], m)), Avx512::exp2(_mm512_sub_ps(scores[1], m))];
                s = _mm512_add_ps(s, _mm512_add_ps(weights[0], weights[1]));
                if let Some(extra) = &extra {
                    for (weight, factor) in weights.iter_mut().zip(extra.factors) {
                        *weight = _mm512_mul_ps(*weight, factor);
                    }
                }
                T::accumulate(&mut sums, weights, v(j), Some(v(next)));
                at += count;
            }
            let s = _mm512_add_ps(s, swapped(s));
            let empty = _mm512_cmp_ps_mask::<_CMP_LE_OQ>(m, _mm512_set1_ps(BOTTOM));
            let m = _mm512_mask_blend_ps(empty, m, _mm512_set1_ps(f32::NEG_INFINITY));
            let state = match (&f.target, task.piece) {
                (_, Some(piece)) => f.partial.part(piece * size..(piece + 1) * size),
                (Target::Carry(state), None) => state.part(row * size..(row + 1) * size),
                (Target::Finish { out, lse }, None) => {
                    let out = out.part(row * d + column..row * d + column + COLUMNS);
                    let lse = lse.part(row * heads + first..row * heads + first + HEADS);
                    let all = _mm512_mul_ps(_mm512_add_ps(m, log2(s)), _mm512_set1_ps(LN_2));
                    store_heads::<T>(_mm512_mask_blend_ps(empty, all, m), lse.as_mut_ptr());
                    T::scale(&mut sums, _mm512_maskz_div_ps(!empty, _mm512_set1_ps(1.0), s));
                    T::write(&sums, out.as_mut_ptr(), Write::Set);
                    continue;
                }
            };
            store_heads::<T>(m, state.as_mut_ptr().add(first));
            store_heads::<T>(s, state.as_mut_ptr().add(heads + first));
            store_columns::<T>(sums, state.as_mut_ptr().add(2 * heads + column));
        }
    }
}

#[inline(always)]
unsafe fn by_dst<'a, T: Storage, const PLAIN: bool>(
    o: &Pass<'_, Dot<'a, T, T>>,
    b: &ByDst<'_, Dot<'a, T, T>>,
    number: usize,
    task: &Task,
) {
    let score = o.score;
    let (heads, d) = (score.heads(), score.d());
    let scale = 1.0 / (HEAD as f32).sqrt();
    let (scale2, scale1) = (_mm512_set1_ps(scale * LOG2_E), _mm512_set1_ps(scale));
    let values = score.values();
    for row in task.rows.clone() {
        let edges = task.edges_of(o.indptr, row);
        for group in 0..heads / HEADS {
            let (first, column) = (HEADS * group, COLUMNS * group);
            let (q, g) = (score.q(row).add(column), b.known.g.as_ptr().add(row * d + column));
            let at = row * heads + first;
            let (lse, big_d) = (b.known.lse.as_ptr().add(at), b.known.big_d.as_ptr().add(at));
            let lse = _mm512_mul_ps(load_heads::<T>(lse, lse), _mm512_set1_ps(LOG2_E));
            let big_d = load_heads::<T>(big_d, big_d);
            let mut sums = [_mm512_setzero_ps(); HEADS];
            let mut at = edges.start;
            while at < edges.end {
                let count = FOUR.min(edges.end - at);
                let (j, next) = ends(o, at, count);
                let k = |j: [usize; FOUR]| j.map(|j| score.k(j).wrapping_add(column));
                let v = |j: [usize; FOUR]| j.map(|j| values.at(j).wrapping_add(column));
                let scores = T::dots(q, k(j), k(next));
                let products = T::dots(g, v(j), v(next));
                let extra =
                    if PLAIN { None } else { Some(own::<T>(&o.extras, (at, count, group), scale, |e| (j[e], row))) };
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
                if !PLAIN && b.dbias.is_wanted() {
                    let mut numbers = [0f32; FOUR * HEADS];
                    _mm512_storeu_ps(numbers.as_mut_ptr(), T::to_heads(de[0]));
                    _mm512_storeu_ps(numbers.as_mut_ptr().add(2 * HEADS), T::to_heads(de[1]));
                    for e in 0..count {
                        for h in 0..HEADS {
                            let db = numbers[HEADS * e + h] / scale;
                            b.dbias.add(number, heads, o.extras.edge(at + e), first + h, db);
                        }
                    }
                }
                T::accumulate(&mut sums, de, k(j), None);
                at += count;
            }
            match task.piece {
                Some(piece) => {
                    let to = b.partial.part(piece * d + column..piece * d + column + COLUMNS);
                    store_columns::<T>(sums, to.as_mut_ptr());
                }
                None => {
                    let to = b.to.part(row * d + column..row * d + column + COLUMNS);
                    T::write(&sums, to.as_mut_ptr(), b.write);
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn by_src<'a, T: Storage, const PLAIN: bool>(
    o: &Pass<'_, Dot<'a, T, T>>,
    b: &BySrc<'_, Dot<'a, T, T>>,
    task: &Task,
) {
    let score = o.score;
    let (heads, d) = (score.heads(), score.d());
    let Statistics { lse: all_lse, big_d: all_d, g: all_g } = b.known;
    let scale = 1.0 / (HEAD as f32).sqrt();
    let (scale2, scale1) = (_mm512_set1_ps(scale * LOG2_E), _mm512_set1_ps(scale));
    let values = score.values();
    for row in task.rows.clone() {
        let edges = task.edges_of(o.indptr, row);
        for group in 0..heads / HEADS {
            let (first, column) = (HEADS * group, COLUMNS * group);
            let (k, v) = (score.k(row).add(column), values.at(row).add(column));
            let (mut dk, mut dv) = ([_mm512_setzero_ps(); HEADS], [_mm512_setzero_ps(); HEADS]);
            let mut at = edges.start;
            while at < edges.end {
                let count = FOUR.min(edges.end - at);
                let (i, next) = ends(o, at, count);
                let q = |i: [usize; FOUR]| i.map(|i| score.q(i).wrapping_add(column));
                let g = |i: [usize; FOUR]| i.map(|i| all_g.as_ptr().wrapping_add(d * i + column));
                for i in next {
                    prefetch(all_lse.as_ptr().wrapping_add(heads * i + first), HEADS);
                    prefetch(all_d.as_ptr().wrapping_add(heads * i + first), HEADS);
                }
                let scores = T::dots(k, q(i), q(next));
                let products = T::dots(v, g(i), g(next));
                let (lse, big_d) = (of_rows::<T>(all_lse, heads, first, i), of_rows::<T>(all_d, heads, first, i));
                let extra =
                    if PLAIN { None } else { Some(own::<T>(&o.extras, (at, count, group), scale, |e| (row, i[e]))) };
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
                T::accumulate(&mut dk, de, q(i), None);
                T::accumulate(&mut dv, weights, g(i), None);
                at += count;
            }
            match task.piece {
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

/// The passes of this file, compiled for a type.
macro_rules! compiled {
    ($type:ty, $features:literal, $isa:expr) => {
        impl<'a> Any for Dot<'a, $type, $type> {
            fn own_passes(&self, isa: Isa) -> Option<Passes<Self>> {
                #[target_feature(enable = $features)]
                unsafe fn forward_<'a>(o: &Pass<'_, Dot<'a, $type, $type>>, f: &Forward<'_, $type>, task: &Task) {
                    if o.extras.is_empty() { forward::<_, true>(o, f, task) } else { forward::<_, false>(o, f, task) }
                }
                #[target_feature(enable = $features)]
                unsafe fn by_dst_<'a>(
                    o: &Pass<'_, Dot<'a, $type, $type>>,
                    b: &ByDst<'_, Dot<'a, $type, $type>>,
                    number: usize,
                    task: &Task,
                ) {
                    if o.extras.is_empty() {
                        by_dst::<_, true>(o, b, number, task)
                    } else {
                        by_dst::<_, false>(o, b, number, task)
                    }
                }
                #[target_feature(enable = $features)]
                unsafe fn by_src_<'a>(
                    o: &Pass<'_, Dot<'a, $type, $type>>,
                    b: &BySrc<'_, Dot<'a, $type, $type>>,
                    task: &Task,
                ) {
                    if o.extras.is_empty() { by_src::<_, true>(o, b, task) } else { by_src::<_, false>(o, b, task) }
                }
                let suits = isa >= $isa && self.head_width() == HEAD && self.heads().is_multiple_of(HEADS);
                let general = Passes::<Self>::avx512();
                suits.then_some(Passes { forward: forward_, by_dst: by_dst_, by_src: by_src_, ..general })
            }
        }
    };
}

compiled!(f32, "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma", Isa::Avx512);
compiled!(bf16, "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma", Isa::Avx512Bf16);
