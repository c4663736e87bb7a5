//! What a reader returns, and how it becomes a dataset folder.

use std::path::{Path, PathBuf};

use graphweft_base::{Error, Result, durable, room};

use super::Context;
use crate::buf::Buf;
use crate::build::{Block, EdgeSorter};
use crate::csr::{AnyCsr, Csr, NodeId, SelfLoops};
use crate::dataset::{
    Categories, Codes, DatasetWriter, Dense, Features, Graphs, Labels, LinkSplit, Meta, Split, Task, Types,
};
use crate::npy::{NpyFile, NpyWriter, write_npy};
use crate::with_csr;

/// A graph that has been read and checked, but not yet written.
pub struct Imported {
    /// Nodes.
    pub num_nodes: usize,
    /// The edges, not yet sorted.
    pub edges: EdgeSorter,
    /// Numbers that belong to edges, in the order in which the edges were pushed.
    pub edge_features: Option<EdgeFeatures>,
    /// Category columns of edges, in the same order.
    pub edge_categories: Option<Categories>,
    /// Node features.
    pub features: Option<Features>,
    /// Types of nodes and edges; those of edges in the order in which the edges were pushed.
    pub types: Types,
    /// Labels and the number of classes.
    pub labels: Option<(Labels, usize)>,
    /// What the classes are called, where labels were words.
    pub class_names: Option<Vec<String>>,
    /// Category columns of nodes.
    pub categories: Option<Categories>,
    /// Where one graph ends and the next begins, with their labels; then `labels` is empty.
    pub graphs: Option<ImportedGraphs>,
    /// Splits.
    pub splits: Vec<Split>,
    /// Links to predict, in place of labels.
    pub links: Option<LinkSplit>,
    /// Ids that the source used, where the nodes were renumbered.
    pub node_ids: Option<NodeIds>,
    /// What the nodes are called, where they are words: a line each.
    pub node_names: Option<Vec<u8>>,
    /// Texts that go into the folder as they are.
    pub texts: Vec<TextFile>,
    /// Set where the format promises each edge in both directions.
    pub undirected: Option<Undirected>,
    /// What the user should know about the import.
    pub notes: Vec<String>,
}

/// A text of a dataset folder.
#[derive(Clone, Debug)]
pub struct TextFile {
    /// The name of the file.
    pub name: &'static str,
    /// What is in it.
    pub text: String,
}

/// Many graphs, with what is predicted of them.
#[derive(Clone, Debug)]
pub struct ImportedGraphs {
    /// Where they begin and end, and their labels.
    pub graphs: Graphs,
    /// Classes, or labels or numbers per graph.
    pub classes: usize,
}

/// One row of numbers per edge.
#[derive(Clone, Debug)]
pub struct EdgeFeatures {
    /// Row by row.
    pub values: Buf<f32>,
    /// Columns.
    pub width: usize,
}

/// Original ids, by node.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeIds {
    /// All fit into int64.
    Signed(Vec<i64>),
    /// Some do not, and none is negative.
    Unsigned(Vec<u64>),
}

impl NodeIds {
    /// Those that the dataset folder `dir` has for its `nodes` nodes, if it has any.
    ///
    /// # Errors
    /// If `node_id.npy` is not an id for each node.
    pub fn of(dir: &Path, nodes: usize) -> Result<Option<Self>> {
        let path = dir.join("node_id.npy");
        if !path.exists() {
            return Ok(None);
        }
        let file = NpyFile::open(&path)?;
        if file.shape() != [nodes] {
            return Err(file.wrong_shape("node_id", &format!("[{nodes}] (num_nodes)")));
        }
        let found = match (file.elements::<i64>(), file.elements::<u64>()) {
            (Some(ids), _) => Self::Signed(ids.to_vec()),
            (None, Some(ids)) => Self::Unsigned(ids.to_vec()),
            (None, None) => return Err(file.wrong_dtype("node_id", "int64 or uint64")),
        };
        Ok(Some(found))
    }
}

/// A promise of a file that its edges lie in both directions.
#[derive(Clone, Debug)]
pub struct Undirected {
    /// The file.
    pub file: PathBuf,
}

/// What was written.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The folder's `meta.toml`.
    pub meta: Meta,
    /// Edges that the source listed.
    pub edges_read: u64,
    /// Names of the splits.
    pub splits: Vec<String>,
    /// What the user should know about the import.
    pub notes: Vec<String>,
}

impl Imported {
    /// A graph of `num_nodes` nodes without anything else.
    pub fn new(num_nodes: usize, edges: EdgeSorter) -> Self {
        Self {
            num_nodes,
            edges,
            edge_features: None,
            edge_categories: None,
            features: None,
            types: Types::default(),
            labels: None,
            class_names: None,
            categories: None,
            graphs: None,
            splits: Vec::new(),
            links: None,
            node_ids: None,
            node_names: None,
            texts: Vec::new(),
            undirected: None,
            notes: Vec::new(),
        }
    }

    /// What the labels are for.
    fn task(&self) -> Task {
        let numbers = |labels: &Option<Labels>| labels.as_ref().is_some_and(Labels::are_numbers);
        match &self.graphs {
            _ if self.links.is_some() => Task::Link,
            None => self.labels.as_ref().map_or(Task::default(), |(labels, _)| labels.task()),
            Some(found) if numbers(&found.graphs.labels) => Task::GraphRegression,
            Some(_) => Task::GraphClassification,
        }
    }

    /// Bytes that are written at least: edges count where none of them may be merged or dropped.
    fn least_bytes(&self) -> u128 {
        let features = match &self.features {
            None => 0,
            Some(Features::Dense(Dense::F32 { values, .. })) => 4 * values.len() as u128,
            Some(Features::Dense(Dense::F16 { values, .. })) => 2 * values.len() as u128,
            Some(Features::Sparse(m)) => 8 * (m.indices.len() + m.indptr.len()) as u128,
        };
        let rules = self.edges.rules();
        let is_exact = !rules.symmetrise && !rules.merge_parallel && rules.self_loops != SelfLoops::Remove;
        let edges = if is_exact { 4 * u128::from(self.edges.pushed()) } else { 0 };
        8 * (self.num_nodes as u128 + 1) + edges + features
    }

    /// Sorts the edges straight into `writer`, writes everything else and completes the folder.
    ///
    /// # Errors
    /// [`Error::Write`], or [`Error::BadInput`] if a promise of the format turns out broken; nothing is left behind.
    pub fn write(self, name: &str, writer: DatasetWriter, cx: &Context<'_>) -> Result<Summary> {
        let (n, edges_read, symmetrised) = (self.num_nodes, self.edges.pushed(), self.edges.rules().symmetrise);
        let task = self.task();
        let narrow = n as u64 <= <u32 as NodeId>::CAPACITY;
        room::check_disk(format!("importing {n} nodes"), writer.target(), self.least_bytes())?;
        let carried = Carried::new(&self, &writer)?;
        let num_edges = if narrow {
            stream(self.edges, n, carried, writer.array::<u32>("indices", &[])?, &writer, cx)?
        } else {
            stream(self.edges, n, carried, writer.array::<i64>("indices", &[])?, &writer, cx)?
        };
        let symmetric = symmetrised || is_symmetric(&writer, n)?;
        if let Some(Undirected { file }) = self.undirected.filter(|_| !symmetric) {
            let problem = "some edge is listed by only one of its two nodes";
            let remedy = "list each edge at both ends, or import with --symmetrise";
            return Err(Error::bad(file, "edges", problem, remedy));
        }

        if let Some(features) = &self.features {
            writer.features(features)?;
        }
        for (t, features) in self.types.nodes.iter().zip(&self.types.features) {
            features.as_ref().map_or(Ok(()), |features| writer.features_of_type(&t.name, features))?;
        }
        let of_graphs = self.graphs.as_ref().map(|g| g.classes);
        let num_classes = of_graphs.unwrap_or(self.labels.as_ref().map_or(0, |(_, classes)| *classes));
        if let Some(ImportedGraphs { graphs, classes }) = &self.graphs {
            writer.graphs(graphs, *classes)?;
        }
        self.categories.as_ref().map_or(Ok(()), |categories| writer.categories(categories))?;
        if let Some((labels, classes)) = &self.labels {
            writer.labels(labels, *classes)?;
        }
        self.splits.iter().try_for_each(|s| writer.split(s))?;
        self.links.iter().try_for_each(|links| writer.links(links))?;
        match &self.node_ids {
            Some(NodeIds::Signed(ids)) => write_npy(writer.path("node_id.npy"), &[], ids)?,
            Some(NodeIds::Unsigned(ids)) => write_npy(writer.path("node_id.npy"), &[], ids)?,
            None => {}
        }
        if let Some(names) = &self.class_names {
            durable::write_new(&writer.path("classes.txt"), (names.join("\n") + "\n").as_bytes())?;
        }
        if let Some(names) = &self.node_names {
            durable::write_new(&writer.path("nodes.txt"), names)?;
        }
        for file in &self.texts {
            durable::write_new(&writer.path(file.name), file.text.as_bytes())?;
        }
        let meta = Meta {
            name: name.to_string(),
            num_nodes: n,
            num_edges,
            num_features: self.features.as_ref().map_or(0, Features::width),
            num_classes,
            symmetric,
            task,
            node_categories: self.categories.as_ref().map_or_else(Vec::new, |c| c.sizes().to_vec()),
            edge_types: self.types.edge_names,
            node_types: self.types.nodes,
        };
        writer.finish(&meta)?;
        let splits = self.splits.into_iter().map(|s| s.name).chain(self.links.map(|links| links.name)).collect();
        Ok(Summary { meta, edges_read, splits, notes: self.notes })
    }
}

/// An element of `indices.npy`.
trait StoredId: crate::npy::Element {
    fn of(id: u64) -> Self;
}

impl StoredId for u32 {
    fn of(id: u64) -> Self {
        id as Self
    }
}

impl StoredId for i64 {
    fn of(id: u64) -> Self {
        id as Self
    }
}

/// What goes where its edge goes.
struct Carried {
    features: Option<(EdgeFeatures, NpyWriter<f32>)>,
    types: Option<(Codes, CodeWriter)>,
    categories: Option<(Categories, CodeWriter)>,
}

/// An array of codes, in one byte each where that is enough.
enum CodeWriter {
    Narrow(NpyWriter<u8>),
    Wide(NpyWriter<u16>),
}

impl CodeWriter {
    /// Rows of this shape, of codes up to `most`.
    fn new(writer: &DatasetWriter, name: &str, row: &[usize], most: usize) -> Result<Self> {
        Ok(match most <= usize::from(u8::MAX) {
            true => Self::Narrow(writer.array(name, row)?),
            false => Self::Wide(writer.array(name, row)?),
        })
    }

    fn push(&mut self, codes: &[u16]) -> Result<()> {
        match self {
            Self::Narrow(rows) => rows.push(&codes.iter().map(|code| *code as u8).collect::<Vec<u8>>()),
            Self::Wide(rows) => rows.push(codes),
        }
    }

    fn finish(self) -> Result<()> {
        match self {
            Self::Narrow(rows) => rows.finish().map(drop),
            Self::Wide(rows) => rows.finish().map(drop),
        }
    }
}

impl Carried {
    fn new(of: &Imported, writer: &DatasetWriter) -> Result<Self> {
        let features = |f: &EdgeFeatures| Ok::<_, Error>((f.clone(), writer.array("edge_feat", &[f.width])?));
        let types = |t: &Codes| {
            let most = if matches!(t, Codes::U8 { .. }) { u8::MAX.into() } else { usize::MAX };
            Ok::<_, Error>((t.clone(), CodeWriter::new(writer, "edge_type", &[], most)?))
        };
        let categories = |c: &Categories| {
            let most = c.sizes().iter().max().map_or(0, |size| *size as usize);
            Ok::<_, Error>((c.clone(), CodeWriter::new(writer, "edge_cat", &[c.sizes().len()], most)?))
        };
        Ok(Self {
            features: of.edge_features.as_ref().map(features).transpose()?,
            types: of.types.edges.as_ref().map(types).transpose()?,
            categories: of.edge_categories.as_ref().map(categories).transpose()?,
        })
    }

    /// The rows of these edges. One that was added has features of zeros, and in every column a category of its own,
    /// the last; readers of typed edges let none be added.
    fn push(&mut self, origins: &[Option<u64>]) -> Result<()> {
        if let Some((f, rows)) = &mut self.features {
            let added = vec![0.0f32; f.width];
            for origin in origins {
                let row = origin.map(|k| k as usize * f.width);
                rows.push(row.map_or(&added[..], |at| &f.values[at..at + f.width]))?;
            }
        }
        if let Some((t, rows)) = &mut self.types {
            rows.push(&origins.iter().map(|k| k.map_or(0, |k| t.get(k as usize))).collect::<Vec<u16>>())?;
        }
        if let Some((c, rows)) = &mut self.categories {
            let code = |origin: Option<u64>, column: usize| {
                origin.map_or(c.sizes()[column], |edge| c.get(edge as usize, column)).min(u16::MAX.into()) as u16
            };
            let of = |origin: &Option<u64>| {
                let origin = *origin;
                (0..c.sizes().len()).map(move |column| code(origin, column))
            };
            rows.push(&origins.iter().flat_map(of).collect::<Vec<u16>>())?;
        }
        Ok(())
    }

    fn finish(self) -> Result<()> {
        self.features.map(|(_, rows)| rows.finish()).transpose()?;
        self.types.map(|(_, rows)| rows.finish()).transpose()?;
        self.categories.map_or(Ok(()), |(_, rows)| rows.finish())
    }
}

/// Writes indptr, indices and what edges carry as they come out of the sorter. Returns the number of edges.
fn stream<I: StoredId>(
    edges: EdgeSorter,
    n: usize,
    mut carried: Carried,
    mut indices: NpyWriter<I>,
    writer: &DatasetWriter,
    cx: &Context<'_>,
) -> Result<usize> {
    let mut indptr = writer.array::<u64>("indptr", &[])?;
    let mut ids: Vec<I> = Vec::new();
    indptr.push(&[0])?;
    edges.stream(n as u64, cx.progress, |block: &Block| {
        indptr.push(&block.ends)?;
        ids.clear();
        ids.extend(block.sources.iter().map(|&s| I::of(s)));
        indices.push(&ids)?;
        carried.push(&block.origins)
    })?;
    indptr.finish()?;
    carried.finish()?;
    indices.finish()
}

/// Looks at the graph just written, mapped.
fn is_symmetric(writer: &DatasetWriter, n: usize) -> Result<bool> {
    let (indptr, indices) = (NpyFile::open(writer.path("indptr.npy"))?, NpyFile::open(writer.path("indices.npy"))?);
    let offsets = indptr.elements::<u64>().ok_or_else(|| indptr.wrong_dtype("indptr", "uint64"))?;
    let graph: AnyCsr = match (indices.elements::<u32>(), indices.elements::<i64>()) {
        (Some(ids), _) => Csr::mapped(offsets, ids, n).into(),
        (None, Some(ids)) => Csr::mapped(offsets, ids.cast::<u64>(), n).into(),
        (None, None) => return Err(indices.wrong_dtype("indices", "uint32 or int64")),
    };
    Ok(with_csr!(&graph, g => g.is_symmetric()))
}
