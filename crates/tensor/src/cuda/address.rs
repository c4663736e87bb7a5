//! Where matrices are, for those who move them between ranks, and the kernel that adds up what ranks sent.

use super::compile::{Defines, Source};
use super::{Cuda, place, source};
use crate::error::Result;
use crate::matrix::{Address, Matrix, OnGpu};

pub(super) static SOURCE: Source = source!("add_up", ["numbers", "lanes"]);

impl Cuda {
    pub(super) fn address_of(&self, m: &Matrix) -> Result<Address> {
        self.not_captured("what moves between ranks")?;
        let add_up = self.function(&SOURCE, Defines::of(m.dtype()), "add_up")?;
        Ok(Address::Cuda(OnGpu {
            pointer: place(self, "address", "matrix", m)?,
            device: self.context.ordinal(),
            context: self.context.cu_ctx().expose_provenance(),
            stream: self.stream.cu_stream().expose_provenance(),
            aside: self.aside.cu_stream().expose_provenance(),
            // It stays loaded as long as this device.
            add_up: add_up.cu_function().expose_provenance(),
        }))
    }
}
