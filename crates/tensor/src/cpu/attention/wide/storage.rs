//! What the passes in registers do with rows, for each type that rows are stored as.

#![allow(unsafe_op_in_unsafe_fn)]

use std::arch::x86_64::*;

use half::bf16;

use crate::cpu::neighbours::{FOUR, prefetch};
use crate::cpu::simd::{Avx512, Simd, Stored};
use crate::ops::Write;

/// Heads of a group, and their columns.
pub(super) const HEADS: usize = 8;
pub(super) const HEAD: usize = 16;
pub(super) const COLUMNS: usize = HEADS * HEAD;

pub(super) type V = __m512;
/// The numbers of four edges and eight heads.
pub(super) type Lanes = [V; 2];
/// The sums of 128 columns.
pub(super) type Sums = [V; HEADS];

/// How rows of a type are multiplied and summed. Safety of all methods: the processor has the instructions that the
/// passes below are compiled with, and pointers lead to a group's columns or heads.
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
pub(super) unsafe fn quarters([a, b, c, d]: [V; 4]) -> V {
    let (ab, cd) = (pair(a, b), pair(c, d));
    _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd)), _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd)))
}

/// Quarters 0 + 1 and 2 + 3 of `a`, then of `b`.
#[inline(always)]
pub(super) unsafe fn halves(a: V, b: V) -> V {
    _mm512_add_ps(_mm512_shuffle_f32x4::<0b10_00_10_00>(a, b), _mm512_shuffle_f32x4::<0b11_01_11_01>(a, b))
}

/// The two halves, exchanged.
#[inline(always)]
pub(super) unsafe fn swapped(v: V) -> V {
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
        // From memory a number is spread over a vector by the multiplication itself. The compiler would rather keep the
        // numbers in registers and spread them by two shuffles each, of which there are too many already: hence
        // volatile.
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

/// A vector of 32 bf16 has two heads. Products are those of the processor, which multiply pairs of neighbours and add:
/// neighbours in a row for scores, the same column of two edges, interleaved, for sums; so weights are rounded to bf16
/// as well, as they are in every product of bf16 matrices. Sums 2k and 2k + 1 are columns 0–3, 8–11, 16–19, 24–27 and
/// the others of heads 2k and 2k + 1, as interleaving leaves them. Lanes are in the order of heads 0 2 4 6 1 3 5 7, as
/// the sums over vectors give them.
impl Storage for bf16 {
    #[inline(always)]
    unsafe fn dots(x: *const bf16, rows: [*const bf16; FOUR], next: [*const bf16; FOUR]) -> Lanes {
        let mut edges = [_mm512_setzero_ps(); FOUR];
        for (e, edge) in edges.iter_mut().enumerate() {
            let mut products = [_mm512_setzero_ps(); 4];
            for (k, product) in products.iter_mut().enumerate() {
                let column = 2 * HEAD * k;
                prefetch(next[e].wrapping_add(column), 2 * HEAD);
                let (a, b) = (packed(pairs(x.add(column))), packed(pairs(rows[e].add(column))));
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
        accumulate_pairs(
            sums,
            weights,
            #[inline(always)]
            |e, k| {
                let column = 2 * HEAD * k;
                if let Some(next) = next {
                    prefetch(next[e].wrapping_add(column), 2 * HEAD);
                }
                pairs(rows[e].add(column))
            },
        );
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
        let low = _mm512_setr_epi32(0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
        each_pair(v, low, _mm512_add_epi32(low, _mm512_set1_epi32(4)))
    }

    #[inline(always)]
    unsafe fn to_columns(v: Sums) -> Sums {
        let low = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
        each_pair(v, low, _mm512_add_epi32(low, _mm512_set1_epi32(8)))
    }

    #[inline(always)]
    unsafe fn write(sums: &Sums, to: *mut bf16, write: Write) {
        for (h, sum) in Self::to_columns(*sums).into_iter().enumerate() {
            let to = to.add(HEAD * h);
            let sum = if write == Write::Add { _mm512_add_ps(sum, Avx512::load_bf16(to)) } else { sum };
            Avx512::store_bf16(to, sum);
        }
    }
}

/// The weights of two edges in one lane, rounded: those of even heads, then those of odd ones.
#[inline(always)]
pub(super) unsafe fn weight_pairs(lanes: V) -> [__m128i; 2] {
    let narrow = std::mem::transmute::<__m256bh, __m256i>(_mm512_cvtneps_pbh(lanes));
    let (one, other) = (_mm256_castsi256_si128(narrow), _mm256_extracti128_si256::<1>(narrow));
    [_mm_unpacklo_epi16(one, other), _mm_unpackhi_epi16(one, other)]
}

/// `sums += Σ_e weights_e·x_e`, where `of(e, k)` are heads 2k and 2k + 1 of x_e.
#[inline(always)]
pub(super) unsafe fn accumulate_pairs(sums: &mut Sums, weights: Lanes, of: impl Fn(usize, usize) -> __m512i) {
    for (two, lanes) in weights.into_iter().enumerate() {
        // Even heads are in the lower half, odd ones in the upper one.
        let [evens, odds] = weight_pairs(lanes);
        let (evens, odds) = (_mm512_broadcast_i32x4(evens), _mm512_broadcast_i32x4(odds));
        let both = _mm512_castsi512_ps(_mm512_mask_blend_epi32(0xff00, evens, odds));
        for k in 0..HEADS / 2 {
            let (a, b) = (of(2 * two, k), of(2 * two + 1, k));
            let weight = packed(_mm512_castps_si512(nth_of_quarters(both, k)));
            let (low, high) = (packed(_mm512_unpacklo_epi16(a, b)), packed(_mm512_unpackhi_epi16(a, b)));
            sums[2 * k] = _mm512_dpbf16_ps(sums[2 * k], low, weight);
            sums[2 * k + 1] = _mm512_dpbf16_ps(sums[2 * k + 1], high, weight);
        }
    }
}

#[inline(always)]
pub(super) unsafe fn pairs(p: *const bf16) -> __m512i {
    _mm512_loadu_si512(p.cast())
}

#[inline(always)]
pub(super) unsafe fn packed(bits: __m512i) -> __m512bh {
    // SAFETY: both are 512 bits of any content.
    std::mem::transmute::<__m512i, __m512bh>(bits)
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
pub(super) unsafe fn load_heads<T: Storage>(a: *const f32, b: *const f32) -> V {
    T::from_heads(_mm512_insertf32x8::<1>(_mm512_castps256_ps512(_mm256_loadu_ps(a)), _mm256_loadu_ps(b)))
}

/// The numbers of four nodes, from rows of all heads.
#[inline(always)]
pub(super) unsafe fn of_rows<T: Storage>(x: &[f32], heads: usize, first: usize, i: [usize; FOUR]) -> Lanes {
    let [a, b, c, d] = i.map(|i| x.as_ptr().wrapping_add(heads * i + first));
    [load_heads::<T>(a, b), load_heads::<T>(c, d)]
}

/// The numbers of the eight heads in the lower half.
#[inline(always)]
pub(super) unsafe fn store_heads<T: Storage>(v: V, to: *mut f32) {
    _mm256_storeu_ps(to, _mm512_castps512_ps256(T::to_heads(v)));
}

#[inline(always)]
pub(super) unsafe fn load_columns<T: Storage>(from: *const f32) -> Sums {
    let mut columns = [_mm512_setzero_ps(); HEADS];
    for (h, v) in columns.iter_mut().enumerate() {
        *v = _mm512_loadu_ps(from.add(HEAD * h));
    }
    T::from_columns(columns)
}

#[inline(always)]
pub(super) unsafe fn store_columns<T: Storage>(sums: Sums, to: *mut f32) {
    for (h, v) in T::to_columns(sums).into_iter().enumerate() {
        _mm512_storeu_ps(to.add(HEAD * h), v);
    }
}
