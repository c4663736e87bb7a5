//! Writing a dataset folder: everything into a temporary folder beside the target, renamed when complete.

use std::path::{Path, PathBuf};

use graphweft_base::durable::{self, Unfinished};
use graphweft_base::{Error, Result};

use super::codes::Columns;
use super::{Categories, Codes, Features, Graphs, Labels, LinkSplit, Meta, Split, stamp};
use crate::csr::{AnyCsr, Csr, NodeId};
use crate::npy::{Element, NpyWriter, write_npy};
use crate::with_csr;

/// Elements written per call where an array is produced in pieces.
const PIECE: usize = 1 << 20;

/// A dataset folder in the making. Dropped before [`DatasetWriter::finish`], it leaves nothing behind.
#[derive(Debug)]
pub struct DatasetWriter {
    target: PathBuf,
    work: Unfinished,
}

impl DatasetWriter {
    /// Prepares to create `target`.
    ///
    /// # Errors
    /// [`Error::Request`] if `target` exists: nothing is overwritten.
    pub fn create(target: impl AsRef<Path>) -> Result<Self> {
        let target = target.as_ref();
        if target.exists() {
            let what = format!("{} exists already", target.display());
            return Err(Error::request(what, "remove it first, or name another folder"));
        }
        Ok(Self { target: target.to_path_buf(), work: durable::folder_beside(target)? })
    }

    /// The folder that is created.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Where files go until the folder is complete.
    pub fn path(&self, name: &str) -> PathBuf {
        self.work.path().join(name)
    }

    /// Starts an array `name.npy` that is written piece by piece.
    pub fn array<T: Element>(&self, name: &str, row: &[usize]) -> Result<NpyWriter<T>> {
        NpyWriter::create(self.path(&format!("{name}.npy")), row)
    }

    /// Writes the graph.
    pub fn graph(&self, graph: &AnyCsr) -> Result<()> {
        write_npy(self.path("indptr.npy"), &[], with_csr!(graph, g => &g.indptr()[..]))?;
        match graph {
            AnyCsr::Narrow(g) => write_npy(self.path("indices.npy"), &[], g.indices()),
            AnyCsr::Wide(g) => self.wide_indices(g),
        }
    }

    fn wide_indices(&self, g: &Csr<u64>) -> Result<()> {
        // The folder's wide dtype is int64, the one NumPy users expect of indices.
        write_npy(self.path("indices.npy"), &[], bytemuck::cast_slice::<u64, i64>(g.indices()))
    }

    /// Writes node features.
    pub fn features(&self, features: &Features) -> Result<()> {
        self.features_as("feat", features)
    }

    fn features_as(&self, stem: &str, features: &Features) -> Result<()> {
        use super::Dense;
        let path = |part: &str| self.path(&format!("{stem}{part}.npy"));
        match features {
            Features::Dense(Dense::F32 { values, width }) => write_npy(path(""), &[*width], values),
            Features::Dense(Dense::F16 { values, width }) => write_npy(path(""), &[*width], values),
            Features::Sparse(m) => {
                write_npy(path("_indptr"), &[], &m.indptr)?;
                write_npy(path("_indices"), &[], &m.indices)?;
                m.data.as_ref().map_or(Ok(()), |d| write_npy(path("_data"), &[], d))
            }
        }
    }

    /// Writes the features of a type of nodes.
    pub fn features_of_type(&self, name: &str, features: &Features) -> Result<()> {
        self.features_as(&format!("feat-{name}"), features)
    }

    /// Writes the types of edges, in the order of the graph's indices.
    pub fn edge_types(&self, types: &Codes) -> Result<()> {
        types.write(self.path("edge_type.npy"), Columns::One)
    }

    /// Writes categories of edges, in the order of the graph's indices.
    pub fn edge_categories(&self, categories: &Codes) -> Result<()> {
        categories.write(self.path("edge_cat.npy"), Columns::Any)
    }

    /// Writes labels; `classes` is the number of columns where there are several per node.
    pub fn labels(&self, labels: &Labels, classes: usize) -> Result<()> {
        self.labels_as("label.npy", labels, classes)
    }

    fn labels_as(&self, file: &str, labels: &Labels, classes: usize) -> Result<()> {
        let path = self.path(file);
        match labels {
            Labels::Single(y) => write_npy(path, &[], y),
            Labels::MultiU8(y) => write_npy(path, &[classes], y),
            Labels::MultiF32(y) | Labels::Values(y) => write_npy(path, &[classes], y),
        }
    }

    /// Writes where graphs begin and end, and their labels; `classes` is the number of columns where there are several
    /// per graph.
    pub fn graphs(&self, graphs: &Graphs, classes: usize) -> Result<()> {
        write_npy(self.path("graph_ptr.npy"), &[], bytemuck::cast_slice::<u64, i64>(&graphs.ptr))?;
        graphs.labels.as_ref().map_or(Ok(()), |labels| self.labels_as("graph_label.npy", labels, classes))
    }

    /// Writes category columns; the meta data need [their sizes](Categories::sizes).
    pub fn categories(&self, categories: &Categories) -> Result<()> {
        categories.write(self.path("cat.npy"))
    }

    /// Writes a split.
    pub fn split(&self, split: &Split) -> Result<()> {
        let dir = self.path("split").join(&split.name);
        durable::create_folder(&dir)?;
        split.parts().into_iter().try_for_each(|(part, ids)| write_npy(dir.join(format!("{part}.npy")), &[], ids))
    }

    /// Writes a split of links.
    pub fn links(&self, links: &LinkSplit) -> Result<()> {
        links.save(&self.path("split"))
    }

    /// Writes an array of rows of shape `row` (`&[]` for a plain vector) that are made on the fly: `fill(i, row)`
    /// writes row i, in parallel, so that the array never needs to be in memory.
    pub fn rows<T: Element>(
        &self,
        name: &str,
        num_rows: usize,
        row: &[usize],
        fill: impl Fn(usize, &mut [T]) + Sync,
    ) -> Result<()> {
        use rayon::prelude::*;
        let mut out = self.array(name, row)?;
        let width = row.iter().product::<usize>().max(1);
        let per_piece = (PIECE / width).max(1);
        let mut buffer = vec![T::zeroed(); per_piece.min(num_rows) * width];
        for first in (0..num_rows).step_by(per_piece) {
            let rows = per_piece.min(num_rows - first);
            let piece = &mut buffer[..rows * width];
            piece.par_chunks_mut(width).enumerate().for_each(|(k, row)| fill(first + k, row));
            out.push(piece)?;
        }
        out.finish().map(|_| ())
    }

    /// Writes `meta.toml` and the stamp, makes everything durable and moves the folder into place.
    pub fn finish(self, meta: &Meta) -> Result<()> {
        durable::write_new(&self.path("meta.toml"), meta.to_toml()?.as_bytes())?;
        // What a writer of ours produced is valid by construction: opening it needs no second look.
        stamp::save(self.work.path(), &stamp::Files::of(self.work.path())?);
        self.work.publish(&self.target)
    }
}

impl Meta {
    /// The meta data of a graph without features or labels.
    pub fn of<I: NodeId>(name: &str, graph: &Csr<I>, symmetric: bool) -> Self {
        Self {
            name: name.into(),
            num_nodes: graph.num_dst(),
            num_edges: graph.num_edges(),
            num_features: 0,
            num_classes: 0,
            symmetric,
            task: super::Task::default(),
            node_categories: Vec::new(),
            edge_types: Vec::new(),
            node_types: Vec::new(),
        }
    }
}
