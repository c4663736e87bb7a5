//! `[data]`: which graph, and what is done to it.

use graphweft_graph::SelfLoops;
use graphweft_model::ModelConfig;
use serde::{Deserialize, Serialize};

use super::Problem;
use crate::data::random_split::RandomSplit;
use crate::task::Task;

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
    /// The split, or a family such as `public-*`, of which seed k takes the k-th. `random:60/20/20` or
    /// `random:20-per-class` draws one by the run's seed. Unset: the only one there is, `public` or `default`, or the
    /// family that all belong to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
    /// Add the reverse of every edge.
    pub symmetrise: bool,
    /// What to do with edges from a node to itself.
    pub self_loops: Loops,
    /// What to do with features.
    pub normalise: Normalise,
    /// What tells nodes apart: what is stored, or a row of numbers for each that is learned.
    pub features: NodeFeatures,
    /// Of links: how many numbers a model gives for a node, of which pairs are scored. Unset: 64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embedding: Option<u64>,
    /// What is predicted, where that is no task of ours. Unset: what the dataset says.
    #[serde(skip)]
    pub task: Option<&'static dyn Task>,
}

/// What is done to edges from a node to itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Loops {
    /// `add` for models that are published with them, `keep` for others. A configuration that is
    /// [finished](super::Draft::finish) has one of these instead.
    #[default]
    Auto,
    /// The graph stays as it is.
    Keep,
    /// Every node has exactly one.
    Add,
    /// There are none.
    Remove,
}

impl Loops {
    /// The same with a decision in place of `auto`.
    pub fn decided(self, model: &ModelConfig) -> Self {
        match self {
            Self::Auto if model.adds_self_loops() => Self::Add,
            Self::Auto => Self::Keep,
            other => other,
        }
    }
}

impl From<Loops> for SelfLoops {
    /// Nothing is done before anything is decided.
    fn from(loops: Loops) -> Self {
        match loops {
            Loops::Auto | Loops::Keep => Self::Keep,
            Loops::Add => Self::Add,
            Loops::Remove => Self::Remove,
        }
    }
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

/// What tells nodes apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeFeatures {
    /// Stored features; where links are predicted and there are none, learned rows.
    #[default]
    Auto,
    /// Each node has a row that is learned: the first layer's weights, which ranks share by nodes where they share a
    /// whole graph.
    Learned,
}

impl DataConfig {
    /// Whether features are used as they are stored.
    pub(crate) fn takes_stored_features(&self) -> bool {
        self.normalise == Normalise::None && self.features == NodeFeatures::Auto
    }

    pub(super) fn check(&self) -> Result<(), Problem> {
        if self.path.is_some() && self.graph.is_some() {
            return Err(("graph", "there is a path as well".into(), "set one of the two"));
        }
        if self.embedding == Some(0) {
            return Err(("embedding", "no pair could be told from another".into(), "set 1 or more"));
        }
        match self.split.as_deref().and_then(RandomSplit::parse) {
            Some(Err(problem)) => Err(("split", problem, "write random:60/20/20 or random:20-per-class")),
            _ => Ok(()),
        }
    }
}
