//! MPI's functions with results instead of codes, whichever library they come from.
//!
//! # Safety
//! MPI was initialised by the calling thread and is not finalised. Memory given to a request stays valid until
//! `test_some` told that it is complete.

use std::ffi::{c_char, c_int, c_void};

use libloading::os::unix::Library;

use super::abi::{Abi, Constants, Handle, Status};
use crate::error::{Error, Result};
use crate::view::View;

/// More bytes than these go in several messages: counts are 32-bit integers.
const CHUNK: usize = 1 << 30;

/// Longer than any library's texts of errors.
const LONGEST_TEXT: usize = 8192;

const SUCCESS: c_int = 0;

/// Numbers that ranks tell each other beside exchanges.
pub(super) type Word = [u64; 8];

/// A communicator of a library.
#[derive(Clone, Copy)]
pub(super) struct Comm(usize);

/// A message under way; a null one has ended.
#[derive(Clone, Copy)]
pub(super) struct Request(usize);

/// How a request ended.
#[derive(Debug)]
pub(super) enum End {
    /// With this many bytes.
    Bytes(usize),
    /// More came than was expected.
    Longer,
    Failed(Error),
}

/// What is asked of a library.
pub(super) trait Calls {
    /// Starts MPI on this thread, which alone may use it, and gives this rank and how many there are.
    ///
    /// # Errors
    /// Also if it was started before.
    fn start(&self) -> Result<[usize; 2]>;

    /// Ends MPI.
    ///
    /// # Safety
    /// As at the top; no request is active.
    unsafe fn finish(&self) -> Result<()>;

    /// A communicator of the whole world that returns errors.
    ///
    /// # Safety
    /// As at the top; every rank calls this.
    unsafe fn duplicate(&self) -> Result<Comm>;

    /// # Safety
    /// As at the top; `chunk` is one of [`chunks`].
    unsafe fn send(&self, comm: Comm, chunk: View, to: usize, tag: c_int) -> Result<Request>;

    /// # Safety
    /// As at the top; `chunk` is one of [`chunks`].
    unsafe fn receive(&self, comm: Comm, chunk: View, from: usize, tag: c_int) -> Result<Request>;

    /// Requests that have ended since the last call, and how; they are null afterwards.
    ///
    /// # Safety
    /// As at the top.
    unsafe fn test_some(&self, requests: &mut [Request]) -> Result<Vec<(usize, End)>>;

    /// Asks MPI to give a receive up; it ends all the same.
    ///
    /// # Safety
    /// As at the top; the request is active.
    unsafe fn cancel(&self, request: &mut Request);

    /// The next message of any rank on `comm`, if there is one, and who sent it.
    ///
    /// # Safety
    /// As at the top.
    unsafe fn next_word(&self, comm: Comm) -> Result<Option<(usize, Word)>>;
}

/// Pieces of a message that MPI can count.
pub(super) fn chunks(view: View) -> impl Iterator<Item = View> {
    // A message of nothing is one message.
    let count = view.bytes.div_ceil(CHUNK).max(1);
    (0..count).map(move |k| view.part(k * CHUNK, CHUNK.min(view.bytes - k * CHUNK)))
}

pub(super) fn failed(problem: impl Into<String>) -> Error {
    Error::Library { library: "MPI", problem: problem.into() }
}

/// Declares the functions that are used, as mpi.h has them, and how they are found.
macro_rules! functions {
    ($($name:ident = $symbol:literal ($($argument:ty),*);)*) => {
        /// The functions of a library with the handles and statuses of `A`.
        pub(super) struct Loaded<A: Abi> {
            constants: Constants<A::Handle>,
            $($name: unsafe extern "C" fn($($argument),*) -> c_int,)*
        }

        impl<A: Abi> Loaded<A> {
            /// Those of `library`; nothing if it is not of this kind. It must stay loaded.
            pub(super) fn of(library: &Library) -> Option<Self> {
                let constants = A::constants(library)?;
                // SAFETY: the signatures are those of the MPI standard with the types of this interface.
                unsafe {
                    Some(Self { constants, $($name: *library.get(concat!($symbol, "\0").as_bytes()).ok()?,)* })
                }
            }
        }
    };
}

functions! {
    initialized = "MPI_Initialized" (*mut c_int);
    init_thread = "MPI_Init_thread" (*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int);
    finalize = "MPI_Finalize" ();
    set_errhandler = "MPI_Comm_set_errhandler" (A::Handle, A::Handle);
    comm_rank = "MPI_Comm_rank" (A::Handle, *mut c_int);
    comm_size = "MPI_Comm_size" (A::Handle, *mut c_int);
    comm_dup = "MPI_Comm_dup" (A::Handle, *mut A::Handle);
    error_string = "MPI_Error_string" (c_int, *mut c_char, *mut c_int);
    error_class = "MPI_Error_class" (c_int, *mut c_int);
    isend = "MPI_Isend" (*const c_void, c_int, A::Handle, c_int, c_int, A::Handle, *mut A::Handle);
    irecv = "MPI_Irecv" (*mut c_void, c_int, A::Handle, c_int, c_int, A::Handle, *mut A::Handle);
    testsome = "MPI_Testsome" (c_int, *mut A::Handle, *mut c_int, *mut c_int, *mut A::Status);
    get_count = "MPI_Get_count" (*const A::Status, A::Handle, *mut c_int);
    cancel = "MPI_Cancel" (*mut A::Handle);
    iprobe = "MPI_Iprobe" (c_int, c_int, A::Handle, *mut c_int, *mut A::Status);
    recv = "MPI_Recv" (*mut c_void, c_int, A::Handle, c_int, c_int, A::Handle, *mut A::Status);
}

impl<A: Abi> Loaded<A> {
    fn check(&self, code: c_int) -> Result<()> {
        if code == SUCCESS { Ok(()) } else { Err(self.error(code)) }
    }

    fn error(&self, code: c_int) -> Error {
        let mut text = [0u8; LONGEST_TEXT];
        let mut length = 0;
        // SAFETY: the buffer is longer than what MPI asks for; any code may be given.
        let known = unsafe { (self.error_string)(code, text.as_mut_ptr().cast(), &raw mut length) };
        failed(match text.get(..length.max(0) as usize) {
            Some(text) if known == SUCCESS => String::from_utf8_lossy(text).into_owned(),
            _ => format!("error {code}"),
        })
    }

    fn is_class(&self, code: c_int, class: c_int) -> bool {
        let mut found = 0;
        // SAFETY: any code may be given.
        unsafe { (self.error_class)(code, &raw mut found) };
        found == class
    }

    /// The request that `call` begins.
    fn begin(&self, call: impl FnOnce(*mut A::Handle) -> c_int) -> Result<Request> {
        let mut request = self.constants.no_request;
        self.check(call(&raw mut request))?;
        Ok(Request(request.to_number()))
    }

    /// How many bytes a message had.
    ///
    /// # Safety
    /// `status` is of a message that came.
    unsafe fn bytes(&self, status: &A::Status) -> Result<usize> {
        let mut bytes = 0;
        // SAFETY: as promised by the caller.
        self.check(unsafe { (self.get_count)(status, self.constants.bytes, &raw mut bytes) })?;
        Ok(bytes.max(0) as usize)
    }
}

impl<A: Abi> Calls for Loaded<A> {
    fn start(&self) -> Result<[usize; 2]> {
        // SAFETY: MPI is initialised if it was not; pointers are to locals.
        unsafe {
            let mut there = 0;
            self.check((self.initialized)(&raw mut there))?;
            if there != 0 {
                return Err(failed("it was started before; ranks can be run once in a process"));
            }
            let mut level = 0;
            let none = std::ptr::null_mut();
            self.check((self.init_thread)(none, std::ptr::null_mut(), A::THREAD_FUNNELED, &raw mut level))?;
            if level < A::THREAD_FUNNELED {
                return Err(failed("it cannot be used beside threads; install one that has MPI_THREAD_FUNNELED"));
            }
            let (world, [mut rank, mut size]) = (self.constants.world, [0, 0]);
            self.check((self.set_errhandler)(world, self.constants.errors_return))?;
            self.check((self.comm_rank)(world, &raw mut rank))?;
            self.check((self.comm_size)(world, &raw mut size))?;
            Ok([rank as usize, size as usize])
        }
    }

    unsafe fn finish(&self) -> Result<()> {
        // SAFETY: as promised by the caller.
        self.check(unsafe { (self.finalize)() })
    }

    unsafe fn duplicate(&self) -> Result<Comm> {
        // SAFETY: as promised by the caller.
        unsafe {
            let mut comm = self.constants.world;
            self.check((self.comm_dup)(self.constants.world, &raw mut comm))?;
            self.check((self.set_errhandler)(comm, self.constants.errors_return))?;
            Ok(Comm(comm.to_number()))
        }
    }

    unsafe fn send(&self, comm: Comm, chunk: View, to: usize, tag: c_int) -> Result<Request> {
        let (count, comm) = (chunk.bytes as c_int, A::Handle::of_number(comm.0));
        let pointer = chunk.pointer.cast_const().cast();
        // SAFETY: as promised by the caller.
        self.begin(|request| unsafe {
            (self.isend)(pointer, count, self.constants.bytes, to as c_int, tag, comm, request)
        })
    }

    unsafe fn receive(&self, comm: Comm, chunk: View, from: usize, tag: c_int) -> Result<Request> {
        let (count, comm) = (chunk.bytes as c_int, A::Handle::of_number(comm.0));
        let pointer = chunk.pointer.cast();
        // SAFETY: as promised by the caller.
        self.begin(|request| unsafe {
            (self.irecv)(pointer, count, self.constants.bytes, from as c_int, tag, comm, request)
        })
    }

    unsafe fn test_some(&self, requests: &mut [Request]) -> Result<Vec<(usize, End)>> {
        let mut own: Vec<A::Handle> = requests.iter().map(|request| A::Handle::of_number(request.0)).collect();
        let mut count = 0;
        let mut which = vec![0 as c_int; own.len()];
        let mut statuses = vec![A::Status::default(); own.len()];
        let (first, places) = (own.as_mut_ptr(), which.as_mut_ptr());
        // SAFETY: MPI writes as many entries as there are requests at most.
        let code = unsafe { (self.testsome)(own.len() as c_int, first, &raw mut count, places, statuses.as_mut_ptr()) };
        for (request, now) in requests.iter_mut().zip(own) {
            request.0 = now.to_number();
        }
        let some_failed = self.is_class(code, A::ERR_IN_STATUS);
        if !some_failed {
            self.check(code)?;
        }
        // Undefined (negative) if no request is active.
        let done = which.iter().zip(&statuses).take(count.max(0) as usize);
        let end = |status: &A::Status| match status.error() {
            code if some_failed && self.is_class(code, A::ERR_TRUNCATE) => End::Longer,
            code if some_failed && code != SUCCESS => End::Failed(self.error(code)),
            // SAFETY: the status is of a request that ended.
            _ => unsafe { self.bytes(status) }.map_or_else(End::Failed, End::Bytes),
        };
        Ok(done.map(|(at, status)| (*at as usize, end(status))).collect())
    }

    unsafe fn cancel(&self, request: &mut Request) {
        let mut own = A::Handle::of_number(request.0);
        // A request that cannot be cancelled ends by itself or not at all, which the caller finds out.
        // SAFETY: as promised by the caller.
        let _ = unsafe { (self.cancel)(&raw mut own) };
        request.0 = own.to_number();
    }

    unsafe fn next_word(&self, comm: Comm) -> Result<Option<(usize, Word)>> {
        let comm = A::Handle::of_number(comm.0);
        // SAFETY: the message is received only if it has the length of the array.
        unsafe {
            let (mut there, mut status) = (0, A::Status::default());
            self.check((self.iprobe)(A::ANY_SOURCE, A::ANY_TAG, comm, &raw mut there, &raw mut status))?;
            if there == 0 {
                return Ok(None);
            }
            let bytes = self.bytes(&status)?;
            let mut word = Word::default();
            if bytes != size_of_val(&word) {
                return Err(failed(format!("{bytes} bytes between ranks that should be {}", size_of_val(&word))));
            }
            let (into, count, kind) = (word.as_mut_ptr().cast(), bytes as c_int, self.constants.bytes);
            let (from, tag) = (status.source(), status.tag());
            self.check((self.recv)(into, count, kind, from, tag, comm, &raw mut status))?;
            Ok(Some((from as usize, word)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::{Place, Type};

    #[test]
    fn long_messages_are_cut_where_mpi_stops_counting() {
        let cut = |bytes: usize| -> Vec<(usize, usize)> {
            // Never read or written: only addresses are computed.
            let view = View { place: Place::Host, pointer: std::ptr::null_mut(), bytes, dtype: Type::Bytes };
            chunks(view).map(|c| (c.pointer as usize, c.bytes)).collect()
        };
        assert_eq!(cut(0), [(0, 0)]);
        assert_eq!(cut(CHUNK), [(0, CHUNK)]);
        assert_eq!(cut(2 * CHUNK + 3), [(0, CHUNK), (CHUNK, CHUNK), (2 * CHUNK, 3)]);
        assert!(CHUNK <= c_int::MAX as usize);
    }
}
