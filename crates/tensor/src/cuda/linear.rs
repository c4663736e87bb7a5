//! Linear layers on the GPU.

use super::compile::{Defines, Source};
use super::{Cuda, source};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::ops::activation::{Activated, Activation};
use crate::ops::linear::{LinearKernels, Weights};

const OP: &str = "linear";
pub(super) static SOURCE: Source = source!("linear");
/// Rows and columns of a block's tile, as in the source.
const TILE: usize = 64;

impl LinearKernels for Cuda {
    fn linear(&self, x: &Matrix, layer: &Weights<'_>, y: &mut Matrix, pre: Option<&mut Matrix>) -> Result<()> {
        for (what, m) in [("x", x), ("weight", layer.weight), ("y", &*y)] {
            if m.dtype() != DType::F32 {
                return Err(Error::Type { op: OP, what, got: m.dtype() });
            }
        }
        let (rows, k) = x.shape();
        let (out, width) = (layer.weight.rows(), y.cols());
        let activation = match layer.activation {
            Activation::None => 0i32,
            Activation::Relu => 1,
            Activation::Gelu => 4,
            _ => return Err(self.unsupported("this activation")),
        };
        let mut launch = self
            .kernel(OP, &SOURCE, Defines::of(DType::F32), "linear_f32")?
            .read("x", x)?
            .read("weight", layer.weight)?
            .maybe_read("bias", layer.bias)?
            .write("y", y)?
            .maybe_write("pre", pre)?;
        for n in [rows, k, out, width, layer.first] {
            launch = launch.arg(n as i32);
        }
        let grid = [rows.div_ceil(TILE), out.div_ceil(TILE)];
        // SAFETY: the arguments are those of the kernel, in order; it stays inside the shapes that the operation checked.
        unsafe { launch.arg(activation).run(grid, 256, 0) }
    }

    fn linear_dx(&self, _: &Matrix, _: &Weights<'_>, _: &mut Matrix, _: bool) -> Result<()> {
        Err(self.unsupported("the gradient of a linear layer"))
    }

    fn linear_dw(&self, _: &Activated, _: &Matrix, _: usize, _: &mut Matrix, _: Option<&mut Matrix>) -> Result<()> {
        Err(self.unsupported("the gradient of a linear layer"))
    }
}
