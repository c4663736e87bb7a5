//! What ranks that are processes have in common, whatever connects them.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::result::Result;

use crate::error::Error;

/// Runs `body` in a rayon pool of its own, of so many threads.
pub(crate) fn in_pool<T: Send, E: From<Error> + Send>(
    threads: usize,
    body: impl FnOnce() -> Result<T, E> + Send,
) -> Result<T, E> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.max(1)).build();
    pool.map_err(|e| Error::Library { library: "rayon", problem: e.to_string() })?.install(body)
}

/// Runs `body`. If it fails or panics, `fail` tells the other ranks; a panic goes on.
pub(crate) fn or_fail<T, E>(body: impl FnOnce() -> Result<T, E>, fail: impl FnOnce()) -> Result<T, E> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(e)) => {
            fail();
            Err(e)
        }
        Err(panic) => {
            fail();
            resume_unwind(panic)
        }
    }
}
