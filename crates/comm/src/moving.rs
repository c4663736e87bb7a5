//! How bytes get from one place to another, and when. Whatever is on the host is moved by the time a call returns; on a
//! GPU, copies are enqueued, and their order with what the owners of the memory compute is kept by [`Moment`]s, not by
//! waiting.

use std::fmt;
use std::sync::Arc;

use crate::error::Error;
#[cfg(feature = "cuda")]
use crate::gpu;
use crate::view::{Place, View};

/// A moment in the work of a GPU; there are none in builds without GPUs.
#[cfg(feature = "cuda")]
pub(crate) use crate::gpu::Moment;
#[cfg(not(feature = "cuda"))]
#[derive(Debug)]
pub(crate) enum Moment {}

/// Why something could not be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// What the CUDA driver said.
    #[cfg(feature = "cuda")]
    Driver(cudarc::driver::sys::CUresult),
    /// From a GPU to the host or back.
    Mixed,
    /// This build knows no GPUs.
    #[cfg(not(feature = "cuda"))]
    Unknown,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            #[cfg(feature = "cuda")]
            Self::Driver(code) => write!(f, "{}", cudarc::driver::DriverError(*code)),
            Self::Mixed => f.write_str("a message cannot go from a GPU to the host or back"),
            #[cfg(not(feature = "cuda"))]
            Self::Unknown => f.write_str("this program was built without GPUs; build it with the feature cuda"),
        }
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        Self::Library { library: "CUDA", problem: fault.to_string() }
    }
}

/// The end of what has been enqueued so far for memory at `place`: nobody else may touch it earlier.
pub(crate) fn now(place: Place) -> Result<Option<Arc<Moment>>, Fault> {
    match place {
        Place::Host | Place::Nowhere => Ok(None),
        #[cfg(feature = "cuda")]
        Place::Cuda(gpu) => Moment::of(gpu, gpu.stream).map(|moment| Some(Arc::new(moment))),
        #[cfg(not(feature = "cuda"))]
        Place::Cuda(_) => Err(Fault::Unknown),
    }
}

/// What is enqueued for memory at `place` from now on comes after `moment`.
pub(crate) fn hold_up(place: Place, moment: &Moment) -> Result<(), Fault> {
    match place {
        Place::Host | Place::Nowhere => Ok(()),
        #[cfg(feature = "cuda")]
        Place::Cuda(gpu) => moment.hold_up(gpu, gpu.stream),
        #[cfg(not(feature = "cuda"))]
        Place::Cuda(_) => match *moment {},
    }
}

/// Memory that nobody may touch before a moment, if there is one.
#[derive(Clone, Copy)]
pub(crate) struct Held<'a> {
    pub(crate) view: View,
    pub(crate) until: Option<&'a Moment>,
}

/// Copies from one view to another. Gives the moment when that will be over, unless it is.
///
/// # Safety
/// Both views are valid until then and of the same length, `to` for writing.
pub(crate) unsafe fn copy(source: Held<'_>, target: Held<'_>) -> Result<Option<Arc<Moment>>, Fault> {
    let (from, to) = (source.view, target.view);
    match (from.place, to.place) {
        (Place::Host, Place::Host) => {
            // SAFETY: as promised by the caller. A rank may send to itself what it receives.
            unsafe { std::ptr::copy(from.pointer, to.pointer, from.bytes) };
            Ok(None)
        }
        #[cfg(feature = "cuda")]
        (Place::Cuda(from_gpu), Place::Cuda(to_gpu)) => {
            for moment in [source.until, target.until].into_iter().flatten() {
                moment.hold_up(to_gpu, to_gpu.aside)?;
            }
            let from_end = gpu::End { pointer: from.pointer, gpu: from_gpu };
            // SAFETY: as promised by the caller.
            unsafe { gpu::copy(from_end, gpu::End { pointer: to.pointer, gpu: to_gpu }, from.bytes) }?;
            Moment::of(to_gpu, to_gpu.aside).map(|moment| Some(Arc::new(moment)))
        }
        #[cfg(not(feature = "cuda"))]
        (Place::Cuda(_), Place::Cuda(_)) => {
            let _ = (source.until, target.until);
            Err(Fault::Unknown)
        }
        (Place::Nowhere, _) | (_, Place::Nowhere) => Ok(None),
        (Place::Host, Place::Cuda(_)) | (Place::Cuda(_), Place::Host) => Err(Fault::Mixed),
    }
}
