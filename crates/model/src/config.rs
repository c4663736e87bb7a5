//! The `[model]` section: which model, and its keys.

use graphweft_tensor::{DType, Device, Result};
use serde::{Deserialize, Serialize};

use crate::init::Init;
use crate::models::{gt, mlp};
use crate::network::{Network, Shape};

/// A model's name and keys. Unknown keys are errors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "lowercase")]
pub enum ModelConfig {
    /// Graph transformer.
    Gt(gt::Config),
    /// Features only.
    Mlp(mlp::Config),
}

impl ModelConfig {
    /// Builds the model on `device` with parameters of type `dtype` drawn from `seed`.
    pub fn build(&self, device: &Device, shape: Shape, dtype: DType, seed: u64) -> Result<Network> {
        let init = Init::new(device, dtype, seed);
        match self {
            Self::Gt(config) => gt::build(config, &init, shape),
            Self::Mlp(config) => mlp::build(config, &init, shape),
        }
    }
}
