//! What a run works on.

use std::path::{Path, PathBuf};

use graphweft_base::progress::Progress;
use graphweft_graph::dataset::Labels;
use graphweft_graph::generate::Spec;
use graphweft_graph::{AnyCsr, SelfLoops};
use graphweft_train::config::Config;
use graphweft_train::data::Data;

use crate::dataset::Dataset;
use crate::error::Result;
use crate::setters::setters;

/// A graph to work on: a dataset folder, a graph to generate, or a [`Dataset`]; and what is done to it first. A text is
/// a folder if there is one of that name, or else a graph to generate if it has a colon, as `sbm:2000:5:10`.
///
/// ```
/// use graphweft::{Dataset, Input, Run, SelfLoops};
/// Run::new("sbm:60:3:4");                                   // generated
/// Run::new(Input::folder("a:b").symmetrise());              // a folder, whatever its name
/// Run::new(&Dataset::generate("sbm:60:3:4", 0)?);           // in memory
/// Run::new(Input::generate("sbm:60:3:4").seed(1).self_loops(SelfLoops::Add));
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Input {
    pub(crate) kind: Kind,
    /// Seed of a generated graph.
    pub(crate) seed: u64,
    pub(crate) symmetrised: bool,
    pub(crate) self_loops: SelfLoops,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// A folder, as it was named.
    Folder(PathBuf),
    /// A graph to generate.
    Spec(String),
    /// In memory.
    Memory(Dataset),
}

impl Input {
    fn new(kind: Kind) -> Self {
        Self { kind, seed: 0, symmetrised: false, self_loops: SelfLoops::Keep }
    }

    /// A dataset folder.
    pub fn folder(dir: impl AsRef<Path>) -> Self {
        Self::new(Kind::Folder(dir.as_ref().to_path_buf()))
    }

    /// A graph to generate, as [`Graph::generate`](crate::Graph::generate) does.
    pub fn generate(spec: &str) -> Self {
        Self::new(Kind::Spec(spec.into()))
    }

    setters! {
        /// Adds the reverse of every edge first.
        symmetrise => symmetrised = true,

        /// Another seed for a graph that is generated.
        seed: u64,

        /// Adds or removes edges from nodes to themselves first.
        self_loops: SelfLoops,
    }

    /// Puts it in place of what a configuration names, and gives what is in memory.
    pub(crate) fn apply(&self, config: &mut Config) -> Option<Dataset> {
        let data = &mut config.data;
        let memory;
        (data.path, data.graph, memory) = match &self.kind {
            Kind::Folder(path) => (Some(from_anywhere(path)), None, None),
            Kind::Spec(spec) => (None, Some(spec.clone()), None),
            Kind::Memory(dataset) => (None, None, Some(dataset.clone())),
        };
        memory
    }

    /// Opens or generates the graph and does to it what was asked for.
    pub(crate) fn open(&self, progress: &dyn Progress) -> Result<Opened> {
        let mut opened = match &self.kind {
            Kind::Folder(dir) => Opened::of(Dataset::open(dir)?)?,
            Kind::Memory(dataset) => Opened::of(dataset.clone())?,
            Kind::Spec(spec) => Opened::generated(&spec.parse()?, self.seed, progress)?,
        };
        if self.symmetrised && !opened.symmetric {
            opened.graph = opened.graph.map(|g| g.symmetrise(), |g| g.symmetrise());
            opened.symmetric = true;
        }
        let loops = self.self_loops;
        opened.graph = opened.graph.map(|g| g.with_self_loops(loops), |g| g.with_self_loops(loops));
        Ok(opened)
    }
}

/// A path that means the same from any folder.
pub(crate) fn from_anywhere(path: &Path) -> String {
    std::path::absolute(path).map_or_else(|_| path.to_string_lossy().into_owned(), |path| path.display().to_string())
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
    /// Where the rest is; `None` if it was generated.
    pub(crate) dataset: Option<Dataset>,
}

impl Opened {
    fn of(dataset: Dataset) -> Result<Self> {
        let meta = dataset.0.meta();
        Ok(Self {
            name: meta.name.clone(),
            graph: dataset.0.graph()?.clone(),
            symmetric: meta.symmetric,
            num_features: dataset.num_features(),
            num_classes: meta.num_classes,
            labels: dataset.0.checked_labels()?.cloned(),
            dataset: Some(dataset),
        })
    }

    fn generated(spec: &Spec, seed: u64, progress: &dyn Progress) -> Result<Self> {
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

/// Opens what is in memory, or what the configuration names.
pub(crate) fn open(memory: Option<&Dataset>, config: &Config, progress: &dyn Progress) -> Result<Data> {
    Ok(match memory {
        Some(dataset) => Data::of(&dataset.0, &config.data, &config.encoding)?,
        None => Data::open(&config.data, &config.encoding, progress)?,
    })
}

impl From<&str> for Input {
    fn from(text: &str) -> Self {
        if text.contains(':') && !Path::new(text).is_dir() { Self::generate(text) } else { Self::folder(text) }
    }
}

impl From<String> for Input {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<&Path> for Input {
    fn from(dir: &Path) -> Self {
        Self::folder(dir)
    }
}

impl From<PathBuf> for Input {
    fn from(dir: PathBuf) -> Self {
        Self::folder(dir)
    }
}

impl From<Dataset> for Input {
    fn from(dataset: Dataset) -> Self {
        match dataset.folder() {
            Some(dir) => Self::folder(dir),
            None => Self::new(Kind::Memory(dataset)),
        }
    }
}

impl From<&Dataset> for Input {
    fn from(dataset: &Dataset) -> Self {
        dataset.clone().into()
    }
}
