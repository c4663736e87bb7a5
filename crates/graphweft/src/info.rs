//! A graph in numbers.

mod partitions;
mod plot;

use std::path::Path;
use std::sync::Arc;

use graphweft_graph::dataset::{Features, Split};
use graphweft_graph::stats::{Components, Degrees, class_counts, components, degrees, edge_homophily};
use graphweft_graph::{AnyCsr, with_csr};
use serde_json::{Value, json};

use crate::amount::count;
use crate::dataset::{Dataset, TypeCount};
use crate::error::Result;
use crate::input::Input;
use crate::observe::{Observer, Watched};
use plot::Panel;

pub use partitions::Trial;

/// A graph in numbers.
///
/// ```
/// use graphweft::Info;
/// let info = Info::of("grid:3:4")?;
/// assert_eq!((info.nodes, info.edges, info.components), (12, 34, 1));
/// assert_eq!((info.degree.max, info.degree.median), (4, 3));
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Info {
    /// What people call it.
    pub name: String,
    /// Nodes.
    pub nodes: usize,
    /// Edges; one that goes both ways counts twice.
    pub edges: usize,
    /// Columns of the features; 0 if there are none.
    pub features: usize,
    /// Classes, or labels per node; 0 if there are no labels.
    pub classes: usize,
    /// Whether each edge stands beside its reverse.
    pub symmetric: bool,
    /// Edges from a node to itself.
    pub self_loops: u64,
    /// Edges that repeat another one.
    pub parallel_edges: u64,
    /// Components that edges connect, in whatever direction.
    pub components: u64,
    /// Nodes of the largest one.
    pub largest_component: u64,
    /// Nodes without edges.
    pub isolated: u64,
    /// The share of edges between nodes of the same class, if there are labels.
    pub homophily: Option<f64>,
    /// In-degrees.
    pub degree: Degree,
    /// The share of features that are not zero.
    pub feature_density: Option<f64>,
    /// Nodes of each class.
    pub class_counts: Vec<u64>,
    /// Types of nodes; empty where they have none.
    pub node_types: Vec<TypeCount>,
    /// Types of edges; empty where they have none. They are those of the folder, whatever is done to the graph.
    pub edge_types: Vec<TypeCount>,
    /// Splits: the name of each, and how many nodes it has to learn from, to choose by and to report on.
    ///
    /// ```
    /// let data = graphweft::Dataset::generate("sbm:60:3:4:f=8", 0)?;
    /// let (_name, nodes) = &graphweft::Info::of(&data)?.splits[0];
    /// assert_eq!(nodes.iter().sum::<usize>(), 60);
    /// # Ok::<(), graphweft::Error>(())
    /// ```
    pub splits: Vec<(String, [usize; 3])>,
    /// What dividing it costs; see [`Info::survey`].
    pub partitions: Vec<Trial>,
    degrees: Degrees,
    graph: AnyCsr,
}

/// In-degrees of a graph.
///
/// ```
/// assert_eq!(graphweft::Info::of("grid:3:3")?.degree.zero, 0);
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Degree {
    /// The mean.
    pub mean: f64,
    /// Half of the nodes have at most this one.
    pub median: u64,
    /// 99 % of the nodes have at most this one.
    pub p99: u64,
    /// The largest.
    pub max: u64,
    /// Nodes without edges into them.
    pub zero: u64,
}

impl Info {
    /// Opens or generates a graph and counts.
    ///
    /// # Errors
    /// If it cannot be opened or generated.
    pub fn of(input: impl Into<Input>) -> Result<Self> {
        Self::watched_by(input, Arc::new(()))
    }

    /// The same with somebody who watches.
    ///
    /// # Errors
    /// As [`Info::of`].
    pub fn watched_by(input: impl Into<Input>, observer: Arc<dyn Observer>) -> Result<Self> {
        let opened = input.into().open(&Watched::of(observer))?;
        let labels = opened.labels.as_ref();
        let features = opened.dataset.as_ref().and_then(|data| data.0.features());
        let graph = &opened.graph;
        let found = with_csr!(graph, g => degrees(g));
        let Components { count, largest, isolated, .. } = with_csr!(graph, g => components(g));
        let sizes = |s: &Split| (s.name.clone(), [s.train.len(), s.valid.len(), s.test.len()]);
        let splits = opened.dataset.iter().flat_map(|data| data.0.splits()).map(sizes);
        Ok(Self {
            nodes: graph.num_nodes(),
            edges: graph.num_edges(),
            features: opened.num_features,
            classes: opened.num_classes,
            symmetric: opened.symmetric,
            self_loops: with_csr!(graph, g => g.num_self_loops() as u64),
            parallel_edges: with_csr!(graph, g => g.num_parallel_edges() as u64),
            components: count,
            largest_component: largest,
            isolated,
            homophily: labels.and_then(|l| with_csr!(graph, g => edge_homophily(g, l))),
            degree: Degree {
                mean: found.mean(),
                median: found.quantile(0.5),
                p99: found.quantile(0.99),
                max: found.max(),
                zero: found.zero(),
            },
            feature_density: features.map(Features::density),
            class_counts: labels.map_or(Vec::new(), |l| class_counts(l, opened.num_classes)),
            node_types: opened.dataset.as_ref().map_or_else(Vec::new, Dataset::node_types),
            edge_types: opened.dataset.as_ref().map_or_else(|| Ok(Vec::new()), Dataset::edge_types)?,
            splits: splits.collect(),
            partitions: Vec::new(),
            degrees: found,
            name: opened.name,
            graph: opened.graph,
        })
    }

    /// Tries every partitioner at 2, 4, 8 and 16 parts.
    ///
    /// # Errors
    /// If the graph cannot be divided.
    pub fn survey(&mut self, seed: u64, observer: Arc<dyn Observer>) -> Result<()> {
        self.partitions = partitions::survey(&self.graph, seed, &Watched::of(observer))?;
        Ok(())
    }

    /// Draws the degrees and, after [`Info::survey`], the sizes of parts as SVG.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn plot(&self, path: impl AsRef<Path>) -> Result<()> {
        let (nodes, edges) = (count(self.nodes as u64), count(self.edges as u64));
        let title = format!("{}: {nodes} nodes, {edges} edges", self.name);
        let name = if self.symmetric { "degree" } else { "in-degree" };
        let mut panels = vec![Panel::Degrees { degrees: &self.degrees, name }];
        let trials = partitions::drawn(&self.partitions);
        if !trials.is_empty() {
            panels.push(Panel::Parts(trials));
        }
        plot::write(path.as_ref(), &title, &panels)
    }

    /// As `graphweft info --json` prints it.
    pub fn to_json(&self) -> Value {
        let histogram: Vec<Value> = (self.degrees.log_bins().iter())
            .map(|bin| json!({"from": bin.from, "to": bin.to, "nodes": bin.nodes}))
            .collect();
        let splits: Vec<Value> = (self.splits.iter())
            .map(|(name, [train, valid, test])| json!({"name": name, "train": train, "valid": valid, "test": test}))
            .collect();
        let types = |all: &[TypeCount], count: &str| -> Vec<Value> {
            let of = |t: &TypeCount| match t.features {
                0 => json!({"name": t.name, count: t.count}),
                columns => json!({"name": t.name, count: t.count, "features": columns}),
            };
            all.iter().map(of).collect()
        };
        let mut all = json!({
            "name": self.name,
            "nodes": self.nodes,
            "edges": self.edges,
            "features": self.features,
            "classes": self.classes,
            "symmetric": self.symmetric,
            "self_loops": self.self_loops,
            "parallel_edges": self.parallel_edges,
            "components": self.components,
            "largest_component": self.largest_component,
            "isolated": self.isolated,
            "homophily": self.homophily,
            "degree": {
                "mean": self.degree.mean,
                "median": self.degree.median,
                "p99": self.degree.p99,
                "max": self.degree.max,
                "zero": self.degree.zero,
                "histogram": histogram,
            },
            "feature_density": self.feature_density,
            "class_counts": self.class_counts,
            "splits": splits,
            "partitions": partitions::json(&self.partitions),
        });
        for (key, found, count) in
            [("node_types", &self.node_types, "nodes"), ("edge_types", &self.edge_types, "edges")]
        {
            if !found.is_empty() {
                all[key] = types(found, count).into();
            }
        }
        all
    }
}
