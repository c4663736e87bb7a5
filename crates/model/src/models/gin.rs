//! GIN of Xu, Hu, Leskovec and Jegelka: `torch_geometric.nn.models.GIN`.

use graphweft_tensor::Result;

use super::stack;
use crate::convs::gin::GinConv;
use crate::init::Init;
use crate::network::{Network, Shape};

/// Builds the model.
pub fn build(config: &stack::Config, init: &Init<'_>, shape: &Shape) -> Result<Network> {
    let (norm, activation) = (config.norm, config.activation.into());
    stack::build("gin", config, init, shape, |place| {
        Ok(Box::new(GinConv::new(init, place.name, place.inputs, place.outputs, norm, activation)?))
    })
}
