//! Where a verb takes its graph from, and what is done to it first: the same flags in every verb.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use graphweft_graph::dataset::{Features, Labels};
use graphweft_graph::generate::Spec;
use graphweft_graph::progress::Progress;
use graphweft_graph::{AnyCsr, Dataset, SelfLoops};

/// What to do with edges from a node to itself.
#[derive(Clone, Copy, Default, ValueEnum)]
pub(crate) enum Loops {
    /// Leave them as they are
    #[default]
    Keep,
    /// Give every node exactly one
    Add,
    /// Take all of them away
    Remove,
}

impl From<Loops> for SelfLoops {
    fn from(loops: Loops) -> Self {
        match loops {
            Loops::Keep => Self::Keep,
            Loops::Add => Self::Add,
            Loops::Remove => Self::Remove,
        }
    }
}

/// Where the graph comes from: exactly one of these.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct Origin {
    /// Dataset folder
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,

    /// Graph to generate: rmat:S:D, sbm:N:C:D, grid:R:C or ba:N:M, each optionally with +loops
    #[arg(long, value_name = "SPEC")]
    graph: Option<String>,
}

/// The graph to work on.
#[derive(clap::Args)]
pub(crate) struct Source {
    #[command(flatten)]
    origin: Origin,

    /// Add the reverse of every edge first
    #[arg(long)]
    pub(crate) symmetrise: bool,

    /// What to do with self-loops first
    #[arg(long, value_enum, default_value_t, value_name = "WHAT")]
    self_loops: Loops,
}

/// A graph ready to work on.
pub(crate) struct Opened {
    /// What people call it.
    pub(crate) name: String,
    /// The graph after the requested changes.
    pub(crate) graph: AnyCsr,
    /// Whether each edge stands beside its reverse.
    pub(crate) symmetric: bool,
    /// Columns of the node features; 0 if there are none.
    pub(crate) num_features: usize,
    /// Classes; 0 if there are no labels.
    pub(crate) num_classes: usize,
    /// Node labels, if there are any.
    pub(crate) labels: Option<Labels>,
    /// The folder it came from; `None` if it was generated.
    pub(crate) dataset: Option<Dataset>,
}

impl Source {
    /// The dataset folder, if it is one.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.origin.data.as_deref()
    }

    /// What is done to self-loops.
    pub(crate) fn self_loops(&self) -> SelfLoops {
        self.self_loops.into()
    }

    /// Opens or generates the graph and applies the requested changes. `seed` is for the generator.
    pub(crate) fn open(&self, seed: u64, progress: &dyn Progress) -> anyhow::Result<Opened> {
        let mut opened = match (&self.origin.data, &self.origin.graph) {
            (Some(dir), _) => Opened::folder(Dataset::open(dir)?)?,
            (None, spec) => Opened::generated(&spec.as_deref().unwrap_or_default().parse()?, seed, progress)?,
        };
        if self.symmetrise && !opened.symmetric {
            opened.graph = opened.graph.map(|g| g.symmetrise(), |g| g.symmetrise());
            opened.symmetric = true;
        }
        let loops = self.self_loops.into();
        opened.graph = opened.graph.map(|g| g.with_self_loops(loops), |g| g.with_self_loops(loops));
        Ok(opened)
    }
}

impl Opened {
    fn folder(dataset: Dataset) -> anyhow::Result<Self> {
        let meta = dataset.meta();
        Ok(Self {
            name: meta.name.clone(),
            graph: dataset.graph()?.clone(),
            symmetric: meta.symmetric,
            num_features: dataset.features().map_or(0, Features::width),
            num_classes: meta.num_classes,
            labels: dataset.labels().cloned(),
            dataset: Some(dataset),
        })
    }

    fn generated(spec: &Spec, seed: u64, progress: &dyn Progress) -> anyhow::Result<Self> {
        Ok(Self {
            name: spec.to_string(),
            graph: spec.graph(seed, progress)?.into(),
            symmetric: true,
            num_features: spec.num_features(),
            num_classes: spec.num_classes(),
            labels: spec.labels(seed),
            dataset: None,
        })
    }
}
