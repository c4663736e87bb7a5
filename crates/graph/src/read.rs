//! Readers: other formats into a dataset folder. One file per format.
//!
//! A reader takes an [`Input`] (or a [`Folder`] of them), checks everything it reads, and returns an [`Imported`]:
//! edges in a [sorter](crate::build::EdgeSorter), features, labels and splits. It writes nothing but temporary files,
//! and reads from memory as well as from disk, which is how the fuzz targets run it. [`Imported::write`] makes the
//! folder.
//!
//! Conventions shared by all readers:
//!
//! * an entry (i, j) of an adjacency matrix, or a line `i j` of an edge list, is the edge i → j; the folder's CSR is by
//!   destination, so i appears in row j;
//! * edges stay as they are, parallel ones included, unless the [rules](crate::build::EdgeRules) say otherwise;
//! * features become float32 (float16 stays), sparse where that takes fewer bytes; labels become int64, NaN becomes −1;
//! * counts claimed by a header are compared with what is there, never allocated.

pub mod arrays;
pub mod edge_list;
pub mod gnn_benchmark;
pub mod heterophilous;
pub mod links;
pub mod matrix_market;
pub mod metis;
pub mod n_triples;
pub mod ogb;
pub mod tables;
pub mod triples;
pub mod tu;
pub mod types_json;
pub mod union;

mod features;
mod imported;
mod input;
mod labels;
mod many;
mod names;
mod npz;
mod ogb_graphs;
mod ogb_links;
mod ogb_typed;
mod relations;
mod splits;
mod table;
#[cfg(test)]
mod testing;
mod text;

use graphweft_base::progress::Progress;

use crate::build::{EdgeRules, Scratch};

pub use imported::{Imported, ImportedGraphs, NodeIds, Summary, TextFile};
pub use input::{Directory, Folder, Input, Memory};

/// What every reader is given besides its input.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// What to do to the edges.
    pub rules: EdgeRules,
    /// Where temporary files go.
    pub scratch: &'a Scratch,
    /// Who watches.
    pub progress: &'a dyn Progress,
}
