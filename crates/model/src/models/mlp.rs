//! A multi-layer perceptron over the features: what a graph model must beat.

use std::rc::Rc;

use graphweft_tensor::ops::activation::Activation;
use graphweft_tensor::ops::epilogue::{Epilogue, epilogue};
use graphweft_tensor::ops::linear::Affine;
use graphweft_tensor::{Parameter, Result, Tape, Var};
use serde::{Deserialize, Serialize};

use super::check_layers;
use crate::init::Init;
use crate::model::{Model, ModelInfo, ModelKeys, Reach};
use crate::network::{Context, Layer, Network, Shape};
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

    fn forward(&self, tape: &mut Tape, cx: &Context, state: &[Var]) -> Result<Vec<Var>> {
        let activation = if self.last { Activation::None } else { Activation::Relu };
        let dtype = if self.last { cx.dtype.compute() } else { cx.dtype };
        let y = Input::of(tape, cx, state)?.linear(tape, &self.affine, activation, dtype)?;
        let drop = if self.last { None } else { cx.rows(cx.rates.hidden, self.number, 1) };
        Ok(vec![epilogue(tape, &y, Epilogue { dropout: drop.as_ref(), ..Epilogue::default() }, dtype)?])
    }
}

impl Model for Config {
    fn describe(&self) -> ModelInfo {
        ModelInfo::new(Reach::Row, self.hidden, self.layers)
    }

    fn network(&self, init: &Init<'_>, shape: &Shape) -> Result<Network> {
        check_layers(Self::NAME, self.layers)?;
        let layer = |k: usize| -> Result<Rc<dyn Layer>> {
            let inputs = if k == 0 { shape.features } else { self.hidden };
            let last = k + 1 == self.layers;
            let outputs = if last { shape.classes } else { self.hidden };
            let affine = init.linear(&format!("lins.{k}"), inputs, outputs)?;
            Ok(Rc::new(MlpLayer { number: k as u32, affine, last }))
        };
        Ok(Network::new((0..self.layers).map(layer).collect::<Result<_>>()?))
    }
}

impl ModelKeys for Config {
    const NAME: &'static str = "mlp";
    const ABOUT: &'static str = "features only: what a graph model must beat";
}
