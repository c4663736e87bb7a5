//! The GPUs of this machine, looked at without starting anything on them.

use cudarc::driver::sys::{self, CUdevice_attribute};
use cudarc::driver::{CudaContext, DriverError, result};

/// A compute capability, such as 9.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Architecture {
    pub major: i32,
    pub minor: i32,
}

/// What the driver says about a GPU.
#[derive(Clone, Debug)]
pub struct Gpu {
    /// Its name.
    pub name: String,
    /// Bytes of memory.
    pub memory: usize,
    /// Compute capability.
    pub architecture: Architecture,
    /// Multiprocessors.
    pub processors: i32,
}

impl Gpu {
    /// All of them, in the driver's order; none where the driver is missing or fails.
    pub fn all() -> Vec<Self> {
        // SAFETY: this only tries to load the library.
        if !unsafe { sys::is_culib_present() } || result::init().is_err() {
            return Vec::new();
        }
        let count = CudaContext::device_count().unwrap_or(0);
        (0..count).filter_map(|index| Self::look(index).ok()).collect()
    }

    fn look(index: i32) -> Result<Self, DriverError> {
        let device = result::device::get(index)?;
        let name = result::device::get_name(device)?;
        // SAFETY: the device was just got from the driver.
        unsafe {
            let number = |attribute| result::device::get_attribute(device, attribute);
            Ok(Self {
                name,
                memory: result::device::total_mem(device)?,
                architecture: Architecture {
                    major: number(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                    minor: number(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
                },
                processors: number(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            })
        }
    }
}
