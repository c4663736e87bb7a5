//! Kernels from outside: those that have a half for GPUs run there, others work on copies in host memory.

use super::Cuda;
use super::compile::{Defines, Source};
use crate::backend::Memory;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::ops::custom::{CustomKernels, GpuKernel, Kernel};

/// What a kernel from outside finds declared.
const BEFORE: &str = concat!(include_str!("numbers.cuh"), "\n", include_str!("lanes.cuh"), "\n");

/// The source of a kernel from outside.
pub(super) fn source(gpu: &GpuKernel) -> Source {
    Source { name: gpu.function, before: BEFORE, text: gpu.text }
}

impl Cuda {
    /// A thread for each element of `to`.
    fn custom_here(&self, op: &'static str, gpu: &GpuKernel, from: &[&Matrix], to: &mut Matrix) -> Result<()> {
        if let Some(other) = from.iter().find(|m| m.dtype() != to.dtype()) {
            let problem = format!("it makes {} of {}: its kernel knows one type", to.dtype(), other.dtype());
            return Err(Error::Argument { op, problem });
        }
        let count = to.rows() * to.cols();
        let mut launch = self.kernel(op, &source(gpu), Defines::of(to.dtype()), gpu.function)?;
        for m in from {
            launch = launch.read("an operand", m)?.size(m);
        }
        let shape = to.shape();
        launch = launch.write("the result", to)?.arg(shape.0 as i64).arg(shape.1 as i32);
        for number in &gpu.numbers {
            launch = launch.arg(*number);
        }
        // SAFETY: whoever made the kernel promises that it takes these arguments and stays inside of them.
        unsafe { launch.run_each(count) }
    }
}

impl CustomKernels for Cuda {
    fn custom(&self, kernel: &dyn Kernel, from: &[&Matrix], to: &mut Matrix) -> Result<()> {
        if let Some(gpu) = kernel.gpu() {
            return self.custom_here(kernel.name(), &gpu, from, to);
        }
        let host = Device::cpu();
        let room = |m: &Matrix| host.uninit(kernel.name(), m.rows(), m.cols(), m.dtype(), Tag::Workspace);
        let mut copies = Vec::with_capacity(from.len());
        for m in from {
            let (mut bytes, mut copy) = (vec![0; m.bytes()], room(m)?);
            self.download(m, &mut bytes)?;
            host.backend().upload(&mut copy, &bytes)?;
            copies.push(copy);
        }
        let (mut made, mut bytes) = (room(to)?, vec![0; to.bytes()]);
        kernel.compute(&copies.iter().collect::<Vec<_>>(), &mut made)?;
        host.backend().download(&made, &mut bytes)?;
        self.upload(to, &bytes)
    }
}
