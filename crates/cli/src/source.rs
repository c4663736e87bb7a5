//! Where a verb takes its graph from, and what is done to it first: the same flags in every verb.

use std::path::PathBuf;

use clap::ValueEnum;
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

/// The graph to work on.
#[derive(clap::Args)]
pub(crate) struct Source {
    /// Dataset folder
    #[arg(long, value_name = "DIR")]
    data: PathBuf,

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
    /// The folder it came from.
    pub(crate) dataset: Option<Dataset>,
}

impl Source {
    /// Opens the graph and applies the requested changes.
    pub(crate) fn open(&self) -> anyhow::Result<Opened> {
        let dataset = Dataset::open(&self.data)?;
        let mut graph = dataset.graph().clone();
        if self.symmetrise && !dataset.meta().symmetric {
            graph = graph.map(|g| g.symmetrise(), |g| g.symmetrise());
        }
        let loops = self.self_loops.into();
        graph = graph.map(|g| g.with_self_loops(loops), |g| g.with_self_loops(loops));
        Ok(Opened { name: dataset.meta().name.clone(), graph, dataset: Some(dataset) })
    }
}
