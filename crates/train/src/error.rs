//! What can go wrong in training, said so that the reader knows what to do next.

use std::path::PathBuf;

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
    /// A signal asked to stop; everything is saved.
    #[error("stopped after epoch {epoch}; saved in {}\n  remedy: go on with --resume", checkpoint.display())]
    Stopped {
        /// The last epoch that counts.
        epoch: u64,
        /// Where to go on from.
        checkpoint: PathBuf,
    },
    /// Graphs, datasets, files.
    #[error(transparent)]
    Graph(#[from] graphweft_graph::Error),
    /// Computation.
    #[error(transparent)]
    Tensor(#[from] graphweft_tensor::Error),
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A setting that cannot be.
    pub fn setting(key: impl Into<String>, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Setting { key: key.into(), problem: problem.into(), remedy: remedy.into() }
    }
}
