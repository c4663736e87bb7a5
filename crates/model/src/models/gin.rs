//! GIN of Xu, Hu, Leskovec and Jegelka: `torch_geometric.nn.models.GIN`. Where edges have features it is GINE of Hu et
//! al., `torch_geometric.nn.GINEConv`: what is summed is ReLU(x_j + W·e_ij + b).

use graphweft_tensor::Result;

use super::stack::{self, keys_of_a_stack};
use crate::convs::gat::Between;
use crate::convs::gin::GinConv;
use crate::init::Init;
use crate::model::{Model, ModelInfo, ModelKeys, Reach, UseEdges};
use crate::network::{Network, Shape};

keys_of_a_stack! {
    /// Keys of the `[model]` section: those of a [stack](stack::Config) and `edges`.
    {
        /// Whether layers use features of edges, where the data have some.
        edges: UseEdges,
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::beside(stack::Config::default(), UseEdges::Use)
    }
}

impl Model for Config {
    fn describe(&self) -> ModelInfo {
        ModelInfo { reads_out: true, edges: self.edges, ..ModelInfo::new(Reach::Edges, self.hidden, self.layers) }
    }

    fn network(&self, init: &Init<'_>, shape: &Shape) -> Result<Network> {
        let (norm, activation) = (self.norm, self.activation.into());
        stack::build(Self::NAME, &self.of_stack(), init, shape, |spec| {
            let between = Between { inputs: spec.inputs, outputs: spec.outputs, edges: &shape.edge_features };
            Ok(Box::new(GinConv::new(init, spec.name, between, norm, activation)?))
        })
    }
}

impl ModelKeys for Config {
    const NAME: &'static str = "gin";
    const ABOUT: &'static str = "graph isomorphism network, with features of edges GINE";
}
