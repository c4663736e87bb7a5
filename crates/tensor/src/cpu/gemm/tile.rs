//! The AVX-512 microkernels: C[m × n] (+)= A[m × k] · B[k × n] for small m, any n and k.
//!
//! Node matrices are tall (10⁵ rows) and thin (10² columns), weights are small. So nothing tall is ever packed: A is
//! read where it lies, one broadcast per element, and a panel of B (32 columns) stays in L1. A tile of 12 × 32 keeps 24
//! sums in registers and needs 2 loads of B and 12 broadcasts for 24 multiply-adds, so the multipliers never wait.
//!
//! The bf16 version is the same with pairs of k: an "element" is two bf16 in 32 bits, and one instruction multiplies
//! and adds both of them in f32.
//!
//! What becomes of the sums is a [`Finish`]: bias, activation and conversion happen in registers, and a row is written
//! once.

#![allow(unsafe_op_in_unsafe_fn)]

use std::arch::x86_64::*;

use half::bf16;

use crate::cpu::activation::{apply, specialise};
use crate::cpu::simd::{Avx512, Simd};
use crate::ops::Write;
use crate::ops::activation::Activation;

/// Columns of a full tile: two vectors.
pub(super) const COLS: usize = 32;
/// 32-bit elements in a cache line.
const LINE: usize = 16;

/// A in 32-bit elements (f32, or pairs of bf16 along k).
#[derive(Clone, Copy)]
pub(super) enum Left {
    /// Element (m, k) is at `start + m·stride + k`.
    Rows { start: *const u32, stride: usize },
    /// Element (m, k) is at `start + m + k·stride`.
    Columns { start: *const u32, stride: usize },
}

/// B in 32-bit elements, panel by panel of 32 columns: row k of panel p is at `start + p·panel + k·row`.
#[derive(Clone, Copy)]
pub(super) struct Right {
    pub(super) start: *const u32,
    pub(super) row: usize,
    pub(super) panel: usize,
}

/// How two 32-bit elements are multiplied and added to an f32, and how an f32 becomes a bf16.
pub(super) trait Multiply {
    /// # Safety
    /// The processor has the instruction.
    unsafe fn multiply_add(sum: __m512, a: __m512i, b: __m512i) -> __m512;

    /// # Safety
    /// As above.
    unsafe fn narrow(v: __m512) -> __m256i;
}

/// Elements are f32.
struct Single;

impl Multiply for Single {
    #[inline(always)]
    unsafe fn multiply_add(sum: __m512, a: __m512i, b: __m512i) -> __m512 {
        _mm512_fmadd_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), sum)
    }

    #[inline(always)]
    unsafe fn narrow(v: __m512) -> __m256i {
        let mut lanes = [bf16::ZERO; 16];
        Avx512::store_bf16(lanes.as_mut_ptr(), v);
        _mm256_loadu_si256(lanes.as_ptr().cast())
    }
}

/// Elements are pairs of bf16.
struct Pairs;

impl Multiply for Pairs {
    #[inline(always)]
    unsafe fn multiply_add(sum: __m512, a: __m512i, b: __m512i) -> __m512 {
        // SAFETY: both types are 64 bytes without invalid values.
        _mm512_dpbf16_ps(sum, std::mem::transmute::<__m512i, __m512bh>(a), std::mem::transmute::<__m512i, __m512bh>(b))
    }

    #[inline(always)]
    unsafe fn narrow(v: __m512) -> __m256i {
        // SAFETY: both types are 32 bytes without invalid values.
        std::mem::transmute::<__m256bh, __m256i>(_mm512_cvtneps_pbh(v))
    }
}

/// An element that sums are stored as; lanes outside the mask are not touched.
pub(super) trait Cell: Copy {
    unsafe fn load(p: *const Self, mask: u16) -> __m512;
    unsafe fn store<E: Multiply>(p: *mut Self, mask: u16, v: __m512);
}

impl Cell for f32 {
    #[inline(always)]
    unsafe fn load(p: *const Self, mask: u16) -> __m512 {
        _mm512_maskz_loadu_ps(mask, p)
    }

    #[inline(always)]
    unsafe fn store<E: Multiply>(p: *mut Self, mask: u16, v: __m512) {
        _mm512_mask_storeu_ps(p, mask, v);
    }
}

impl Cell for bf16 {
    #[inline(always)]
    unsafe fn load(p: *const Self, mask: u16) -> __m512 {
        let bits = _mm256_maskz_loadu_epi16(mask, p.cast());
        _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(bits)))
    }

    #[inline(always)]
    unsafe fn store<E: Multiply>(p: *mut Self, mask: u16, v: __m512) {
        _mm256_mask_storeu_epi16(p.cast(), mask, E::narrow(v));
    }
}

/// What becomes of the sums: y (+)= act(sums + bias), row m at `y + m·row`; where `pre` is not null, it gets what goes
/// into the activation.
#[derive(Clone, Copy)]
pub(super) struct Finish<Y> {
    pub(super) y: *mut Y,
    pub(super) pre: *mut Y,
    pub(super) row: usize,
    /// A number per column, or null.
    pub(super) bias: *const f32,
    pub(super) activation: Activation,
    pub(super) write: Write,
}

impl<Y: Cell> Finish<Y> {
    /// Only the sums.
    pub(super) fn plain(y: *mut Y, row: usize, write: Write) -> Self {
        Self { y, pre: std::ptr::null_mut(), row, bias: std::ptr::null(), activation: Activation::None, write }
    }

    /// Asks for what a tile will be written to.
    #[inline(always)]
    unsafe fn look_ahead<const M: usize>(&self, row: usize, column: usize) {
        for m in 0..M {
            let at = (row + m) * self.row + column;
            for p in [self.y.wrapping_add(at), self.y.wrapping_add(at + COLS - 1)] {
                _mm_prefetch::<_MM_HINT_ET0>(p.cast());
            }
        }
    }

    #[inline(always)]
    unsafe fn store<E: Multiply, const M: usize>(&self, at: [usize; 2], masks: [u16; 2], sums: [[__m512; 2]; M]) {
        let [row, column] = at;
        let mut bias = [_mm512_setzero_ps(); 2];
        if !self.bias.is_null() {
            for (v, bias) in bias.iter_mut().enumerate() {
                *bias = f32::load(self.bias.wrapping_add(column + 16 * v), masks[v]);
            }
        }
        for (m, mut sum) in sums.into_iter().enumerate() {
            let at = (row + m) * self.row + column;
            for v in 0..2 {
                let (at, mask) = (at + 16 * v, masks[v]);
                sum[v] = _mm512_add_ps(sum[v], bias[v]);
                if self.write == Write::Add {
                    sum[v] = _mm512_add_ps(sum[v], Y::load(self.y.wrapping_add(at), mask));
                }
                if !self.pre.is_null() {
                    Y::store::<E>(self.pre.wrapping_add(at), mask, sum[v]);
                }
            }
            if self.activation != Activation::None {
                sum = activated(self.activation, sum);
            }
            for v in 0..2 {
                Y::store::<E>(self.y.wrapping_add(at + 16 * v), masks[v], sum[v]);
            }
        }
    }
}

/// The activation of two vectors, by the code that all instruction sets share.
#[inline(always)]
unsafe fn activated(activation: Activation, v: [__m512; 2]) -> [__m512; 2] {
    let mut lanes = [0f32; COLS];
    _mm512_storeu_ps(lanes.as_mut_ptr(), v[0]);
    _mm512_storeu_ps(lanes.as_mut_ptr().add(16), v[1]);
    specialise!(
        activation,
        for x in &mut lanes {
            *x = apply(activation, *x);
        }
    );
    [_mm512_loadu_ps(lanes.as_ptr()), _mm512_loadu_ps(lanes.as_ptr().add(16))]
}

/// The sums of one tile of M rows; `element(m, k)` is where A's are.
#[inline(always)]
unsafe fn steps<E: Multiply, const M: usize>(
    ks: std::ops::Range<usize>,
    masks: [u16; 2],
    b: Right,
    sums: &mut [[__m512; 2]; M],
    element: impl Fn(usize, usize) -> *const u32,
) {
    for k in ks {
        let row = b.start.add(k * b.row);
        let b0 = _mm512_maskz_loadu_epi32(masks[0], row.cast());
        let b1 = _mm512_maskz_loadu_epi32(masks[1], row.wrapping_add(16).cast());
        for (m, sum) in sums.iter_mut().enumerate() {
            let x = _mm512_set1_epi32((*element(m, k)).cast_signed());
            sum[0] = E::multiply_add(sum[0], x, b0);
            sum[1] = E::multiply_add(sum[1], x, b1);
        }
    }
}

/// One tile of M rows from `at` (row, column) on, with the columns that `masks` say.
#[inline(always)]
unsafe fn tile<E: Multiply, Y: Cell, const M: usize>(
    at: [usize; 2],
    masks: [u16; 2],
    k: usize,
    a: Left,
    b: Right,
    to: &Finish<Y>,
) {
    let mut sums = [[_mm512_setzero_ps(); 2]; M];
    to.look_ahead::<M>(at[0], at[1]);
    match a {
        Left::Rows { start, stride } => {
            let start = start.add(at[0] * stride);
            let mut first = 0;
            while first < k {
                let end = k.min(first + LINE);
                if at[1] == 0 {
                    // The rows of the next tile come from memory when the first panel meets them.
                    for m in M..2 * M {
                        _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(m * stride + first).cast());
                    }
                }
                steps::<E, M>(first..end, masks, b, &mut sums, |m, k| start.wrapping_add(m * stride + k));
                first = end;
            }
        }
        Left::Columns { start, stride } => {
            let start = start.add(at[0]);
            steps::<E, M>(0..k, masks, b, &mut sums, |m, k| start.wrapping_add(m + k * stride));
        }
    }
    to.store::<E, M>(at, masks, sums);
}

#[inline(always)]
unsafe fn block<E: Multiply, Y: Cell>([m, n, k]: [usize; 3], a: Left, b: Right, to: &Finish<Y>) {
    for j in (0..n).step_by(COLS) {
        let masks = [0, 16].map(|v| match n.saturating_sub(j + v) {
            16.. => u16::MAX,
            some => (1 << some) - 1,
        });
        let b = Right { start: b.start.add(j / COLS * b.panel), ..b };
        let mut i = 0;
        while i < m {
            macro_rules! of {
                ($($rows:literal)*) => {
                    match m - i {
                        $($rows.. => {
                            tile::<E, Y, $rows>([i, j], masks, k, a, b, to);
                            i += $rows;
                        })*
                        0 => {}
                    }
                };
            }
            of!(12 8 4 2 1);
        }
    }
}

/// C (+)= A·B in f32, for `size` [m, n, k].
///
/// # Safety
/// The processor has AVX-512 F, BW, DQ and VL; the operands describe memory that may be read (A, B) and written (what
/// `to` names) over m × n × k.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
pub(super) unsafe fn single<Y: Cell>(size: [usize; 3], a: Left, b: Right, to: &Finish<Y>) {
    block::<Single, Y>(size, a, b, to);
}

/// C (+)= A·B with pairs of bf16, k counted in pairs.
///
/// # Safety
/// The processor also has AVX-512 BF16; the operands as for [`single`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma")]
pub(super) unsafe fn pairs<Y: Cell>(size: [usize; 3], a: Left, b: Right, to: &Finish<Y>) {
    block::<Pairs, Y>(size, a, b, to);
}
