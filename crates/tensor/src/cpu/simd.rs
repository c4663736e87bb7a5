//! A thin layer over vector instructions, so that a kernel is written once for all widths.
//!
//! [`Simd`] is implemented by AVX-512 and AVX2 types. Kernels are `#[inline(always)]` functions generic over it, called
//! from one `#[target_feature]` function per instruction set; everything inlines into that function and is compiled
//! with its instructions. All methods are unsafe: the processor must have the instructions, and pointers must be valid
//! for a vector.

#![allow(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks, clippy::missing_safety_doc)]

use std::arch::x86_64::*;

use half::bf16;

use super::Isa;
use super::elementwise::Convert;

/// One vector of f32 and what kernels do with it. The safety of all methods is that of the instructions they stand for.
pub(super) trait Simd: Copy {
    type V: Copy;
    const LANES: usize;

    unsafe fn splat(x: f32) -> Self::V;
    unsafe fn load(p: *const f32) -> Self::V;
    unsafe fn store(p: *mut f32, v: Self::V);
    /// The first `n` lanes, fewer than there are; zeros in the others.
    unsafe fn load_first(p: *const f32, n: usize) -> Self::V;
    /// The first `n` lanes, fewer than there are.
    unsafe fn store_first(p: *mut f32, n: usize, v: Self::V);
    unsafe fn load_bf16(p: *const bf16) -> Self::V;
    /// As [`Simd::load_first`].
    unsafe fn load_first_bf16(p: *const bf16, n: usize) -> Self::V;
    unsafe fn store_bf16(p: *mut bf16, v: Self::V);
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn sub(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn mul(a: Self::V, b: Self::V) -> Self::V;
    /// a·b + c
    unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    unsafe fn max(a: Self::V, b: Self::V) -> Self::V;
    /// 2^x, to about one unit in the last place; 0 for x = −∞.
    unsafe fn exp2(x: Self::V) -> Self::V;
    /// The sums of four vectors, written to `out[0..4]`.
    unsafe fn sum4(v: [Self::V; 4], out: *mut f32);
    /// In every lane, the largest of the aligned group of four lanes it belongs to.
    unsafe fn max_in_fours(v: Self::V) -> Self::V;
    /// Whether all lanes are equal in both.
    unsafe fn all_equal(a: Self::V, b: Self::V) -> bool;
    /// In every lane where `x` is positive `a`, elsewhere `b`.
    unsafe fn if_positive(x: Self::V, a: Self::V, b: Self::V) -> Self::V;
    /// A number's bits in every lane, for comparison as unsigned integers.
    unsafe fn splat_bits(x: u32) -> Self::V;
    /// One step of an arg-max: `(x, id)` where x is larger than `best`, or equal with a smaller id; `(best, arg)`
    /// elsewhere. A NaN is larger than everything and stays.
    unsafe fn larger(x: Self::V, id: Self::V, best: Self::V, arg: Self::V) -> (Self::V, Self::V);
    /// In every lane where the bits of `a` and `b` are the same `x`, elsewhere `y`.
    unsafe fn if_same(a: Self::V, b: Self::V, x: Self::V, y: Self::V) -> Self::V;
}

/// Which vectors a kernel is compiled with. Narrow rows may need narrower ones than the processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    Portable,
    Avx2,
    Avx512,
}

impl Version {
    /// The widest vectors of `isa` whose number of lanes suits the kernel.
    pub(super) fn new(isa: Isa, suits: impl Fn(usize) -> bool) -> Self {
        match isa {
            Isa::Avx512 | Isa::Avx512Bf16 if suits(Avx512::LANES) => Self::Avx512,
            Isa::Avx2 | Isa::Avx512 | Isa::Avx512Bf16 if suits(Avx2::LANES) => Self::Avx2,
            _ => Self::Portable,
        }
    }
}

/// Where elements come from: f32 as they are, bf16 widened.
pub(super) trait Source<S: Simd>: Copy + Sync {
    unsafe fn load(p: *const Self) -> S::V;
    /// As [`Simd::load_first`].
    unsafe fn load_first(p: *const Self, n: usize) -> S::V;
}

impl<S: Simd> Source<S> for f32 {
    #[inline(always)]
    unsafe fn load(p: *const Self) -> S::V {
        S::load(p)
    }

    #[inline(always)]
    unsafe fn load_first(p: *const Self, n: usize) -> S::V {
        S::load_first(p, n)
    }
}

impl<S: Simd> Source<S> for bf16 {
    #[inline(always)]
    unsafe fn load(p: *const Self) -> S::V {
        S::load_bf16(p)
    }

    #[inline(always)]
    unsafe fn load_first(p: *const Self, n: usize) -> S::V {
        S::load_first_bf16(p, n)
    }
}

/// Elements that a vector can be stored as.
pub(super) trait Sink<S: Simd>: Source<S> {
    unsafe fn store(p: *mut Self, v: S::V);
}

impl<S: Simd> Sink<S> for f32 {
    #[inline(always)]
    unsafe fn store(p: *mut Self, v: S::V) {
        S::store(p, v);
    }
}

impl<S: Simd> Sink<S> for bf16 {
    #[inline(always)]
    unsafe fn store(p: *mut Self, v: S::V) {
        S::store_bf16(p, v);
    }
}

/// Turns four rows of `heads` numbers into one vector of four per head, handed to `f(h, vector)`.
#[inline(always)]
pub(super) unsafe fn by_heads(heads: usize, rows: [*const f32; 4], mut f: impl FnMut(usize, __m128)) {
    let whole = heads - heads % 4;
    for h in (0..whole).step_by(4) {
        let [mut a, mut b, mut c, mut d] = rows.map(|row| _mm_loadu_ps(row.add(h)));
        _MM_TRANSPOSE4_PS(&mut a, &mut b, &mut c, &mut d);
        for (k, vector) in [a, b, c, d].into_iter().enumerate() {
            f(h + k, vector);
        }
    }
    for h in whole..heads {
        let [a, b, c, d] = rows.map(|row| *row.add(h));
        f(h, _mm_setr_ps(a, b, c, d));
    }
}

/// Storage that every version can read and write.
pub(super) trait Stored: Convert + Sink<Avx512> + Sink<Avx2> {}

impl Stored for f32 {}
impl Stored for bf16 {}

/// Polynomial for 2^f on [−½, ½], coefficients of the minimax fit of degree 6.
const EXP2: [f32; 7] =
    [1.0, std::f32::consts::LN_2, 0.240_226_47, 0.055_504_115, 0.009_618_356, 0.001_333_389_8, 0.000_154_684_78];

/// 16 lanes.
#[derive(Clone, Copy)]
pub(super) struct Avx512;

impl Simd for Avx512 {
    type V = __m512;
    const LANES: usize = 16;

    #[inline(always)]
    unsafe fn splat(x: f32) -> __m512 {
        _mm512_set1_ps(x)
    }

    #[inline(always)]
    unsafe fn load(p: *const f32) -> __m512 {
        _mm512_loadu_ps(p)
    }

    #[inline(always)]
    unsafe fn store(p: *mut f32, v: __m512) {
        _mm512_storeu_ps(p, v);
    }

    #[inline(always)]
    unsafe fn load_first(p: *const f32, n: usize) -> __m512 {
        _mm512_maskz_loadu_ps(((1_u32 << n) - 1) as u16, p)
    }

    #[inline(always)]
    unsafe fn store_first(p: *mut f32, n: usize, v: __m512) {
        _mm512_mask_storeu_ps(p, ((1_u32 << n) - 1) as u16, v);
    }

    #[inline(always)]
    unsafe fn load_first_bf16(p: *const bf16, n: usize) -> __m512 {
        let bits = _mm256_maskz_loadu_epi16(((1_u32 << n) - 1) as u16, p.cast());
        _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(bits)))
    }

    #[inline(always)]
    unsafe fn load_bf16(p: *const bf16) -> __m512 {
        let bits = _mm256_loadu_si256(p.cast());
        _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(bits)))
    }

    #[inline(always)]
    unsafe fn store_bf16(p: *mut bf16, v: __m512) {
        // Round to nearest even: add half of the last kept bit, plus its parity.
        let bits = _mm512_castps_si512(v);
        let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
        let rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
        // NaN must stay NaN: quiet it instead of rounding it into infinity.
        let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(v, v);
        let quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x40_0000));
        let bits = _mm512_srli_epi32::<16>(_mm512_mask_blend_epi32(nan, rounded, quiet));
        _mm256_storeu_si256(p.cast(), _mm512_cvtepi32_epi16(bits));
    }

    #[inline(always)]
    unsafe fn add(a: __m512, b: __m512) -> __m512 {
        _mm512_add_ps(a, b)
    }

    #[inline(always)]
    unsafe fn sub(a: __m512, b: __m512) -> __m512 {
        _mm512_sub_ps(a, b)
    }

    #[inline(always)]
    unsafe fn mul(a: __m512, b: __m512) -> __m512 {
        _mm512_mul_ps(a, b)
    }

    #[inline(always)]
    unsafe fn fma(a: __m512, b: __m512, c: __m512) -> __m512 {
        _mm512_fmadd_ps(a, b, c)
    }

    #[inline(always)]
    unsafe fn max(a: __m512, b: __m512) -> __m512 {
        _mm512_max_ps(a, b)
    }

    #[inline(always)]
    unsafe fn exp2(x: __m512) -> __m512 {
        // scalef saturates to 0 and ∞ by itself, but −∞ would make a NaN of the fraction. max gives its second operand
        // where one is NaN, so a NaN passes through.
        let x = _mm512_max_ps(_mm512_set1_ps(-200.0), x);
        let n = _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(x);
        let f = _mm512_sub_ps(x, n);
        let mut p = _mm512_set1_ps(EXP2[6]);
        for c in EXP2[..6].iter().rev() {
            p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(*c));
        }
        _mm512_scalef_ps(p, n)
    }

    #[inline(always)]
    unsafe fn sum4(v: [__m512; 4], out: *mut f32) {
        let pair = |a, b| _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
        let (ab, cd) = (_mm512_castps_pd(pair(v[0], v[1])), _mm512_castps_pd(pair(v[2], v[3])));
        let all =
            _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd)), _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd)));
        let half = _mm256_add_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps::<1>(all));
        _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps::<1>(half)));
    }

    #[inline(always)]
    unsafe fn max_in_fours(v: __m512) -> __m512 {
        let v = _mm512_max_ps(v, _mm512_permute_ps::<0b01_00_11_10>(v));
        _mm512_max_ps(v, _mm512_permute_ps::<0b10_11_00_01>(v))
    }

    #[inline(always)]
    unsafe fn all_equal(a: __m512, b: __m512) -> bool {
        _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(a, b) == u16::MAX
    }

    #[inline(always)]
    unsafe fn if_positive(x: __m512, a: __m512, b: __m512) -> __m512 {
        _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(x, _mm512_setzero_ps()), b, a)
    }

    #[inline(always)]
    unsafe fn splat_bits(x: u32) -> __m512 {
        _mm512_castsi512_ps(_mm512_set1_epi32(x.cast_signed()))
    }

    #[inline(always)]
    unsafe fn larger(x: __m512, id: __m512, best: __m512, arg: __m512) -> (__m512, __m512) {
        let above = _mm512_cmp_ps_mask::<_CMP_NLE_UQ>(x, best) & _mm512_cmp_ps_mask::<_CMP_ORD_Q>(best, best);
        let first = _mm512_cmplt_epu32_mask(_mm512_castps_si512(id), _mm512_castps_si512(arg));
        let take = above | (first & _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(x, best));
        (_mm512_mask_blend_ps(take, best, x), _mm512_mask_blend_ps(take, arg, id))
    }

    #[inline(always)]
    unsafe fn if_same(a: __m512, b: __m512, x: __m512, y: __m512) -> __m512 {
        let same = _mm512_cmpeq_epi32_mask(_mm512_castps_si512(a), _mm512_castps_si512(b));
        _mm512_mask_blend_ps(same, y, x)
    }
}

/// All bits in the first `n` lanes of eight.
#[inline(always)]
unsafe fn first_of_8(n: usize) -> __m256i {
    _mm256_cmpgt_epi32(_mm256_set1_epi32(n as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
}

/// 8 lanes.
#[derive(Clone, Copy)]
pub(super) struct Avx2;

impl Simd for Avx2 {
    type V = __m256;
    const LANES: usize = 8;

    #[inline(always)]
    unsafe fn splat(x: f32) -> __m256 {
        _mm256_set1_ps(x)
    }

    #[inline(always)]
    unsafe fn load(p: *const f32) -> __m256 {
        _mm256_loadu_ps(p)
    }

    #[inline(always)]
    unsafe fn store(p: *mut f32, v: __m256) {
        _mm256_storeu_ps(p, v);
    }

    #[inline(always)]
    unsafe fn load_first(p: *const f32, n: usize) -> __m256 {
        _mm256_maskload_ps(p, first_of_8(n))
    }

    #[inline(always)]
    unsafe fn store_first(p: *mut f32, n: usize, v: __m256) {
        _mm256_maskstore_ps(p, first_of_8(n), v);
    }

    #[inline(always)]
    unsafe fn load_first_bf16(p: *const bf16, n: usize) -> __m256 {
        let mut lanes = [bf16::ZERO; 8];
        for (k, lane) in lanes.iter_mut().enumerate().take(n) {
            *lane = *p.add(k);
        }
        Self::load_bf16(lanes.as_ptr())
    }

    #[inline(always)]
    unsafe fn load_bf16(p: *const bf16) -> __m256 {
        let bits = _mm_loadu_si128(p.cast());
        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(bits)))
    }

    #[inline(always)]
    unsafe fn store_bf16(p: *mut bf16, v: __m256) {
        let mut lanes = [0f32; 8];
        _mm256_storeu_ps(lanes.as_mut_ptr(), v);
        for (k, x) in lanes.into_iter().enumerate() {
            p.add(k).write(bf16::from_f32(x));
        }
    }

    #[inline(always)]
    unsafe fn add(a: __m256, b: __m256) -> __m256 {
        _mm256_add_ps(a, b)
    }

    #[inline(always)]
    unsafe fn sub(a: __m256, b: __m256) -> __m256 {
        _mm256_sub_ps(a, b)
    }

    #[inline(always)]
    unsafe fn mul(a: __m256, b: __m256) -> __m256 {
        _mm256_mul_ps(a, b)
    }

    #[inline(always)]
    unsafe fn fma(a: __m256, b: __m256, c: __m256) -> __m256 {
        _mm256_fmadd_ps(a, b, c)
    }

    #[inline(always)]
    unsafe fn max(a: __m256, b: __m256) -> __m256 {
        _mm256_max_ps(a, b)
    }

    #[inline(always)]
    unsafe fn exp2(x: __m256) -> __m256 {
        // Results below the smallest normal number become 0: what a softmax weight that small is.
        let zero = _mm256_cmp_ps::<_CMP_LT_OQ>(x, _mm256_set1_ps(-126.0));
        let x = _mm256_min_ps(_mm256_set1_ps(127.0), _mm256_max_ps(_mm256_set1_ps(-126.0), x));
        let n = _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(x);
        let f = _mm256_sub_ps(x, n);
        let mut p = _mm256_set1_ps(EXP2[6]);
        for c in EXP2[..6].iter().rev() {
            p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(*c));
        }
        let power = _mm256_slli_epi32::<23>(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)));
        _mm256_andnot_ps(zero, _mm256_mul_ps(p, _mm256_castsi256_ps(power)))
    }

    #[inline(always)]
    unsafe fn sum4(v: [__m256; 4], out: *mut f32) {
        let all = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
        _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps::<1>(all)));
    }

    #[inline(always)]
    unsafe fn max_in_fours(v: __m256) -> __m256 {
        let v = _mm256_max_ps(v, _mm256_permute_ps::<0b01_00_11_10>(v));
        _mm256_max_ps(v, _mm256_permute_ps::<0b10_11_00_01>(v))
    }

    #[inline(always)]
    unsafe fn all_equal(a: __m256, b: __m256) -> bool {
        _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_EQ_OQ>(a, b)) == 0xff
    }

    #[inline(always)]
    unsafe fn if_positive(x: __m256, a: __m256, b: __m256) -> __m256 {
        _mm256_blendv_ps(b, a, _mm256_cmp_ps::<_CMP_GT_OQ>(x, _mm256_setzero_ps()))
    }

    #[inline(always)]
    unsafe fn splat_bits(x: u32) -> __m256 {
        _mm256_castsi256_ps(_mm256_set1_epi32(x.cast_signed()))
    }

    #[inline(always)]
    unsafe fn larger(x: __m256, id: __m256, best: __m256, arg: __m256) -> (__m256, __m256) {
        let above = _mm256_and_ps(_mm256_cmp_ps::<_CMP_NLE_UQ>(x, best), _mm256_cmp_ps::<_CMP_ORD_Q>(best, best));
        // Only signed integers can be compared: flip the sign bits.
        let signed = |v| _mm256_xor_si256(_mm256_castps_si256(v), _mm256_set1_epi32(i32::MIN));
        let first = _mm256_castsi256_ps(_mm256_cmpgt_epi32(signed(arg), signed(id)));
        let take = _mm256_or_ps(above, _mm256_and_ps(first, _mm256_cmp_ps::<_CMP_EQ_OQ>(x, best)));
        (_mm256_blendv_ps(best, x, take), _mm256_blendv_ps(arg, id, take))
    }

    #[inline(always)]
    unsafe fn if_same(a: __m256, b: __m256, x: __m256, y: __m256) -> __m256 {
        let same = _mm256_cmpeq_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b));
        _mm256_blendv_ps(y, x, _mm256_castsi256_ps(same))
    }
}
