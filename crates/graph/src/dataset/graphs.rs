//! Many graphs in one folder: which nodes belong to which, and what is known of each.
//!
//! The nodes of a graph are one range, and no edge leads from one graph to another. So a graph can be cut out by
//! itself, and some of them together are one graph whose adjacency matrix is block-diagonal.

use std::ops::Range;
use std::path::Path;

use graphweft_base::{Error, Position, Problem, Result};
use rayon::prelude::*;

use super::labels::Labelled;
use super::{Labels, Meta, non_negative};
use crate::buf::Buf;
use crate::csr::{Csr, NodeId};
use crate::npy::{NpyFile, NpyType};

const FILE: &str = "graph_ptr.npy";
const REMEDY: &str = "graph_ptr[g] is the first node of graph g, and the last entry is the number of nodes";

/// The graphs of a dataset that has many.
#[derive(Clone, Debug, PartialEq)]
pub struct Graphs {
    /// Graph g has the nodes from `ptr[g]` up to `ptr[g + 1]`.
    pub ptr: Buf<u64>,
    /// A label, or a row of them, per graph.
    pub labels: Option<Labels>,
}

impl Graphs {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.ptr.len().saturating_sub(1)
    }

    /// The nodes of one.
    pub fn nodes(&self, graph: usize) -> Range<usize> {
        self.ptr[graph] as usize..self.ptr[graph + 1] as usize
    }

    pub(super) fn map(dir: &Path, meta: &Meta) -> Result<Option<Self>> {
        let path = dir.join(FILE);
        match (path.exists(), meta.task.is_of_graphs()) {
            (false, false) => return Ok(None),
            (true, true) => {}
            (false, true) => {
                let problem = "the task is of whole graphs, but there is no graph_ptr.npy";
                return Err(Error::bad(path, "graph_ptr", problem, REMEDY));
            }
            (true, false) => {
                let problem = "there is a graph_ptr.npy, but the task is not of whole graphs";
                let remedy = "set task = \"graph-classification\" or \"graph-regression\", or remove graph_ptr.npy";
                return Err(Error::bad(dir.join("meta.toml"), "task", problem, remedy));
            }
        }
        if dir.join(Labelled::Nodes(0).file()).exists() {
            let problem = "there are labels of nodes, but the task is of whole graphs";
            return Err(Error::bad(dir.join("label.npy"), "label", problem, "remove label.npy, or correct the task"));
        }
        let file = NpyFile::open(&path)?;
        let &[entries] = file.shape() else { return Err(file.wrong_shape("graph_ptr", "[graphs + 1]")) };
        if file.dtype() != NpyType::I64 {
            return Err(file.wrong_dtype("graph_ptr", "int64"));
        }
        let ptr = non_negative(&file, "graph_ptr")?;
        let of = Labelled::Graphs(entries.saturating_sub(1));
        Ok(Some(Self { ptr, labels: Labels::map(dir, meta, of)? }))
    }

    /// Every node belongs to a graph, and every graph has one. `dir` is for messages.
    pub(super) fn check(&self, dir: &Path, num_nodes: usize) -> Result<()> {
        let wrong = |at: usize, text: String| {
            Err(Error::bad(dir.join(FILE), "graph_ptr", Problem::at(Position::element(at), text), REMEDY))
        };
        match (self.ptr.first(), self.ptr.last()) {
            (Some(0), Some(end)) if *end == num_nodes as u64 => {}
            (Some(0), Some(end)) => {
                return wrong(self.count(), format!("graph_ptr ends with {end}: there are {num_nodes} nodes"));
            }
            (Some(first), _) => return wrong(0, format!("graph_ptr[0] = {first}: the first graph begins with node 0")),
            (None, _) => return wrong(0, "graph_ptr has no entry, expected graphs + 1".into()),
        }
        match self.ptr.par_windows(2).position_first(|ends| ends[0] >= ends[1]) {
            Some(g) if self.ptr[g] == self.ptr[g + 1] => wrong(g + 1, format!("graph {g} has no node")),
            Some(g) => wrong(g + 1, format!("graph_ptr[{}] = {} is below {}", g + 1, self.ptr[g + 1], self.ptr[g])),
            None => Ok(()),
        }
    }

    /// No edge leads from one graph to another. What is a row, and every offset, was seen to be in range.
    pub(super) fn check_edges<I: NodeId>(&self, dir: &Path, csr: &Csr<I>) -> Result<()> {
        let leaves = |graph: usize| {
            let nodes = self.nodes(graph);
            let out = |row: usize| csr.row(row).iter().position(|j| !nodes.contains(&j.index())).map(|at| (row, at));
            nodes.clone().find_map(out)
        };
        let Some((row, at)) = (0..self.count()).into_par_iter().find_map_first(leaves) else { return Ok(()) };
        let edge = csr.edges_of(row).start + at;
        let problem = format!("indices[{edge}] = {}: node {row} is of another graph", csr.row(row)[at].index());
        let remedy = "both ends of an edge belong to one graph: correct graph_ptr.npy or the edges";
        Err(Error::bad(dir.join("indices.npy"), "indices", Problem::at(Position::element(edge), problem), remedy))
    }
}
