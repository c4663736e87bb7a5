//! MPI's functions with results instead of codes.
//!
//! # Safety
//! MPI was initialised by the calling thread and is not finalised. Memory given to a request stays valid until
//! `test_some` told that it is complete.

use std::ffi::{c_int, c_void};

use mpi::ffi;

use crate::error::{Error, Result};
use crate::view::View;

/// More bytes than these go in several messages: counts are 32-bit integers.
const CHUNK: usize = 1 << 30;

/// How a request ended.
#[derive(Debug)]
pub(super) enum End {
    /// With this many bytes.
    Bytes(usize),
    /// More came than was expected.
    Longer,
    Failed(Error),
}

pub(super) fn check(code: c_int) -> Result<()> {
    if code == ffi::MPI_SUCCESS as c_int { Ok(()) } else { Err(error(code)) }
}

fn error(code: c_int) -> Error {
    let mut text = [0u8; ffi::MPI_MAX_ERROR_STRING as usize];
    let mut len = 0;
    // SAFETY: the buffer has the length that MPI asks for; any code may be given.
    let known = unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr().cast(), &raw mut len) };
    let problem = match text.get(..len.max(0) as usize) {
        Some(text) if known == ffi::MPI_SUCCESS as c_int => String::from_utf8_lossy(text).into_owned(),
        _ => format!("error {code}"),
    };
    Error::Library { library: "MPI", problem }
}

fn is_class(code: c_int, class: u32) -> bool {
    let mut found = 0;
    // SAFETY: any code may be given.
    unsafe { ffi::MPI_Error_class(code, &raw mut found) };
    found == class as c_int
}

/// Pieces of a message that MPI can count.
pub(super) fn chunks(view: View) -> impl Iterator<Item = View> {
    // A message of nothing is one message.
    let count = view.bytes.div_ceil(CHUNK).max(1);
    (0..count).map(move |k| view.part(k * CHUNK, CHUNK.min(view.bytes - k * CHUNK)))
}

/// The request that `call` begins.
fn begin(call: impl FnOnce(*mut ffi::MPI_Request) -> c_int) -> Result<ffi::MPI_Request> {
    // SAFETY: a constant of the library, which has been initialised.
    let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
    check(call(&raw mut request))?;
    Ok(request)
}

/// # Safety
/// As at the top; `chunk` is one of [`chunks`].
pub(super) unsafe fn send(comm: ffi::MPI_Comm, chunk: View, to: usize, tag: c_int) -> Result<ffi::MPI_Request> {
    let (pointer, count): (*const c_void, _) = (chunk.pointer.cast(), chunk.bytes as c_int);
    // SAFETY: as promised by the caller.
    begin(|request| unsafe { ffi::MPI_Isend(pointer, count, ffi::RSMPI_UINT8_T, to as c_int, tag, comm, request) })
}

/// # Safety
/// As at the top; `chunk` is one of [`chunks`].
pub(super) unsafe fn receive(comm: ffi::MPI_Comm, chunk: View, from: usize, tag: c_int) -> Result<ffi::MPI_Request> {
    let (pointer, count): (*mut c_void, _) = (chunk.pointer.cast(), chunk.bytes as c_int);
    // SAFETY: as promised by the caller.
    begin(|request| unsafe { ffi::MPI_Irecv(pointer, count, ffi::RSMPI_UINT8_T, from as c_int, tag, comm, request) })
}

/// Requests that have ended since the last call, and how; they are null afterwards.
///
/// # Safety
/// As at the top.
pub(super) unsafe fn test_some(requests: &mut [ffi::MPI_Request]) -> Result<Vec<(usize, End)>> {
    // SAFETY: all zeros is a status; MPI writes as many entries as there are requests at most.
    unsafe {
        let mut count = 0;
        let mut which = vec![0 as c_int; requests.len()];
        let mut statuses: Vec<ffi::MPI_Status> = vec![std::mem::zeroed(); requests.len()];
        let (incount, first) = (requests.len() as c_int, requests.as_mut_ptr());
        let code = ffi::MPI_Testsome(incount, first, &raw mut count, which.as_mut_ptr(), statuses.as_mut_ptr());
        let some_failed = is_class(code, ffi::MPI_ERR_IN_STATUS);
        if !some_failed {
            check(code)?;
        }
        // Undefined (negative) if no request is active.
        let done = which.iter().zip(&statuses).take(count.max(0) as usize);
        let end = |status: &ffi::MPI_Status| match status.MPI_ERROR {
            code if some_failed && is_class(code, ffi::MPI_ERR_TRUNCATE) => End::Longer,
            code if some_failed && code != ffi::MPI_SUCCESS as c_int => End::Failed(error(code)),
            _ => {
                let mut bytes = 0;
                match check(ffi::MPI_Get_count(status, ffi::RSMPI_UINT8_T, &raw mut bytes)) {
                    Ok(()) => End::Bytes(bytes.max(0) as usize),
                    Err(e) => End::Failed(e),
                }
            }
        };
        Ok(done.map(|(at, status)| (*at as usize, end(status))).collect())
    }
}

/// Asks MPI to give a receive up; it ends all the same.
///
/// # Safety
/// As at the top; the request is active.
pub(super) unsafe fn cancel(request: &mut ffi::MPI_Request) {
    // A request that cannot be cancelled ends by itself or not at all, which the caller finds out.
    // SAFETY: as promised by the caller.
    let _ = unsafe { ffi::MPI_Cancel(request) };
}

/// The next message of any rank on `comm`, if there is one, as numbers.
///
/// # Safety
/// As at the top.
pub(super) unsafe fn next_numbers<const N: usize>(comm: ffi::MPI_Comm) -> Result<Option<(usize, [u64; N])>> {
    // SAFETY: all zeros is a status; the message is received only if it has the length of the array.
    unsafe {
        let (mut there, mut bytes, mut status): (c_int, c_int, ffi::MPI_Status) = (0, 0, std::mem::zeroed());
        let (any, tag) = (ffi::RSMPI_ANY_SOURCE, ffi::RSMPI_ANY_TAG);
        check(ffi::MPI_Iprobe(any, tag, comm, &raw mut there, &raw mut status))?;
        if there == 0 {
            return Ok(None);
        }
        check(ffi::MPI_Get_count(&raw const status, ffi::RSMPI_UINT8_T, &raw mut bytes))?;
        let mut numbers = [0u64; N];
        if bytes as usize != size_of_val(&numbers) {
            let problem = format!("{bytes} bytes between ranks that should be {}", size_of_val(&numbers));
            return Err(Error::Library { library: "MPI", problem });
        }
        let (into, from) = (numbers.as_mut_ptr().cast(), status.MPI_SOURCE);
        check(ffi::MPI_Recv(into, bytes, ffi::RSMPI_UINT8_T, from, status.MPI_TAG, comm, ffi::RSMPI_STATUS_IGNORE))?;
        Ok(Some((from as usize, numbers)))
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
