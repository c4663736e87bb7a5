//! APPNP of Gasteiger, Bojchevski and Günnemann ("Predict then propagate"), with PyTorch Geometric's `APPNP`: a
//! perceptron predicts, then personalised PageRank spreads what it predicted.
//!
//! h = lins.k of the features, with ReLU in between; z = h; z ← (1 − α)·Âz + α·h, K times. Only the perceptron has
//! parameters, so steps are cheap: a row that travels has as many columns as there are classes. Self-loops are added
//! unless the configuration says otherwise.
//!
//! Dropout is that of the perceptron: of features (`train.input_dropout`) and of rows between its layers
//! (`train.dropout`). The paper also drops edges of Â, anew in every step; that is not done here.

use std::rc::Rc;

use graphweft_tensor::ops::combine::combine;
use graphweft_tensor::ops::epilogue::{Epilogue, epilogue};
use graphweft_tensor::{Error, Result, Tape, Var};

use super::{check_layers, check_share, no_encodings};
use crate::graph_ops::{Aggregation, EdgeWeight};
use crate::init::Init;
use crate::keys::keys;
use crate::model::{Model, ModelInfo, ModelKeys, Reach};
use crate::network::{Context, Layer, Network, Shape};
use crate::parts::linear::Perceptron;

keys! {
    /// Columns between linear layers.
    hidden: usize = 64,
    /// Linear layers, before the first step.
    layers: usize = 2,
    /// How often rows are propagated.
    steps: usize = 10,
    /// Weight of the rows before the first step, in each of them.
    alpha: f64 = 0.1,
}

struct Step {
    /// Continues the numbers of linear layers.
    number: u32,
    /// From 0.
    step: usize,
    alpha: f64,
    last: bool,
}

impl Layer for Step {
    fn name(&self) -> String {
        format!("steps.{}", self.step)
    }

    fn forward(&self, tape: &mut Tape, cx: &Context, state: &[Var]) -> Result<Vec<Var>> {
        // At first they are one matrix, which is handed over once: as two, its gradient would be rounded once more
        // where the layer is computed again.
        let (z, h) = (&state[0], state.get(1).unwrap_or(&state[0]));
        let sum = cx.ops.aggregate(tape, self.number, z, Aggregation::Sum, EdgeWeight::Symmetric)?;
        let z = combine(tape, 1.0 - self.alpha, &sum, self.alpha, h)?;
        if self.last {
            return Ok(vec![epilogue(tape, &z, Epilogue::default(), cx.dtype.compute())?]);
        }
        Ok(vec![z, h.clone()])
    }
}

impl Model for Config {
    fn describe(&self) -> ModelInfo {
        let hops = self.steps;
        ModelInfo { self_loops: true, hops, ..ModelInfo::new(Reach::Edges, self.hidden, self.layers) }
    }

    fn network(&self, init: &Init<'_>, shape: &Shape) -> Result<Network> {
        let &Config { hidden, layers, steps, alpha } = self;
        check_layers(Self::NAME, layers)?;
        check_share(Self::NAME, "alpha", alpha)?;
        no_encodings(Self::NAME, shape)?;
        if steps == 0 {
            let problem = "model.steps = 0: it takes at least one; without any it is model.name = \"mlp\"".into();
            return Err(Error::Argument { op: Self::NAME, problem });
        }
        let perceptron =
            Perceptron { name: "lins", first: 0, layers, inputs: shape.inputs(), hidden, outputs: shape.classes };
        let mut all = perceptron.build(init, |dtype| dtype)?;
        all.extend((0..steps).map(|step| -> Rc<dyn Layer> {
            Rc::new(Step { number: (layers + step) as u32, step, alpha, last: step + 1 == steps })
        }));
        Ok(Network::new(all))
    }
}

impl ModelKeys for Config {
    const NAME: &'static str = "appnp";
    const ABOUT: &'static str = "a perceptron's predictions, spread by personalised PageRank";
}
