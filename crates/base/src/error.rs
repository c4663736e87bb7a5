//! What can go wrong with files and requests, said so that the reader knows what to do next.

mod kind;
mod problem;

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};

pub use kind::ErrorKind;
pub use problem::{Position, Problem};

/// Every failure of this crate.
///
/// Its parts can be asked for one by one, so that nobody has to read the message:
///
/// ```
/// use graphweft_base::{Error, ErrorKind, Position, Problem};
///
/// let problem = Problem::at(Position::Element(7), "indices[7] = 9: there are only 4 nodes");
/// let error = Error::bad("cora/indices.npy", "indices", problem, "import the graph again");
/// assert_eq!(error.kind(), ErrorKind::BadInput);
/// assert_eq!(error.file().unwrap().to_str(), Some("cora/indices.npy"));
/// assert_eq!(error.field(), Some("indices"));
/// assert_eq!(error.position().unwrap().number(), 7);
/// assert_eq!(error.remedy(), "import the graph again");
/// ```
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file that is missing, unreadable, malformed or inconsistent with its neighbours.
    #[error("{}: {field}: {problem}\n  remedy: {remedy}", file.display())]
    BadInput {
        /// The file at fault.
        file: PathBuf,
        /// The field, array, line or key inside the file.
        field: String,
        /// What is wrong, and where.
        problem: Problem,
        /// What the user can do about it.
        remedy: String,
    },
    /// A request that makes no sense for this graph or this build.
    #[error("{what}\n  remedy: {remedy}")]
    Request {
        /// What was asked for and why it cannot be done.
        what: String,
        /// What can be asked for instead.
        remedy: String,
    },
    /// A job that needs more memory than it may use.
    #[error("{what} needs {needed} bytes of memory, {available} are allowed\n  remedy: {remedy}")]
    Memory {
        /// The job.
        what: String,
        /// Bytes it needs.
        needed: u64,
        /// Bytes it may use.
        available: u64,
        /// What to change.
        remedy: String,
    },
    /// A job that needs more space than the disk has.
    #[error(
        "{what} needs {needed} bytes on the disk of {}, {available} are free\n  remedy: {LESS_DISK}",
        path.display()
    )]
    Disk {
        /// The job.
        what: String,
        /// Where it would be.
        path: PathBuf,
        /// Bytes it needs.
        needed: u64,
        /// Bytes that are free.
        available: u64,
    },
    /// The machine refused to write.
    #[error("cannot {action} {}: {reason}\n  remedy: {}", path.display(), to_write(reason))]
    Write {
        /// What was being done, as a verb: "create", "write", "rename".
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The operating system's reason. The message has it, so it is no `source`: those are printed after the
        /// message.
        reason: io::Error,
    },
}

const LESS_DISK: &str = "free some space, ask for less, or name a path on another disk";

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Malformed input in `file` at `field`.
    pub fn bad(
        file: impl AsRef<Path>,
        field: impl Into<String>,
        problem: impl Into<Problem>,
        remedy: impl Into<String>,
    ) -> Self {
        Self::BadInput {
            file: file.as_ref().to_path_buf(),
            field: field.into(),
            problem: problem.into(),
            remedy: remedy.into(),
        }
    }

    /// Input that the operating system would not give us: missing, a folder in place of a file, cut short, unreadable.
    pub fn unreadable(file: impl AsRef<Path>, field: impl Into<String>, source: &io::Error) -> Self {
        let remedy = match source.kind() {
            io::ErrorKind::NotFound => "check the path",
            io::ErrorKind::IsADirectory => "this is a folder where a file is expected; name the file inside it",
            io::ErrorKind::NotADirectory => "this is a file where a folder is expected; name the folder",
            io::ErrorKind::PermissionDenied => "check the file's permissions",
            io::ErrorKind::Unsupported => "save it as a plain file first, and name that",
            io::ErrorKind::UnexpectedEof => "the file is cut short; copy or download it again",
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => {
                "the file is corrupt or of another format; copy or download it again"
            }
            _ => "check the disk and the file",
        };
        Self::bad(file, field, source.to_string(), remedy)
    }

    /// A request that cannot be met.
    pub fn request(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Request { what: what.into(), remedy: remedy.into() }
    }

    /// A failed write; use as `map_err(Error::write("create", &path))`.
    pub fn write(action: &'static str, path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Self {
        let path = path.as_ref().to_path_buf();
        move |reason| Self::Write { action, path, reason }
    }

    /// What it means.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::BadInput { .. } => ErrorKind::BadInput,
            Self::Request { .. } => ErrorKind::Usage,
            Self::Memory { .. } | Self::Disk { .. } => ErrorKind::DoesNotFit,
            Self::Write { .. } => ErrorKind::Failure,
        }
    }

    /// The file or folder that it is about.
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::BadInput { file: path, .. } | Self::Disk { path, .. } | Self::Write { path, .. } => Some(path),
            Self::Request { .. } | Self::Memory { .. } => None,
        }
    }

    /// The field, array, line or key inside of the file.
    pub fn field(&self) -> Option<&str> {
        match self {
            Self::BadInput { field, .. } => Some(field),
            _ => None,
        }
    }

    /// Where in the file or array.
    pub fn position(&self) -> Option<Position> {
        match self {
            Self::BadInput { problem, .. } => problem.position(),
            _ => None,
        }
    }

    /// What is wrong, without the file, the field and the remedy.
    pub fn problem(&self) -> Cow<'_, str> {
        match self {
            Self::BadInput { problem, .. } => problem.to_string().into(),
            Self::Request { what, .. } => what.into(),
            Self::Memory { what, needed, available, .. } => {
                format!("{what} needs {needed} bytes of memory, {available} are allowed").into()
            }
            Self::Disk { what, needed, available, .. } => {
                format!("{what} needs {needed} bytes on the disk, {available} are free").into()
            }
            Self::Write { action, reason, .. } => format!("cannot {action}: {reason}").into(),
        }
    }

    /// What to do about it.
    pub fn remedy(&self) -> &str {
        match self {
            Self::BadInput { remedy, .. } | Self::Request { remedy, .. } | Self::Memory { remedy, .. } => remedy,
            Self::Disk { .. } => LESS_DISK,
            Self::Write { reason, .. } => to_write(reason),
        }
    }
}

/// What helps where the operating system would not write.
fn to_write(reason: &io::Error) -> &'static str {
    match reason.kind() {
        io::ErrorKind::AlreadyExists => "name another path, or move away what is there",
        io::ErrorKind::NotFound => "create the folder that it is to lie in, or name another path",
        io::ErrorKind::NotADirectory => "a part of the path is a file where a folder is expected; name another path",
        io::ErrorKind::IsADirectory => "this is a folder where a file is expected; name a file inside it",
        io::ErrorKind::PermissionDenied => "check the permissions of the folder, or name another path",
        io::ErrorKind::ReadOnlyFilesystem => "name a path on a disk that can be written to",
        io::ErrorKind::FileTooLarge => "raise the limit on the size of files (ulimit -f), or ask for less",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free some space, or name a path on another disk",
        _ => "check the disk and the path",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_says_why_once_and_what_to_do() {
        for (kind, part) in [
            (io::ErrorKind::AlreadyExists, "move away"),
            (io::ErrorKind::PermissionDenied, "permissions"),
            (io::ErrorKind::StorageFull, "free some space"),
        ] {
            let error = Error::write("create", "afile")(kind.into());
            let message = error.to_string();
            assert!(message.starts_with("cannot create afile: "), "{message}");
            assert!(message.split_once("remedy: ").is_some_and(|(_, remedy)| remedy.contains(part)), "{message}");
            assert!(std::error::Error::source(&error).is_none(), "it would be printed again");
        }
    }
}
