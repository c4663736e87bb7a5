//! Types of nodes and of edges.
//!
//! Nodes of a type are contiguous: `meta.toml` lists the types in the order of ids, each with its number of nodes, and
//! the number of its columns where it has features of its own. Edges are of any order; `edge_type.npy` has the number
//! of each one's type, and `meta.toml` the names.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use graphweft_base::{Error, Result};
use serde::{Deserialize, Serialize};

use super::features::Place;
use super::{Features, Meta};

/// As many as an edge type in two bytes can name.
const MOST_TYPES: usize = 1 << 16;

/// A type of nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeType {
    /// What people call it; also a part of the names of files.
    pub name: String,
    /// Nodes.
    pub num_nodes: usize,
    /// Columns of its own features, `feat-<name>.npy`; 0 where it has none.
    #[serde(default)]
    pub num_features: usize,
}

/// Types of nodes and edges, of data in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Types {
    /// The type of each edge, if edges have types.
    pub edges: Option<super::Codes>,
    /// What the types of edges are called; may be empty.
    pub edge_names: Vec<String>,
    /// The types of nodes, in the order of ids; empty where nodes have none.
    pub nodes: Vec<NodeType>,
    /// The features of each type of nodes; empty where all nodes have the same columns.
    pub features: Vec<Option<Features>>,
}

/// Whether a type can be called so: its name is a part of the names of files.
pub(crate) fn is_plain_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    !name.is_empty() && name.len() <= 64 && !name.starts_with('.') && name.chars().all(plain)
}

impl Meta {
    /// The nodes of each type, in order.
    pub fn type_ranges(&self) -> Vec<Range<usize>> {
        let mut start = 0;
        let next = |t: &NodeType| {
            let range = start..start + t.num_nodes;
            start = range.end;
            range
        };
        self.node_types.iter().map(next).collect()
    }

    /// Names and counts that make sense.
    pub(super) fn check_types(&self, path: &Path) -> Result<()> {
        let bad = |field: &str, problem: String, remedy: &str| Err(Error::bad(path, field, problem, remedy));
        for (field, count) in [("edge_types", self.edge_types.len()), ("node_types", self.node_types.len())] {
            if count > MOST_TYPES {
                let problem = format!("{count} types are more than the {MOST_TYPES} that are supported");
                return bad(field, problem, "use fewer");
            }
        }
        let mut seen = BTreeSet::new();
        if let Some(twice) = self.edge_types.iter().find(|name| !seen.insert(name.as_str())) {
            return bad("edge_types", format!("{twice:?} is there twice"), "give each type a name of its own");
        }
        let (mut seen, mut nodes) = (BTreeSet::new(), 0u64);
        for t in &self.node_types {
            if !is_plain_name(&t.name) {
                let problem = format!("{:?} is no name of a type, which is a part of the names of files", t.name);
                return bad("node_types", problem, "use up to 64 of the letters a–z, digits, and _ - .");
            }
            if !seen.insert(t.name.as_str()) {
                return bad("node_types", format!("{:?} is there twice", t.name), "give each type a name of its own");
            }
            if (t.num_nodes as u64).max(t.num_features as u64) >= 1 << 48 {
                return bad("node_types", format!("a count of {:?} is beyond any graph", t.name), "correct the count");
            }
            nodes += t.num_nodes as u64;
        }
        if !self.node_types.is_empty() && nodes != self.num_nodes as u64 {
            let problem = format!("the types have {nodes} nodes, num_nodes is {}", self.num_nodes);
            return bad("node_types", problem, "correct the counts: every node has one type");
        }
        Ok(())
    }
}

/// Maps the features of each type; nothing where no type has features of its own.
pub(super) fn map_features(dir: &Path, meta: &Meta) -> Result<Vec<Option<Features>>> {
    let features = meta.node_types.iter().map(|t| Features::map(&place(dir, t))).collect::<Result<Vec<_>>>()?;
    if features.iter().all(Option::is_none) {
        return Ok(Vec::new());
    }
    for name in ["feat.npy", "feat_indptr.npy"] {
        if dir.join(name).exists() {
            let problem = "there are features of all nodes, and of single types as well";
            return Err(Error::bad(dir.join(name), "feat", problem, "remove these, or all feat-*.npy"));
        }
    }
    Ok(features)
}

/// Where the features of a type are.
pub(super) fn place<'a>(dir: &'a Path, t: &NodeType) -> Place<'a> {
    Place {
        dir,
        stem: format!("feat-{}", t.name),
        rows: t.num_nodes,
        columns: t.num_features,
        count: format!("num_features of node type {}", t.name),
    }
}
