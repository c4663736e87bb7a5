//! What can go wrong in training, said so that the reader knows what to do next.

use std::path::{Path, PathBuf};

use crate::pipeline::Divergence;

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
    #[error(
        "epoch {epoch}: {place} has a number that is not finite\n  remedy: lower train.lr, set train.clip, or look for \
         extreme features"
    )]
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
    #[error(
        "epoch {epoch}: {seen}\n  remedy: take an exact strategy, lower pipeline.refresh_every or pipeline.chunks, or go on \
         with pipeline.guard=warn"
    )]
    Diverged {
        /// The epoch, from 1.
        epoch: u64,
        /// How far.
        seen: Divergence,
    },
    /// A signal asked to stop; everything is saved.
    #[error("{}", stopped(*epoch, checkpoint))]
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
    Graph(#[from] graphweft_graph::Error),
    /// Computation.
    #[error(transparent)]
    Tensor(#[from] graphweft_tensor::Error),
}

fn stopped(epoch: u64, checkpoint: &Path) -> String {
    match epoch {
        0 => "stopped before the first epoch; there is nothing to save\n  remedy: start again, with --resume if other seeds \
              are done"
            .into(),
        _ => {
            let run = checkpoint.ancestors().nth(2).unwrap_or(checkpoint);
            // Several seeds go on together.
            let of_seed = run.file_name().is_some_and(|name| name.to_string_lossy().starts_with("seed-"));
            let run = run.parent().filter(|_| of_seed).unwrap_or(run).display();
            format!("stopped after epoch {epoch}; saved in {}\n  remedy: go on with -o {run} --resume", checkpoint.display())
        }
    }
}

fn go_on(checkpoint: Option<&Path>) -> String {
    match checkpoint {
        Some(path) => format!("go on from {} with --resume", path.display()),
        None => "start again: there is no checkpoint yet; run.checkpoint_every says how often there is one".into(),
    }
}

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
