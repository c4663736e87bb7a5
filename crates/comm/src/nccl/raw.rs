//! NCCL's functions with results instead of codes. The library is loaded when it is first needed.
//!
//! # Safety
//! The calling thread's current context is that of the communicator's GPU. Memory given to an operation stays valid
//! until the stream has come past it, or the communicator was aborted.

use std::ffi::{CStr, c_char, c_int, c_void};

use libloading::Library;

use crate::error::{Error, Result};

/// File names, best first: the unversioned one belongs to development packages.
const FILES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];

/// The first version whose communicators need not block, as NCCL writes versions.
const FIRST: c_int = 21_400;

const SUCCESS: c_int = 0;
const IN_PROGRESS: c_int = 7;
/// NCCL's type of single bytes.
const BYTES: c_int = 1;

/// What ranks of a communicator have in common before there is one.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Id(pub(super) [u8; 128]);

/// A communicator of NCCL.
#[derive(Clone, Copy, Debug)]
pub(super) struct Comm(*mut c_void);

/// The beginning of `ncclConfig_t`, which says itself how much of it there is.
#[repr(C)]
struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
}

type Move = unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, *mut c_void, *mut c_void) -> c_int;

/// The library. It starts threads, so it is never unloaded.
pub(super) struct Nccl {
    get_unique_id: unsafe extern "C" fn(*mut Id) -> c_int,
    init: unsafe extern "C" fn(*mut *mut c_void, c_int, Id, c_int, *mut Config) -> c_int,
    async_error: unsafe extern "C" fn(*mut c_void, *mut c_int) -> c_int,
    abort: unsafe extern "C" fn(*mut c_void) -> c_int,
    destroy: unsafe extern "C" fn(*mut c_void) -> c_int,
    group_start: unsafe extern "C" fn() -> c_int,
    group_end: unsafe extern "C" fn() -> c_int,
    send: Move,
    receive: Move,
    error_string: unsafe extern "C" fn(c_int) -> *const c_char,
    last_error: unsafe extern "C" fn(*mut c_void) -> *const c_char,
}

fn failed(problem: impl Into<String>) -> Error {
    Error::Library { library: "NCCL", problem: problem.into() }
}

impl Nccl {
    pub(super) fn load() -> Result<Self> {
        // SAFETY: loading runs the initialisers of a well-known library.
        let found = FILES.iter().find_map(|file| unsafe { Library::new(*file) }.ok());
        let remedy = "it was not found: pip install nvidia-nccl-cu13, or install NVIDIA's libnccl2, and let \
                      LD_LIBRARY_PATH name its folder (`graphweft doctor` tells more)";
        let library = found.ok_or_else(|| failed(remedy))?;
        // SAFETY: the signatures are those of nccl.h.
        let nccl = unsafe {
            let mut version = 0;
            let get_version: unsafe extern "C" fn(*mut c_int) -> c_int = function(&library, "ncclGetVersion")?;
            if get_version(&raw mut version) != SUCCESS || version < FIRST {
                return Err(failed(format!("version {version} is too old: 2.14 or newer is needed")));
            }
            Self {
                get_unique_id: function(&library, "ncclGetUniqueId")?,
                init: function(&library, "ncclCommInitRankConfig")?,
                async_error: function(&library, "ncclCommGetAsyncError")?,
                abort: function(&library, "ncclCommAbort")?,
                destroy: function(&library, "ncclCommDestroy")?,
                group_start: function(&library, "ncclGroupStart")?,
                group_end: function(&library, "ncclGroupEnd")?,
                send: function(&library, "ncclSend")?,
                receive: function(&library, "ncclRecv")?,
                error_string: function(&library, "ncclGetErrorString")?,
                last_error: function(&library, "ncclGetLastError")?,
            }
        };
        std::mem::forget(library);
        Ok(nccl)
    }

    /// An error for a code; one that is in progress is none.
    fn check(&self, code: c_int) -> Result<()> {
        if code == SUCCESS || code == IN_PROGRESS {
            return Ok(());
        }
        // SAFETY: both return text of the library's own; any code may be given, and no communicator.
        let texts = unsafe { [(self.error_string)(code), (self.last_error)(std::ptr::null_mut())] };
        let text = |text: *const c_char| match text.is_null() {
            true => String::new(),
            // SAFETY: as above.
            false => unsafe { CStr::from_ptr(text) }.to_string_lossy().trim().to_string(),
        };
        let [what, more] = texts.map(text);
        Err(failed(if more.is_empty() { what } else { format!("{what} ({more})") }))
    }

    pub(super) fn unique_id(&self) -> Result<Id> {
        let mut id = Id([0; 128]);
        // SAFETY: the pointer is to an id.
        self.check(unsafe { (self.get_unique_id)(&raw mut id) })?;
        Ok(id)
    }

    /// Starts to connect `ranks` ranks; over when [`Nccl::is_ready`] says so.
    ///
    /// # Safety
    /// As at the top.
    pub(super) unsafe fn init(&self, id: Id, rank: usize, ranks: usize) -> Result<Comm> {
        let mut comm = std::ptr::null_mut();
        let size = size_of::<Config>();
        let mut config = Config { size, magic: 0xcafe_beef, version: FIRST as u32, blocking: 0 };
        // SAFETY: pointers are to locals; the configuration is copied.
        self.check(unsafe { (self.init)(&raw mut comm, ranks as c_int, id, rank as c_int, &raw mut config) })?;
        Ok(Comm(comm))
    }

    /// Whether the last call has come to its end.
    ///
    /// # Safety
    /// The communicator exists.
    pub(super) unsafe fn is_ready(&self, comm: Comm) -> Result<bool> {
        let mut state = SUCCESS;
        // SAFETY: as promised by the caller.
        self.check(unsafe { (self.async_error)(comm.0, &raw mut state) })?;
        self.check(state)?;
        Ok(state == SUCCESS)
    }

    /// Ends everything that a communicator does, and it.
    ///
    /// # Safety
    /// It exists, and is not used afterwards.
    pub(super) unsafe fn abort(&self, comm: Comm) {
        // What is aborted has failed already.
        // SAFETY: as promised by the caller.
        let _ = unsafe { (self.abort)(comm.0) };
    }

    /// Ends a communicator that has nothing to do any more.
    ///
    /// # Safety
    /// It exists, and is not used afterwards.
    pub(super) unsafe fn destroy(&self, comm: Comm) {
        // SAFETY: as promised by the caller.
        let _ = unsafe { (self.destroy)(comm.0) };
    }

    /// Enqueues what `operations` asks for as one operation.
    pub(super) fn group(&self, operations: impl FnOnce() -> Result<()>) -> Result<()> {
        // SAFETY: neither takes anything.
        self.check(unsafe { (self.group_start)() })?;
        let asked = operations();
        // SAFETY: as above.
        let ended = self.check(unsafe { (self.group_end)() });
        asked.and(ended)
    }

    /// # Safety
    /// As at the top.
    pub(super) unsafe fn send(&self, comm: Comm, from: *mut u8, bytes: usize, to: usize, stream: usize) -> Result<()> {
        let stream = std::ptr::with_exposed_provenance_mut(stream);
        // SAFETY: as promised by the caller.
        self.check(unsafe { (self.send)(from.cast(), bytes, BYTES, to as c_int, comm.0, stream) })
    }

    /// # Safety
    /// As at the top.
    pub(super) unsafe fn receive(
        &self,
        comm: Comm,
        to: *mut u8,
        bytes: usize,
        from: usize,
        stream: usize,
    ) -> Result<()> {
        let stream = std::ptr::with_exposed_provenance_mut(stream);
        // SAFETY: as promised by the caller.
        self.check(unsafe { (self.receive)(to.cast(), bytes, BYTES, from as c_int, comm.0, stream) })
    }
}

/// A function of the library.
///
/// # Safety
/// `F` is the function's true signature.
unsafe fn function<F: Copy>(library: &Library, name: &str) -> Result<F> {
    // SAFETY: the caller vouches for the signature; the library is never unloaded.
    let found = unsafe { library.get::<F>(name) };
    found.map(|f| *f).map_err(|_| failed(format!("it has no {name}; 2.14 or newer is needed")))
}
