//! What MPI libraries do not have in common: how they write handles and statuses, and which numbers they chose.
//!
//! The functions have the same names and parameters everywhere. Three sets of such choices cover what is in use: the
//! standard one of MPI 5 (`libmpi_abi`), that of MPICH and its relatives (also Intel's and Cray's MPI), and Open MPI's.

use std::ffi::{c_int, c_void};

use libloading::os::unix::Library;

/// One set of choices.
pub(super) trait Abi: 'static {
    /// A communicator, a datatype, a request, an error handler.
    type Handle: Handle;
    type Status: Status;
    const ANY_SOURCE: c_int;
    const ANY_TAG: c_int;
    const THREAD_FUNNELED: c_int;
    const ERR_TRUNCATE: c_int;
    const ERR_IN_STATUS: c_int;

    /// The handles that a library of this kind has from the start, if it is one.
    fn constants(library: &Library) -> Option<Constants<Self::Handle>>;
}

/// Handles that are there before any call.
#[derive(Clone, Copy)]
pub(super) struct Constants<H> {
    pub(super) world: H,
    pub(super) bytes: H,
    pub(super) no_request: H,
    pub(super) errors_return: H,
}

/// What a library calls an object by: a number, or a pointer that is only handed back.
pub(super) trait Handle: Copy + 'static {
    fn to_number(self) -> usize;
    fn of_number(number: usize) -> Self;
}

impl Handle for usize {
    fn to_number(self) -> usize {
        self
    }

    fn of_number(number: usize) -> Self {
        number
    }
}

impl Handle for c_int {
    fn to_number(self) -> usize {
        self as u32 as usize
    }

    fn of_number(number: usize) -> Self {
        number as u32 as c_int
    }
}

/// What is known of a message that came.
pub(super) trait Status: Copy + Default + 'static {
    fn source(&self) -> c_int;
    fn tag(&self) -> c_int;
    fn error(&self) -> c_int;
}

/// The fields that every status has, by the names which the MPI standard gives them.
macro_rules! status {
    ($name:ident) => {
        impl Status for $name {
            fn source(&self) -> c_int {
                self.source
            }

            fn tag(&self) -> c_int {
                self.tag
            }

            fn error(&self) -> c_int {
                self.error
            }
        }
    };
}

/// The application binary interface that MPI 5 fixes.
pub(super) struct Standard;

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct StandardStatus {
    source: c_int,
    tag: c_int,
    error: c_int,
    internal: [c_int; 5],
}
status!(StandardStatus);

impl Abi for Standard {
    type Handle = usize;
    type Status = StandardStatus;
    const ANY_SOURCE: c_int = -1;
    const ANY_TAG: c_int = -2;
    const THREAD_FUNNELED: c_int = 1024;
    const ERR_TRUNCATE: c_int = 15;
    const ERR_IN_STATUS: c_int = 19;

    fn constants(_: &Library) -> Option<Constants<usize>> {
        Some(Constants { world: 0x101, bytes: 0x247, no_request: 0x180, errors_return: 0x143 })
    }
}

/// MPICH, and those that agreed with it on one interface.
pub(super) struct Mpich;

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct MpichStatus {
    counts: [c_int; 2],
    source: c_int,
    tag: c_int,
    error: c_int,
}
status!(MpichStatus);

impl Abi for Mpich {
    type Handle = c_int;
    type Status = MpichStatus;
    const ANY_SOURCE: c_int = -2;
    const ANY_TAG: c_int = -1;
    const THREAD_FUNNELED: c_int = 1;
    const ERR_TRUNCATE: c_int = 14;
    const ERR_IN_STATUS: c_int = 17;

    fn constants(_: &Library) -> Option<Constants<c_int>> {
        Some(Constants { world: 0x4400_0000, bytes: 0x4c00_010d, no_request: 0x2c00_0000, errors_return: 0x5400_0001 })
    }
}

/// Open MPI up to version 5.
pub(super) struct OpenMpi;

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct OpenMpiStatus {
    source: c_int,
    tag: c_int,
    error: c_int,
    cancelled: c_int,
    count: usize,
}
status!(OpenMpiStatus);

impl Abi for OpenMpi {
    type Handle = usize;
    type Status = OpenMpiStatus;
    const ANY_SOURCE: c_int = -1;
    const ANY_TAG: c_int = -1;
    const THREAD_FUNNELED: c_int = 1;
    const ERR_TRUNCATE: c_int = 15;
    const ERR_IN_STATUS: c_int = 18;

    /// Its handles are addresses of its own variables.
    fn constants(library: &Library) -> Option<Constants<usize>> {
        // SAFETY: only the address of the variable is taken.
        let address = |name: &[u8]| unsafe { library.get::<*const c_void>(name) }.ok().map(|s| s.into_raw() as usize);
        Some(Constants {
            world: address(b"ompi_mpi_comm_world\0")?,
            bytes: address(b"ompi_mpi_byte\0")?,
            no_request: address(b"ompi_request_null\0")?,
            errors_return: address(b"ompi_mpi_errors_return\0")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_the_sizes_of_the_headers() {
        let sizes = [size_of::<StandardStatus>(), size_of::<MpichStatus>(), size_of::<OpenMpiStatus>()];
        assert_eq!(sizes, [32, 20, 24]);
    }

    #[test]
    fn handles_survive_as_numbers() {
        for handle in [0x4400_0000, -1, 0x2c00_0000] {
            assert_eq!(c_int::of_number(handle.to_number()), handle);
        }
        assert_eq!(usize::of_number(usize::MAX.to_number()), usize::MAX);
    }
}
