//! Optimizer steps on the CPU: all parameters as one list of pieces, so that many small ones cost no more than one
//! large one.

use std::ops::Range;

use super::elementwise::{GRAIN, Real};
use super::parallel::{each, map};
use super::rowwise::{Storage, by_dtype};
use super::share::Shared;
use super::{Cpu, host, host_mut};
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::optim::{Decay, OptimizerKernels, Rule, Slot, Step};

const OP: &str = "optimizer";

impl OptimizerKernels for Cpu {
    fn step(&self, step: &Step, slots: &mut [Slot<'_>]) -> Result<()> {
        if let Some(slot) = slots.iter().find(|s| s.value.dtype() == DType::Bf16) {
            return Err(Error::Type { op: OP, what: "parameter", got: slot.value.dtype() });
        }
        all::<f32>(*self, step, slots)?;
        all::<f64>(*self, step, slots)
    }

    fn square_sums(&self, matrices: &[&Matrix]) -> Result<Vec<f64>> {
        let one = |m: &&Matrix| {
            by_dtype!(m.dtype(), T => {
                let m = host::<T>(OP, "gradient", m)?;
                let piece = |k: usize| &m[k * GRAIN..m.len().min((k + 1) * GRAIN)];
                let square = |k: usize| self.isa.run(#[inline(always)] || squares(piece(k)));
                let pieces = map(m.len().div_ceil(GRAIN), &square);
                Ok(pieces.iter().sum())
            })
        };
        matrices.iter().map(one).collect()
    }
}

/// Σ x² of a piece, in 16 lanes.
#[inline(always)]
fn squares<T: Storage>(x: &[T]) -> f64 {
    let mut lanes = [0.0; 16];
    for chunk in x.chunks(16) {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            let x = x.widen();
            *lane += x * x;
        }
    }
    lanes.iter().sum()
}

/// One parameter's slices.
struct Slices<'a, C> {
    value: Shared<'a, C>,
    gradient: &'a [C],
    state: [Option<Shared<'a, C>>; 2],
    rule: Rule,
}

/// The parameters of type `C`.
fn all<C: Real + Element>(cpu: Cpu, step: &Step, slots: &mut [Slot<'_>]) -> Result<()> {
    let mut list = Vec::new();
    for slot in slots.iter_mut().filter(|s| s.value.dtype() == C::DTYPE) {
        let mut state = [None, None];
        for (to, m) in state.iter_mut().zip(slot.state.iter_mut()) {
            *to = Some(Shared::new(host_mut::<C>(OP, "state", m)?));
        }
        let value = Shared::new(host_mut::<C>(OP, "parameter", slot.value)?);
        let rule = if slot.decays { step.rule } else { step.rule.without_decay() };
        list.push(Slices { value, gradient: host::<C>(OP, "gradient", slot.gradient)?, state, rule });
    }
    let cut = |(k, s): (usize, &Slices<'_, C>)| {
        let len = s.gradient.len();
        (0..len).step_by(GRAIN).map(move |start| (k, start..len.min(start + GRAIN)))
    };
    let pieces: Vec<(usize, Range<usize>)> = list.iter().enumerate().flat_map(cut).collect();
    each(pieces.len(), &|at| {
        let (k, range) = pieces[at].clone();
        let s = &list[k];
        // SAFETY: pieces are disjoint.
        let value = unsafe { s.value.part(range.clone()) };
        // SAFETY: as above.
        let state = s.state.map(|m| m.map(|m| unsafe { m.part(range.clone()) }));
        let gradient = &s.gradient[range];
        let step = Step { rule: s.rule, ..*step };
        cpu.isa.run(
            #[inline(always)]
            || piece(&step, value, gradient, state),
        );
    });
    Ok(())
}

#[inline(always)]
fn piece<C: Real>(step: &Step, value: &mut [C], gradient: &[C], state: [Option<&mut [C]>; 2]) {
    let (lr, scale) = (C::of(step.lr), C::of(step.scale));
    match (step.rule, state) {
        (Rule::Adam { betas, epsilon, decay }, [Some(m), Some(v)]) => {
            let (keep, penalty) = match decay {
                Decay::Decoupled(x) => (C::of(1.0 - step.lr * x), C::zero()),
                Decay::Penalty(x) => (C::one(), C::of(x)),
            };
            let correction = |beta: f64| 1.0 - beta.powi(i32::try_from(step.number).unwrap_or(i32::MAX));
            let rate = C::of(step.lr / correction(betas.0));
            let root = C::of(1.0 / correction(betas.1).sqrt());
            let (b1, b2, epsilon) = (C::of(betas.0), C::of(betas.1), C::of(epsilon));
            let (c1, c2) = (C::of(1.0 - betas.0), C::of(1.0 - betas.1));
            for ((p, g), (m, v)) in value.iter_mut().zip(gradient).zip(m.iter_mut().zip(v)) {
                let g = *g * scale + penalty * *p;
                *m = b1 * *m + c1 * g;
                *v = b2 * *v + c2 * g * g;
                *p = keep * *p - rate * *m / (v.sqrt() * root + epsilon);
            }
        }
        (Rule::Sgd { momentum, weight_decay }, [Some(buffer), _]) => {
            let (momentum, penalty) = (C::of(momentum), C::of(weight_decay));
            for ((p, g), b) in value.iter_mut().zip(gradient).zip(buffer) {
                *b = momentum * *b + (*g * scale + penalty * *p);
                *p = *p - lr * *b;
            }
        }
        (Rule::Sgd { weight_decay, .. }, _) => {
            let penalty = C::of(weight_decay);
            for (p, g) in value.iter_mut().zip(gradient) {
                *p = *p - lr * (*g * scale + penalty * *p);
            }
        }
        // `Optimizer` gives every rule the state it asks for.
        (Rule::Adam { .. }, _) => {}
    }
}
