//! From an error to what the user reads and the shell sees.

use std::io::{self, Write};
use std::process::ExitCode;

use graphweft_comm::Error as Between;
use graphweft_graph::Error;
use graphweft_tensor::Error as Computation;
use graphweft_train::Error as Training;

const FAILURE: u8 = 1;
const USAGE: u8 = 2;
const BAD_INPUT: u8 = 3;
const DOES_NOT_FIT: u8 = 4;
const RANK_LOST: u8 = 5;
const STOPPED: u8 = 75;

/// Prints the error and gives the exit code that belongs to it.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    if is_closed_pipe(error) {
        // The reader has seen enough, as with `graphweft info … | head -1`.
        return ExitCode::SUCCESS;
    }
    if matches!(error.downcast_ref::<Training>(), Some(Training::Refused)) {
        // The rank that refused says why.
        return ExitCode::from(USAGE);
    }
    // Nothing useful can be done if stderr is gone as well.
    let _ = writeln!(io::stderr(), "error: {error:#}");
    ExitCode::from(code(error))
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

fn code(error: &anyhow::Error) -> u8 {
    if let Some(e) = error.downcast_ref::<Training>() {
        return match e {
            Training::Setting { .. } => USAGE,
            Training::Stopped { .. } => STOPPED,
            Training::Graph(e) => of_graph(e),
            Training::Tensor(e) => of_tensor(e),
            Training::RankLost { .. } => RANK_LOST,
            Training::Refused => USAGE,
            Training::NotFinite { .. } => FAILURE,
        };
    }
    let graph = error.downcast_ref::<Error>().map(of_graph);
    graph.or_else(|| error.downcast_ref::<Computation>().map(of_tensor)).unwrap_or(FAILURE)
}

fn of_graph(error: &Error) -> u8 {
    match error {
        Error::BadInput { .. } => BAD_INPUT,
        Error::Request { .. } => USAGE,
        Error::Memory { .. } => DOES_NOT_FIT,
        Error::Write { .. } => FAILURE,
    }
}

fn of_tensor(error: &Computation) -> u8 {
    match error {
        Computation::OutOfMemory { .. } => DOES_NOT_FIT,
        Computation::Ranks(e) if matches!(e.downcast_ref(), Some(Between::RankLost { .. })) => RANK_LOST,
        _ => FAILURE,
    }
}
