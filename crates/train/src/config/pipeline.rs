//! `[pipeline]`: how chunks pass through stages, and who watches what that costs.

use graphweft_graph::partition::MOST_PARTS;
use serde::{Deserialize, Serialize};

use super::{Problem, at_least_one};

/// `[pipeline]`, for the strategy of this name. Whatever `compute.remat` says, attention is computed again in
/// backward, or the layer that it is in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PipelineConfig {
    /// Chunks of the graph. Unset: four for every stage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunks: Option<u64>,
    /// Draw another order of chunks every epoch, so that none always has the oldest neighbours.
    pub shuffle: bool,
    /// Count gradients along edges between chunks twice, since they are seen half of the time.
    pub scale: bool,
    /// Epochs after which the rows that stand for later chunks are computed anew; sooner in the first ones, in which
    /// much changes.
    pub refresh_every: u64,
    /// Epochs between looks at what is lost against an exact forward pass; 0 for none.
    pub guard_every: u64,
    /// What to do if that is too much.
    pub guard: Guard,
}

/// What to do about a pipeline that goes its own way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Guard {
    /// Say so.
    #[default]
    Warn,
    /// End the run.
    Stop,
}

impl Default for PipelineConfig {
    fn default() -> Self {
        Self { chunks: None, shuffle: true, scale: true, refresh_every: 20, guard_every: 20, guard: Guard::Warn }
    }
}

impl PipelineConfig {
    /// How many chunks there are for so many stages.
    pub fn chunks_for(&self, stages: usize) -> usize {
        self.chunks.map_or(4 * stages, |chunks| chunks as usize)
    }

    pub(super) fn check(&self) -> Result<(), Problem> {
        at_least_one("refresh_every", self.refresh_every)?;
        let chunks = self.chunks.unwrap_or(1);
        at_least_one("chunks", chunks)?;
        if chunks > MOST_PARTS as u64 {
            return Err(("chunks", format!("{chunks} are more than the {MOST_PARTS} that are supported"), "set fewer"));
        }
        Ok(())
    }
}
