//! The dataset folder: `.npy` files that NumPy opens and Graphweft maps.
//!
//! ```text
//! meta.toml                   name, num_nodes, num_edges, num_features, num_classes, symmetric, task
//! indptr.npy   u64|i64 [N+1]  CSR by destination
//! indices.npy  u32|i64 [E]
//! feat.npy     f32|f16 [N,F]  dense features; or feat_indptr, feat_indices and (unless all values are 1) feat_data
//! label.npy    i64 [N] with −1 = none, or u8|f32 [N,C] of 0 and 1 for several labels per node; f32: NaN = not known
//!              task = "node-regression": f32 [N] or [N,T] to predict, NaN = not known; num_classes is T, or 1
//! cat.npy      u8|u16 [N,K]   optional: columns of categories; node_categories in meta.toml: how many each has
//! edge_feat.npy f32 [E,Fe]    optional, in the order of indices
//! edge_cat.npy u8|u16 [E,K]   optional, in the order of indices: columns of categories
//! edge_type.npy u8|u16 [E]    optional, in the order of indices: types, whose names are edge_types in meta.toml
//! feat-<type>.npy, …          features of a type of nodes: dense, or sparse as above; see [`NodeType`]
//! graph_ptr.npy i64 [G+1]     many graphs, task = "graph-classification" or "graph-regression": the first node of
//!                             each, and N; no edge leads from one to another; splits are then ids of graphs
//! graph_label.npy             as label.npy, of graphs
//! node_id.npy  i64 [N]        optional: ids that the source used, where import renumbered them
//! nodes.txt                   optional: what the nodes are called, one per line, where the source had words
//! classes.txt                 optional: what the classes are called, one per line, where the source had words
//! split/<name>/{train,valid,test}.npy   i64 node ids
//!              task = "link": i64 [M,2] pairs of nodes; {valid,test}_neg.npy where pairs that are no links are given;
//!              or i64 [M,3]: head, relation and tail, with relations from edge_types in meta.toml
//! part/<method>-<P>/{perm,ranges}.npy   stored partitions, see [`crate::partition`]
//! ```
//!
//! [`Dataset::open`] checks everything the first time, in parallel, and leaves a stamp with the size, times and inode
//! of each file. While these stay the same, opening looks only at splits, sparse features and graphs of a collection;
//! and the graph's ids and offsets, and labels of nodes, are looked at when they are first asked for. So a stamp that
//! is wrong, or forged, can lead to wrong results, but to no panic.

mod categories;
mod codes;
mod features;
mod graphs;
mod labels;
mod links;
mod memory;
mod meta;
pub(crate) mod stamp;
mod types;
mod validate;
mod writer;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use graphweft_base::{Error, Position, Problem, Result};

use crate::buf::Buf;
use crate::csr::{AnyCsr, Csr, NodeId};
use crate::npy::{NpyFile, NpyType};
use codes::Columns;
use features::Place;
use labels::Labelled;

pub use categories::Categories;
pub use codes::Codes;
pub use features::{Dense, Features, SparseFeatures};
pub use graphs::Graphs;
pub use labels::Labels;
pub use links::LinkSplit;
pub use memory::Parts;
pub use meta::{Meta, Task};
pub(crate) use types::is_plain_name;
pub use types::{NodeType, Types};
pub use writer::DatasetWriter;

/// The three sets of nodes, or of graphs where there are many, that a split names.
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// The split's folder name.
    pub name: String,
    /// What to learn from.
    pub train: Buf<i64>,
    /// What to choose by.
    pub valid: Buf<i64>,
    /// What to report on.
    pub test: Buf<i64>,
}

impl Split {
    /// The parts with their file names.
    pub fn parts(&self) -> [(&'static str, &Buf<i64>); 3] {
        [("train", &self.train), ("valid", &self.valid), ("test", &self.test)]
    }

    /// Ids in range, none twice, and no node both trained on and tested on. A failure names the part and the position.
    pub(crate) fn check(&self, num_nodes: usize) -> std::result::Result<(), (usize, Problem)> {
        self.check_among(num_nodes, "node")
    }

    /// The same for ids of `count` of what is called `noun`.
    pub(crate) fn check_among(&self, count: usize, noun: &str) -> std::result::Result<(), (usize, Problem)> {
        let wrong = |at: usize, text: String| Problem::at(Position::element(at), text);
        let mut used_by = vec![0u8; count];
        let parts = self.parts();
        for (which, (part, ids)) in parts.iter().enumerate() {
            for (at, &id) in ids.iter().enumerate() {
                let slot = usize::try_from(id).ok().and_then(|i| used_by.get_mut(i));
                let Some(slot) = slot else {
                    return Err((which, wrong(at, format!("{part}[{at}] = {id}: there are only {count} {noun}s"))));
                };
                if *slot != 0 {
                    let other = parts[usize::from(*slot) - 1].0;
                    return Err((which, wrong(at, format!("{part}[{at}] = {id}: the {noun} is already in {other}"))));
                }
                *slot = which as u8 + 1;
            }
        }
        Ok(())
    }
}

/// An open dataset folder. All arrays are mapped; nothing is copied unless its dtype needs conversion.
#[derive(Clone, Debug)]
pub struct Dataset {
    dir: PathBuf,
    meta: Meta,
    graph: AnyCsr,
    /// Set once the ids and offsets of the graph were seen to be in range.
    looked_at: Arc<OnceLock<()>>,
    /// The same of the labels of nodes.
    labels_looked_at: Arc<OnceLock<()>>,
    features: Option<Features>,
    /// One for each type of nodes, or none.
    features_by_type: Vec<Option<Features>>,
    labels: Option<Labels>,
    edge_features: Option<Dense>,
    edge_types: Option<Codes>,
    edge_categories: Option<Codes>,
    categories: Option<Categories>,
    graphs: Option<Graphs>,
    splits: Vec<Split>,
    links: Vec<LinkSplit>,
}

impl Dataset {
    /// Opens a folder; validates it unless it was validated before and has not changed since.
    ///
    /// # Errors
    /// [`Error::BadInput`] naming the file, the field and the position of the first thing that is wrong.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        let dir = dir.as_ref();
        if !dir.is_dir() {
            let kind = if dir.exists() { std::io::ErrorKind::NotADirectory } else { std::io::ErrorKind::NotFound };
            return Err(Error::unreadable(dir, "dataset folder", &kind.into()));
        }
        let data = Self::map(dir)?;
        let files = stamp::Files::of(dir)?;
        if stamp::is_current(dir, &files) {
            validate::nodes(&data)?;
        } else {
            validate::validate(&data)?;
            data.looked_at.get_or_init(|| ());
            data.labels_looked_at.get_or_init(|| ());
            stamp::save(dir, &files);
        }
        Ok(data)
    }

    /// Maps all files and checks dtypes and shapes, but no element.
    fn map(dir: &Path) -> Result<Self> {
        let meta = Meta::read(&dir.join("meta.toml"))?;
        let graph = map_graph(dir, &meta)?;
        let (features, by_type) = (Features::map(&Place::of_all(dir, &meta))?, types::map_features(dir, &meta)?);
        let (categories, graphs) = (Categories::map(dir, &meta)?, Graphs::map(dir, &meta)?);
        let labels = match graphs {
            None => Labels::map(dir, &meta, Labelled::Nodes(meta.num_nodes))?,
            Some(_) => None,
        };
        let edge_features = Dense::map(&dir.join("edge_feat.npy"), "edge_feat", meta.num_edges)?;
        if let Some(Dense::F16 { .. }) = edge_features {
            return Err(NpyFile::open(dir.join("edge_feat.npy"))?.wrong_dtype("edge_feat", "float32"));
        }
        let edge_types = Codes::map(&dir.join("edge_type.npy"), "edge_type", meta.num_edges, Columns::One)?;
        if edge_types.is_none() && !meta.edge_types.is_empty() {
            let problem = "types of edges are named, but there is no edge_type.npy";
            return Err(Error::bad(dir.join("meta.toml"), "edge_types", problem, "add the file, or remove the names"));
        }
        let (mut splits, mut links) = (Vec::new(), Vec::new());
        for name in names_of_splits(dir)? {
            let root = dir.join("split");
            match meta.task {
                Task::Link => links.push(LinkSplit::map(&root, &name)?),
                _ => splits.push(map_split(&root, &name)?),
            }
        }
        Ok(Self {
            dir: dir.to_path_buf(),
            graph,
            looked_at: Arc::default(),
            labels_looked_at: Arc::default(),
            features,
            features_by_type: by_type,
            labels,
            edge_features,
            edge_types,
            edge_categories: Codes::map(&dir.join("edge_cat.npy"), "edge_cat", meta.num_edges, Columns::Any)?,
            categories,
            graphs,
            splits,
            links,
            meta,
        })
    }

    /// Where it lies.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What `meta.toml` says.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// The graph. Its ids and offsets are looked at the first time.
    ///
    /// # Errors
    /// [`Error::BadInput`] with the first that is out of range or out of order.
    pub fn graph(&self) -> Result<&AnyCsr> {
        if self.looked_at.get().is_none() {
            validate::edges(self)?;
            self.looked_at.get_or_init(|| ());
        }
        Ok(&self.graph)
    }

    /// Node features, if there are any.
    pub fn features(&self) -> Option<&Features> {
        self.features.as_ref()
    }

    /// Node labels, if there are any, as they are stored: where a stamp was believed, nobody has looked at them.
    pub fn labels(&self) -> Option<&Labels> {
        self.labels.as_ref()
    }

    /// The same to work with. They are looked at the first time.
    ///
    /// # Errors
    /// [`Error::BadInput`] with the first that cannot be.
    pub fn checked_labels(&self) -> Result<Option<&Labels>> {
        if self.labels_looked_at.get().is_none() {
            validate::node_labels(self)?;
            self.labels_looked_at.get_or_init(|| ());
        }
        Ok(self.labels.as_ref())
    }

    /// Edge features in the order of the graph's indices, if there are any.
    pub fn edge_features(&self) -> Option<&Dense> {
        self.edge_features.as_ref()
    }

    /// Types of edges in the order of the graph's indices, if there are any. They are looked at with the graph.
    ///
    /// # Errors
    /// As [`Dataset::graph`]; [`Error::BadInput`] with the first type that has no name, where types have names.
    pub fn edge_types(&self) -> Result<Option<&Codes>> {
        self.graph()?;
        Ok(self.edge_types.as_ref())
    }

    /// What the types of edges are called: their numbers, where they have no names.
    ///
    /// # Errors
    /// As [`Dataset::edge_types`].
    pub fn edge_type_names(&self) -> Result<Vec<String>> {
        let found = self.edge_types()?.filter(|_| self.meta.edge_types.is_empty());
        Ok(found.map_or_else(|| self.meta.edge_types.clone(), |c| (0..c.count()).map(|k| k.to_string()).collect()))
    }

    /// Columns of categories of edges, in the order of the graph's indices, if there are any.
    pub fn edge_categories(&self) -> Option<&Codes> {
        self.edge_categories.as_ref()
    }

    /// Features by type of node, `None` for a type that has none; empty where no type has features of its own.
    pub fn features_by_type(&self) -> &[Option<Features>] {
        &self.features_by_type
    }

    /// Category columns of nodes, if there are any.
    pub fn categories(&self) -> Option<&Categories> {
        self.categories.as_ref()
    }

    /// Where one graph ends and the next begins, if there are many.
    pub fn graphs(&self) -> Option<&Graphs> {
        self.graphs.as_ref()
    }

    /// What a split names ids of, and how many there are.
    pub fn split_among(&self) -> (&'static str, usize) {
        self.graphs.as_ref().map_or(("node", self.meta.num_nodes), |graphs| ("graph", graphs.count()))
    }

    /// All splits, by name.
    pub fn splits(&self) -> &[Split] {
        &self.splits
    }

    /// All splits of links, by name, where links are predicted.
    pub fn links(&self) -> &[LinkSplit] {
        &self.links
    }

    /// The split called `name`.
    ///
    /// # Errors
    /// [`Error::Request`] that lists the splits there are.
    pub fn split(&self, name: &str) -> Result<&Split> {
        self.splits.iter().find(|s| s.name == name).ok_or_else(|| {
            let names: Vec<&str> = self.splits.iter().map(|s| s.name.as_str()).collect();
            let remedy = if names.is_empty() {
                format!(
                    "this dataset has no split; add {}",
                    self.dir.join("split/NAME/{train,valid,test}.npy").display()
                )
            } else {
                format!("choose one of: {}", names.join(", "))
            };
            Error::request(format!("{} has no split {name:?}", self.dir.display()), remedy)
        })
    }
}

fn map_graph(dir: &Path, meta: &Meta) -> Result<AnyCsr> {
    let indptr = map_offsets(&dir.join("indptr.npy"), "indptr", meta.num_nodes)?;
    let file = NpyFile::open(dir.join("indices.npy"))?;
    if file.shape() != [meta.num_edges] {
        return Err(file.wrong_shape("indices", &format!("[{}] (num_edges)", meta.num_edges)));
    }
    let n = meta.num_nodes;
    let csr_error = "create the folder again with `graphweft import`";
    // Offsets are checked here, cheaply, as far as slicing needs: a stamp must not be able to make us panic.
    let last = indptr.last().copied().unwrap_or(0);
    if last != meta.num_edges as u64 {
        let problem = format!("indptr[{n}] is {last}, num_edges in meta.toml is {}", meta.num_edges);
        let problem = Problem::at(Position::element(n), problem);
        return Err(Error::bad(dir.join("indptr.npy"), "indptr", problem, csr_error));
    }
    let narrow = n as u64 <= <u32 as NodeId>::CAPACITY;
    match file.dtype() {
        NpyType::U32 if narrow => {
            let indices = file.elements::<u32>().ok_or_else(|| file.wrong_dtype("indices", "uint32"))?;
            Ok(Csr::mapped(indptr, indices, n).into())
        }
        NpyType::I64 => {
            let indices = non_negative(&file, "indices")?;
            let wide = Csr::mapped(indptr, indices, n);
            if !narrow {
                return Ok(wide.into());
            }
            let out = wide.indices().iter().position(|&j| j >= n as u64);
            match out {
                Some(at) => {
                    let problem = format!("indices[{at}] = {}: there are only {n} nodes", wide.indices()[at]);
                    Err(Error::bad(file.path(), "indices", Problem::at(Position::element(at), problem), csr_error))
                }
                None => Ok(Csr::mapped(
                    wide.indptr().clone(),
                    wide.indices().iter().map(|&j| j as u32).collect::<Vec<_>>(),
                    n,
                )
                .into()),
            }
        }
        _ => Err(file.wrong_dtype("indices", if narrow { "uint32 or int64" } else { "int64" })),
    }
}

/// Maps `rows + 1` offsets.
fn map_offsets(path: &Path, field: &str, rows: usize) -> Result<Buf<u64>> {
    let file = NpyFile::open(path)?;
    if file.shape() != [rows + 1] {
        return Err(file.wrong_shape(field, &format!("[{}] (num_nodes + 1)", rows + 1)));
    }
    match file.dtype() {
        NpyType::U64 => file.elements::<u64>().ok_or_else(|| file.wrong_dtype(field, "uint64")),
        NpyType::I64 => non_negative(&file, field),
        _ => Err(file.wrong_dtype(field, "uint64 or int64")),
    }
}

/// An int64 file as u64, if it has no negative element.
fn non_negative(file: &NpyFile, field: &str) -> Result<Buf<u64>> {
    let ids = file.elements::<i64>().ok_or_else(|| file.wrong_dtype(field, "int64"))?;
    match ids.iter().position(|&x| x < 0) {
        Some(at) => Err(Error::bad(
            file.path(),
            field,
            Problem::at(Position::element(at), format!("{field}[{at}] = {}: expected no negative number", ids[at])),
            "create the folder again with `graphweft import`",
        )),
        None => Ok(ids.cast()),
    }
}

/// Names in `split`, in order.
fn names_of_splits(dir: &Path) -> Result<Vec<String>> {
    let root = dir.join("split");
    if !root.exists() {
        return Ok(Vec::new());
    }
    let unreadable = |e: std::io::Error| Error::unreadable(&root, "split", &e);
    let mut names = Vec::new();
    for entry in fs::read_dir(&root).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        match entry.file_name().into_string() {
            Ok(name) if name.starts_with('.') => {}
            Ok(name) => names.push(name),
            Err(name) => {
                return Err(Error::bad(&root, "split", format!("the name {name:?} is not UTF-8"), "rename the folder"));
            }
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn map_split(root: &Path, name: &str) -> Result<Split> {
    let part = |part: &str| {
        let file = NpyFile::open(root.join(name).join(format!("{part}.npy")))?;
        if file.shape().len() != 1 {
            return Err(file.wrong_shape(part, "one dimension"));
        }
        file.elements::<i64>().ok_or_else(|| no_ids(&file, part))
    };
    Ok(Split { train: part("train")?, valid: part("valid")?, test: part("test")?, name: name.to_string() })
}

/// An error about a part of a split that does not hold ids. As numbers, a mask would be ids 0 and 1.
fn no_ids(file: &NpyFile, part: &str) -> Error {
    if file.dtype() != NpyType::Bool {
        return file.wrong_dtype(part, "int64");
    }
    let remedy = "save numpy.flatnonzero(mask), the ids of the nodes where the mask is true";
    Error::bad(file.path(), part, "dtype is bool, a mask; expected node ids as int64", remedy)
}

#[cfg(test)]
mod tests;
