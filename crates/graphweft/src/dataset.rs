//! Graphs with features, labels and splits: folders, or arrays in memory.

mod builder;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use graphweft_base::progress::Silent;
use graphweft_graph::dataset::{self, Codes, Dense, Features, Labels, LinkSplit, NodeType, Parts};
use graphweft_graph::export;
use graphweft_graph::generate::Spec;
use serde_json::json;

use crate::error::Result;
use crate::graph::Graph;
use crate::memory;
use crate::observe::{Observer, Watched};
use crate::stored::Stored;

pub use builder::DatasetBuilder;

/// What labels are for.
///
/// ```
/// use graphweft::{ArrayFiles, DatasetTask, Import};
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = |name: &str| dir.path().join(name);
/// std::fs::write(path("edges.csv"), "0,1\n").unwrap();
/// std::fs::write(path("values.csv"), "0.5\n1.5\n").unwrap();
/// let task = DatasetTask::NodeRegression;
/// let files = ArrayFiles { edges: path("edges.csv"), labels: Some(path("values.csv")), task, ..Default::default() };
/// assert_eq!(Import::arrays(files).write(path("data"))?.classes, 1);
/// # Ok::<(), graphweft::Error>(())
/// ```
pub use graphweft_graph::dataset::Task as DatasetTask;

/// A graph with what is known of its nodes: features, labels and splits. It is a folder of `.npy` files that is mapped,
/// or arrays in memory; either way every element was checked. Cheap to clone, and may be sent to other threads.
///
/// ```
/// use graphweft::{Dataset, Graph, Run, Split};
/// # let dir = tempfile::tempdir().unwrap();
/// // A ring of six nodes in two classes.
/// let next: Vec<u32> = (0..6).map(|k| (k + 1) % 6).collect();
/// let graph = Graph::from_edges(6, &[0, 1, 2, 3, 4, 5], &next)?.symmetrise();
/// let data = Dataset::builder("ring", &graph)
///     .features(2, vec![1., 0., 1., 0., 1., 0., 0., 1., 0., 1., 0., 1.])
///     .labels(vec![0, 0, 0, 1, 1, 1])
///     .split(Split::new("own", vec![0, 3], vec![1, 4], vec![2, 5]))
///     .build()?;
/// let report = Run::new(&data).epochs(5).output(dir.path().join("run")).train()?;
/// assert_eq!(report.graph, "ring");
///
/// data.save(dir.path().join("ring"))?;
/// assert_eq!(Dataset::open(dir.path().join("ring"))?.labels(), data.labels());
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone)]
pub struct Dataset(pub(crate) Arc<dataset::Dataset>);

impl Dataset {
    /// Opens a dataset folder. It is checked element by element the first time, and after it was changed.
    ///
    /// # Errors
    /// With the file, the field and the position of the first thing that is wrong.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        Ok(Self(Arc::new(dataset::Dataset::open(dir)?)))
    }

    /// Generates one, as [`Graph::generate`] does; `sbm:…` has features, labels and a split.
    ///
    /// ```
    /// let data = graphweft::Dataset::generate("sbm:60:3:4:f=8", 0)?;
    /// assert_eq!((data.num_features(), data.num_classes()), (8, 3));
    /// # Ok::<(), graphweft::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such generator, or it does not fit into memory.
    pub fn generate(spec: &str, seed: u64) -> Result<Self> {
        let spec: Spec = spec.parse()?;
        spec.check_whole()?;
        Ok(Self(Arc::new(dataset::Dataset::in_memory(Parts {
            features: spec.features(seed),
            labels: spec.labels(seed),
            classes: spec.num_classes(),
            splits: spec.split(seed).into_iter().collect(),
            ..Parts::new(spec.to_string(), spec.graph(seed, &Silent)?.into())
        })?)))
    }

    /// Generates one and writes it as a folder, piece by piece: it may have more features than memory has room for.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// let folder = dir.path().join("blocks");
    /// let made = graphweft::Dataset::generate_into("sbm:60:3:4:f=8", 0, &folder, std::sync::Arc::new(()))?;
    /// assert_eq!((made.nodes, graphweft::Dataset::open(&folder)?.num_nodes()), (60, 60));
    /// # Ok::<(), graphweft::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Dataset::generate`]; if the folder exists, or cannot be written.
    pub fn generate_into(spec: &str, seed: u64, dir: impl AsRef<Path>, observer: Arc<dyn Observer>) -> Result<Stored> {
        let spec: Spec = spec.parse()?;
        let (started, dir) = (Instant::now(), dir.as_ref());
        let meta = spec.write(seed, dir, &Watched::of(observer))?;
        let (seconds, peak_bytes) = (started.elapsed().as_secs_f64(), memory::peak_bytes());
        let json = json!({
            "graph": meta.name, "seed": seed, "nodes": meta.num_nodes, "edges": meta.num_edges,
            "features": meta.num_features, "classes": meta.num_classes, "seconds": seconds,
            "edges_per_second": meta.num_edges as f64 / seconds, "peak_bytes": peak_bytes,
            "path": dir.display().to_string(),
        });
        Ok(Stored {
            path: dir.to_path_buf(),
            name: meta.name,
            nodes: meta.num_nodes,
            edges: meta.num_edges,
            edges_read: meta.num_edges as u64,
            features: meta.num_features,
            classes: meta.num_classes,
            symmetric: meta.symmetric,
            splits: spec.split(seed).into_iter().map(|split| split.name).collect(),
            seconds,
            peak_bytes,
            notes: Vec::new(),
            json,
        })
    }

    /// Begins one from arrays in memory: its name and its graph, to which the builder adds the rest.
    pub fn builder(name: &str, graph: &Graph) -> DatasetBuilder {
        let parts = Parts::new(name, (*graph.0).clone());
        DatasetBuilder::of(parts)
    }

    /// Writes it as a folder.
    ///
    /// # Errors
    /// If the folder exists, or cannot be written.
    pub fn save(&self, dir: impl AsRef<Path>) -> Result<()> {
        Ok(self.0.save(dir.as_ref())?)
    }

    /// Writes it in a format of other programs: a folder of `csv`, `tsv` or `parquet` tables with a `schema.toml`,
    /// which [`Import::schema`](crate::Import::schema) reads back; an `npz` of arrays; or a `metis` graph. Of several
    /// splits, `split` or the first is written. Says what was left out.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let folder = dir.path().join("tables");
    /// let data = graphweft::Dataset::generate("sbm:60:3:4:f=8", 0)?;
    /// data.export("csv", &folder, None)?;
    /// let again = graphweft::Import::tables().schema(folder.join("schema.toml")).write(dir.path().join("again"))?;
    /// assert_eq!((again.nodes, again.edges, again.features), (60, data.num_edges(), 8));
    /// # Ok::<(), graphweft::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is no such format, it cannot hold the data, `path` exists, or it cannot be written.
    pub fn export(&self, format: &str, path: impl AsRef<Path>, split: Option<&str>) -> Result<Vec<String>> {
        Ok(export::write(&self.0, export::Format::named(format)?, path.as_ref(), split)?)
    }

    /// What people call it.
    pub fn name(&self) -> &str {
        &self.0.meta().name
    }

    /// Where it lies; `None` if it is in memory.
    pub fn folder(&self) -> Option<&Path> {
        self.0.is_stored().then(|| self.0.dir())
    }

    /// The graph. Its arrays are shared with the dataset.
    ///
    /// # Errors
    /// If a folder was changed since it was checked, so that an id is out of range.
    pub fn graph(&self) -> Result<Graph> {
        Ok(Graph(Arc::new(self.0.graph()?.clone())))
    }

    /// Nodes.
    pub fn num_nodes(&self) -> usize {
        self.0.meta().num_nodes
    }

    /// Edges; one that goes both ways counts twice.
    pub fn num_edges(&self) -> usize {
        self.0.meta().num_edges
    }

    /// Columns of the features; 0 if there are none.
    pub fn num_features(&self) -> usize {
        self.0.features().map_or(0, Features::width)
    }

    /// Classes, or labels per node or graph; 0 if there are no labels.
    pub fn num_classes(&self) -> usize {
        self.0.meta().num_classes
    }

    /// Dense features, row by row, as they are stored; `None` if they are sparse, of half precision, or missing.
    pub fn features(&self) -> Option<&[f32]> {
        match self.0.features() {
            Some(Features::Dense(Dense::F32 { values, .. })) => Some(values),
            _ => None,
        }
    }

    /// Sparse features; `None` if they are dense, or missing.
    pub fn sparse_features(&self) -> Option<SparseRows<'_>> {
        match self.0.features() {
            Some(Features::Sparse(m)) => {
                Some(SparseRows { indptr: &m.indptr, indices: &m.indices, values: m.data.as_deref() })
            }
            _ => None,
        }
    }

    /// Features of edges in the order of [`Graph::indices`], row by row; `None` if there are none.
    pub fn edge_features(&self) -> Option<&[f32]> {
        match self.0.edge_features() {
            Some(Dense::F32 { values, .. }) => Some(values),
            _ => None,
        }
    }

    /// Columns of the features of edges; 0 if there are none.
    pub fn num_edge_features(&self) -> usize {
        self.0.edge_features().map_or(0, Dense::width)
    }

    /// Categories of nodes, row by row, and how many each column has; `None` if there are none.
    pub fn categories(&self) -> Option<(Vec<u16>, &[u32])> {
        self.0.categories().map(|categories| (categories.values(), categories.sizes()))
    }

    /// Where there are many graphs, the first node of each, and how many nodes there are; `None` if there is one.
    /// Labels and splits are then those of graphs.
    pub fn graphs(&self) -> Option<&[u64]> {
        self.0.graphs().map(|graphs| &graphs.ptr[..])
    }

    /// What is predicted.
    pub fn task(&self) -> DatasetTask {
        self.0.meta().task
    }

    /// Labels of nodes, or of graphs where there are many, as they are stored.
    fn stored_labels(&self) -> Option<&Labels> {
        self.0.graphs().map_or(self.0.labels(), |graphs| graphs.labels.as_ref())
    }

    /// The class of every node, or graph where there are many, −1 where it is not known; `None` if they have several
    /// labels each, or none.
    pub fn labels(&self) -> Option<&[i64]> {
        match self.stored_labels() {
            Some(Labels::Single(labels)) => Some(labels),
            _ => None,
        }
    }

    /// For nodes, or graphs, with several labels each, a row of 0 and 1 for every one, NaN where it is not known.
    pub fn label_rows(&self) -> Option<Vec<f32>> {
        match self.stored_labels() {
            Some(Labels::MultiU8(labels)) => Some(labels.iter().map(|label| f32::from(*label)).collect()),
            Some(Labels::MultiF32(labels)) => Some(labels.to_vec()),
            _ => None,
        }
    }

    /// For regression, a row of numbers to predict for every node, or graph, NaN where one is not known.
    pub fn values(&self) -> Option<&[f32]> {
        match self.stored_labels() {
            Some(Labels::Values(values)) => Some(values),
            _ => None,
        }
    }

    /// Types of nodes, in the order of ids; empty where nodes have none.
    pub fn node_types(&self) -> Vec<TypeCount> {
        let of = |t: &NodeType| TypeCount { name: t.name.clone(), count: t.num_nodes as u64, features: t.num_features };
        self.0.meta().node_types.iter().map(of).collect()
    }

    /// Types of edges; empty where edges have none.
    ///
    /// # Errors
    /// As [`Dataset::graph`].
    pub fn edge_types(&self) -> Result<Vec<TypeCount>> {
        let Some(types) = self.0.edge_types()? else { return Ok(Vec::new()) };
        let names = self.0.edge_type_names()?;
        let counts = types.counts(names.len());
        Ok(names.into_iter().zip(counts).map(|(name, count)| TypeCount { name, count, features: 0 }).collect())
    }

    /// The type of each edge in the order of [`Graph::indices`], as a number; empty where edges have none.
    ///
    /// # Errors
    /// As [`Dataset::graph`].
    pub fn type_of_edges(&self) -> Result<Vec<u16>> {
        Ok(self.0.edge_types()?.map_or_else(Vec::new, Codes::to_vec))
    }

    /// Dense features of a type of nodes, by its number, row by row; `None` where it has none of its own, or sparse
    /// ones.
    pub fn features_of_type(&self, number: usize) -> Option<&[f32]> {
        match self.0.features_by_type().get(number)? {
            Some(Features::Dense(Dense::F32 { values, .. })) => Some(values),
            _ => None,
        }
    }

    /// All splits of nodes, or graphs, by name.
    pub fn splits(&self) -> Vec<Split> {
        self.0.splits().iter().map(Split::from).collect()
    }

    /// The ids of all splits of nodes, or graphs, where they are: of train, valid and test, with the name.
    pub fn split_ids(&self) -> Vec<(&str, [&[i64]; 3])> {
        self.0.splits().iter().map(|split| (&*split.name, split.parts().map(|(_, ids)| &ids[..]))).collect()
    }

    /// Numbers of a link: two nodes, or head, relation and tail.
    pub fn link_width(&self) -> usize {
        self.0.links().first().map_or(2, |links| links.width)
    }

    /// All splits of links, by name: pairs of nodes, one after the other, or triples.
    pub fn links(&self) -> Vec<Split> {
        let of = |links: &LinkSplit| {
            let split = Split::new(&links.name, links.train.to_vec(), links.valid.to_vec(), links.test.to_vec());
            let [valid, test] = [&links.valid_neg, &links.test_neg].map(|pairs| pairs.as_ref().map(|p| p.to_vec()));
            Split { no_links: [valid, test], ..split }
        };
        self.0.links().iter().map(of).collect()
    }
}

impl fmt::Debug for Dataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dataset({}: {} nodes, {} edges)", self.name(), self.num_nodes(), self.num_edges())
    }
}

/// Sparse features: those of node `i` are in columns `indices[indptr[i]..indptr[i + 1]]`.
///
/// ```
/// use graphweft::{Dataset, Graph};
/// let data = Dataset::builder("two", &Graph::from_edges(2, &[0], &[1])?)
///     .sparse_features(5, vec![0, 2, 3], vec![0, 4, 1], None)
///     .build()?;
/// let rows = data.sparse_features().unwrap();
/// assert_eq!((rows.indices, rows.values), (&[0, 4, 1][..], None));
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct SparseRows<'a> {
    /// Where the columns of every node begin, and where the last ones end.
    pub indptr: &'a [u64],
    /// Columns, ascending in a row.
    pub indices: &'a [u32],
    /// Values; `None` if all of them are 1.
    pub values: Option<&'a [f32]>,
}

/// A type of nodes or of edges.
///
/// ```
/// let data = graphweft::Dataset::generate("sbm:60:3:4:f=8", 0)?;
/// assert!(data.node_types().is_empty() && data.edge_types()?.is_empty());
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TypeCount {
    /// Its name.
    pub name: String,
    /// Nodes, or edges.
    pub count: u64,
    /// Columns of its own features; 0 where it has none.
    pub features: usize,
}

/// Three sets of nodes, of graphs, or of pairs of nodes: to learn from, to choose the best epoch by, and to report on.
///
/// ```
/// let split = graphweft::Split::new("own", vec![0, 3], vec![1], vec![2]);
/// assert_eq!((split.name.as_str(), split.test.len()), ("own", 1));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Split {
    /// Its name.
    pub name: String,
    /// Nodes to learn from.
    pub train: Vec<i64>,
    /// Nodes to choose by.
    pub valid: Vec<i64>,
    /// Nodes to report on.
    pub test: Vec<i64>,
    /// Where these are pairs of nodes, pairs that are no links, to choose by and to report on.
    pub no_links: [Option<Vec<i64>>; 2],
}

impl Split {
    /// A split of these nodes.
    pub fn new(name: &str, train: Vec<i64>, valid: Vec<i64>, test: Vec<i64>) -> Self {
        Self { name: name.into(), train, valid, test, no_links: [None, None] }
    }

    /// Of links: pairs that are no links, to choose by and to report on.
    #[must_use]
    pub fn no_links(mut self, valid: Option<Vec<i64>>, test: Option<Vec<i64>>) -> Self {
        self.no_links = [valid, test];
        self
    }
}

impl From<&dataset::Split> for Split {
    fn from(s: &dataset::Split) -> Self {
        Self::new(&s.name, s.train.to_vec(), s.valid.to_vec(), s.test.to_vec())
    }
}
