//! GATv2 of Brody, Alon and Yahav: [GAT](super::gat) with scores that look at all columns.

use graphweft_tensor::Result;
use serde::{Deserialize, Serialize};

use super::{gat, stack};
use crate::convs::gat::Between;
use crate::convs::gatv2::Gatv2Conv;
use crate::init::Init;
use crate::model::{Model, ModelInfo, ModelKeys, Reach};
use crate::network::{Network, Shape};

/// Keys of the `[model]` section: those of [GAT](gat::Config).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Config(pub gat::Config);

impl Model for Config {
    fn describe(&self) -> ModelInfo {
        ModelInfo {
            heads: Some(self.0.heads),
            reads_out: true,
            self_loops: true,
            edges: self.0.edges,
            ..ModelInfo::new(Reach::Edges, self.0.hidden, self.0.layers)
        }
    }

    fn network(&self, init: &Init<'_>, shape: &Shape) -> Result<Network> {
        let (config, heads) = self.0.split(Self::NAME)?;
        stack::build(Self::NAME, &config, init, shape, |spec| {
            let heads = heads.of(spec);
            let between = Between { inputs: spec.inputs, outputs: spec.outputs, edges: &shape.edge_features };
            Ok(Box::new(Gatv2Conv::new(init, spec.name, between, heads)?))
        })
    }
}

impl ModelKeys for Config {
    const NAME: &'static str = "gatv2";
    const ABOUT: &'static str = "GAT with scores that look at all columns";
}
