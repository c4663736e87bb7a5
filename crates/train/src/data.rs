//! The data of a run: a dataset folder or a generated graph, changed as the configuration says and in no other way.

use std::path::PathBuf;

use graphweft_base::Error as Bad;
use graphweft_base::progress::Progress;
use graphweft_graph::dataset::{Dense, Features, LinkSplit, Split};
use graphweft_graph::generate::Spec;
use graphweft_graph::{AnyCsr, Buf, Csr, Dataset};
use graphweft_model::Target;
use graphweft_model::encoding::Encodings;

use crate::config::{DataConfig, Normalise};
use crate::error::{Error, Result};
use crate::task::{self, Labels, NodeClass, Task};

mod categories;
mod costs;
pub(crate) mod edges;
pub(crate) mod fingerprint;
mod learned;
mod links;
mod normalise;
pub(crate) mod random_split;
pub(crate) mod rows;
pub(crate) mod types;

pub use edges::EdgeFeatures;
use random_split::RandomSplit;
use types::Reverses;
pub use types::Types;

/// Splits that are taken where none is named, before others.
const PREFERRED: [&str; 2] = ["public", "default"];

/// A graph with everything that a run needs of it; rows are nodes in original order.
#[derive(Clone, Debug)]
pub struct Data {
    /// What people call it.
    pub name: String,
    /// Where it lies, unless it was generated.
    pub folder: Option<PathBuf>,
    /// The graph after the changes that were asked for.
    pub graph: Csr<u32>,
    /// Whether some edge goes one way only, as far as the data say.
    pub is_directed: bool,
    /// Node features, normalised if that was asked for.
    pub features: Features,
    /// Features of edges.
    pub edges: Option<EdgeFeatures>,
    /// Types of nodes and edges.
    pub types: Types,
    /// Positional encodings, row by row.
    pub encodings: Vec<f32>,
    /// Where one graph ends and the next begins, if there are many; what is predicted is then of graphs.
    pub graphs: Option<Buf<u64>>,
    /// What is predicted of the nodes.
    pub task: &'static dyn Task,
    /// What is known of that; `None` if nothing is.
    pub labels: Option<Labels>,
    /// Classes, or labels or numbers to predict per node.
    pub classes: usize,
    /// All splits.
    pub splits: Vec<Split>,
    /// Splits of links, where these are predicted; `splits` then has the same names and pairs.
    pub links: Vec<LinkSplit>,
    /// What relations are called.
    pub relation_names: Vec<String>,
}

/// What a graph is taken to have in a rehearsal if it has nothing and nobody says.
const WIDTH: usize = 128;
const CLASSES: usize = 40;

/// Columns that are assumed where nothing is read.
#[derive(Clone, Copy, Debug, Default)]
pub struct AssumedColumns {
    /// Of dense features.
    pub features: Option<usize>,
    /// Classes.
    pub classes: Option<usize>,
}

impl Data {
    /// Opens or generates what the configuration names, and computes where its nodes are.
    pub fn open(config: &DataConfig, encodings: &Encodings, progress: &dyn Progress) -> Result<Self> {
        let data = match (&config.path, &config.graph) {
            (Some(path), _) => Self::folder(&Dataset::open(path)?, config)?,
            (None, Some(spec)) => Self::generated(&spec.parse()?, config, progress)?,
            (None, None) => {
                let remedy = "name a dataset folder with --data, or a graph to generate with --graph";
                return Err(Error::setting("data.path", "there is no data", remedy));
            }
        };
        data.finished(config, encodings)
    }

    /// The same of a dataset that is at hand, whatever the configuration names.
    pub fn of(dataset: &Dataset, config: &DataConfig, encodings: &Encodings) -> Result<Self> {
        Self::folder(dataset, config)?.finished(config, encodings)
    }

    fn finished(self, config: &DataConfig, encodings: &Encodings) -> Result<Self> {
        let mut data = self.prepare(config)?;
        data.classes = data.task.classes_of(data.classes, config.embedding);
        data.encodings = encodings.compute(&data.graph, data.graphs.as_deref())?;
        Ok(data)
    }

    /// The same for a rehearsal, which reads no number. What is assumed counts, whatever the data
    /// has; a graph that has no features and no classes is given both.
    pub fn open_unread(
        config: &DataConfig,
        encodings: &Encodings,
        assumed: AssumedColumns,
        progress: &dyn Progress,
    ) -> Result<Self> {
        let width = assumed.features;
        if width == Some(0) {
            return Err(Error::setting("--features", "no model here does without features", "set 1 or more"));
        }
        let bare = match (&config.path, &config.graph) {
            (Some(path), _) => {
                let dataset = Dataset::open(path)?;
                match learned::has_features(&dataset, config) {
                    true if width.is_none() => None,
                    _ => Some((dataset.meta().name.clone(), narrow(&dataset)?)),
                }
            }
            (None, Some(spec)) => {
                let spec: Spec = spec.parse()?;
                let graph = || spec.graph(config.graph_seed, progress);
                let own = (spec.num_features() > 0 || learned::is_asked(config)) && width.is_none();
                if own { None } else { Some((spec.to_string(), graph()?)) }
            }
            (None, None) => None,
        };
        let Some((name, graph)) = bare else { return Self::open(config, encodings, progress) };
        let data = Self::unread(name, graph, width.unwrap_or(WIDTH), assumed.classes.unwrap_or(CLASSES));
        data.prepare(&DataConfig { normalise: Normalise::None, ..config.clone() })
    }

    /// The same of a dataset that is at hand.
    pub fn of_unread(
        dataset: &Dataset,
        config: &DataConfig,
        encodings: &Encodings,
        assumed: AssumedColumns,
    ) -> Result<Self> {
        let AssumedColumns { features, classes } = assumed;
        if learned::has_features(dataset, config) && features.is_none() {
            return Self::of(dataset, config, encodings);
        }
        let (width, classes) = (features.unwrap_or(WIDTH), classes.unwrap_or(CLASSES));
        let data = Self::unread(dataset.meta().name.clone(), narrow(dataset)?, width, classes);
        data.prepare(&DataConfig { normalise: Normalise::None, ..config.clone() })
    }

    /// A graph with features and labels that nobody will read.
    pub(crate) fn unread(name: String, graph: Csr<u32>, width: usize, classes: usize) -> Self {
        Self {
            name,
            folder: None,
            graph,
            is_directed: false,
            features: Features::Dense(Dense::F32 { values: Vec::new().into(), width }),
            edges: None,
            types: Types::default(),
            encodings: Vec::new(),
            graphs: None,
            task: &NodeClass,
            labels: None,
            classes,
            splits: Vec::new(),
            links: Vec::new(),
            relation_names: Vec::new(),
        }
    }

    /// Columns of the positional encodings.
    pub fn encoding_width(&self) -> usize {
        self.encodings.len() / self.graph.num_dst().max(1)
    }

    /// What a model predicts something of.
    pub fn target(&self) -> Target {
        if self.graphs.is_some() { Target::Graphs } else { Target::Nodes }
    }

    /// How many nodes, or graphs where there are many, something is predicted of.
    pub fn items(&self) -> usize {
        self.graphs.as_ref().map_or(self.graph.num_dst(), |ptr| ptr.len() - 1)
    }

    /// What a model gives for a node: so many numbers.
    pub fn outputs(&self) -> usize {
        self.task.outputs(self.classes)
    }

    fn folder(dataset: &Dataset, config: &DataConfig) -> Result<Self> {
        let (meta, task) = (dataset.meta(), config.task);
        let (types, features) = Types::of(dataset, config)?;
        let features = features.ok_or_else(|| {
            let remedy = "add features to the folder: graphweft import arrays --features, or a file feat.npy; or have \
                          rows learned: data.features=learned";
            Bad::bad(dataset.dir().join("feat.npy"), "features", "there are no node features", remedy)
        })?;
        let stored = match dataset.graphs() {
            None => dataset.checked_labels()?,
            Some(graphs) => graphs.labels.as_ref(),
        };
        let (task, labels) = match (stored, task) {
            (None, task) => {
                let triples = dataset.links().iter().any(|links| links.width == 3);
                let usual: &'static dyn Task = if triples { &task::Triple } else { task::without_labels(meta.task) };
                let unlabelled = usual.unlabelled();
                (task.filter(|_| unlabelled.is_none()).unwrap_or(usual), unlabelled)
            }
            (Some(stored), task) => {
                let asked = task.and_then(|task| Some((task, task.labels(stored)?)));
                let found = if task.is_some() { asked } else { task::for_labels(stored, meta.task) };
                let (task, labels) = found.ok_or_else(|| {
                    let name = task.map_or("any task", |task| task.name());
                    let problem = format!("these are no labels for {name}");
                    let file = label_file(dataset.graphs().map(|graphs| &graphs.ptr));
                    Bad::bad(dataset.dir().join(file), "label", problem, "store labels of its kind")
                })?;
                (task, Some(labels))
            }
        };
        Ok(Self {
            name: meta.name.clone(),
            folder: dataset.is_stored().then(|| dataset.dir().to_path_buf()),
            graph: narrow(dataset)?,
            is_directed: !meta.symmetric,
            features,
            edges: EdgeFeatures::of(dataset)?,
            types,
            encodings: Vec::new(),
            graphs: dataset.graphs().map(|graphs| graphs.ptr.clone()),
            task,
            labels,
            classes: meta.num_classes,
            splits: dataset.splits().iter().cloned().chain(dataset.links().iter().map(links::pairs)).collect(),
            links: dataset.links().to_vec(),
            relation_names: meta.edge_types.clone(),
        })
    }

    fn generated(spec: &Spec, config: &DataConfig, progress: &dyn Progress) -> Result<Self> {
        let (name, seed) = (spec.to_string(), config.graph_seed);
        spec.check_whole()?;
        let graph = spec.graph(seed, progress)?;
        let features = learned::features_of_spec(spec, config, &graph).ok_or_else(|| no_features(&name))?;
        let of_nodes = graph.num_dst();
        let found = spec.labels(seed).and_then(|stored| task::for_labels(&stored, stored.task()));
        let (task, labels) = found.map_or((&NodeClass as &dyn Task, None), |(task, labels)| (task, Some(labels)));
        Ok(Self {
            folder: None,
            graph,
            is_directed: false,
            features,
            edges: None,
            types: Types::none(if learned::is_asked(config) { of_nodes } else { 0 }),
            encodings: Vec::new(),
            graphs: None,
            task,
            labels,
            classes: spec.num_classes(),
            splits: spec.split(seed).into_iter().collect(),
            links: Vec::new(),
            relation_names: Vec::new(),
            name,
        })
    }

    fn prepare(mut self, config: &DataConfig) -> Result<Self> {
        let given = self.edges.is_some().then(|| self.graph.clone());
        let mut reverses = Reverses::None;
        if config.symmetrise && !self.graph.is_symmetric() {
            self.graph = self.graph.symmetrise();
            reverses = Reverses::Added;
        }
        self.is_directed &= !config.symmetrise;
        self.graph = self.graph.with_self_loops(config.self_loops.into());
        if let (Some(edges), Some(given)) = (&self.edges, given.filter(|given| *given != self.graph)) {
            self.edges = Some(edges.carried(&given, &self.graph)?);
        }
        self.types.prepare(config, reverses, &mut self.features);
        Ok(self)
    }

    /// The labels.
    ///
    /// # Errors
    /// If there are none.
    pub fn labels(&self) -> Result<&Labels> {
        self.labels.as_ref().ok_or_else(|| {
            let file = label_file(self.graphs.as_ref());
            let remedy = match self.graphs {
                None => "add labels to the folder: graphweft import arrays --labels, or a file label.npy",
                Some(_) => "add a file graph_label.npy to the folder, a label or a row of them for each graph",
            };
            self.lacks(file, "labels", "there are no labels to learn from", remedy).unwrap_or_else(|| {
                let what = format!("{} has no labels to learn from", self.name);
                Bad::request(what, "add label.npy to a folder, or generate a block model, e.g. sbm:2000:5:10").into()
            })
        })
    }

    /// An error about what a dataset folder does not have; `None` where the data were generated.
    pub(crate) fn lacks(&self, file: &str, field: &str, problem: &str, remedy: &str) -> Option<Error> {
        let folder = self.folder.as_ref()?;
        Some(Bad::bad(folder.join(file), field, problem, remedy).into())
    }

    /// The name of the split, or of the family of splits, that `wanted` means.
    ///
    /// # Errors
    /// If it is not there, or if nothing is wanted and there is no obvious one: the message lists what there is.
    pub fn split_name(&self, wanted: Option<&str>) -> Result<String> {
        let names: Vec<&str> = self.splits.iter().map(|s| s.name.as_str()).collect();
        let there = || match families(&names) {
            all if all.is_empty() => {
                "it has no split: draw one with --split random:60/20/20, or add split/NAME/{train,valid,test}.npy"
                    .into()
            }
            all => format!("choose one of {}, or draw one with --split random:60/20/20", all.join(", ")),
        };
        match wanted {
            Some(name) if names.contains(&name) => Ok(name.into()),
            Some(name) if RandomSplit::parse(name).is_some_and(|drawn| drawn.is_ok()) => Ok(name.into()),
            Some(name) if !self.members(name).is_empty() => Ok(name.into()),
            Some(name) => {
                let problem = format!("{} has no split {name:?}", self.name);
                Err(Error::setting("data.split", problem, there()))
            }
            None => {
                let preferred = PREFERRED.into_iter().find(|name| names.contains(name)).map(String::from);
                let only = || families(&names).into_iter().next().filter(|_| families(&names).len() == 1);
                preferred.or_else(only).ok_or_else(|| {
                    if let Some(none) = self.no_split().filter(|_| names.is_empty()) {
                        return none;
                    }
                    let problem = format!("{} has no split that is the obvious one", self.name);
                    Error::setting("data.split", problem, there())
                })
            }
        }
    }

    fn no_split(&self) -> Option<Error> {
        let remedy = "add split/NAME/{train,valid,test}.npy to the folder (graphweft import arrays --train …), or train with \
                      --split random:60/20/20";
        self.lacks("split", "splits", "there is no split to learn by", remedy)
    }

    /// The split for a seed: of a family, number `seed` modulo their count; a random one is drawn by it.
    pub fn split(&self, name: &str, seed: u64) -> Result<Split> {
        if let Some(split) = self.splits.iter().find(|s| s.name == name) {
            return Ok(split.clone());
        }
        if let Some(Ok(drawn)) = RandomSplit::parse(name) {
            self.links.first().map_or(Ok(()), |_| self.link_split(name).map(drop))?;
            return drawn.draw(name, self, seed);
        }
        let members = self.members(name);
        let count = members.len().max(1) as u64;
        let split = members.get((seed % count) as usize).map(|split| Split::clone(split));
        split.ok_or_else(|| {
            Error::setting("data.split", format!("{} has no split {name:?}", self.name), "choose one that is there")
        })
    }

    /// All splits in a few words: names, and numbered ones as one.
    pub fn split_names(&self) -> Vec<String> {
        families(&self.splits.iter().map(|s| s.name.as_str()).collect::<Vec<_>>())
    }

    /// The splits of a family `x-*`, by number.
    fn members(&self, family: &str) -> Vec<&Split> {
        let Some(stem) = family.strip_suffix('*') else { return Vec::new() };
        let number = |s: &Split| s.name.strip_prefix(stem).and_then(|rest| rest.parse::<u64>().ok());
        let mut all: Vec<(u64, &Split)> = self.splits.iter().filter_map(|s| Some((number(s)?, s))).collect();
        all.sort_by_key(|(number, _)| *number);
        all.into_iter().map(|(_, split)| split).collect()
    }
}

/// Where labels are stored: of nodes, or of graphs where there are many.
fn label_file(graphs: Option<&Buf<u64>>) -> &'static str {
    if graphs.is_some() { "graph_label.npy" } else { "label.npy" }
}

fn narrow(dataset: &Dataset) -> Result<Csr<u32>> {
    match dataset.graph()? {
        AnyCsr::Narrow(graph) => Ok(graph.clone()),
        AnyCsr::Wide(_) => {
            let what = format!("{} has more than 2³² nodes", dataset.meta().name);
            Err(Bad::request(what, "divide it among ranks").into())
        }
    }
}

fn no_features(spec: &str) -> Error {
    let what = format!("{spec} has no node features");
    Bad::request(what, "generate a block model, e.g. sbm:2000:5:10, or name a dataset folder with --data").into()
}

/// Names with numbered ones as `stem-*`, each once.
fn families(names: &[&str]) -> Vec<String> {
    let family = |name: &&str| match name.rsplit_once('-') {
        Some((stem, number)) if number.parse::<u64>().is_ok() => format!("{stem}-*"),
        _ => (*name).to_string(),
    };
    let mut all: Vec<String> = names.iter().map(family).collect();
    all.sort();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use graphweft_base::progress::Silent;

    use super::*;
    use crate::config::Loops;

    fn open(change: impl FnOnce(&mut DataConfig)) -> Result<Data> {
        let mut config = DataConfig { graph: Some("sbm:60:3:4:f=8".into()), ..Default::default() };
        change(&mut config);
        Data::open(&config, &Encodings::default(), &Silent)
    }

    fn named(names: &[&str]) -> Data {
        let mut data = open(|_| {}).unwrap();
        let split = data.splits[0].clone();
        data.splits = names.iter().map(|name| Split { name: (*name).into(), ..split.clone() }).collect();
        data
    }

    #[test]
    fn nothing_changes_unless_it_is_asked_for() {
        let spec: Spec = "sbm:60:3:4:f=8".parse().unwrap();
        let data = open(|_| {}).unwrap();
        assert_eq!(data.graph, spec.graph(0, &Silent).unwrap());
        assert_eq!(Some(&data.features), spec.features(0).as_ref());
        let looped = open(|c| c.self_loops = Loops::Add).unwrap();
        assert_eq!(looped.graph.num_self_loops(), 60);
        assert_ne!(open(|c| c.graph_seed = 1).unwrap().graph, data.graph);
    }

    #[test]
    fn the_obvious_split_is_taken_and_otherwise_all_are_listed() {
        for (names, obvious) in [
            (&["polynormer"][..], Some("polynormer")),
            (&["geomgcn-0", "geomgcn-1", "public"], Some("public")),
            (&["public-0", "public-1", "public-10", "public-2"], Some("public-*")),
            (&["a", "b-0", "b-1"], None),
            (&[], None),
        ] {
            let found = named(names).split_name(None);
            match obvious {
                Some(name) => assert_eq!(found.unwrap(), name),
                None => assert!(found.unwrap_err().to_string().contains("data.split")),
            }
        }
        let data = named(&["a", "b-0", "b-1"]);
        let message = data.split_name(Some("c")).unwrap_err().to_string();
        assert!(message.contains("no split \"c\"") && message.contains("a, b-*"), "{message}");
        let message = named(&[]).split_name(None).unwrap_err().to_string();
        assert!(message.contains("no split: draw one with --split random:60/20/20"), "{message}");
    }

    #[test]
    fn a_seed_takes_its_split_of_a_family_in_the_order_of_numbers() {
        let data = named(&["b-0", "b-1", "b-10", "b-2", "other"]);
        assert_eq!(data.split_name(Some("b-*")).unwrap(), "b-*");
        for (seed, name) in [(0, "b-0"), (2, "b-2"), (3, "b-10"), (4, "b-0")] {
            assert_eq!(data.split("b-*", seed).unwrap().name, name);
        }
        assert_eq!(data.split("other", 3).unwrap().name, "other");
        assert!(data.split("x", 0).is_err());
    }

    #[test]
    fn what_cannot_be_trained_on_is_refused_with_a_remedy() {
        for (graph, part) in [(None, "no data"), (Some("grid:3:3"), "no node features"), (Some("gird:3"), "gird")] {
            let message = open(|c| c.graph = graph.map(String::from)).unwrap_err().to_string();
            assert!(message.contains(part) && message.contains("remedy"), "{message}");
        }
        let message = open(|c| (c.path, c.graph) = (Some("/nowhere".into()), None)).unwrap_err().to_string();
        assert!(message.contains("/nowhere"), "{message}");
        let mut data = open(|_| {}).unwrap();
        data.labels = None;
        assert!(data.labels().unwrap_err().to_string().contains("label.npy"));
    }
}
