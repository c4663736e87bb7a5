//! A perceptron of the products of both rows, whatever the relation: s(i, j) = MLP(z_i∘z_j), with ReLU between layers.
//! It is the link predictor of OGB's examples, and as much work for a pair as all others are for many.

use std::rc::Rc;

use graphweft_tensor::ops::activation::Activation;
use graphweft_tensor::ops::linear::{Affine, linear};
use graphweft_tensor::ops::product::product;
use graphweft_tensor::{Error, Parameter, Result, Tape, Var};

use super::{Asked, Decoder, DecoderShape, HostDecoder, Missing, Numbers, OP};
use crate::init::Init;
use crate::parts::head::parameters;

pub(super) struct Mlp {
    layers: Vec<Affine>,
}

impl Mlp {
    pub(super) fn new(init: &Init<'_>, shape: &DecoderShape) -> Result<Self> {
        let layer = |k: usize| {
            let (first, last) = (k == 0, k + 1 == shape.layers);
            let inputs = if first { shape.columns } else { shape.hidden };
            init.linear(&format!("decoder.lins.{k}"), inputs, if last { 1 } else { shape.hidden })
        };
        Ok(Self { layers: (0..shape.layers).map(layer).collect::<Result<_>>()? })
    }
}

impl Decoder for Mlp {
    fn parameters(&self) -> Vec<Rc<Parameter>> {
        self.layers.iter().flat_map(parameters).collect()
    }

    fn query(&self, _: &mut Tape, asked: Asked<'_>) -> Result<Var> {
        Ok(asked.given.clone())
    }

    fn pairs(&self, tape: &mut Tape, query: &Var, partners: &Var) -> Result<Var> {
        let mut x = product(tape, query, 0.0, partners)?;
        let dtype = x.value().dtype().compute();
        for (k, layer) in self.layers.iter().enumerate() {
            let activation = if k + 1 == self.layers.len() { Activation::None } else { Activation::Relu };
            x = linear(tape, &x, std::slice::from_ref(layer), activation, dtype)?;
        }
        Ok(x)
    }

    fn all(&self, _: &mut Tape, _: &Var, _: &Var) -> Result<Var> {
        let problem = "a perceptron scores pairs: it is learned by negatives that are drawn, not from all nodes".into();
        Err(Error::Argument { op: OP, problem })
    }

    fn on_host(&self) -> Result<Box<dyn HostDecoder>> {
        let numbers = |layer: &Affine| -> Result<[Numbers; 2]> {
            let weight = Numbers::of(&layer.weight.value())?;
            let bias = layer.bias.as_ref().map(|bias| Numbers::of(&bias.value())).transpose()?;
            Ok([weight, bias.unwrap_or(Numbers { values: Vec::new(), columns: 0 })])
        };
        Ok(Box::new(Host(self.layers.iter().map(numbers).collect::<Result<_>>()?)))
    }
}

/// Weights and biases.
struct Host(Vec<[Numbers; 2]>);

impl HostDecoder for Host {
    fn query(&self, given: &[f64], _: u32, _: Missing) -> Vec<f64> {
        given.to_vec()
    }

    fn add(&self, score: f64, query: &[f64], partner: &[f64]) -> f64 {
        let mut x: Vec<f64> = query.iter().zip(partner).map(|(a, b)| a * b).collect();
        for (k, [weight, bias]) in self.0.iter().enumerate() {
            let last = k + 1 == self.0.len();
            let output = |(row, bias): (&[f64], &f64)| {
                let sum = row.iter().zip(&x).fold(0.0, |sum, (w, x)| sum + w * x) + bias;
                if last { sum } else { sum.max(0.0) }
            };
            x = weight.values.chunks(weight.columns).zip(&bias.values).map(output).collect();
        }
        score + x.first().copied().unwrap_or(0.0)
    }
}
