//! A multi-layer perceptron over the features: what a graph model must beat.

use graphweft_tensor::{DType, Result};

use super::check_layers;
use crate::init::Init;
use crate::keys::keys;
use crate::model::{Model, ModelInfo, ModelKeys, Reach};
use crate::network::{Network, Shape};
use crate::parts::linear::Perceptron;

keys! {
    /// Columns between layers.
    hidden: usize = 128,
    /// Linear layers.
    layers: usize = 2,
}

impl Model for Config {
    fn describe(&self) -> ModelInfo {
        ModelInfo::new(Reach::Row, self.hidden, self.layers)
    }

    fn network(&self, init: &Init<'_>, shape: &Shape) -> Result<Network> {
        check_layers(Self::NAME, self.layers)?;
        let (hidden, layers) = (self.hidden, self.layers);
        let perceptron =
            Perceptron { name: "lins", first: 0, layers, inputs: shape.inputs(), hidden, outputs: shape.classes };
        Ok(Network::new(perceptron.build(init, DType::compute)?))
    }
}

impl ModelKeys for Config {
    const NAME: &'static str = "mlp";
    const ABOUT: &'static str = "features only: what a graph model must beat";
}
