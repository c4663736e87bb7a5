//! From an error to what the user reads and the shell sees.

use std::io::{self, Write};
use std::process::ExitCode;

use graphweft_graph::Error;

const FAILURE: u8 = 1;
const USAGE: u8 = 2;
const BAD_INPUT: u8 = 3;
const DOES_NOT_FIT: u8 = 4;

/// Prints the error and gives the exit code that belongs to it.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    if is_closed_pipe(error) {
        // The reader has seen enough, as with `graphweft info … | head -1`.
        return ExitCode::SUCCESS;
    }
    // Nothing useful can be done if stderr is gone as well.
    let _ = writeln!(io::stderr(), "error: {error:#}");
    ExitCode::from(code(error))
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

fn code(error: &anyhow::Error) -> u8 {
    match error.downcast_ref::<Error>() {
        Some(Error::BadInput { .. }) => BAD_INPUT,
        Some(Error::Request { .. }) => USAGE,
        Some(Error::Memory { .. }) => DOES_NOT_FIT,
        Some(Error::Write { .. }) | None => FAILURE,
    }
}
