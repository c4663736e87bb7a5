//! Graphs for Graphweft.
//!
//! This crate knows what a graph *is* and where it comes from; it knows nothing of tensors or of ranks that talk.
//!
//! * [`Csr`]: the graph in memory, by destination, and its transformations;
//! * [`Dataset`]: a folder of `.npy` files, mapped, validated once;
//! * [`generate`]: graphs made to order, from [counter-based randomness](graphweft_base::random);
//! * [`stats`]: what can be said about a graph in numbers;
//! * [`partition`]: dividing a graph among ranks, and what that costs;
//! * [`chunks`]: a graph in pieces that are visited one after another;
//! * [`read`]: readers that turn other formats into such a folder, and [`build`], which sorts their edges;
//! * [`export`]: such a folder in other formats;
//! * [`npy`]: the one file format everything is stored in.
//!
//! A graph too large for memory stays on disk: [`Buf`] hides whether an array is owned or mapped.

mod buf;
pub mod build;
pub mod chunks;
mod csr;
pub mod dataset;
pub mod export;
#[doc(hidden)]
pub mod fuzz;
pub mod generate;
pub mod npy;
pub mod partition;
pub mod read;
pub mod stats;

pub use buf::Buf;
pub use csr::{AnyCsr, Csr, CsrError, NodeId, Permutation, PermutationError, SelfLoops, Subgraph, TypedCsr};
pub use dataset::Dataset;
