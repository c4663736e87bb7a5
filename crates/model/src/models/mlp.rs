//! A multi-layer perceptron over the features: what a graph model must beat.

use std::rc::Rc;

use graphweft_tensor::ops::activation::Activation;
use graphweft_tensor::ops::epilogue::{Epilogue, epilogue};
use graphweft_tensor::ops::linear::Affine;
use graphweft_tensor::{Parameter, Result, Tape, Var};
use serde::{Deserialize, Serialize};

use super::check_layers;
use crate::init::Init;
use crate::network::{Layer, Network, Shape, Step};
use crate::parts::head::parameters;
use crate::parts::input::Input;

/// Keys of the `[model]` section.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Columns between layers.
    pub hidden: usize,
    /// Linear layers.
    pub layers: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self { hidden: 128, layers: 2 }
    }
}

struct MlpLayer {
    number: u32,
    affine: Affine,
    last: bool,
}

impl Layer for MlpLayer {
    fn name(&self) -> String {
        format!("lins.{}", self.number)
    }

    fn parameters(&self) -> Vec<Rc<Parameter>> {
        parameters(&self.affine).collect()
    }

    fn sees_edges(&self) -> bool {
        false
    }

    fn forward(&self, tape: &mut Tape, step: &Step, state: &[Var]) -> Result<Vec<Var>> {
        let activation = if self.last { Activation::None } else { Activation::Relu };
        let dtype = if self.last { step.dtype.compute() } else { step.dtype };
        let y = Input::of(tape, step, state)?.linear(tape, &self.affine, activation, dtype)?;
        let drop = if self.last { None } else { step.rows(step.rates.hidden, self.number, 1) };
        Ok(vec![epilogue(tape, &y, Epilogue { dropout: drop.as_ref(), ..Epilogue::default() }, dtype)?])
    }
}

/// Builds the model.
pub fn build(config: &Config, init: &Init<'_>, shape: &Shape) -> Result<Network> {
    check_layers("mlp", config.layers)?;
    let layer = |k: usize| -> Result<Rc<dyn Layer>> {
        let inputs = if k == 0 { shape.features } else { config.hidden };
        let last = k + 1 == config.layers;
        let outputs = if last { shape.classes } else { config.hidden };
        let affine = init.linear(&format!("lins.{k}"), inputs, outputs)?;
        Ok(Rc::new(MlpLayer { number: k as u32, affine, last }))
    };
    Ok(Network::new((0..config.layers).map(layer).collect::<Result<_>>()?))
}
