//! Whole-matrix operations that touch each element once.

use half::bf16;

use super::parallel::each_chunk;
use super::{host, host_mut};
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::matrix::Matrix;

/// Elements per task: large enough to hide the cost of a task, small enough to share.
pub(super) const GRAIN: usize = 1 << 15;

/// Partial sums along a row, added up as a tree at its end: two AVX-512 vectors of f32.
pub(super) const LANES: usize = 32;

/// Numbers that convert to and from f64 (exactly, from f32 and bf16).
pub(crate) trait Convert: Element {
    fn widen(self) -> f64;
    fn narrow(x: f64) -> Self;
}

/// A type that kernels compute in.
pub(crate) trait Real: Convert + num_traits::Float {
    #[inline(always)]
    fn of<T: Convert>(x: T) -> Self {
        Self::narrow(x.widen())
    }

    /// Σ of the lanes, as a tree: halves are added until one number is left.
    #[inline(always)]
    fn fold(mut lanes: [Self; LANES]) -> Self {
        let mut width = LANES / 2;
        while width > 0 {
            for k in 0..width {
                lanes[k] = lanes[k] + lanes[k + width];
            }
            width /= 2;
        }
        lanes[0]
    }
}

impl Real for f32 {
    /// The same tree in four-lane vectors, which every x86-64 has: left alone, the compiler shuffles single numbers.
    #[inline(always)]
    fn fold(lanes: [Self; LANES]) -> Self {
        use std::arch::x86_64::{
            __m128, _mm_add_ps, _mm_add_ss, _mm_cvtss_f32, _mm_loadu_ps, _mm_movehl_ps, _mm_shuffle_ps,
        };
        // SAFETY: four lanes from 4·k on, of 32.
        let part = |k: usize| -> __m128 { unsafe { _mm_loadu_ps(lanes[4 * k..4 * k + 4].as_ptr()) } };
        // SAFETY: SSE2 is part of x86-64.
        unsafe {
            let pair = |k: usize| _mm_add_ps(part(k), part(k + 4));
            let four = _mm_add_ps(_mm_add_ps(pair(0), pair(2)), _mm_add_ps(pair(1), pair(3)));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
        }
    }
}

impl Real for f64 {}

impl Convert for f32 {
    #[inline(always)]
    fn widen(self) -> f64 {
        self.into()
    }

    #[inline(always)]
    fn narrow(x: f64) -> Self {
        x as Self
    }
}

impl Convert for f64 {
    #[inline(always)]
    fn widen(self) -> f64 {
        self
    }

    #[inline(always)]
    fn narrow(x: f64) -> Self {
        x
    }
}

/// By bits and without branches, so that loops become vector code. The way through f64 costs nothing where the other
/// side is f32: the compiler sees that widening and narrowing cancel.
impl Convert for bf16 {
    #[inline(always)]
    fn widen(self) -> f64 {
        f32::from_bits(u32::from(self.to_bits()) << 16).into()
    }

    #[inline(always)]
    fn narrow(x: f64) -> Self {
        // Through f32 first, as every conversion of a computed value goes; then to nearest even, a NaN staying one.
        let x = x as f32;
        let bits = x.to_bits();
        let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
        let quiet = bits >> 16 | 0x40;
        Self::from_bits((if x.is_nan() { quiet } else { rounded }) as u16)
    }
}

pub(super) fn zero<T: Element>(m: &mut [T]) {
    each_chunk(m, GRAIN, &|_, part| part.fill(T::zeroed()));
}

pub(super) fn convert(to: &mut Matrix, from: &Matrix) -> Result<()> {
    from.expect("convert", "source", to.rows(), to.cols())?;
    fn run<A: Convert, B: Convert>(to: &mut Matrix, from: &Matrix) -> Result<()> {
        let from = host::<A>("convert", "source", from)?;
        let to = host_mut::<B>("convert", "target", to)?;
        each_chunk(to, GRAIN, &|k, to| {
            for (t, f) in to.iter_mut().zip(&from[k * GRAIN..]) {
                *t = B::narrow(f.widen());
            }
        });
        Ok(())
    }
    match (from.dtype(), to.dtype()) {
        (DType::F32, DType::F32) => run::<f32, f32>(to, from),
        (DType::F32, DType::F64) => run::<f32, f64>(to, from),
        (DType::F32, DType::Bf16) => run::<f32, bf16>(to, from),
        (DType::F64, DType::F32) => run::<f64, f32>(to, from),
        (DType::F64, DType::F64) => run::<f64, f64>(to, from),
        (DType::F64, DType::Bf16) => run::<f64, bf16>(to, from),
        (DType::Bf16, DType::F32) => run::<bf16, f32>(to, from),
        (DType::Bf16, DType::F64) => run::<bf16, f64>(to, from),
        (DType::Bf16, DType::Bf16) => run::<bf16, bf16>(to, from),
    }
}

pub(super) fn copy_part(from: &Matrix, start: usize, to: &mut Matrix, at: usize, count: usize) -> Result<()> {
    const OP: &str = "copy";
    fn run<T: Element>(from: &Matrix, start: usize, to: &mut Matrix, at: usize, count: usize) -> Result<()> {
        let from = &host::<T>(OP, "source", from)?[start..][..count];
        let to = &mut host_mut::<T>(OP, "target", to)?[at..][..count];
        each_chunk(to, GRAIN, &|k, to| to.copy_from_slice(&from[k * GRAIN..][..to.len()]));
        Ok(())
    }
    from.expect_part(OP, start, count)?;
    to.expect_part(OP, at, count)?;
    match from.dtype() {
        DType::F32 => run::<f32>(from, start, to, at, count),
        DType::F64 => run::<f64>(from, start, to, at, count),
        DType::Bf16 => run::<bf16>(from, start, to, at, count),
    }
}

pub(super) fn add(to: &mut Matrix, x: &Matrix) -> Result<()> {
    x.expect("add", "addend", to.rows(), to.cols())?;
    fn run<T: Convert + std::ops::AddAssign>(to: &mut Matrix, x: &Matrix) -> Result<()> {
        let x = host::<T>("add", "addend", x)?;
        let to = host_mut::<T>("add", "sum", to)?;
        each_chunk(to, GRAIN, &|k, to| {
            for (t, x) in to.iter_mut().zip(&x[k * GRAIN..]) {
                *t += *x;
            }
        });
        Ok(())
    }
    match to.dtype() {
        DType::F32 => run::<f32>(to, x),
        DType::F64 => run::<f64>(to, x),
        DType::Bf16 => run::<bf16>(to, x),
    }
    .map_err(|e| match e {
        Error::Type { .. } => Error::Type { op: "add", what: "addend", got: x.dtype() },
        e => e,
    })
}
