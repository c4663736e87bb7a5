//! GraphSAGE of Hamilton, Ying and Leskovec, on all neighbours: `torch_geometric.nn.models.GraphSAGE`.

use graphweft_tensor::Result;
use serde::{Deserialize, Serialize};

use super::stack::{self, Shell};
use crate::convs::sage::SageConv;
use crate::graph_ops::Aggregation;
use crate::init::Init;
use crate::network::{Network, Shape};
use crate::parts::activation::ActivationKind;
use crate::parts::norm::NormKind;

/// Keys of the `[model]` section: those of a [stack](stack::Config) and `aggregation`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs)] // As in the stack.
pub struct Config {
    pub hidden: usize,
    pub layers: usize,
    pub stack: Shell,
    pub norm: NormKind,
    pub activation: ActivationKind,
    pub residual: bool,
    pub input_linear: bool,
    /// How neighbours become one row.
    pub aggregation: SageAggregation,
}

/// How neighbours become one row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SageAggregation {
    /// Their mean.
    #[default]
    Mean,
    /// Their maximum per column.
    Max,
}

impl Default for Config {
    fn default() -> Self {
        let stack::Config { hidden, layers, stack, norm, activation, residual, input_linear } = Default::default();
        Self { hidden, layers, stack, norm, activation, residual, input_linear, aggregation: SageAggregation::Mean }
    }
}

/// Builds the model.
pub fn build(config: &Config, init: &Init<'_>, shape: &Shape) -> Result<Network> {
    let &Config { hidden, layers, stack, norm, activation, residual, input_linear, aggregation } = config;
    let config = stack::Config { hidden, layers, stack, norm, activation, residual, input_linear };
    let aggregation = match aggregation {
        SageAggregation::Mean => Aggregation::Mean,
        SageAggregation::Max => Aggregation::Max,
    };
    stack::build("sage", &config, init, shape, |place| {
        Ok(Box::new(SageConv::new(init, place.name, place.inputs, place.outputs, aggregation)?))
    })
}
