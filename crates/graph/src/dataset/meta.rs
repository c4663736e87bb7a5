//! `meta.toml`.

use std::path::Path;

use graphweft_base::{Error, Position, Problem, Result, plain};
use serde::{Deserialize, Serialize};

use super::NodeType;

/// More classes, or labels per node, than any dataset has.
const MOST_CLASSES: usize = 1 << 24;

/// What a dataset is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// Predict the class, or the classes, of nodes.
    #[default]
    NodeClassification,
    /// Predict a number, or several, of nodes.
    NodeRegression,
    /// Predict the class, or the classes, of whole graphs.
    GraphClassification,
    /// Predict a number, or several, of whole graphs.
    GraphRegression,
    /// Predict which pairs of nodes are linked.
    Link,
}

impl Task {
    /// Whether something is predicted of whole graphs, and not of nodes.
    pub fn is_of_graphs(self) -> bool {
        matches!(self, Self::GraphClassification | Self::GraphRegression)
    }

    /// Whether numbers are predicted, and not classes.
    pub fn is_regression(self) -> bool {
        matches!(self, Self::NodeRegression | Self::GraphRegression)
    }
}

/// The contents of `meta.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Meta {
    /// What people call it.
    pub name: String,
    /// Nodes.
    pub num_nodes: usize,
    /// Stored entries; an undirected edge counts twice.
    pub num_edges: usize,
    /// Columns of the feature matrix. Needed for sparse features, whose arrays do not tell.
    #[serde(default)]
    pub num_features: usize,
    /// Classes, or labels or numbers to predict per node or per graph; 0 where there are no labels.
    pub num_classes: usize,
    /// Each edge stands beside its reverse.
    pub symmetric: bool,
    /// What the labels are for.
    #[serde(default)]
    pub task: Task,
    /// How many categories each column of `cat.npy` has, where that is not the largest one and 1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_categories: Vec<u32>,
    /// What the types in `edge_type.npy` are called, by number. Empty where edges have no types, or these no names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub edge_types: Vec<String>,
    /// Types of nodes, in the order of their ids; empty where nodes have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_types: Vec<NodeType>,
}

impl Meta {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = plain::open(path).and_then(plain::text).map_err(|e| Error::unreadable(path, "file", &e))?;
        let meta: Self = toml::from_str(&text).map_err(|e| {
            let line = |at: usize| text.get(..at).map_or(1, |before| before.matches('\n').count() + 1) as u64;
            let message = e.message().trim_end();
            let problem = match e.span().map(|span| line(span.start)) {
                Some(line) => Problem::at(Position::Line(line), format!("line {line}: {message}")),
                None => message.into(),
            };
            let remedy = "it needs name, num_nodes, num_edges, num_features, num_classes, symmetric and task";
            Error::bad(path, "meta", problem, remedy)
        })?;
        // Later code adds one and multiplies by element sizes; no real graph comes near.
        for (field, count) in
            [("num_nodes", meta.num_nodes), ("num_edges", meta.num_edges), ("num_features", meta.num_features)]
        {
            if count as u64 >= 1 << 48 {
                return Err(Error::bad(path, field, format!("{count} is beyond any graph"), "correct the count"));
            }
        }
        // Scores are counted by class, whatever labels there are.
        if meta.num_classes > MOST_CLASSES {
            let problem = format!("{} is more than the {MOST_CLASSES} that are supported", meta.num_classes);
            return Err(Error::bad(path, "num_classes", problem, "correct the count"));
        }
        meta.check_types(path)?;
        Ok(meta)
    }

    /// An error about a count of columns that `file` has otherwise; one that is missing counts as 0.
    pub(super) fn wrong_count(dir: &Path, field: &str, count: usize, file: &str, columns: usize) -> Error {
        let said = if count == 0 { "0 or missing".to_string() } else { count.to_string() };
        let problem = format!("{field} is {said}, but {file} has {columns} columns");
        let remedy = format!("set {field} = {columns} in meta.toml, or correct {file}");
        Error::bad(dir.join("meta.toml"), field, problem, remedy)
    }

    pub(super) fn to_toml(&self) -> Result<String> {
        toml::to_string(self)
            .map_err(|e| Error::request(format!("cannot write meta.toml: {e}"), "report this as a bug"))
    }
}
