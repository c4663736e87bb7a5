//! What can go wrong in planning, said so that the reader knows what to do next.

use std::path::{Path, PathBuf};

use graphweft_base::ErrorKind;

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
    #[error("no strategy can be used: {reasons}\n  remedy: {BY_NAME}")]
    Impossible {
        /// Why, each.
        reasons: String,
    },
    /// A device whose kernels cannot be told apart by those of a rehearsal.
    #[error("{device}: its kernels could not be timed\n  remedy: {BY_PROFILE}")]
    NotTimed {
        /// The device.
        device: String,
    },
    /// Computation, while calibrating.
    #[error(transparent)]
    Tensor(#[from] graphweft_tensor::Error),
}

const BY_NAME: &str = "choose one by name to see what it lacks";
const BY_PROFILE: &str = "plan for a profile, e.g. --profile h200x8, or name the strategy";

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// What to do about it, where that is known.
    pub fn remedy(&self) -> Option<&str> {
        match self {
            Self::Profile { remedy, .. } | Self::Description { remedy, .. } | Self::DoesNotFit { remedy, .. } => {
                Some(remedy)
            }
            Self::Impossible { .. } => Some(BY_NAME),
            Self::NotTimed { .. } => Some(BY_PROFILE),
            Self::Tensor(e) => e.remedy(),
        }
    }

    /// What it means.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Profile { .. } => ErrorKind::BadInput,
            Self::Description { .. } | Self::Impossible { .. } | Self::NotTimed { .. } => ErrorKind::Usage,
            Self::DoesNotFit { .. } => ErrorKind::DoesNotFit,
            Self::Tensor(e) => kind_of_computation(e),
        }
    }

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

/// What a failed computation means; `tensor` cannot tell, as it does not know how ranks talk.
pub fn kind_of_computation(error: &graphweft_tensor::Error) -> ErrorKind {
    match error {
        graphweft_tensor::Error::OutOfMemory { .. } => ErrorKind::DoesNotFit,
        graphweft_tensor::Error::Ranks(e) => e.downcast_ref().map_or(ErrorKind::Failure, graphweft_comm::Error::kind),
        _ => ErrorKind::Failure,
    }
}

impl From<graphweft_comm::Error> for Error {
    fn from(e: graphweft_comm::Error) -> Self {
        Self::Tensor(graphweft_tensor::Error::Ranks(Box::new(e)))
    }
}
