//! What can go wrong between ranks.

use graphweft_base::ErrorKind;

/// Every failure of this crate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum Error {
    /// A rank ended, died or did not answer in time.
    #[error("rank {rank} was lost during {op} in epoch {step}")]
    RankLost { rank: usize, op: &'static str, step: u64 },
    /// Ranks did not ask for the same exchange.
    #[error("ranks disagree in epoch {step}: {problem}; every rank must make the same calls in the same order")]
    Mismatch { step: u64, problem: String },
    /// A call that cannot be right.
    #[error("{op}: {problem}")]
    Argument { op: &'static str, problem: String },
    /// The library below failed.
    #[error("{library}: {problem}")]
    Library { library: &'static str, problem: String },
}

impl Error {
    /// What it means.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::RankLost { .. } => ErrorKind::RankLost,
            Self::Mismatch { .. } | Self::Argument { .. } | Self::Library { .. } => ErrorKind::Failure,
        }
    }
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;
