//! What can go wrong in planning, said so that the reader knows what to do next.

use std::path::{Path, PathBuf};

/// Every failure of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A profile that cannot be used.
    #[error("{}: {field}: {problem}\n  remedy: {remedy}", file.display())]
    Profile {
        /// The file, or the name of a shipped profile.
        file: PathBuf,
        /// Where in it.
        field: String,
        /// What is wrong.
        problem: String,
        /// What can be done.
        remedy: String,
    },
    /// A description of a graph that cannot be understood.
    #[error("{field}: {problem}\n  remedy: {remedy}")]
    Description {
        /// The part of it.
        field: String,
        /// What is wrong.
        problem: String,
        /// What can be written instead.
        remedy: String,
    },
    /// No way to spread the work fits into memory.
    #[error("nothing fits: {short}\n  remedy: {remedy}")]
    DoesNotFit {
        /// By how much the best misses.
        short: String,
        /// What would fit.
        remedy: String,
    },
    /// Every way to spread the work is refused.
    #[error("no strategy can be used: {reasons}\n  remedy: choose one by name to see what it lacks")]
    Impossible {
        /// Why, each.
        reasons: String,
    },
    /// A device whose kernels cannot be told apart by those of a rehearsal.
    #[error(
        "{device}: its kernels could not be timed\n  remedy: plan for a profile, e.g. --profile h200x8, or name the strategy"
    )]
    NotTimed {
        /// The device.
        device: String,
    },
    /// Computation, while probing.
    #[error(transparent)]
    Tensor(#[from] graphweft_tensor::Error),
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A profile that cannot be used.
    pub(crate) fn profile(
        file: &Path,
        field: impl Into<String>,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self::Profile { file: file.into(), field: field.into(), problem: problem.into(), remedy: remedy.into() }
    }
}

impl From<graphweft_comm::Error> for Error {
    fn from(e: graphweft_comm::Error) -> Self {
        Self::Tensor(graphweft_tensor::Error::Ranks(Box::new(e)))
    }
}
