//! `[data]`: which graph, and what is done to it.

use graphweft_graph::SelfLoops;
use serde::{Deserialize, Serialize};

use super::Problem;

/// `[data]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DataConfig {
    /// A dataset folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Or a graph to generate, e.g. `sbm:2000:5:10`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graph: Option<String>,
    /// Seed of a generated graph.
    pub graph_seed: u64,
    /// The split, or a family such as `public-*`, of which seed k takes the k-th. Unset: the only one there is, `public` or
    /// `default`, or the family that all belong to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
    /// Add the reverse of every edge.
    pub symmetrise: bool,
    /// What to do with edges from a node to itself.
    pub self_loops: SelfLoops,
    /// What to do with features.
    pub normalise: Normalise,
}

/// What is done to the features of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Normalise {
    /// Nothing.
    #[default]
    None,
    /// Divided by the sum of their absolute values.
    Row,
}

impl DataConfig {
    pub(super) fn check(&self) -> Result<(), Problem> {
        match (&self.path, &self.graph) {
            (Some(_), Some(_)) => Err(("graph", "there is a path as well".into(), "set one of the two")),
            _ => Ok(()),
        }
    }
}
