//! GCN of Kipf and Welling: `torch_geometric.nn.models.GCN`. Self-loops are added unless the configuration says
//! otherwise.

use graphweft_tensor::Result;
use serde::{Deserialize, Serialize};

use super::stack;
use crate::convs::gcn::GcnConv;
use crate::init::Init;
use crate::model::{Model, ModelInfo, ModelKeys, Reach};
use crate::network::{Network, Shape};

/// Keys of the `[model]` section: those of a [stack](stack::Config).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Config(pub stack::Config);

impl Model for Config {
    fn describe(&self) -> ModelInfo {
        ModelInfo { reads_out: true, self_loops: true, ..ModelInfo::new(Reach::Edges, self.0.hidden, self.0.layers) }
    }

    fn network(&self, init: &Init<'_>, shape: &Shape) -> Result<Network> {
        stack::build(Self::NAME, &self.0, init, shape, |spec| {
            Ok(Box::new(GcnConv::new(init, spec.name, spec.inputs, spec.outputs)?))
        })
    }
}

impl ModelKeys for Config {
    const NAME: &'static str = "gcn";
    const ABOUT: &'static str = "graph convolutional network";
}
