//! A model that this crate does not know: made, named and trained from outside.

use std::rc::Rc;

use graphweft_model::parts::head::Head;
use graphweft_model::parts::input::Input;
use graphweft_model::{
    Aggregation, Context, EdgeWeight, Init, Layer, Mode, Model, ModelConfig, ModelInfo, ModelKeys, Models, Network,
    Reach, Shape,
};
use graphweft_tensor::ops::activation::Activation;
use graphweft_tensor::ops::linear::Affine;
use graphweft_tensor::ops::loss::{LossRows, softmax_cross_entropy};
use graphweft_tensor::optim::{Optimizer, Rule};
use graphweft_tensor::{DType, Device, Parameter, Result, Tag, Tape, Var};
use serde::{Deserialize, Serialize};

use super::{CLASSES, N, Run, f64s};

/// Means of the neighbours' columns, after one linear layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Means {
    hidden: usize,
    rounds: usize,
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
        graphweft_model::parts::head::parameters(&self.0).collect()
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

    fn parameters(&self) -> Vec<Rc<Parameter>> {
        Vec::new()
    }

    fn forward(&self, tape: &mut Tape, cx: &Context, state: &[Var]) -> Result<Vec<Var>> {
        Ok(vec![cx.ops.aggregate(tape, self.0, &state[0], Aggregation::Mean, EdgeWeight::None)?])
    }
}

#[test]
fn a_model_from_outside_is_named_beside_the_others_or_handed_over() {
    let models = Models::default().with::<Means>();
    assert_eq!(models.names().len(), Models::default().names().len() + 1);
    let read = models.read(toml::from_str("name = 'means'\nrounds = 3").unwrap()).unwrap();
    assert_eq!(read, ModelConfig::new(Means { rounds: 3, ..Means::default() }));
    assert_eq!((read.name(), read.hops(), read.layers(), read.heads()), ("means", 3, 3, None));
    assert!(read.adds_self_loops() && read.sees_edges() && read.follows_edges());
    assert_eq!(toml::to_string(&read).unwrap(), "name = \"means\"\nhidden = 16\nrounds = 3\n");
    // Others do not know it, and it takes no keys but its own.
    assert!(toml::from_str::<ModelConfig>("name = 'means'").is_err());
    assert!(models.read(toml::from_str("name = 'means'\nheads = 2").unwrap()).is_err());
    // The same name again takes the place of the one before.
    assert_eq!(models.clone().with::<Means>().names(), models.names());
    assert_eq!(Models::default().with_all(&models).names(), models.names());
}

#[test]
fn a_model_from_outside_learns() {
    let device = Device::cpu();
    let config = ModelConfig::new(Means::default());
    let (network, cx) = Run::new("name = 'gcn'", DType::F32).prepare_model(&config, &device, Mode::Train);
    let labels: Rc<[i64]> = (0..N as i64).map(|i| i % CLASSES as i64).collect();
    let rows = LossRows::new((0..N as u32).collect::<Vec<_>>()).unwrap();
    let parameters = network.parameters();
    let mut optimizer = Optimizer::new(Rule::adam(0.0), &parameters).unwrap();
    let losses: Vec<f64> = (0..20)
        .map(|epoch| {
            let mut tape = Tape::new(&device);
            let logits = network.forward(&mut tape, &Context { epoch, ..cx.clone() }).unwrap().unwrap();
            let loss = softmax_cross_entropy(&mut tape, &logits, &labels, &rows, 0.0, N as f64).unwrap();
            let value = f64s(loss.value())[0];
            let one = device.upload(1, 1, &[1.0f32], Tag::Activations).unwrap();
            tape.backward(vec![(loss, one)], &[], |_| Ok(())).unwrap();
            optimizer.step(0.02, 1.0).unwrap();
            value
        })
        .collect();
    assert!(losses[19] < losses[0], "{losses:?}");
}
