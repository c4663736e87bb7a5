//! `[run]`: seeds and checkpoints.

use serde::{Deserialize, Serialize};

use super::{Problem, at_least_one};

/// `[run]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunConfig {
    /// The first seed, of initial parameters and dropout.
    pub seed: u64,
    /// How many seeds are run, one after another.
    pub seeds: u64,
    /// Epochs between checkpoints.
    pub checkpoint_every: u64,
    /// Checkpoints kept, beside that of the last epoch.
    pub keep: u64,
    /// Whether `report.html` in the run folder, a page to look at, is renewed while the run goes on.
    pub report: bool,
}

impl Default for RunConfig {
    fn default() -> Self {
        Self { seed: 0, seeds: 1, checkpoint_every: 100, keep: 2, report: false }
    }
}

impl RunConfig {
    pub(super) fn check(&self) -> Result<(), Problem> {
        at_least_one("seeds", self.seeds)?;
        at_least_one("checkpoint_every", self.checkpoint_every)?;
        at_least_one("keep", self.keep)?;
        if self.seed.checked_add(self.seeds).is_none_or(|end| i64::try_from(end).is_err()) {
            return Err(("seed", format!("{} is too large", self.seed), "choose a smaller seed"));
        }
        Ok(())
    }
}
