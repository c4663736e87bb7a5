//! Dividing graphs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use graphweft_graph::chunks::{self, Chunks, Recipe};
use graphweft_graph::dataset::Features;
use graphweft_graph::partition::{self, About, Existing, Options, check_target, folder, save, statistics};
use graphweft_graph::with_csr;
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::input::{Input, Kind};
use crate::memory;
use crate::observe::{Observer, Watched};
use crate::setters::setters;
use crate::stored::Stored;

/// What [`Partition::balance`] takes.
///
/// ```
/// use graphweft::{Balance, Partition};
/// let made = Partition::of("rmat:6:4", 2).balance(Balance::Edges).divide()?;
/// assert!(made.stats.imbalance.edges >= 1.0);
/// # Ok::<(), graphweft::Error>(())
/// ```
pub use graphweft_graph::partition::Balance;
/// What [`Partition::method`] takes.
///
/// ```
/// use graphweft::{Method, Partition};
/// let alpha = |method| Partition::of("grid:16:16", 4).method(method).divide().map(|made| made.stats.alpha);
/// assert!(alpha(Method::Streaming)? < alpha(Method::Random)?);
/// # Ok::<(), graphweft::Error>(())
/// ```
pub use graphweft_graph::partition::Method;
/// What [`Partition::order`] takes.
///
/// ```
/// use graphweft::{Order, Partition};
/// let gap = |order| Partition::of("grid:16:16", 2).order(order).divide().map(|made| made.stats.gap_bits);
/// assert!(gap(Order::Bfs)? > 0.0);
/// # Ok::<(), graphweft::Error>(())
/// ```
pub use graphweft_graph::partition::Order;
/// What a partition costs.
///
/// ```
/// let stats = graphweft::Partition::of("grid:6:6", 2).divide()?.stats;
/// assert_eq!(stats.rows.iter().sum::<u64>(), 36);
/// assert_eq!(stats.alpha, (stats.halo_rows(0) + stats.halo_rows(1)) as f64 / 36.0);
/// # Ok::<(), graphweft::Error>(())
/// ```
pub use graphweft_graph::partition::PartitionStats;

/// For sorting edges and ordering features.
const SORTING_MEMORY: u64 = 1 << 30;

/// A division of a graph into parts, in the making.
///
/// ```
/// use graphweft::{Method, Partition};
/// let made = Partition::of("grid:16:16", 4).method(Method::Contiguous).divide()?;
/// assert_eq!(made.stats.rows, [64; 4]);
/// assert!(made.stats.alpha < 0.5);
/// assert_eq!(made.part_of(255), 3);
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone)]
pub struct Partition {
    input: Input,
    parts: usize,
    method: Method,
    balance: Balance,
    order: Order,
    seed: u64,
    target: Option<PathBuf>,
    existing: Existing,
    observer: Arc<dyn Observer>,
}

/// A graph in parts.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let parts = graphweft::Partition::of("grid:6:6", 2).store(dir.path().join("parts")).divide()?;
/// assert!(parts.stored.unwrap().join("ranges.npy").exists());
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Partitioned {
    /// What the graph is called.
    pub graph: String,
    /// The partitioner.
    pub method: String,
    /// How many parts.
    pub parts: usize,
    /// How nodes are arranged inside a part.
    pub order: String,
    /// What it costs.
    pub stats: PartitionStats,
    /// The folder that it is stored in.
    pub stored: Option<PathBuf>,
    /// Nodes.
    pub nodes: usize,
    /// Edges.
    pub edges: usize,
    /// How long it took.
    pub seconds: f64,
    /// The most bytes that this process has had in memory, where the operating system tells.
    pub peak_bytes: Option<u64>,
    about: About,
    partition: partition::Partition,
}

impl Partition {
    /// Of this graph into so many parts, which have equally many nodes.
    pub fn of(input: impl Into<Input>, parts: usize) -> Self {
        Self {
            input: input.into(),
            parts,
            method: Method::Streaming,
            balance: Balance::default(),
            order: Order::default(),
            seed: 0,
            target: None,
            existing: Existing::Keep,
            observer: Arc::new(()),
        }
    }

    setters! {
        /// Replaces a partition that is stored there already; without this it is an error.
        replace => existing = Existing::Replace,

        /// How to choose parts, in place of [`Method::Streaming`].
        method: Method,

        /// What every part should have equally much of.
        balance: Balance,

        /// How to arrange the nodes inside a part.
        order: Order,

        /// Other seeds give other partitions of like quality.
        seed: u64,

        /// Who watches.
        observer: Arc<dyn Observer>,
    }

    /// Stores it in this folder, in place of `part/METHOD-P` in the dataset folder.
    #[must_use]
    pub fn store(self, dir: impl Into<PathBuf>) -> Self {
        Self { target: Some(dir.into()), ..self }
    }

    fn options(&self) -> Options {
        let &Self { parts, method, balance, order, seed, .. } = self;
        Options { balance, order, seed, ..Options::new(method, parts) }
    }

    /// Divides the graph. That of a dataset folder is stored there, others only where that was asked for.
    ///
    /// # Errors
    /// If the graph cannot be opened or divided so, or there is a partition already.
    pub fn divide(&self) -> Result<Partitioned> {
        let (options, watched) = (self.options(), Watched::by(&self.observer));
        let opened = self.input.open(&watched)?;
        let stored = opened.dataset.as_ref().filter(|data| data.0.is_stored());
        let in_dataset = || stored.map(|data| folder(&data.0, options.method, options.parts));
        let target = self.target.clone().or_else(in_dataset);
        if let Some(dir) = &target {
            check_target(dir, self.existing)?;
        }
        let started = Instant::now();
        let partition = with_csr!(&opened.graph, g => partition::partition(g, &options, &watched))?;
        let seconds = started.elapsed().as_secs_f64();
        let peak_bytes = memory::peak_bytes();
        let stats = with_csr!(&opened.graph, g => statistics(g, &partition));
        let about = About::new(&options, self.input.symmetrised, stats.clone());
        if let Some(dir) = &target {
            save(dir, &partition, &about, self.existing)?;
        }
        Ok(Partitioned {
            graph: opened.name,
            method: options.method.to_string(),
            parts: options.parts,
            order: options.order.to_string(),
            stats,
            nodes: about.num_nodes,
            edges: about.num_edges,
            seconds,
            peak_bytes,
            stored: target,
            about,
            partition,
        })
    }

    /// Stores the graph and its features by part, in `chunks/METHOD-P` of the dataset folder, for training with the
    /// strategy `isolated`. What an interrupted call has left is used. It sorts in so many bytes, a GiB if nothing is
    /// said.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let folder = dir.path().join("data");
    /// graphweft::Dataset::generate("sbm:60:3:4:f=8", 0)?.save(&folder)?;
    /// let made = graphweft::Partition::of(folder.as_path(), 3).chunk(None)?;
    /// assert_eq!(made.nodes, 60);
    /// assert!(made.path.ends_with("chunks/streaming-3"));
    /// # Ok::<(), graphweft::Error>(())
    /// ```
    ///
    /// # Errors
    /// If it is no dataset folder, or cannot be divided so.
    pub fn chunk(&self, memory: Option<u64>) -> Result<Stored> {
        let Kind::Folder(dir) = &self.input.kind else {
            return Err(Error::request("chunks are stored in a dataset folder", "name one with --data"));
        };
        let data = graphweft_graph::Dataset::open(dir)?;
        let &Self { method, parts: chunks, balance, order, seed, .. } = self;
        let (symmetrise, self_loops) = (self.input.symmetrised, self.input.self_loops);
        let recipe = Recipe { method, chunks, balance, order, seed, symmetrise, self_loops };
        let stored = chunks::folder(data.dir(), method, chunks);
        let started = Instant::now();
        let memory = usize::try_from(memory.unwrap_or(SORTING_MEMORY)).unwrap_or(usize::MAX);
        // Chunks are trained on later, when nobody looks at the dataset again.
        data.checked_labels()?;
        chunks::prepare(&data, &recipe, &stored, memory, &Watched::by(&self.observer))?;
        let (seconds, peak_bytes) = (started.elapsed().as_secs_f64(), memory::peak_bytes());
        let (made, _) = Chunks::open(&stored)?;
        let (nodes, edges, meta) = (made.num_nodes(), made.graph().num_edges(), data.meta());
        let json = json!({
            "method": method.to_string(), "chunks": chunks, "nodes": nodes, "num_edges": edges,
            "seconds": seconds, "peak_bytes": peak_bytes, "stored": stored,
        });
        Ok(Stored {
            path: stored,
            name: meta.name.clone(),
            nodes,
            edges,
            edges_read: meta.num_edges as u64,
            features: data.features().map_or(0, Features::width),
            classes: meta.num_classes,
            symmetric: meta.symmetric || symmetrise,
            splits: data.splits().iter().map(|split| split.name.clone()).collect(),
            seconds,
            peak_bytes,
            notes: Vec::new(),
            json,
        })
    }
}

impl std::fmt::Debug for Partition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Partition({} parts by {})", self.parts, self.method)
    }
}

impl Partitioned {
    /// The part of a node. `node` must be below the number of nodes.
    pub fn part_of(&self, node: usize) -> usize {
        self.partition.part_of(node)
    }

    /// As `graphweft partition --json` prints it.
    pub fn to_json(&self) -> Value {
        let About { balance, seed, symmetrised, .. } = &self.about;
        let PartitionStats { alpha, cut, cut_edges, gap_bits, imbalance, rows, edges, halo } = &self.stats;
        json!({
            "method": self.method, "parts": self.parts, "balance": balance, "order": self.about.order, "seed": seed,
            "symmetrised": symmetrised, "nodes": self.nodes, "num_edges": self.edges,
            "alpha": alpha, "cut": cut, "cut_edges": cut_edges, "imbalance": imbalance, "gap_bits": gap_bits,
            "rows": rows, "edges": edges, "halo": halo, "seconds": self.seconds, "peak_bytes": self.peak_bytes,
            "stored": self.stored.as_deref().map(Path::display).map(|path| path.to_string()),
        })
    }
}
