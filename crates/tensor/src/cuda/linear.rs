//! Linear layers on the GPU.

use cudarc::driver::{LaunchConfig, PushKernelArg};

use super::{Cuda, slice, slice_mut};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::ops::activation::{Activated, Activation};
use crate::ops::linear::{LinearKernels, Weights};

const OP: &str = "linear";
const SOURCE: &str = include_str!("linear.cu");
/// Rows and columns of a block's tile, as in the source.
const TILE: u32 = 64;

impl LinearKernels for Cuda {
    fn linear(&self, x: &Matrix, layer: &Weights<'_>, y: &mut Matrix, pre: Option<&mut Matrix>) -> Result<()> {
        for (what, m) in [("x", x), ("weight", layer.weight), ("y", &*y)] {
            if m.dtype() != DType::F32 {
                return Err(Error::Type { op: OP, what, got: m.dtype() });
            }
        }
        let function = self.function(SOURCE, "linear_f32")?;
        let (rows, k) = x.shape();
        let (out, width) = (layer.weight.rows(), y.cols());
        let activation = match layer.activation {
            Activation::None => 0i32,
            Activation::Relu => 1,
            Activation::Gelu => 2,
            _ => return Err(self.unsupported("this activation")),
        };
        let sizes = [rows, k, out, width, layer.first].map(|n| n as i32);
        let null = 0u64;
        let mut launch = self.stream.launch_builder(&function);
        launch.arg(slice(OP, "x", x)?).arg(slice(OP, "weight", layer.weight)?);
        match layer.bias {
            Some(bias) => launch.arg(slice(OP, "bias", bias)?),
            None => launch.arg(&null),
        };
        launch.arg(slice_mut(OP, "y", y)?);
        match pre {
            Some(pre) => launch.arg(slice_mut(OP, "pre", pre)?),
            None => launch.arg(&null),
        };
        for n in &sizes {
            launch.arg(n);
        }
        launch.arg(&activation);
        let grid = ((rows as u32).div_ceil(TILE).max(1), (out as u32).div_ceil(TILE).max(1), 1);
        let config = LaunchConfig { grid_dim: grid, block_dim: (256, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: the arguments are those of the kernel, in order; it stays inside the shapes that the operation checked.
        unsafe { launch.launch(config) }.map(|_| ()).map_err(self.fail("run linear"))
    }

    fn linear_dx(&self, _: &Matrix, _: &Weights<'_>, _: &mut Matrix, _: bool) -> Result<()> {
        Err(self.unsupported("the gradient of a linear layer"))
    }

    fn linear_dw(&self, _: &Activated, _: &Matrix, _: usize, _: &mut Matrix, _: Option<&mut Matrix>) -> Result<()> {
        Err(self.unsupported("the gradient of a linear layer"))
    }
}
