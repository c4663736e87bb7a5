//! GIN of Xu, Hu, Leskovec and Jegelka: `torch_geometric.nn.models.GIN`.

use graphweft_tensor::Result;
use serde::{Deserialize, Serialize};

use super::stack;
use crate::convs::gin::GinConv;
use crate::init::Init;
use crate::model::{Model, ModelInfo, ModelKeys, Reach};
use crate::network::{Network, Shape};

/// Keys of the `[model]` section: those of a [stack](stack::Config).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Config(pub stack::Config);

impl Model for Config {
    fn describe(&self) -> ModelInfo {
        ModelInfo { reads_out: true, ..ModelInfo::new(Reach::Edges, self.0.hidden, self.0.layers) }
    }

    fn network(&self, init: &Init<'_>, shape: &Shape) -> Result<Network> {
        let (norm, activation) = (self.0.norm, self.0.activation.into());
        stack::build(Self::NAME, &self.0, init, shape, |spec| {
            Ok(Box::new(GinConv::new(init, spec.name, spec.inputs, spec.outputs, norm, activation)?))
        })
    }
}

impl ModelKeys for Config {
    const NAME: &'static str = "gin";
    const ABOUT: &'static str = "graph isomorphism network";
}
