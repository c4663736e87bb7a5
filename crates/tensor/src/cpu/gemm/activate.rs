//! Activations, forward as the end of a product and backward.

use half::bf16;
use rayon::prelude::*;

use crate::cpu::elementwise::{Convert, GRAIN, Real};
use crate::cpu::{Isa, host, host_mut};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::ops::linear::Activation;

/// Φ(x) and φ(x) of the normal distribution: GELU is x·Φ(x), its derivative Φ(x) + x·φ(x).
pub(in crate::cpu) trait Normal: Real {
    fn normal(self) -> (Self, Self);
}

impl Normal for f64 {
    fn normal(self) -> (Self, Self) {
        let distribution = 0.5 * libm::erfc(-self * std::f64::consts::FRAC_1_SQRT_2);
        let density = (-0.5 * self * self).exp() * (0.5 * std::f64::consts::FRAC_1_PI).sqrt();
        (distribution, density)
    }
}

impl Normal for f32 {
    /// Φ by the rational approximation 26.2.17 of Abramowitz and Stegun (error below 7.5e-8) over our own exp: no branches and
    /// no calls, so that loops over it become vector code.
    #[inline(always)]
    fn normal(self) -> (Self, Self) {
        let density = exp(-0.5 * self * self) * 0.398_942_3;
        let t = 1.0 / (0.231_641_9 * self.abs() + 1.0);
        let p = (((1.330_274_4 * t - 1.821_256) * t + 1.781_477_9) * t - 0.356_563_78) * t + 0.319_381_54;
        let tail = density * t * p;
        (if self >= 0.0 { 1.0 - tail } else { tail }, density)
    }
}

/// e^x for x ≤ 0, flushed to zero below −87.
#[inline(always)]
fn exp(x: f32) -> f32 {
    let x = (x * std::f32::consts::LOG2_E).max(-126.0);
    let n = (x + 12_582_912.0) - 12_582_912.0;
    let f = x - n;
    let p = ((0.000_154_684_78 * f + 0.001_333_389_8) * f + 0.009_618_356) * f + 0.055_504_115;
    let p = ((p * f + 0.240_226_47) * f + std::f32::consts::LN_2) * f + 1.0;
    p * f32::from_bits(((n as i32 + 127) << 23) as u32)
}

#[inline(always)]
fn apply<C: Normal>(activation: Activation, x: C) -> C {
    match activation {
        Activation::None => x,
        Activation::Relu => {
            if x > C::zero() {
                x
            } else {
                C::zero()
            }
        }
        Activation::Gelu => x * x.normal().0,
    }
}

/// The derivative, from the value before the activation (for ReLU, the output will do).
#[inline(always)]
fn slope<C: Normal>(activation: Activation, x: C) -> C {
    match activation {
        Activation::None => C::one(),
        Activation::Relu => {
            if x > C::zero() {
                C::one()
            } else {
                C::zero()
            }
        }
        Activation::Gelu => {
            let (distribution, density) = x.normal();
            distribution + x * density
        }
    }
}

/// Where a finished block goes: rows of `y` (and of `pre`) from column `first` on.
pub(super) struct Target<'a, Y> {
    pub(super) y: &'a mut [Y],
    pub(super) pre: Option<&'a mut [Y]>,
    pub(super) width: usize,
    pub(super) first: usize,
}

/// Adds the bias to a block of products (rows of `n`), applies the activation and stores the result.
pub(super) fn finish<C: Normal, Y: Convert>(
    isa: Isa,
    activation: Activation,
    block: &mut [C],
    bias: Option<&[C]>,
    n: usize,
    to: Target<'_, Y>,
) {
    let Target { y, mut pre, width, first } = to;
    isa.run(|| {
        for (at, (row, y)) in block.chunks_mut(n).zip(y.chunks_mut(width)).enumerate() {
            if let Some(bias) = bias {
                for (x, b) in row.iter_mut().zip(bias) {
                    *x = *x + *b;
                }
            }
            if let Some(pre) = &mut pre {
                for (to, x) in pre[at * width + first..][..n].iter_mut().zip(&*row) {
                    *to = Y::narrow(x.widen());
                }
            }
            for (to, x) in y[first..][..n].iter_mut().zip(&*row) {
                *to = Y::narrow(apply(activation, *x).widen());
            }
        }
    });
}

pub(super) fn backward(isa: Isa, activation: Activation, saved: &Matrix, dy: &mut Matrix) -> Result<()> {
    fn run<C: Normal, T: Convert>(isa: Isa, activation: Activation, saved: &Matrix, dy: &mut Matrix) -> Result<()> {
        let saved = host::<T>("activation", "saved", saved)?;
        let dy = host_mut::<T>("activation", "dy", dy)?;
        dy.par_chunks_mut(GRAIN).zip(saved.par_chunks(GRAIN)).for_each(|(dy, x)| {
            isa.run(|| {
                for (g, x) in dy.iter_mut().zip(x) {
                    *g = T::narrow((C::of(*g) * slope(activation, C::of(*x))).widen());
                }
            });
        });
        Ok(())
    }
    saved.expect("activation", "saved", dy.rows(), dy.cols())?;
    match (saved.dtype(), dy.dtype()) {
        (DType::F32, DType::F32) => run::<f32, f32>(isa, activation, saved, dy),
        (DType::F64, DType::F64) => run::<f64, f64>(isa, activation, saved, dy),
        (DType::Bf16, DType::Bf16) => run::<f32, bf16>(isa, activation, saved, dy),
        (_, got) => Err(Error::Type { op: "activation", what: "dy", got }),
    }
}
