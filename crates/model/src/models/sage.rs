//! GraphSAGE of Hamilton, Ying and Leskovec, on all neighbours: `torch_geometric.nn.models.GraphSAGE`.

use graphweft_tensor::Result;
use serde::{Deserialize, Serialize};

use super::stack::{self, keys_of_a_stack};
use crate::convs::sage::SageConv;
use crate::graph_ops::Aggregation;
use crate::init::Init;
use crate::model::{Model, ModelInfo, ModelKeys, Reach};
use crate::network::{Network, Shape};

keys_of_a_stack! {
    /// Keys of the `[model]` section: those of a [stack](stack::Config) and `aggregation`.
    {
        /// How neighbours become one row.
        aggregation: SageAggregation,
    }
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
        Self::beside(stack::Config::default(), SageAggregation::Mean)
    }
}

impl Model for Config {
    fn describe(&self) -> ModelInfo {
        ModelInfo { reads_out: true, ..ModelInfo::new(Reach::Edges, self.hidden, self.layers) }
    }

    fn network(&self, init: &Init<'_>, shape: &Shape) -> Result<Network> {
        let aggregation = match self.aggregation {
            SageAggregation::Mean => Aggregation::Mean,
            SageAggregation::Max => Aggregation::Max,
        };
        stack::build(Self::NAME, &self.of_stack(), init, shape, |spec| {
            Ok(Box::new(SageConv::new(init, spec.name, spec.inputs, spec.outputs, aggregation)?))
        })
    }
}

impl ModelKeys for Config {
    const NAME: &'static str = "sage";
    const ABOUT: &'static str = "GraphSAGE on all neighbours";
}
