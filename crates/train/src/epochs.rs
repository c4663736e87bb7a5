//! What an epoch goes through.
//!
//! * [`source`]: the trait that all of them implement, and who chooses one;
//! * `whole_graph`: all rows of all ranks at once;
//! * `batches`: batches of many graphs;
//! * `pieces`: pieces of the graph, of which each rank has its own;
//! * `out_of_core`: pieces of a graph that lies on a disk, and `layer_wise`: exact outputs of it;
//! * [`pipeline`]: layers that ranks share, through which chunks pass;
//! * `links`: pairs of nodes of the whole graph;
//! * [`learner`]: a model that learns from rows; `cuda_graph`: when a GPU repeats a step by itself.

pub(crate) mod batches;
pub(crate) mod cuda_graph;
pub(crate) mod layer_wise;
pub(crate) mod learner;
pub(crate) mod links;
pub(crate) mod network;
pub(crate) mod out_of_core;
pub(crate) mod pieces;
pub(crate) mod pipeline;
pub(crate) mod sharded;
pub(crate) mod source;
pub(crate) mod watch;
pub(crate) mod whole_graph;
