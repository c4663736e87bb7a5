//! GCN of Kipf and Welling: `torch_geometric.nn.models.GCN`. Self-loops are added unless the configuration says otherwise.

use graphweft_tensor::Result;

use super::stack;
use crate::convs::gcn::GcnConv;
use crate::init::Init;
use crate::network::{Network, Shape};

/// Builds the model.
pub fn build(config: &stack::Config, init: &Init<'_>, shape: &Shape) -> Result<Network> {
    stack::build("gcn", config, init, shape, |place| {
        Ok(Box::new(GcnConv::new(init, place.name, place.inputs, place.outputs)?))
    })
}
