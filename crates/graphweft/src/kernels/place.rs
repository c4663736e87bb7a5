//! Where kernels over edges work: here, or on a GPU of the caller's.

use std::any::Any;

use graphweft_tensor::{Device, Matrix};

use super::values::GpuArray;
use crate::error::Result;

/// The caller of kernels on a GPU, whose GPU it is.
///
/// ```
/// use std::any::Any;
///
/// use graphweft::kernels::GpuHost;
///
/// /// Uses the default stream and has no memory to lend.
/// struct Stingy;
///
/// impl GpuHost for Stingy {
///     fn stream(&self) -> Result<u64, String> {
///         Ok(0)
///     }
///
///     fn memory(&self, _bytes: usize) -> Option<(u64, Box<dyn Any + Send>)> {
///         None
///     }
/// }
///
/// assert!(Stingy.memory(1 << 20).is_none());
/// ```
pub trait GpuHost: Send {
    /// The `CUstream` to which calls of this thread go now. It lives as long as the graph.
    ///
    /// # Errors
    /// If that cannot be told, in words.
    fn stream(&self) -> std::result::Result<u64, String>;

    /// So many bytes of the GPU's memory for use on that stream: their address, a multiple of 256, and their owner,
    /// which is dropped when nothing that was asked for on the stream so far, nor will be, needs them. `None` if there
    /// are not so many left.
    fn memory(&self, bytes: usize) -> Option<(u64, Box<dyn Any + Send>)>;
}

/// Where kernels work.
#[derive(Debug)]
pub(super) enum Place {
    Cpu(Device),
    #[cfg(feature = "cuda")]
    Gpu(graphweft_tensor::cuda::GuestGpu),
}

/// A device for one call.
pub(super) enum Visit {
    Cpu(Device),
    #[cfg(feature = "cuda")]
    Gpu(graphweft_tensor::cuda::Visit),
}

impl Visit {
    pub(super) fn device(&self) -> &Device {
        match self {
            Self::Cpu(device) => device,
            #[cfg(feature = "cuda")]
            Self::Gpu(visit) => visit.device(),
        }
    }
}

impl Place {
    /// `key`: where on the GPU the key of dropouts is, if it is there.
    pub(super) fn enter(&self, key: Option<u64>) -> Result<Visit> {
        match self {
            Self::Cpu(_) if key.is_some() => Err(super::mistaken("seed", "number here")),
            Self::Cpu(device) => Ok(Visit::Cpu(device.clone())),
            #[cfg(feature = "cuda")]
            Self::Gpu(gpu) => Ok(Visit::Gpu(gpu.enter(key)?)),
        }
    }
}

#[cfg(feature = "cuda")]
mod gpu {
    use std::rc::Rc;

    use graphweft_tensor::cuda::{self, GuestGpu, Loan};
    use graphweft_tensor::{Device, Matrix, Tag};

    use super::super::values::GpuArray;
    use super::{GpuHost, Place};
    use crate::error::Result;

    struct Host<H>(H);

    impl<H: GpuHost> cuda::GpuHost for Host<H> {
        fn stream(&self) -> std::result::Result<u64, String> {
            self.0.stream()
        }

        fn memory(&self, bytes: usize) -> Option<Loan> {
            self.0.memory(bytes).map(|(at, owner)| Loan { at, bytes, owner })
        }
    }

    impl Place {
        pub(in super::super) fn of(index: usize, host: impl GpuHost + 'static) -> Result<Self> {
            Ok(Self::Gpu(GuestGpu::new(index, Rc::new(Host(host)))?))
        }
    }

    /// # Safety
    /// As [`GpuArray::f32`] promises, for as long as the matrix lives.
    pub(super) unsafe fn lend(device: &Device, x: GpuArray, shape: [usize; 2]) -> Result<Matrix> {
        let [rows, cols] = shape;
        // SAFETY: passed on.
        Ok(unsafe { device.lend_gpu(rows, cols, x.kind.stored(), x.start, Tag::Activations) }?)
    }
}

#[cfg(not(feature = "cuda"))]
mod gpu {
    use graphweft_tensor::{Device, Matrix};

    use super::super::values::GpuArray;
    use super::{GpuHost, Place};
    use crate::error::{Error, Result};

    fn without() -> Error {
        Error::request("kernels on a GPU: this program was built without", "build it with the feature cuda")
    }

    impl Place {
        pub(in super::super) fn of(_: usize, _: impl GpuHost) -> Result<Self> {
            Err(without())
        }
    }

    /// # Safety
    /// None: it fails.
    pub(super) unsafe fn lend(_: &Device, _: GpuArray, _: [usize; 2]) -> Result<Matrix> {
        Err(without())
    }
}

/// A matrix over numbers on a GPU.
///
/// # Safety
/// As [`GpuArray::f32`] promises, for as long as the matrix lives.
pub(super) unsafe fn lend(device: &Device, x: GpuArray, shape: [usize; 2]) -> Result<Matrix> {
    // SAFETY: passed on.
    unsafe { gpu::lend(device, x, shape) }
}
