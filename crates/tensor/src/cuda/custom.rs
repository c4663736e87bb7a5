//! Kernels from outside, which are written for the host: they work on copies there.

use super::Cuda;
use crate::backend::Memory;
use crate::device::Device;
use crate::error::Result;
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::ops::custom::{CustomKernels, Kernel};

impl CustomKernels for Cuda {
    fn custom(&self, kernel: &dyn Kernel, from: &[&Matrix], to: &mut Matrix) -> Result<()> {
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
