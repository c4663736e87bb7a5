//! A model of one's own: features are smoothed over the graph a few times, then classified (SGC).

#![allow(clippy::print_stdout)]

use std::rc::Rc;

use graphweft::Run;
use graphweft::extend::{
    Aggregation, Computed, Context, EdgeWeight, Embedding, Head, Init, Layer, Model, ModelInfo, ModelKeys, Network,
    Reach, Shape, Tape, Var,
};
use serde::{Deserialize, Serialize};

/// Its keys, which are set as `model.hidden` and `model.hops`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Smooth {
    hidden: usize,
    hops: usize,
}

impl Default for Smooth {
    fn default() -> Self {
        Self { hidden: 16, hops: 2 }
    }
}

/// A layer without parameters: the mean over neighbours, weighted as in a GCN. Written once, it works on any number of
/// ranks.
struct Hop(u32);

impl Layer for Hop {
    fn name(&self) -> String {
        format!("hops.{}", self.0)
    }

    fn forward(&self, tape: &mut Tape, cx: &Context, state: &[Var]) -> Computed<Vec<Var>> {
        Ok(vec![cx.ops.aggregate(tape, self.0, &state[0], Aggregation::Sum, EdgeWeight::Symmetric)?])
    }
}

impl Model for Smooth {
    fn describe(&self) -> ModelInfo {
        ModelInfo::new(Reach::Edges, self.hidden, self.hops)
    }

    fn network(&self, init: &Init<'_>, shape: &Shape) -> Computed<Network> {
        let mut layers: Vec<Rc<dyn Layer>> = vec![Rc::new(Embedding::new(init, "input", shape, self.hidden)?)];
        layers.extend((0..self.hops as u32).map(|k| Rc::new(Hop(k)) as Rc<dyn Layer>));
        layers.push(Rc::new(Head::new(init, "output", self.hidden, shape.classes)?));
        Ok(Network::new(layers))
    }
}

impl ModelKeys for Smooth {
    const NAME: &'static str = "smooth";
    const ABOUT: &'static str = "features smoothed over the graph, then a linear layer";
}

fn main() -> graphweft::Result<()> {
    let dir = tempfile::tempdir()?;
    for hops in [0, 1, 2] {
        let run = Run::new("sbm:500:4:12:f=8").own_model::<Smooth>().set("model.hops", hops).ranks(2);
        let report = run.set("train.lr", 0.05).epochs(30).output(dir.path().join(format!("{hops}"))).train()?;
        println!("{} with {hops} hops: {:.1} %", report.model, report.test.mean);
    }
    Ok(())
}
