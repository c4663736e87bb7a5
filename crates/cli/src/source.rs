//! Where a verb takes its graph from, and what is done to it first: the same flags in every verb.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use graphweft::{Input, SelfLoops};

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
    symmetrise: bool,

    /// What to do with self-loops first
    #[arg(long, value_enum, default_value_t, value_name = "WHAT")]
    self_loops: Loops,
}

impl Source {
    /// The dataset folder, if it is one.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.origin.data.as_deref()
    }

    /// The graph; `seed` is for the generator.
    pub(crate) fn input(&self, seed: u64) -> Input {
        let input = match (&self.origin.data, &self.origin.graph) {
            (Some(dir), _) => Input::folder(dir),
            (None, spec) => Input::generate(spec.as_deref().unwrap_or_default()),
        };
        let input = if self.symmetrise { input.symmetrise() } else { input };
        input.seed(seed).self_loops(self.self_loops.into())
    }
}
