//! Activations on the GPU.

use super::compile::{Defines, Source};
use super::elementwise::{over, typed};
use super::{Cuda, source};
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::activation::{Activation, ActivationKernels};

const OP: &str = "activation";
pub(super) static SOURCE: Source = source!("activation", ["numbers", "lanes", "activation", "elementwise"]);

/// An activation as kernels take it: its number, and the slope of a leaky ReLU or what is added under a root.
pub(super) fn numbered(activation: Activation) -> (i32, f64) {
    match activation {
        Activation::None => (0, 0.0),
        Activation::Relu => (1, 0.0),
        Activation::LeakyRelu { slope } => (2, slope),
        Activation::Elu => (3, 0.0),
        Activation::Gelu => (4, 0.0),
        Activation::Sigmoid => (5, 0.0),
        Activation::Tanh => (6, 0.0),
        Activation::InverseRoot { epsilon } => (7, epsilon),
    }
}

/// What a kernel over elements reads and writes.
struct Pair<'a> {
    names: [&'static str; 2],
    from: &'a Matrix,
    to: &'a mut Matrix,
}

impl Cuda {
    fn each(&self, kernel: &'static str, activation: Activation, pair: Pair<'_>) -> Result<()> {
        let Pair { names: [read, written], from, to } = pair;
        from.expect(OP, read, to.rows(), to.cols())?;
        typed(OP, written, to, from.dtype())?;
        let (number, slope) = numbered(activation);
        let launch = self
            .kernel(OP, &SOURCE, Defines::of(from.dtype()), kernel)?
            .arg(number)
            .arg(slope)
            .read(read, from)?
            .write(written, to)?;
        // SAFETY: the arguments are those of the kernels of this source; all matrices have so many elements.
        unsafe { over(launch, from) }
    }
}

impl ActivationKernels for Cuda {
    fn activate(&self, activation: Activation, x: &Matrix, y: &mut Matrix) -> Result<()> {
        self.each("activate_each", activation, Pair { names: ["x", "y"], from: x, to: y })
    }

    fn activation_backward(&self, activation: Activation, saved: &Matrix, dy: &mut Matrix) -> Result<()> {
        self.each("activation_backward", activation, Pair { names: ["saved", "dy"], from: saved, to: dy })
    }
}
