//! From an error to what the user reads and the shell sees.

use std::io;
use std::process::ExitCode;

use graphweft_comm::Error as Between;
use graphweft_graph::Error;
use graphweft_plan::Error as Planning;
use graphweft_tensor::Error as Computation;
use graphweft_train::Error as Training;

use crate::ui::Ui;

const FAILURE: u8 = 1;
const USAGE: u8 = 2;
const BAD_INPUT: u8 = 3;
const DOES_NOT_FIT: u8 = 4;
const RANK_LOST: u8 = 5;
const STOPPED: u8 = 75;

/// Prints the error and gives the exit code that belongs to it.
pub(crate) fn report(error: &anyhow::Error, ui: &Ui) -> ExitCode {
    if is_closed_pipe(error) {
        // The reader has seen enough, as with `graphweft info … | head -1`.
        return ExitCode::SUCCESS;
    }
    if matches!(error.downcast_ref::<Training>(), Some(Training::Refused | Training::Echo(_))) {
        // Another rank says why.
        return ExitCode::from(code(error));
    }
    ui.error(&format!("error: {error:#}"));
    ExitCode::from(code(error))
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

fn code(error: &anyhow::Error) -> u8 {
    let training = error.downcast_ref::<Training>().map(of_training);
    let planning = training.or_else(|| error.downcast_ref::<Planning>().map(of_planning));
    let graph = planning.or_else(|| error.downcast_ref::<Error>().map(of_graph));
    let tensor = graph.or_else(|| error.downcast_ref::<Computation>().map(of_tensor));
    tensor.or_else(|| error.downcast_ref::<Between>().map(of_ranks)).unwrap_or(FAILURE)
}

fn of_training(error: &Training) -> u8 {
    match error {
        Training::Setting { .. } | Training::Refused => USAGE,
        Training::Stopped { .. } => STOPPED,
        Training::Graph(e) => of_graph(e),
        Training::Tensor(e) => of_tensor(e),
        Training::OutOfMemory { lacked, .. } => of_tensor(lacked),
        Training::RankLost { lost, .. } => of_ranks(lost),
        Training::Echo(e) => of_training(e),
        Training::NotFinite { .. }
        | Training::NotScored { .. }
        | Training::NotPredicted { .. }
        | Training::Diverged { .. } => FAILURE,
        Training::Plan(e) => of_planning(e),
    }
}

fn of_planning(error: &Planning) -> u8 {
    match error {
        Planning::Profile { .. } => BAD_INPUT,
        Planning::Description { .. } | Planning::Impossible { .. } | Planning::NotTimed { .. } => USAGE,
        Planning::DoesNotFit { .. } => DOES_NOT_FIT,
        Planning::Tensor(e) => of_tensor(e),
    }
}

fn of_graph(error: &Error) -> u8 {
    match error {
        Error::BadInput { .. } => BAD_INPUT,
        Error::Request { .. } => USAGE,
        Error::Memory { .. } | Error::Disk { .. } => DOES_NOT_FIT,
        Error::Write { .. } => FAILURE,
    }
}

fn of_tensor(error: &Computation) -> u8 {
    match error {
        Computation::OutOfMemory { .. } => DOES_NOT_FIT,
        Computation::Ranks(e) => e.downcast_ref().map_or(FAILURE, of_ranks),
        _ => FAILURE,
    }
}

fn of_ranks(error: &Between) -> u8 {
    match error {
        Between::RankLost { .. } => RANK_LOST,
        _ => FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_rank_exits_with_5_wherever_it_was_noticed() {
        let lost = || Between::RankLost { rank: 2, op: "attend", step: 17 };
        let wrapped = Training::RankLost { lost: lost(), checkpoint: Some("runs/a/checkpoints/step-000016".into()) };
        for part in ["rank 2", "attend", "epoch 17", "step-000016", "--resume"] {
            assert!(wrapped.to_string().contains(part), "{wrapped}");
        }
        let everywhere: [anyhow::Error; 4] =
            [wrapped.into(), Training::from(lost()).into(), lost().into(), Computation::Ranks(Box::new(lost())).into()];
        assert_eq!(everywhere.map(|e| code(&e)), [RANK_LOST; 4]);
        let other = Between::Library { library: "mpi", problem: "no".into() };
        assert_eq!(code(&Training::from(other).into()), FAILURE);
        let stopped = Training::Stopped { epoch: 3, checkpoint: "x".into() };
        assert_eq!(code(&Training::Echo(Box::new(stopped)).into()), STOPPED);
    }
}
