//! Kernels on a GPU that belongs to another library of this process, as PyTorch: on its streams, in memory that it
//! gives. Nothing is allocated and nobody waits, but where a graph is brought to the GPU. So calls can be part of what
//! that library captures, once the same was done before.
//!
//! Both share the primary context of the GPU. A stream has a [`Device`] of its own, made when it is first met; what the
//! graph needs there is shared by all.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUevent_flags, CUevent_wait_flags, CUstreamCaptureStatus};
use cudarc::driver::{CudaContext, CudaStream, DriverError, result};

use super::{Architecture, Cuda, Functions, compile, failed, missing};
use crate::device::Device;
use crate::error::{Error, Result};

/// Streams that are remembered; of more, the first are met anew.
const MOST_STREAMS: usize = 64;

/// Memory on a GPU that somebody lends.
pub struct Loan {
    /// Its first byte.
    pub at: u64,
    /// How many there are.
    pub bytes: usize,
    /// What keeps it; dropped when nothing that was or will be asked for on the stream needs it any more.
    pub owner: Box<dyn Any + Send>,
}

impl fmt::Debug for Loan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Loan({} bytes)", self.bytes)
    }
}

/// Whose the GPU is.
pub trait GpuHost: Send {
    /// The `CUstream` to which work of this thread goes now.
    ///
    /// # Errors
    /// If that cannot be told.
    fn stream(&self) -> std::result::Result<u64, String>;

    /// At least `bytes` bytes, for use on that stream; `None` if there are not so many left.
    fn memory(&self, bytes: usize) -> Option<Loan>;
}

/// A GPU of others, for one graph.
pub struct GuestGpu {
    context: Arc<CudaContext>,
    host: Rc<dyn GpuHost>,
    key: Rc<Cell<u64>>,
    /// Of all streams: what one has loaded, another may capture.
    functions: Rc<Functions>,
    streams: RefCell<Vec<OnStream>>,
}

struct OnStream {
    stream: Arc<CudaStream>,
    device: Device,
}

/// A device for one call. The thread gets back what context it had.
#[derive(Debug)]
pub struct Visit {
    device: Device,
    before: Option<sys::CUcontext>,
}

impl GuestGpu {
    /// GPU number `index`, which `host` has started.
    ///
    /// # Errors
    /// [`Error::Device`] that says which library is missing or why the GPU does not answer.
    pub fn new(index: usize, host: Rc<dyn GpuHost>) -> Result<Self> {
        missing::of_kernels(index)?;
        let before = result::ctx::get_current().ok().flatten();
        let context = CudaContext::new(index).map_err(|e| failed(&format!("cuda:{index}"), "initialise", e));
        restore(before);
        let context = context?;
        // SAFETY: the host keeps the order of streams.
        unsafe { context.disable_event_tracking() };
        Ok(Self { context, host, key: Rc::default(), functions: Rc::default(), streams: RefCell::default() })
    }

    /// The device of this thread's stream. `key` is where on the GPU the key of dropouts is, if it is there.
    ///
    /// # Errors
    /// If the host or the GPU does not answer.
    pub fn enter(&self, key: Option<u64>) -> Result<Visit> {
        let before = result::ctx::get_current().ok().flatten();
        self.key.set(key.unwrap_or(0));
        let handle: sys::CUstream = std::ptr::with_exposed_provenance_mut(
            self.host
                .stream()
                .map_err(|problem| Error::Device { device: format!("cuda:{}", self.context.ordinal()), problem })?
                as usize,
        );
        let mut streams = self.streams.borrow_mut();
        if let Some(known) = streams.iter().find(|known| known.stream.cu_stream() == handle) {
            return Ok(Visit { device: known.device.clone(), before });
        }
        // SAFETY: the host says that this is a stream of the GPU. It is used only while the host says so, and when the
        // graph goes.
        let stream = unsafe { self.context.wrap_borrowed_stream(handle) };
        let host = Host { host: Rc::clone(&self.host), key: Rc::clone(&self.key) };
        let device = Device::with_backend(Box::new(Cuda::guest(&stream, host, &self.functions)?));
        if streams.len() == MOST_STREAMS {
            streams.remove(0);
        }
        streams.push(OnStream { stream, device: device.clone() });
        Ok(Visit { device, before })
    }

    /// Memory of the graph goes back to the host, which gives it to others in the order of the stream that it was first
    /// for: that one has to wait for the others.
    fn join(&self) -> std::result::Result<(), DriverError> {
        let streams = self.streams.borrow();
        if streams.len() < 2 {
            return Ok(());
        }
        self.context.bind_to_thread()?;
        // What is captured has nothing under way.
        let free = || streams.iter().filter(|known| !is_capturing(&known.stream)).map(|known| known.stream.cu_stream());
        let event = result::event::create(CUevent_flags::CU_EVENT_DISABLE_TIMING)?;
        for from in free() {
            // SAFETY: streams of this context live as long as the host uses the graph on them; the event does until
            // below.
            unsafe { result::event::record(event, from)? };
            for to in free().filter(|to| *to != from) {
                // SAFETY: as above.
                unsafe { result::stream::wait_event(to, event, CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT)? };
            }
        }
        // SAFETY: it was created above, and is not used again.
        unsafe { result::event::destroy(event) }
    }
}

impl fmt::Debug for GuestGpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GuestGpu(cuda:{})", self.context.ordinal())
    }
}

impl Drop for GuestGpu {
    fn drop(&mut self) {
        let before = result::ctx::get_current().ok().flatten();
        // A GPU that fails has nothing to wait for.
        let _ = self.join();
        restore(before);
    }
}

impl Visit {
    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        restore(self.before);
    }
}

/// Makes a context current again, unless it is.
fn restore(before: Option<sys::CUcontext>) {
    let now = result::ctx::get_current().ok().flatten();
    if let Some(before) = before.filter(|before| Some(*before) != now) {
        // SAFETY: it was current before, and is the host's. Where that fails, the host will be told by its next call.
        let _ = unsafe { result::ctx::set_current(before) };
    }
}

/// Whether work on a stream is captured; one that does not tell is taken to be.
fn is_capturing(stream: &CudaStream) -> bool {
    // SAFETY: the host says that it is a stream.
    let status = unsafe { result::stream::is_capturing(stream.cu_stream()) };
    !matches!(status, Ok(CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE))
}

/// What a [`Cuda`] of others knows of them.
pub(super) struct Host {
    host: Rc<dyn GpuHost>,
    key: Rc<Cell<u64>>,
}

impl Host {
    pub(super) fn memory(&self, bytes: usize) -> Option<Loan> {
        match bytes {
            // Nothing is read or written there.
            0 => Some(Loan { at: 0, bytes: 0, owner: Box::new(()) }),
            _ => self.host.memory(bytes).filter(|loan| loan.bytes >= bytes),
        }
    }

    /// Where the key of dropouts is; 0 if the host knows it.
    pub(super) fn key(&self) -> u64 {
        self.key.get()
    }
}

impl Cuda {
    /// A GPU of others, on one of their streams: for kernels over edges, which need no matrix products.
    fn guest(stream: &Arc<CudaStream>, host: Host, functions: &Rc<Functions>) -> Result<Self> {
        let context = Arc::clone(stream.context());
        let device = format!("cuda:{}", context.ordinal());
        let (major, minor) =
            context.compute_capability().map_err(|e| failed(&device, "ask for the architecture", e))?;
        Ok(Self {
            context,
            stream: Arc::clone(stream),
            aside: Arc::clone(stream),
            blas: None,
            architecture: Architecture { major, minor },
            cache: compile::kernel_folder(),
            functions: Rc::clone(functions),
            lists: RefCell::default(),
            staging: RefCell::default(),
            tables: RefCell::default(),
            capturing: RefCell::default(),
            host: Some(host),
        })
    }

    /// Fails while the host captures: `what` would be done now, not when the captured work is.
    pub(super) fn not_captured_by_host(&self, what: &str) -> Result<()> {
        if self.host.is_some() && is_capturing(&self.stream) {
            let problem = format!(
                "cannot capture {what}\n  remedy: call the same once before the capture, backward too if it is captured"
            );
            return Err(Error::Device { device: format!("cuda:{}", self.context.ordinal()), problem });
        }
        Ok(())
    }

    /// A copy of bytes of the host in memory that the other library lends. It is there when this returns: other streams
    /// may read it.
    pub(super) fn lent_copy(&self, host: &Host, bytes: &[u8]) -> std::result::Result<Option<Loan>, DriverError> {
        let Some(loan) = host.memory(bytes.len()) else { return Ok(None) };
        self.context.bind_to_thread()?;
        // SAFETY: there is room for so many bytes, which live until the copy is complete.
        unsafe {
            result::memcpy_htod_async(loan.at, bytes, self.stream.cu_stream())?;
            result::stream::synchronize(self.stream.cu_stream())?;
        }
        Ok(Some(loan))
    }
}
