//! Activations on the CPU: alone, and as the end of a product.

use super::elementwise::{GRAIN, Real};
use super::parallel::each_chunk;
use super::rowwise::{Storage, by_dtype};
use super::{Cpu, host, host_mut};
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::activation::{Activation, ActivationKernels};

const OP: &str = "activation";

/// Numbers with the functions that activations are made of.
pub(super) trait Smooth: Real {
    /// Φ(x) and φ(x) of the normal distribution: GELU is x·Φ(x), its derivative Φ(x) + x·φ(x).
    fn normal(self) -> (Self, Self);

    /// e^x − 1 for x ≤ 0.
    fn exp_minus_one(self) -> Self;

    /// e^x for x ≤ 0.
    fn exp_negative(self) -> Self;

    /// ln(1 + x) for 0 ≤ x ≤ 1.
    fn ln_one_plus(self) -> Self;
}

impl Smooth for f64 {
    fn normal(self) -> (Self, Self) {
        let distribution = 0.5 * libm::erfc(-self * std::f64::consts::FRAC_1_SQRT_2);
        let density = (-0.5 * self * self).exp() * (0.5 * std::f64::consts::FRAC_1_PI).sqrt();
        (distribution, density)
    }

    fn exp_minus_one(self) -> Self {
        self.exp_m1()
    }

    fn exp_negative(self) -> Self {
        self.exp()
    }

    fn ln_one_plus(self) -> Self {
        self.ln_1p()
    }
}

impl Smooth for f32 {
    /// Φ by the rational approximation 26.2.17 of Abramowitz and Stegun (error below 7.5e-8) over our own exp: no
    /// branches and no calls, so that loops over it become vector code.
    #[inline(always)]
    fn normal(self) -> (Self, Self) {
        let density = (-0.5 * self * self).exp_negative() * 0.398_942_3;
        let t = 1.0 / (0.231_641_9 * self.abs() + 1.0);
        let p = (((1.330_274_4 * t - 1.821_256) * t + 1.781_477_9) * t - 0.356_563_78) * t + 0.319_381_54;
        let tail = density * t * p;
        (if self >= 0.0 { 1.0 - tail } else { tail }, density)
    }

    #[inline(always)]
    fn exp_minus_one(self) -> Self {
        let (power, fraction) = exp_parts(self);
        // The fraction is kept apart from the one it stands beside: exact near zero.
        power * fraction + (power - 1.0)
    }

    /// Flushed to zero below −87.
    #[inline(always)]
    fn exp_negative(self) -> Self {
        let (power, fraction) = exp_parts(self);
        power * (fraction + 1.0)
    }

    /// 2·artanh(x/(2 + x)) by its series, whose next term is below 2e-8 of the sum.
    #[inline(always)]
    fn ln_one_plus(self) -> Self {
        let u = self / (2.0 + self);
        let s = u * u;
        let p = ((s / 13.0 + 1.0 / 11.0) * s + 1.0 / 9.0) * s + 1.0 / 7.0;
        2.0 * u * (((p * s + 0.2) * s + 1.0 / 3.0) * s + 1.0)
    }
}

/// (2ⁿ, q) with e^x = 2ⁿ·(1 + q), for x ≤ 0; a NaN stays one.
#[inline(always)]
fn exp_parts(x: f32) -> (f32, f32) {
    let x = x * std::f32::consts::LOG2_E;
    let x = if x < -126.0 { -126.0 } else { x };
    // Adding 1.5·2²³ rounds to an integer, which then stands in the lowest bits.
    let shifted = x + 12_582_912.0;
    let f = x - (shifted - 12_582_912.0);
    let p = ((0.000_154_684_78 * f + 0.001_333_389_8) * f + 0.009_618_356) * f + 0.055_504_115;
    let q = ((p * f + 0.240_226_47) * f + std::f32::consts::LN_2) * f;
    (f32::from_bits(shifted.to_bits().wrapping_add(127) << 23), q)
}

#[inline(always)]
pub(super) fn apply<C: Smooth>(activation: Activation, x: C) -> C {
    match activation {
        Activation::None => x,
        Activation::Relu => {
            if x <= C::zero() {
                C::zero()
            } else {
                x
            }
        }
        Activation::LeakyRelu { slope } => {
            if x <= C::zero() {
                x * C::of(slope)
            } else {
                x
            }
        }
        Activation::Elu => {
            if x <= C::zero() {
                x.exp_minus_one()
            } else {
                x
            }
        }
        Activation::Gelu => x * x.normal().0,
        Activation::Sigmoid => {
            // e to a power that is not positive: nothing overflows.
            let e = (if x > C::zero() { -x } else { x }).exp_negative();
            (if x > C::zero() { C::one() } else { e }) / (C::one() + e)
        }
        Activation::Tanh => {
            // e^(−2|x|) − 1, exact near zero.
            let below = if x > C::zero() { -x } else { x };
            let less = (below + below).exp_minus_one();
            let y = less / (less + C::one() + C::one());
            if x > C::zero() { -y } else { y }
        }
        Activation::InverseRoot { epsilon } => C::one() / (x + C::of(epsilon)).sqrt(),
    }
}

/// The derivative, from what [`Activation::saves_input`] says is saved: the output or, for GELU, the input.
#[inline(always)]
pub(super) fn slope<C: Smooth>(activation: Activation, saved: C) -> C {
    let below = |at: C| if saved > C::zero() { C::one() } else { at };
    match activation {
        Activation::None => C::one(),
        Activation::Relu => below(C::zero()),
        Activation::LeakyRelu { slope } => below(C::of(slope)),
        Activation::Elu => below(saved + C::one()),
        Activation::Gelu => {
            let (distribution, density) = saved.normal();
            distribution + saved * density
        }
        Activation::Sigmoid => saved * (C::one() - saved),
        Activation::Tanh => (C::one() - saved) * (C::one() + saved),
        Activation::InverseRoot { .. } => C::of(-0.5) * saved * saved * saved,
    }
}

/// Runs a loop with the activation known to the compiler, so that the choice is made outside the loop.
macro_rules! specialise {
    ($activation:ident, $body:expr) => {
        match $activation {
            Activation::Relu => {
                let $activation = Activation::Relu;
                $body
            }
            Activation::Gelu => {
                let $activation = Activation::Gelu;
                $body
            }
            Activation::Elu => {
                let $activation = Activation::Elu;
                $body
            }
            Activation::Sigmoid => {
                let $activation = Activation::Sigmoid;
                $body
            }
            Activation::Tanh => {
                let $activation = Activation::Tanh;
                $body
            }
            $activation => $body,
        }
    };
}
pub(super) use specialise;

impl ActivationKernels for Cpu {
    fn activate(&self, activation: Activation, x: &Matrix, y: &mut Matrix) -> Result<()> {
        x.expect(OP, "x", y.rows(), y.cols())?;
        by_dtype!(x.dtype(), T => {
            let (x, y) = (host::<T>(OP, "x", x)?, host_mut::<T>(OP, "y", y)?);
            each_chunk(y, GRAIN, &|k, y| {
                let x = &x[k * GRAIN..][..y.len()];
                self.isa.run(#[inline(always)] || forward(activation, x, y));
            });
            Ok(())
        })
    }

    fn activation_backward(&self, activation: Activation, saved: &Matrix, dy: &mut Matrix) -> Result<()> {
        saved.expect(OP, "saved", dy.rows(), dy.cols())?;
        by_dtype!(saved.dtype(), T => {
            let (saved, dy) = (host::<T>(OP, "saved", saved)?, host_mut::<T>(OP, "dy", dy)?);
            each_chunk(dy, GRAIN, &|k, dy| {
                let saved = &saved[k * GRAIN..][..dy.len()];
                self.isa.run(#[inline(always)] || backward(activation, saved, dy));
            });
            Ok(())
        })
    }
}

/// y = act(x), element by element.
#[inline(always)]
pub(super) fn forward<T: Storage<C: Smooth>>(activation: Activation, x: &[T], y: &mut [T]) {
    specialise!(
        activation,
        for (y, x) in y.iter_mut().zip(x) {
            *y = T::store(apply(activation, x.load()));
        }
    );
}

#[inline(always)]
fn backward<T: Storage<C: Smooth>>(activation: Activation, saved: &[T], dy: &mut [T]) {
    specialise!(
        activation,
        for (g, x) in dy.iter_mut().zip(saved) {
            *g = T::store(g.load() * slope(activation, x.load()));
        }
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_f32_are_good_to_a_few_units_in_the_last_place() {
        for k in 0..100_000 {
            let x = -(k as f32) * 8e-4;
            let (exact, less) = (f64::from(x).exp(), f64::from(x).exp_m1());
            // The argument itself is rounded, to 6e-8 of its size.
            let off = 3e-7 * (1.0 - f64::from(x));
            assert!((f64::from(x.exp_negative()) - exact).abs() <= off * exact, "{x}");
            assert!((f64::from(x.exp_minus_one()) - less).abs() <= 6e-7 * less.abs(), "{x}");
        }
        for k in 0..=10_000 {
            let x = k as f32 * 1e-4;
            let exact = f64::from(x).ln_1p();
            assert!((f64::from(x.ln_one_plus()) - exact).abs() <= 3e-7 * exact, "{x}");
        }
        assert!(f32::NAN.exp_negative().is_nan());
        assert!(f32::NEG_INFINITY.exp_negative() < 1e-37);
    }
}
