//! Kernels from outside, which are written for this memory.

use super::Cpu;
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::custom::{CustomKernels, Kernel};

impl CustomKernels for Cpu {
    fn custom(&self, kernel: &dyn Kernel, from: &[&Matrix], to: &mut Matrix) -> Result<()> {
        kernel.compute(from, to)
    }
}
