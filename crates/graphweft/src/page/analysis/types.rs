//! Types of nodes and edges: how many there are of each, as the dataset folder has them.

use std::ops::Range;

use graphweft_graph::Dataset;
use graphweft_train::data::Data;
use serde_json::{Value, json};

use crate::error::Result;

/// Those of a dataset; empty where it has none.
#[derive(Debug, Default)]
pub(super) struct Types {
    pub(super) nodes: Vec<Type>,
    /// Names, and how many there are.
    edges: Vec<(String, u64)>,
}

/// A type of nodes, whose ids are a range.
#[derive(Debug)]
pub(super) struct Type {
    pub(super) name: String,
    pub(super) nodes: Range<usize>,
}

impl Types {
    pub(super) fn of(data: &Data) -> Result<Self> {
        let Some(folder) = &data.folder else { return Ok(Self::default()) };
        let dataset = Dataset::open(folder)?;
        let meta = dataset.meta();
        let named = meta.node_types.iter().zip(meta.type_ranges());
        let nodes = named.map(|(t, nodes)| Type { name: t.name.clone(), nodes }).collect();
        let names = dataset.edge_type_names()?;
        let counts = dataset.edge_types()?.map_or(Vec::new(), |types| types.counts(names.len()));
        Ok(Self { nodes, edges: names.into_iter().zip(counts).collect() })
    }

    /// As the page reads them.
    pub(super) fn counts(&self) -> Value {
        let one = |name: &str, count: u64| json!({"name": name, "count": count});
        let nodes: Vec<Value> = self.nodes.iter().map(|t| one(&t.name, t.nodes.len() as u64)).collect();
        let edges: Vec<Value> = self.edges.iter().map(|(name, count)| one(name, *count)).collect();
        json!({"nodes": nodes, "edges": edges})
    }
}
