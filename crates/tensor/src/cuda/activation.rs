//! Activations on the GPU.

use super::compile::{Defines, Source};
use super::elementwise::{over, typed};
use super::{Cuda, source};
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::activation::{Activation, ActivationKernels};

const OP: &str = "activation";
pub(super) static SOURCE: Source = source!("activation", ["numbers", "lanes", "activation", "elementwise"]);

/// An activation as kernels take it: its number and the slope of a leaky ReLU.
pub(super) fn numbered(activation: Activation) -> (i32, f64) {
    match activation {
        Activation::None => (0, 0.0),
        Activation::Relu => (1, 0.0),
        Activation::LeakyRelu { slope } => (2, slope),
        Activation::Elu => (3, 0.0),
        Activation::Gelu => (4, 0.0),
        Activation::Sigmoid => (5, 0.0),
    }
}

impl ActivationKernels for Cuda {
    fn activate(&self, activation: Activation, x: &Matrix, y: &mut Matrix) -> Result<()> {
        x.expect(OP, "x", y.rows(), y.cols())?;
        typed(OP, "y", y, x.dtype())?;
        let (number, slope) = numbered(activation);
        let launch = self
            .kernel(OP, &SOURCE, Defines::of(x.dtype()), "activate_each")?
            .arg(number)
            .arg(slope)
            .read("x", x)?
            .write("y", y)?;
        // SAFETY: the arguments are those of the kernel; all matrices have so many elements.
        unsafe { over(launch, x) }
    }

    fn activation_backward(&self, activation: Activation, saved: &Matrix, dy: &mut Matrix) -> Result<()> {
        saved.expect(OP, "saved", dy.rows(), dy.cols())?;
        typed(OP, "dy", dy, saved.dtype())?;
        let (number, slope) = numbered(activation);
        let launch = self
            .kernel(OP, &SOURCE, Defines::of(saved.dtype()), "activation_backward")?
            .arg(number)
            .arg(slope)
            .read("saved", saved)?
            .write("dy", dy)?;
        // SAFETY: the arguments are those of the kernel; all matrices have so many elements.
        unsafe { over(launch, saved) }
    }
}
