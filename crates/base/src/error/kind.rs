//! What a failure means to whoever started the work.

/// What a failure means: the exit codes of the program. Errors of all crates have a method `kind` that says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The machine, or the work itself: a disk that cannot be written, a loss that is not finite. Exit code 1.
    Failure,
    /// What was asked for cannot be done: an unknown setting, a strategy that does not suit. Exit code 2.
    Usage,
    /// A file or an array that is missing or malformed. Exit code 3.
    BadInput,
    /// Memory, or a disk, is too small. Exit code 4.
    DoesNotFit,
    /// A rank ended, died or did not answer. Exit code 5.
    RankLost,
    /// Somebody asked to stop; what was done is saved. Exit code 75.
    Stopped,
}

impl ErrorKind {
    /// The exit code of the program for this kind.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Failure => 1,
            Self::Usage => 2,
            Self::BadInput => 3,
            Self::DoesNotFit => 4,
            Self::RankLost => 5,
            Self::Stopped => 75,
        }
    }
}
