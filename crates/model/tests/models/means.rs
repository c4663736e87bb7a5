//! A model that no crate knows: means of the neighbours' columns, after one linear layer. Tests of `train` use it too.

use std::rc::Rc;

use graphweft_model::parts::head::{Head, parameters};
use graphweft_model::parts::input::Input;
use graphweft_model::{
    Aggregation, Context, EdgeWeight, Init, Layer, Model, ModelInfo, ModelKeys, Network, Reach, Shape,
};
use graphweft_tensor::ops::activation::Activation;
use graphweft_tensor::ops::linear::Affine;
use graphweft_tensor::{Parameter, Result, Tape, Var};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Means {
    pub(crate) hidden: usize,
    pub(crate) rounds: usize,
}

impl Default for Means {
    fn default() -> Self {
        Self { hidden: 16, rounds: 2 }
    }
}

impl Model for Means {
    fn describe(&self) -> ModelInfo {
        ModelInfo { self_loops: true, ..ModelInfo::new(Reach::Edges, self.hidden, self.rounds) }
    }

    fn network(&self, init: &Init<'_>, shape: &Shape) -> Result<Network> {
        let mut layers: Vec<Rc<dyn Layer>> = vec![Rc::new(First(init.linear("first", shape.features, self.hidden)?))];
        layers.extend((0..self.rounds).map(|k| -> Rc<dyn Layer> { Rc::new(Round(k as u32 + 1)) }));
        layers.push(Rc::new(Head::new(init, "last", self.hidden, shape.classes)?));
        Ok(Network::new(layers))
    }
}

impl ModelKeys for Means {
    const NAME: &'static str = "means";
    const ABOUT: &'static str = "means of the neighbours' columns";
}

struct First(Affine);

impl Layer for First {
    fn name(&self) -> String {
        "first".into()
    }

    fn parameters(&self) -> Vec<Rc<Parameter>> {
        parameters(&self.0).collect()
    }

    fn sees_edges(&self) -> bool {
        false
    }

    fn forward(&self, tape: &mut Tape, cx: &Context, _: &[Var]) -> Result<Vec<Var>> {
        Ok(vec![Input::features(tape, cx)?.linear(tape, &self.0, Activation::Relu, cx.dtype)?])
    }
}

struct Round(u32);

impl Layer for Round {
    fn name(&self) -> String {
        format!("rounds.{}", self.0)
    }

    fn forward(&self, tape: &mut Tape, cx: &Context, state: &[Var]) -> Result<Vec<Var>> {
        Ok(vec![cx.ops.aggregate(tape, self.0, &state[0], Aggregation::Mean, EdgeWeight::None)?])
    }
}
