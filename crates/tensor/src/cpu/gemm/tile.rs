//! The AVX-512 microkernels: C[m × n] (+)= A[m × k] · B[k × n] for small m, any n and k.
//!
//! Node matrices are tall (10⁵ rows) and thin (10² columns), weights are small. So nothing tall is ever packed: A is read where
//! it lies, one broadcast per element, and a panel of B (32 columns) stays in L1. A tile of 12 × 32 keeps 24 sums in registers
//! and needs 2 loads of B and 12 broadcasts for 24 multiply-adds, so the multipliers never wait.
//!
//! The bf16 version is the same with pairs of k: an "element" is two bf16 in 32 bits, and one instruction multiplies and adds
//! both of them in f32.

#![allow(unsafe_op_in_unsafe_fn)]

use std::arch::x86_64::*;

/// Rows of a full tile.
pub(super) const ROWS: usize = 12;
/// Columns of a full tile: two vectors.
pub(super) const COLS: usize = 32;

/// A in 32-bit elements (f32, or pairs of bf16 along k): element (m, k) is at `start + m·row + k·col`.
#[derive(Clone, Copy)]
pub(super) struct Left {
    pub(super) start: *const u32,
    pub(super) row: usize,
    pub(super) col: usize,
}

/// B in 32-bit elements: row k is at `start + k·row`, its columns are contiguous.
#[derive(Clone, Copy)]
pub(super) struct Right {
    pub(super) start: *const u32,
    pub(super) row: usize,
}

/// C in f32: row m is at `start + m·row`, its columns are contiguous.
#[derive(Clone, Copy)]
pub(super) struct Out {
    pub(super) start: *mut f32,
    pub(super) row: usize,
}

/// How two 32-bit elements are multiplied and added to an f32.
pub(super) trait Multiply {
    /// # Safety
    /// The processor has the instruction.
    unsafe fn multiply_add(sum: __m512, a: __m512i, b: __m512i) -> __m512;
}

/// Elements are f32.
pub(super) struct Single;

impl Multiply for Single {
    #[inline(always)]
    unsafe fn multiply_add(sum: __m512, a: __m512i, b: __m512i) -> __m512 {
        _mm512_fmadd_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), sum)
    }
}

/// Elements are pairs of bf16.
pub(super) struct Pairs;

impl Multiply for Pairs {
    #[inline(always)]
    unsafe fn multiply_add(sum: __m512, a: __m512i, b: __m512i) -> __m512 {
        // SAFETY: both types are 64 bytes without invalid values.
        _mm512_dpbf16_ps(sum, std::mem::transmute::<__m512i, __m512bh>(a), std::mem::transmute::<__m512i, __m512bh>(b))
    }
}

/// One tile of M rows and `n` ≤ 32 columns. Sums start from C if `add`, else from zero.
#[inline(always)]
unsafe fn tile<E: Multiply, const M: usize>(n: usize, k: usize, a: Left, b: Right, c: Out, add: bool) {
    let mask0 = if n >= 16 { u16::MAX } else { (1u16 << n) - 1 };
    let mask1 = if n >= 32 {
        u16::MAX
    } else if n > 16 {
        (1u16 << (n - 16)) - 1
    } else {
        0
    };
    let mut sums = [[_mm512_setzero_ps(); 2]; M];
    if add {
        for (m, sum) in sums.iter_mut().enumerate() {
            let row = c.start.add(m * c.row);
            *sum = [_mm512_maskz_loadu_ps(mask0, row), _mm512_maskz_loadu_ps(mask1, row.wrapping_add(16))];
        }
    }
    for k in 0..k {
        let row = b.start.add(k * b.row);
        let b0 = _mm512_maskz_loadu_epi32(mask0, row.cast());
        let b1 = _mm512_maskz_loadu_epi32(mask1, row.wrapping_add(16).cast());
        for (m, sum) in sums.iter_mut().enumerate() {
            let x = _mm512_set1_epi32(*a.start.add(m * a.row + k * a.col) as i32);
            sum[0] = E::multiply_add(sum[0], x, b0);
            sum[1] = E::multiply_add(sum[1], x, b1);
        }
    }
    for (m, sum) in sums.iter().enumerate() {
        let row = c.start.add(m * c.row);
        _mm512_mask_storeu_ps(row, mask0, sum[0]);
        _mm512_mask_storeu_ps(row.wrapping_add(16), mask1, sum[1]);
    }
}

#[inline(always)]
unsafe fn block<E: Multiply>(m: usize, n: usize, k: usize, a: Left, b: Right, c: Out, add: bool) {
    for j in (0..n).step_by(COLS) {
        let width = COLS.min(n - j);
        let b = Right { start: b.start.add(j), ..b };
        let mut i = 0;
        while i < m {
            let a = Left { start: a.start.add(i * a.row), ..a };
            let c = Out { start: c.start.add(i * c.row + j), ..c };
            let rows = ROWS.min(m - i);
            macro_rules! of {
                ($($rows:literal)*) => { match rows { $($rows => tile::<E, $rows>(width, k, a, b, c, add),)* _ => {} } };
            }
            of!(1 2 3 4 5 6 7 8 9 10 11 12);
            i += rows;
        }
    }
}

/// C (+)= A·B in f32.
///
/// # Safety
/// The processor has AVX-512 F; the views describe memory that may be read (A, B) and written (C) over m × n × k.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn single(m: usize, n: usize, k: usize, a: Left, b: Right, c: Out, add: bool) {
    block::<Single>(m, n, k, a, b, c, add);
}

/// C (+)= A·B with pairs of bf16, k counted in pairs.
///
/// # Safety
/// The processor has AVX-512 F and BF16; the views as for [`single`].
#[target_feature(enable = "avx512f,avx512bf16")]
pub(super) unsafe fn pairs(m: usize, n: usize, k: usize, a: Left, b: Right, c: Out, add: bool) {
    block::<Pairs>(m, n, k, a, b, c, add);
}
