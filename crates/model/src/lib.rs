//! Models, written once for every way of spreading the work.
//!
//! All activations are matrices whose rows are nodes. Dense operations act row by row; whatever looks across rows goes
//! through [`GraphOps`], which is implemented once per strategy (crate `parallel`). A model never assumes that all rows
//! are here.
//!
//! * [`GraphOps`]: attention and aggregation over edges, global attention, moments;
//! * [`Network`]: a list of [`Layer`]s with explicit state between them, so that whoever runs it may cut anywhere;
//! * [`convs`]: convolutions, which several models stack;
//! * [`models`]: one file per model, with its keys of the `[model]` section;
//! * [`decoders`]: what scores a link, from the rows of its ends;
//! * [`encoding`]: positional encodings, functions of the graph alone;
//! * [`Init`]: initial weights, as PyTorch and PyTorch Geometric choose them, from counter-based randomness.

mod config;
pub mod convs;
pub mod decoders;
pub mod encoding;
mod graph_ops;
mod init;
mod keys;
mod model;
pub mod models;
mod network;
pub mod parts;
mod prepare;

pub use config::{ModelConfig, ModelKind, Models};
pub use graph_ops::{
    Aggregation, Attend, EdgeBias, EdgeScore, EdgeValues, EdgeWeight, GraphOps, HeadVectors, Membership, OwnRows,
    RelationMaps, Score, TokensAttend, Total,
};
pub use init::{Init, OwnColumns};
pub use keys::{comment_on_field, keys_of};
pub use model::{Model, ModelInfo, ModelKeys, Reach, UseEdges, UseTypes};
pub use network::{Buffer, Context, Features, Layer, Mode, Network, Rates, Remat, Shape, Target, TypeCounts};
pub use prepare::Prepared;
