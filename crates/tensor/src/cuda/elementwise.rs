//! What whole-matrix operations share that touch each element once.

use super::launch::{Launch, THREADS};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::matrix::Matrix;

/// Fails unless `m` has elements of this type.
pub(super) fn typed(op: &'static str, what: &'static str, m: &Matrix, dtype: DType) -> Result<()> {
    if m.dtype() == dtype { Ok(()) } else { Err(Error::Type { op, what, got: m.dtype() }) }
}

/// Launches with the number of elements of `like` as the last argument, 16 bytes a thread.
///
/// # Safety
/// As for [`Launch::run`].
pub(super) unsafe fn over(launch: Launch<'_>, like: &Matrix) -> Result<()> {
    let n = like.rows() * like.cols();
    let vec = 16 / like.dtype().size();
    // SAFETY: passed on.
    unsafe { launch.arg(n as i64).run([n.div_ceil(vec).div_ceil(THREADS), 1], THREADS, 0) }
}
