//! `[isolated]`: training on pieces of the graph, with gradients alone on the wire.

use serde::{Deserialize, Serialize};

use super::{Problem, at_least_one, not_negative, size};

/// `[isolated]`: settings of the strategy of that name. How the graph is divided, and into how many chunks, are
/// `parallel.partition` and `parallel.parts`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IsolatedConfig {
    /// Epochs after which each base chunk gets another chunk beside it; 0: it keeps the first.
    pub rotate_every: u64,
    /// By what the loss of a node is weighted.
    pub correction: Correction,
    /// How far these weights are drawn towards 1: 0 leaves them, 1 makes all equal.
    pub shrinkage: f64,
    /// The most rows of halo for each row of the chunks; if there are more, some are drawn. Unset: all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub halo: Option<f64>,
    /// Bytes that a rank may use. Decides the number of chunks, unless that is given, and how much of the halo is
    /// drawn. Unset: as much as it takes.
    #[serde(deserialize_with = "size::maybe", skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
}

/// Weights of nodes that are learned from, by how much of their surroundings is there; their mean over all ranks is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Correction {
    /// All equal. The default: on the graphs of benches/isolated none of the others gained reliably.
    #[default]
    None,
    /// The share of a node's in-edges.
    FirstHop,
    /// The share of walks against the edges, of as many steps as the model has layers, that stay.
    DepthAware,
    /// The mean of that over the rank's nodes, for all of them.
    BatchScalar,
}

impl Default for IsolatedConfig {
    fn default() -> Self {
        Self { rotate_every: 10, correction: Correction::default(), shrinkage: 0.0, halo: None, memory: None }
    }
}

impl IsolatedConfig {
    /// The most rows of halo for so many rows of the chunks.
    pub(crate) fn halo_rows(&self, own: usize) -> Option<usize> {
        self.halo.map(|ratio| (ratio * own as f64).ceil() as usize)
    }

    pub(super) fn check(&self) -> Result<(), Problem> {
        if !(0.0..=1.0).contains(&self.shrinkage) {
            return Err((
                "shrinkage",
                format!("{} is not between 0 and 1", self.shrinkage),
                "set a number from 0 to 1",
            ));
        }
        not_negative("halo", self.halo.unwrap_or(0.0))?;
        at_least_one("memory", self.memory.unwrap_or(1))
    }
}
