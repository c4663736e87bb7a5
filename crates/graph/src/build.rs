//! Building a graph that need not fit in memory.
//!
//! Readers push edges in whatever order their format has. [`EdgeSorter`] packs each edge into one integer, sorts what
//! fits into its budget, spills sorted runs to an unnamed file and merges them at the end; the CSR comes out as a
//! stream of [`Block`]s that go straight to disk. Memory is bounded by the budget, whatever the number of edges.

mod edges;
mod key;
mod scratch;
mod sorter;
mod spool;

pub use edges::{Block, EdgeRules, EdgeSorter, Expected};
pub use scratch::Scratch;
pub(crate) use sorter::Sorter;
pub use spool::Spool;
