//! The `[model]` section: which model, and its keys.

use graphweft_graph::Csr;
use graphweft_tensor::{DType, Device, Result};
use serde::{Deserialize, Serialize};

use crate::init::Init;
use crate::models::{exphormer, gat, gcn, gcnii, gin, gps, gt, mlp, polynormer, sage, sgformer, stack};
use crate::network::{Network, Shape};
use crate::prepare::Prepared;

/// A model's name and keys. Unknown keys are errors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "lowercase")]
pub enum ModelConfig {
    /// Graph transformer.
    Gt(gt::Config),
    /// The graph transformer with expander edges and virtual nodes.
    Exphormer(exphormer::Config),
    /// Convolution over edges beside attention to all nodes.
    Gps(gps::Config),
    /// Attention to all nodes beside a GCN.
    Sgformer(sgformer::Config),
    /// Local layers, then attention to all nodes, with products.
    Polynormer(polynormer::Config),
    /// Graph convolutional network.
    Gcn(stack::Config),
    /// GraphSAGE.
    Sage(sage::Config),
    /// Graph attention network.
    Gat(gat::Config),
    /// The same with scores that look at all columns.
    Gatv2(gat::Config),
    /// Graph isomorphism network.
    Gin(stack::Config),
    /// A deep GCN whose layers all see the first rows.
    Gcnii(gcnii::Config),
    /// Features only.
    Mlp(mlp::Config),
}

impl ModelConfig {
    /// The graph that the model works on: `csr`, with the edges that the model adds to it.
    pub fn prepare(&self, csr: Csr<u32>, seed: u64) -> Result<Prepared> {
        match self {
            Self::Exphormer(config) => config.prepare(&csr, seed),
            _ => Ok(Prepared::plain(csr)),
        }
    }

    /// Whether it is published, and built by PyTorch Geometric, with an edge from every node to itself.
    pub fn adds_self_loops(&self) -> bool {
        match self {
            Self::Gcn(_) | Self::Gat(_) | Self::Gatv2(_) | Self::Gcnii(_) | Self::Sgformer(_) => true,
            Self::Gps(config) => config.local.adds_self_loops(),
            Self::Polynormer(config) => config.local.adds_self_loops(),
            Self::Gt(_) | Self::Exphormer(_) | Self::Sage(_) | Self::Gin(_) | Self::Mlp(_) => false,
        }
    }

    /// Whether it looks at edges at all.
    pub fn sees_edges(&self) -> bool {
        !matches!(self, Self::Mlp(_))
    }

    /// How many of its layers look along edges: a node's logits depend on nodes that are so many edges away.
    pub fn hops(&self) -> usize {
        match self {
            Self::Gt(config) => config.layers,
            Self::Exphormer(config) => config.layers,
            Self::Gps(config) => config.layers,
            Self::Sgformer(config) => config.graph_layers,
            Self::Polynormer(config) => config.layers,
            Self::Gcn(config) | Self::Gin(config) => config.layers,
            Self::Sage(config) => config.layers,
            Self::Gat(config) | Self::Gatv2(config) => config.layers,
            Self::Gcnii(config) => config.layers,
            Self::Mlp(_) => 0,
        }
    }

    /// Whether a layer looks along the edges of the data and nowhere else, so that its rows can be computed some at a time.
    pub fn follows_edges(&self) -> bool {
        match self {
            Self::Exphormer(_) | Self::Gps(_) | Self::Sgformer(_) | Self::Polynormer(_) => false,
            Self::Gt(_) | Self::Gcn(_) | Self::Sage(_) | Self::Gat(_) | Self::Gatv2(_) => true,
            Self::Gin(_) | Self::Gcnii(_) | Self::Mlp(_) => true,
        }
    }

    /// Builds the model on `device` with parameters of type `dtype` drawn from `seed`.
    pub fn build(&self, device: &Device, shape: Shape, dtype: DType, seed: u64) -> Result<Network> {
        let (init, shape) = (Init::new(device, dtype, seed), &shape);
        match self {
            Self::Gt(config) => gt::build(config, &init, shape),
            Self::Exphormer(config) => exphormer::build(config, &init, shape),
            Self::Gps(config) => gps::build(config, &init, shape),
            Self::Sgformer(config) => sgformer::build(config, &init, shape),
            Self::Polynormer(config) => polynormer::build(config, &init, shape),
            Self::Gcn(config) => gcn::build(config, &init, shape),
            Self::Sage(config) => sage::build(config, &init, shape),
            Self::Gat(config) => gat::build(config, &init, shape),
            Self::Gatv2(config) => gat::build_v2(config, &init, shape),
            Self::Gin(config) => gin::build(config, &init, shape),
            Self::Gcnii(config) => gcnii::build(config, &init, shape),
            Self::Mlp(config) => mlp::build(config, &init, shape),
        }
    }
}
