//! Gradients against finite differences, in f64.
//!
//! The function's output is contracted with fixed pseudo-random weights to one number; its derivative along every
//! element of every input and parameter is compared with the central difference.

use std::rc::Rc;

use crate::device::Device;
use crate::error::Result;
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::parameter::Parameter;
use crate::tape::{Tape, Var};

/// Step of the central difference: error of order ε² in truncation, 1e-16/ε in rounding.
const STEP: f64 = 1e-5;
/// Allowed difference, relative to the largest derivative of the same matrix (and at least absolute).
const TOLERANCE: f64 = 1e-7;

/// Deterministic numbers between −1 and 1 for tests.
pub fn numbers(seed: u64, len: usize) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

/// Compares the gradients of `f` with finite differences.
///
/// # Errors
/// Those of `f`.
///
/// # Panics
/// Where a gradient is wrong, naming the matrix and the element: this is for tests.
#[allow(clippy::panic)]
pub fn check(
    device: &Device,
    inputs: &[Matrix],
    parameters: &[Rc<Parameter>],
    f: impl Fn(&mut Tape, &[Var]) -> Result<Var>,
) -> Result<()> {
    let loss = |tape: &mut Tape, inputs: &[Matrix]| -> Result<(Vec<Var>, Var, Vec<f64>, f64)> {
        let vars: Vec<Var> = inputs.iter().map(|m| tape.leaf(m.clone())).collect();
        let out = f(tape, &vars)?;
        let values = out.value().to_vec::<f64>()?;
        let weights = numbers(99, values.len());
        let sum = values.iter().zip(&weights).map(|(x, w)| x * w).sum();
        Ok((vars, out, weights, sum))
    };
    let mut tape = Tape::new(device);
    let (vars, out, weights, _) = loss(&mut tape, inputs)?;
    let seed = device.upload(out.value().rows(), out.value().cols(), &weights, Tag::Activations)?;
    let leaves: Vec<&Var> = vars.iter().collect();
    for p in parameters {
        p.set_grad(None);
    }
    let found = tape.backward(vec![(out, seed)], &leaves, |_| Ok(()))?;
    let value = |inputs: &[Matrix]| loss(&mut Tape::new(device), inputs).map(|(.., sum)| sum);

    let compare =
        |what: String, found: Option<Matrix>, at: &Matrix, move_to: &dyn Fn(Matrix) -> Result<f64>| -> Result<()> {
            let elements = at.to_vec::<f64>()?;
            let found = found.map_or(Ok(vec![0.0; elements.len()]), |m| m.to_vec::<f64>())?;
            let mut expected = Vec::with_capacity(elements.len());
            for k in 0..elements.len() {
                let at = |step: f64| {
                    let mut moved = elements.clone();
                    moved[k] += step;
                    device.upload(at.rows(), at.cols(), &moved, Tag::Activations).and_then(move_to)
                };
                expected.push((at(STEP)? - at(-STEP)?) / (2.0 * STEP));
            }
            let scale = expected.iter().fold(1.0, |m: f64, x| m.max(x.abs()));
            for (k, (f, e)) in found.iter().zip(&expected).enumerate() {
                let near = (f - e).abs() <= TOLERANCE * scale;
                assert!(near, "{what}: element {k}: gradient {f}, finite difference {e}");
            }
            Ok(())
        };
    for (k, found) in found.into_iter().enumerate() {
        compare(format!("input {k}"), found, &inputs[k], &|moved| {
            let mut inputs = inputs.to_vec();
            inputs[k] = moved;
            value(&inputs)
        })?;
    }
    for p in parameters {
        let original = p.value();
        let set = |m: Matrix| {
            p.update(|v| {
                *v = m;
                Ok(())
            })
        };
        compare(p.name().to_string(), p.take_grad(), &original, &|moved| {
            set(moved)?;
            let value = value(inputs);
            set(original.clone())?;
            value
        })?;
    }
    Ok(())
}
