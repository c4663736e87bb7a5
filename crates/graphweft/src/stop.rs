//! Asking a run to stop.

use crate::error::Result;

/// Asks a run to stop, from any thread: it ends after the epoch that it is in, with a checkpoint and an error of the
/// kind [`Stopped`](crate::ErrorKind::Stopped). Clones are the same request.
///
/// ```
/// use graphweft::{ErrorKind, Run, Stop};
/// # let dir = tempfile::tempdir().unwrap();
/// let stop = Stop::new();
/// let asked = stop.clone();
/// let run = Run::new("sbm:60:3:4:f=8").epochs(1000).output(dir.path().join("run")).stop(&stop);
/// // Here by an observer; as well by another thread.
/// let error = run.on_epoch(move |epoch| if epoch.number == 3 { asked.request() }).train().unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Stopped);
/// assert!(error.checkpoint().unwrap().exists());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Stop(graphweft_train::Stop);

impl Stop {
    /// Nobody has asked yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// One that is asked by SIGTERM, SIGINT, SIGUSR1 and SIGHUP, as the program has it. Where no run looks for it, the
    /// process ends with exit code 75 and what was not finished is removed; so it does at a second signal.
    ///
    /// # Errors
    /// If the operating system does not let this process listen.
    pub fn on_signals() -> Result<Self> {
        Ok(Self(graphweft_train::Stop::on_signals()?))
    }

    /// Asks.
    pub fn request(&self) {
        self.0.request();
    }

    /// Whether somebody asked.
    pub fn is_requested(&self) -> bool {
        self.0.is_requested()
    }

    pub(crate) fn inner(&self) -> graphweft_train::Stop {
        self.0.clone()
    }
}
