//! Copies, sums and their order on NVIDIA GPUs, by the handles that views carry.
//!
//! The library of the driver is loaded: nobody has handles otherwise.

use std::ffi::c_void;

use cudarc::driver::{DriverError, result, sys};

use crate::moving::Fault;
use crate::view::{Gpu, View};

/// Threads of a block of the kernel that adds.
const THREADS: usize = 256;

impl From<DriverError> for Fault {
    fn from(e: DriverError) -> Self {
        Self::Driver(e.0)
    }
}

fn stream(handle: usize) -> sys::CUstream {
    std::ptr::with_exposed_provenance_mut(handle)
}

fn context(gpu: Gpu) -> sys::CUcontext {
    std::ptr::with_exposed_provenance_mut(gpu.context)
}

/// A context is the thread's current one as long as this lives.
pub(crate) struct Current {
    before: Option<sys::CUcontext>,
}

impl Current {
    pub(crate) fn of(gpu: Gpu) -> Result<Self, Fault> {
        let before = result::ctx::get_current()?;
        if before == Some(context(gpu)) {
            return Ok(Self { before: None });
        }
        // SAFETY: whoever made the view keeps the context.
        unsafe { result::ctx::set_current(context(gpu)) }?;
        Ok(Self { before })
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // SAFETY: it was current before.
            let _ = unsafe { result::ctx::set_current(before) };
        }
    }
}

/// The moment when everything that a stream had been given is done.
#[derive(Debug)]
pub(crate) struct Moment(sys::CUevent);

// SAFETY: an event may be used by any thread.
unsafe impl Send for Moment {}
// SAFETY: as above.
unsafe impl Sync for Moment {}

impl Moment {
    /// Of what `on`, a stream of `gpu`, has been given so far.
    pub(crate) fn of(gpu: Gpu, on: usize) -> Result<Self, Fault> {
        let _current = Current::of(gpu)?;
        let moment = Self(result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)?);
        // SAFETY: the event was just made in the stream's context.
        unsafe { result::event::record(moment.0, stream(on)) }?;
        Ok(moment)
    }

    /// What `on`, a stream of `gpu`, is given from now on comes later.
    pub(crate) fn hold_up(&self, gpu: Gpu, on: usize) -> Result<(), Fault> {
        let _current = Current::of(gpu)?;
        // SAFETY: both exist.
        unsafe { result::stream::wait_event(stream(on), self.0, sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT) }?;
        Ok(())
    }

    /// Whether it has come.
    pub(crate) fn is_past(&self) -> Result<bool, Fault> {
        // SAFETY: the event exists.
        match unsafe { result::event::query(self.0) } {
            Ok(()) => Ok(true),
            Err(DriverError(sys::CUresult::CUDA_ERROR_NOT_READY)) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }
}

impl Drop for Moment {
    fn drop(&mut self) {
        // SAFETY: nobody uses it any more; streams that wait for it go on doing so.
        let _ = unsafe { result::event::destroy(self.0) };
    }
}

/// Where a copy comes from or goes to.
#[derive(Clone, Copy)]
pub(crate) struct End {
    pub(crate) pointer: *mut u8,
    pub(crate) gpu: Gpu,
}

/// Enqueues a copy on the stream of the target that is for them.
///
/// # Safety
/// So many bytes are valid at both places until the copy is over.
pub(crate) unsafe fn copy(from: End, to: End, bytes: usize) -> Result<(), Fault> {
    let _current = Current::of(to.gpu)?;
    let (source, target, on) = (from.pointer.addr() as u64, to.pointer.addr() as u64, stream(to.gpu.aside));
    // SAFETY: as promised by the caller.
    unsafe {
        if from.gpu.context == to.gpu.context {
            result::memcpy_dtod_async(target, source, bytes, on)?;
        } else {
            result::memcpy_peer_async(context(to.gpu), target, context(from.gpu), source, bytes, on)?;
        }
    }
    Ok(())
}

/// Memory taken and given back in the order of a stream.
pub(crate) struct Memory {
    gpu: Gpu,
    pointer: u64,
    bytes: usize,
}

impl Memory {
    pub(crate) fn take(gpu: Gpu, bytes: usize) -> Result<Self, Fault> {
        let _current = Current::of(gpu)?;
        // SAFETY: the stream exists; contents are written before they are read.
        let pointer = unsafe { result::malloc_async(stream(gpu.stream), bytes.max(1)) }?;
        Ok(Self { gpu, pointer, bytes })
    }

    pub(crate) fn pointer(&self) -> *mut u8 {
        std::ptr::without_provenance_mut(self.pointer as usize)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Leaves in `to` the sum over ranks of `own`, this rank's piece, and the pieces of all others, which are here.
    ///
    /// # Safety
    /// `to` and `own` are on this GPU, of the length and type of each piece, and the same or apart.
    pub(crate) unsafe fn add_up(self, to: View, own: View, rank: usize, ranks: usize) -> Result<(), Fault> {
        let elements = own.bytes / own.dtype.size();
        if elements == 0 {
            return Ok(());
        }
        let _current = Current::of(self.gpu)?;
        let mut pointers = [to.pointer.addr() as u64, own.pointer.addr() as u64, self.pointer];
        let (mut numbers, mut count) = ([rank as i32, ranks as i32], elements as i64);
        let [to, own, others] = pointers.each_mut().map(|p| std::ptr::from_mut(p).cast::<c_void>());
        let [rank, ranks] = numbers.each_mut().map(|n| std::ptr::from_mut(n).cast::<c_void>());
        let mut arguments = [to, own, others, rank, ranks, std::ptr::from_mut(&mut count).cast()];
        let function: sys::CUfunction = std::ptr::with_exposed_provenance_mut(self.gpu.add_up);
        let blocks = u32::try_from(elements.div_ceil(THREADS)).unwrap_or(u32::MAX);
        let (grid, block) = ((blocks, 1, 1), (THREADS as u32, 1, 1));
        // SAFETY: the arguments are those that `Gpu::add_up` has; memory is given back after the kernel, in the order
        // of the stream.
        unsafe { result::launch_kernel(function, grid, block, 0, stream(self.gpu.stream), &mut arguments) }?;
        Ok(())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let Ok(_current) = Current::of(self.gpu) else { return };
        // SAFETY: it was taken on this stream, and nobody uses it any more.
        let _ = unsafe { result::free_async(self.pointer, stream(self.gpu.stream)) };
    }
}
