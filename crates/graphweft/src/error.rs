//! What can go wrong, as values: what kind of failure it is, where it is, and what to do about it.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use graphweft_base::Error as Bad;
use graphweft_train::Error as Training;

/// What [`Error::kind`] gives.
///
/// ```
/// use graphweft::{Dataset, ErrorKind};
/// let error = Dataset::open("no/such/folder").unwrap_err();
/// assert_eq!((error.kind(), error.kind().exit_code()), (ErrorKind::BadInput, 3));
/// ```
pub use graphweft_base::ErrorKind;
/// What [`Error::position`] gives.
///
/// ```
/// use graphweft::{Dataset, Graph, Position};
/// let graph = Graph::from_edges(2, &[0], &[1])?;
/// let error = Dataset::builder("two", &graph).features(1, vec![1.0, f32::NAN]).build().unwrap_err();
/// assert_eq!(error.position(), Some(Position::Cell { row: 1, column: 0 }));
/// # Ok::<(), graphweft::Error>(())
/// ```
pub use graphweft_base::Position;

/// A result of this crate.
///
/// ```
/// fn nodes(spec: &str) -> graphweft::Result<usize> {
///     Ok(graphweft::Graph::generate(spec, 0)?.num_nodes())
/// }
/// assert_eq!(nodes("grid:3:4").unwrap(), 12);
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure: [what it means](Error::kind), what is wrong and, where these are known, the file, the field, the position
/// and a remedy. As text it is what the program prints.
///
/// ```
/// let error = graphweft::Run::new("sbm:60:3:4").set("train.epoch", 3).train().unwrap_err();
/// assert_eq!(error.kind(), graphweft::ErrorKind::Usage);
/// assert_eq!(error.kind().exit_code(), 2);
/// assert_eq!(error.field(), Some("train.epoch"));
/// assert_eq!(error.problem(), "there is no such key");
/// assert_eq!(error.remedy().as_deref(), Some("did you mean train.epochs?"));
/// ```
#[derive(Clone)]
pub struct Error(Arc<Cause>);

enum Cause {
    Training(Training),
    System(std::io::Error),
    /// Another process has the result.
    Follows,
}

impl Error {
    /// A request that cannot be met, and what can be asked for instead.
    ///
    /// ```
    /// let error = graphweft::Error::request("there are no nodes", "name another graph");
    /// assert_eq!(error.to_string(), "there are no nodes\n  remedy: name another graph");
    /// ```
    pub fn request(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Bad::request(what, remedy).into()
    }

    /// A file or folder that the operating system would not write, with what helps.
    ///
    /// ```
    /// let full = std::io::ErrorKind::StorageFull.into();
    /// let error = graphweft::Error::not_written("write", "notes.txt", full);
    /// assert!(error.remedy().unwrap().contains("free some space"));
    /// ```
    pub fn not_written(action: &'static str, path: impl AsRef<Path>, reason: std::io::Error) -> Self {
        Bad::write(action, path)(reason).into()
    }

    /// That another process has the result.
    pub(crate) fn follows() -> Self {
        Self(Arc::new(Cause::Follows))
    }

    fn training(&self) -> Option<&Training> {
        match &*self.0 {
            Cause::Training(e) => Some(e),
            Cause::System(_) | Cause::Follows => None,
        }
    }

    /// What it means.
    pub fn kind(&self) -> ErrorKind {
        self.training().map_or(ErrorKind::Failure, Training::kind)
    }

    /// The file or folder at fault; of arrays in memory, the file that would hold them.
    pub fn file(&self) -> Option<&Path> {
        self.training()?.file()
    }

    /// The array, key or line inside the file, or the setting as `section.key`.
    pub fn field(&self) -> Option<&str> {
        self.training()?.field()
    }

    /// Where in the file or array.
    ///
    /// ```
    /// let error = graphweft::Graph::from_edges(3, &[0, 7], &[1, 2]).unwrap_err();
    /// assert_eq!((error.field(), error.position()), (Some("sources"), Some(graphweft::Position::Element(1))));
    /// ```
    pub fn position(&self) -> Option<Position> {
        self.training()?.position()
    }

    /// What is wrong, without the file, the field and the remedy.
    pub fn problem(&self) -> String {
        self.training().map_or_else(|| self.to_string(), |e| e.problem().into_owned())
    }

    /// What to do about it.
    pub fn remedy(&self) -> Option<String> {
        self.training()?.remedy().map(Cow::into_owned)
    }

    /// Of a run that was stopped or lost a rank, where it can go on from.
    pub fn checkpoint(&self) -> Option<&Path> {
        match self.training()? {
            Training::Stopped { epoch: 1.., checkpoint } => Some(checkpoint),
            Training::RankLost { checkpoint, .. } => checkpoint.as_deref(),
            _ => None,
        }
    }

    /// Whether this process only follows another one, which says what is wrong.
    pub fn is_said_elsewhere(&self) -> bool {
        matches!(self.training(), Some(Training::Refused | Training::Echo(_)))
    }

    /// Whether nothing is wrong: this process is not the first of those that a launcher started, and only the first has
    /// the result.
    pub fn has_result_elsewhere(&self) -> bool {
        matches!(*self.0, Cause::Follows)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Cause::Training(e) => e.fmt(f),
            Cause::System(e) => e.fmt(f),
            Cause::Follows => f.write_str("the first of the processes has the result, and this is another"),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.kind())
    }
}

impl std::error::Error for Error {}

macro_rules! by_way_of_training {
    ($($cause:ty),*) => {
        $(impl From<$cause> for Error {
            fn from(e: $cause) -> Self {
                Self(Arc::new(Cause::Training(e.into())))
            }
        })*
    };
}

by_way_of_training!(Training, Bad, graphweft_plan::Error, graphweft_tensor::Error, graphweft_comm::Error);

impl From<std::io::Error> for Error {
    fn from(e: std::io::Error) -> Self {
        Self(Arc::new(Cause::System(e)))
    }
}

#[cfg(test)]
mod tests {
    use graphweft_comm::Error as Between;
    use graphweft_tensor::Error as Computation;

    use super::*;

    #[test]
    fn a_lost_rank_exits_with_5_wherever_it_was_noticed() {
        let lost = || Between::RankLost { rank: 2, op: "attend", step: 17 };
        let wrapped = Training::RankLost { lost: lost(), checkpoint: Some("runs/a/checkpoints/step-000016".into()) };
        for part in ["rank 2", "attend", "epoch 17", "step-000016", "--resume"] {
            assert!(wrapped.to_string().contains(part), "{wrapped}");
        }
        let wrapped = Error::from(wrapped);
        assert!(wrapped.checkpoint().is_some());
        let everywhere: [Error; 4] =
            [wrapped, Training::from(lost()).into(), lost().into(), Computation::Ranks(Box::new(lost())).into()];
        assert_eq!(everywhere.map(|e| e.kind().exit_code()), [5; 4]);
        let other = Between::Library { library: "mpi", problem: "no".into() };
        assert_eq!(Error::from(Training::from(other)).kind(), ErrorKind::Failure);
        let stopped = Training::Stopped { epoch: 3, checkpoint: "x".into() };
        let echo = Error::from(Training::Echo(Box::new(stopped)));
        assert!(echo.kind() == ErrorKind::Stopped && echo.is_said_elsewhere());
    }

    #[test]
    fn errors_cross_threads() {
        fn crosses<T: Send + Sync + 'static>() {}
        crosses::<Error>();
    }
}
