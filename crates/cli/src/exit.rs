//! From an error to what the user reads and the shell sees.

use std::io;
use std::process::ExitCode;

use graphweft::{Error, ErrorKind};

use crate::ui::Ui;

/// Prints the error and gives the exit code that belongs to it.
pub(crate) fn report(error: &anyhow::Error, ui: &Ui) -> ExitCode {
    if is_closed_pipe(error) {
        // The reader has seen enough, as with `graphweft info … | head -1`.
        return ExitCode::SUCCESS;
    }
    let known = error.downcast_ref::<Error>();
    if known.is_some_and(Error::has_result_elsewhere) {
        return ExitCode::SUCCESS;
    }
    // Another rank says why.
    if !known.is_some_and(Error::is_said_elsewhere) {
        ui.error(&format!("error: {error:#}"));
    }
    ExitCode::from(known.map_or(ErrorKind::Failure, Error::kind).exit_code())
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}
