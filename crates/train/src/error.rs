//! What can go wrong in training, said so that the reader knows what to do next.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use graphweft_base::{ErrorKind, Position};
use graphweft_plan::kind_of_computation;

use crate::epochs::pipeline::Divergence;

/// Every failure of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting that does not exist, or a value that it cannot have.
    #[error("{key}: {problem}\n  remedy: {remedy}")]
    Setting {
        /// `section.key`.
        key: String,
        /// What is wrong with it.
        problem: String,
        /// What can be written instead.
        remedy: String,
    },
    /// A loss, an activation or a gradient that is not a finite number. Parameters are as they were before this epoch.
    #[error("epoch {epoch}: {place} has a number that is not finite\n  remedy: {SMALLER_STEPS}")]
    NotFinite {
        /// The epoch, from 1.
        epoch: u64,
        /// The first layer whose output is not finite, or the parameter whose gradient is not.
        place: String,
    },
    /// A model that gives no numbers for nodes that it is scored on.
    #[error("the logits of {nodes} nodes of the split are not finite, so there is no score\n  remedy: {NOT_FINITE}")]
    NotScored {
        /// How many.
        nodes: u64,
    },
    /// A model that gives no numbers for nodes that it was asked about. Only the rank that writes comes to this.
    #[error("the logits of node {node} are not finite, so no predictions are written\n  remedy: {NOT_FINITE}")]
    NotPredicted {
        /// The first, as the dataset has it.
        node: u64,
    },
    /// An approximate strategy has gone its own way, and was told to stop then.
    #[error("epoch {epoch}: {seen}\n  remedy: {LESS_OLD}")]
    Diverged {
        /// The epoch, from 1.
        epoch: u64,
        /// How far.
        seen: Divergence,
    },
    /// A signal asked to stop; everything is saved.
    #[error("{}\n  remedy: {}", stopped(*epoch, checkpoint), resume(*epoch, checkpoint))]
    Stopped {
        /// The last epoch that counts; 0 before the first.
        epoch: u64,
        /// Where to go on from; nothing is there before the first epoch.
        checkpoint: PathBuf,
    },
    /// A rank ended, died or did not answer: what its communicator says, and where to go on from.
    #[error("{lost}\n  remedy: {}", go_on(checkpoint.as_deref()))]
    RankLost {
        /// Which, during what, in which epoch.
        lost: graphweft_comm::Error,
        /// The last checkpoint of the run.
        checkpoint: Option<PathBuf>,
    },
    /// Memory that a run lacked, and what would fit.
    #[error("{lacked}\n  {instead}")]
    OutOfMemory {
        /// What was asked for, and what was held.
        lacked: Box<graphweft_tensor::Error>,
        /// What the planner would do instead.
        instead: String,
    },
    /// The rank that speaks for all has refused the run, and said why.
    #[error("rank 0 has refused the run")]
    Refused,
    /// What all ranks agree on, on one that leaves saying so to another.
    #[error(transparent)]
    Echo(Box<Error>),
    /// Planning.
    #[error(transparent)]
    Plan(#[from] graphweft_plan::Error),
    /// Graphs, datasets, files.
    #[error(transparent)]
    Graph(#[from] graphweft_base::Error),
    /// Computation.
    #[error(transparent)]
    Tensor(#[from] graphweft_tensor::Error),
}

fn stopped(epoch: u64, checkpoint: &Path) -> String {
    match epoch {
        0 => "stopped before the first epoch; there is nothing to save".into(),
        _ => format!("stopped after epoch {epoch}; saved in {}", checkpoint.display()),
    }
}

fn resume(epoch: u64, checkpoint: &Path) -> String {
    if epoch == 0 {
        return "start again, with --resume if other seeds are done".into();
    }
    let run = checkpoint.ancestors().nth(2).unwrap_or(checkpoint);
    // Several seeds go on together.
    let of_seed = run.file_name().is_some_and(|name| name.to_string_lossy().starts_with("seed-"));
    let run = run.parent().filter(|_| of_seed).unwrap_or(run).display();
    format!("go on with -o {run} --resume")
}

fn go_on(checkpoint: Option<&Path>) -> String {
    match checkpoint {
        Some(path) => format!("go on from {} with --resume", path.display()),
        None => "start again: there is no checkpoint yet; run.checkpoint_every says how often there is one".into(),
    }
}

const SMALLER_STEPS: &str = "lower train.lr, set train.clip, or look for extreme features";

/// What helps where history is too old.
const LESS_OLD: &str = "take an exact strategy, lower pipeline.refresh_every or pipeline.chunks, or go on with \
                        pipeline.guard=warn";

/// What helps where a model that is made of numbers gives none.
const NOT_FINITE: &str = "look for extreme features; if there are none, train again with a lower train.lr, or use an earlier \
                          checkpoint";

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A setting that cannot be.
    pub fn setting(key: impl Into<String>, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Setting { key: key.into(), problem: problem.into(), remedy: remedy.into() }
    }

    /// Whether every rank comes to this error at the same place, so that none is lost by it.
    pub fn is_agreed(&self) -> bool {
        matches!(self, Self::NotFinite { .. } | Self::NotScored { .. } | Self::Diverged { .. } | Self::Stopped { .. })
    }

    /// What it means.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Setting { .. } | Self::Refused => ErrorKind::Usage,
            Self::Stopped { .. } => ErrorKind::Stopped,
            Self::Graph(e) => e.kind(),
            Self::Tensor(e) => kind_of_computation(e),
            Self::OutOfMemory { lacked, .. } => kind_of_computation(lacked),
            Self::RankLost { lost, .. } => lost.kind(),
            Self::Echo(e) => e.kind(),
            Self::Plan(e) => e.kind(),
            Self::NotFinite { .. } | Self::NotScored { .. } | Self::NotPredicted { .. } | Self::Diverged { .. } => {
                ErrorKind::Failure
            }
        }
    }

    /// The file or folder that it is about.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::Graph(e) => e.file(),
            Self::Plan(graphweft_plan::Error::Profile { file, .. }) => Some(file),
            Self::Echo(e) => e.file(),
            _ => None,
        }
    }

    /// The array, line or key inside of the file, or the setting as `section.key`.
    pub fn field(&self) -> Option<&str> {
        match self {
            Self::Setting { key, .. } => Some(key),
            Self::Graph(e) => e.field(),
            Self::Plan(
                graphweft_plan::Error::Profile { field, .. } | graphweft_plan::Error::Description { field, .. },
            ) => Some(field),
            Self::Echo(e) => e.field(),
            _ => None,
        }
    }

    /// Where in the file or array.
    pub fn position(&self) -> Option<Position> {
        match self {
            Self::Graph(e) => e.position(),
            Self::Echo(e) => e.position(),
            _ => None,
        }
    }

    /// What is wrong, without the file, the field and the remedy.
    pub fn problem(&self) -> Cow<'_, str> {
        match self {
            Self::Setting { problem, .. } => problem.into(),
            Self::Graph(e) => e.problem(),
            Self::Echo(e) => e.problem(),
            _ => {
                let mut text = self.to_string();
                let remedy = self.remedy().map_or(0, |remedy| "\n  remedy: ".len() + remedy.len());
                text.truncate(text.len().saturating_sub(remedy));
                text.into()
            }
        }
    }

    /// What to do about it, where that is known.
    pub fn remedy(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Setting { remedy, .. } => Some(remedy.into()),
            Self::NotFinite { .. } => Some(SMALLER_STEPS.into()),
            Self::NotScored { .. } | Self::NotPredicted { .. } => Some(NOT_FINITE.into()),
            Self::Diverged { .. } => Some(LESS_OLD.into()),
            Self::Stopped { epoch, checkpoint } => Some(resume(*epoch, checkpoint).into()),
            Self::RankLost { checkpoint, .. } => Some(go_on(checkpoint.as_deref()).into()),
            Self::OutOfMemory { lacked, instead } => lacked.remedy().map(|less| format!("{less}\n  {instead}").into()),
            Self::Refused => None,
            Self::Echo(e) => e.remedy(),
            Self::Plan(e) => e.remedy().map(Cow::from),
            Self::Graph(e) => Some(e.remedy().into()),
            Self::Tensor(e) => e.remedy().map(Cow::from),
        }
    }

    /// What ranks could not agree on, if that is what this is.
    pub fn of_ranks(&self) -> Option<&graphweft_comm::Error> {
        match self {
            Self::Tensor(graphweft_tensor::Error::Ranks(e)) => e.downcast_ref(),
            Self::RankLost { lost, .. } => Some(lost),
            _ => None,
        }
    }
}

impl From<graphweft_comm::Error> for Error {
    fn from(e: graphweft_comm::Error) -> Self {
        graphweft_tensor::Error::Ranks(Box::new(e)).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_the_problem_and_then_the_remedy() {
        let lost = graphweft_comm::Error::RankLost { rank: 2, op: "attend", step: 17 };
        let usage = graphweft_tensor::Usage::default();
        let lacked = graphweft_tensor::Error::OutOfMemory { op: "attend", device: "cpu".into(), requested: 5, usage };
        let profile = graphweft_plan::Error::NotTimed { device: "cpu".into() };
        for error in [
            Error::NotFinite { epoch: 3, place: "layer 1".into() },
            Error::NotScored { nodes: 7 },
            Error::NotPredicted { node: 7 },
            Error::Stopped { epoch: 0, checkpoint: "run".into() },
            Error::Stopped { epoch: 3, checkpoint: "run/seed-1/checkpoints/step-000003".into() },
            Error::RankLost { lost, checkpoint: None },
            Error::OutOfMemory { lacked: Box::new(lacked), instead: "halo on 4 ranks would fit".into() },
            Error::Plan(profile),
        ] {
            let remedy = error.remedy().unwrap();
            assert_eq!(error.to_string(), format!("{}\n  remedy: {remedy}", error.problem()));
        }
        let stopped = Error::Stopped { epoch: 3, checkpoint: "run/seed-1/checkpoints/step-000003".into() };
        assert_eq!(stopped.remedy().as_deref(), Some("go on with -o run --resume"));
        let setting = Error::setting("train.lr", "it is negative", "give a positive number");
        assert_eq!((setting.problem().as_ref(), setting.field()), ("it is negative", Some("train.lr")));
        assert_eq!((Error::Refused.problem().as_ref(), Error::Refused.remedy()), ("rank 0 has refused the run", None));
    }
}
