//! The `[model]` section: which model, and its keys.

use graphweft_graph::Csr;
use graphweft_tensor::{DType, Device, Result};
use serde::{Deserialize, Serialize};

use crate::init::Init;
use crate::models::{gat, gcn, gin, gt, mlp, sage, stack};
use crate::network::{Network, Shape};
use crate::prepare::Prepared;

/// A model's name and keys. Unknown keys are errors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "lowercase")]
pub enum ModelConfig {
    /// Graph transformer.
    Gt(gt::Config),
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
    /// Features only.
    Mlp(mlp::Config),
}

impl ModelConfig {
    /// The graph that the model works on: `csr`, with the edges that the model adds to it.
    pub fn prepare(&self, csr: Csr<u32>, seed: u64) -> Result<Prepared> {
        let _ = seed;
        Ok(Prepared::plain(csr))
    }

    /// Builds the model on `device` with parameters of type `dtype` drawn from `seed`.
    pub fn build(&self, device: &Device, shape: Shape, dtype: DType, seed: u64) -> Result<Network> {
        let (init, shape) = (Init::new(device, dtype, seed), &shape);
        match self {
            Self::Gt(config) => gt::build(config, &init, shape),
            Self::Gcn(config) => gcn::build(config, &init, shape),
            Self::Sage(config) => sage::build(config, &init, shape),
            Self::Gat(config) => gat::build(config, &init, shape),
            Self::Gatv2(config) => gat::build_v2(config, &init, shape),
            Self::Gin(config) => gin::build(config, &init, shape),
            Self::Mlp(config) => mlp::build(config, &init, shape),
        }
    }
}
