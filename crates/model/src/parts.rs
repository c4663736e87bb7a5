//! Pieces that several models share.

pub mod activation;
pub(crate) mod block;
pub(crate) mod constants;
pub mod edges;
pub(crate) mod graph_norm;
pub mod head;
pub mod input;
pub(crate) mod linear;
pub mod norm;
pub mod readout;
pub mod remat;
pub(crate) mod set2set;
pub(crate) mod typed;
