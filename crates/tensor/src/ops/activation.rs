//! Activations: a function of each element, alone or (in [`linear`](crate::ops::linear)) as the end of a product.
//!
//! Backward needs one matrix of the size of the output. All but GELU find their slope in the output itself, which the
//! next operation saves anyway; GELU is not monotonic and needs its input.

use crate::error::{Error, Result};
use crate::kernels::kernels;
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::tape::{Tape, Var, one_output};

const OP: &str = "activation";

/// A function applied to each element.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Activation {
    /// x
    #[default]
    None,
    /// max(x, 0)
    Relu,
    /// x where positive, slope·x elsewhere
    LeakyRelu {
        /// The slope below zero, not negative.
        slope: f64,
    },
    /// x where positive, eˣ − 1 elsewhere
    Elu,
    /// x·Φ(x), exact (with erf), as PyTorch's default
    Gelu,
    /// 1/(1 + e⁻ˣ)
    Sigmoid,
    /// (eˣ − e⁻ˣ)/(eˣ + e⁻ˣ)
    Tanh,
    /// 1/√(x + ε), where that is positive
    InverseRoot {
        /// Added to x, not negative.
        epsilon: f64,
    },
}

impl Activation {
    /// Whether backward needs the value before the activation; otherwise it needs the value after it.
    pub fn saves_input(self) -> bool {
        self == Self::Gelu
    }

    /// Fails where the slope could not be found again from the output.
    pub(crate) fn check(self, op: &'static str) -> Result<()> {
        match self {
            Self::LeakyRelu { slope } if !(0.0..=1.0).contains(&slope) => {
                Err(Error::Argument { op, problem: format!("a leaky ReLU has a slope between 0 and 1, not {slope}") })
            }
            Self::InverseRoot { epsilon } if epsilon.is_nan() || epsilon < 0.0 => {
                Err(Error::Argument { op, problem: format!("an inverse root has an ε of 0 or more, not {epsilon}") })
            }
            _ => Ok(()),
        }
    }

    /// One of each that takes any number, for tests.
    #[cfg(test)]
    pub(crate) const EXAMPLES: [Self; 7] =
        [Self::None, Self::Relu, Self::LeakyRelu { slope: 0.2 }, Self::Elu, Self::Gelu, Self::Sigmoid, Self::Tanh];
}

/// A matrix by what it was made from: an activation of the elements of another one, which backward keeps anyway.
#[derive(Clone, Debug)]
pub struct Activated {
    /// What it was made from.
    pub of: Matrix,
    /// How.
    pub activation: Activation,
}

impl Activated {
    /// The matrix itself.
    pub fn itself(of: Matrix) -> Self {
        Self { of, activation: Activation::None }
    }
}

kernels! {
    /// What a backend does for activations.
    pub trait ActivationKernels {
        /// `y = act(x)`.
        fn activate(activation: Activation, x: &Matrix, y: &mut Matrix) -> Result<()> {
            |dry| dry.stream(if activation == Activation::Gelu { "activate, gelu" } else { "activate" }, &[x], &[y])
        }

        /// `dy = dy ∘ act'`, from the saved matrix: the input or the output, as [`Activation::saves_input`] says.
        fn activation_backward(activation: Activation, saved: &Matrix, dy: &mut Matrix) -> Result<()> {
            |dry|
            let gelu = activation == Activation::Gelu;
            let op = if gelu { "activation backward, gelu" } else { "activation backward" };
            dry.stream(op, &[saved, dy], &[dy])
        }
    }
}

/// Applies `activation` to each element of `x`.
pub fn activate(tape: &mut Tape, x: &Var, activation: Activation) -> Result<Var> {
    activation.check(OP)?;
    if activation == Activation::None {
        return Ok(x.clone());
    }
    let (rows, cols) = x.value().shape();
    let device = tape.device().clone();
    let mut y = device.uninit(OP, rows, cols, x.value().dtype(), Tag::Activations)?;
    device.backend().activate(activation, x.value(), &mut y)?;
    let saved = if activation.saves_input() { x.value().clone() } else { y.clone() };
    Ok(tape.push(&[x], y, || {
        one_output(move |dy, grads| {
            let mut dx = grads.own(OP, dy)?;
            grads.device().backend().activation_backward(activation, &saved, &mut dx)?;
            grads.put(0, dx)
        })
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::product::product;
    use crate::ops::tests::*;

    gradients!(|device| {
        for (activation, shape) in
            Activation::EXAMPLES.into_iter().flat_map(|a| [(a, (5, 3)), (a, (0, 4)), (a, (3, 0))])
        {
            let x = upload(&device, 1, shape, 3.0);
            check(&device, &[x], &[], |tape, x| activate(tape, &x[0], activation)).unwrap();
        }
        let x = device.upload(2, 2, &[0.0, 0.3, 1.0, 7.0], Tag::Activations).unwrap();
        let root = Activation::InverseRoot { epsilon: 0.1 };
        check(&device, &[x], &[], |tape, x| activate(tape, &x[0], root)).unwrap();
    });

    /// Of squares and a little more: a root falls steeply near zero.
    fn inverse_root() -> Case {
        Case::new(vec![(700, 70)], vec![], |tape, x, _| {
            let squares = product(tape, &x[0], 0.0, &x[0])?;
            Ok(vec![activate(tape, &squares, Activation::InverseRoot { epsilon: 0.5 })?])
        })
    }

    fn case(activation: Activation) -> Case {
        Case::new(vec![(700, 70)], vec![], move |tape, x, _| Ok(vec![activate(tape, &x[0], activation)?]))
    }

    agrees_with_f64!(
        Activation::EXAMPLES.map(case).into_iter().chain([inverse_root()]).map(|case| (case, 1e-6, 2e-2)),
        case(Activation::Gelu)
    );

    #[test]
    fn nan_stays_visible() {
        let device = Device::cpu();
        for activation in Activation::EXAMPLES {
            let mut tape = Tape::new(&device);
            let x = tape.leaf(device.upload(1, 1, &[f32::NAN], Tag::Activations).unwrap());
            let y = activate(&mut tape, &x, activation).unwrap().value().to_vec::<f32>().unwrap();
            assert!(y[0].is_nan(), "{activation:?}");
        }
    }

    #[test]
    fn a_negative_slope_is_refused() {
        let (device, mut tape) = cpu_tape();
        let x = tape.leaf(upload(&device, 1, (2, 2), 1.0));
        assert!(activate(&mut tape, &x, Activation::LeakyRelu { slope: -0.1 }).is_err());
        assert!(activate(&mut tape, &x, Activation::InverseRoot { epsilon: -0.1 }).is_err());
    }
}
