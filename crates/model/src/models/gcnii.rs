//! GCNII of Chen, Wei, Huang, Ding and Li, with PyTorch Geometric's `GCN2Conv`: deep, since every layer sees the first
//! one's rows.
//!
//! h⁰ = act(features·W + b) (`lins.0`); s = (1 − α)·Âh + α·h⁰; h = act((1 − β)·s + β·s·W_k) with β = ln(θ/k + 1)
//! (`convs.k`); the logits are a linear function of h (`lins.1`). Self-loops are added unless the configuration says
//! otherwise.

use std::rc::Rc;

use graphweft_tensor::ops::activation::Activation;
use graphweft_tensor::ops::combine::combine;
use graphweft_tensor::ops::epilogue::{Epilogue, epilogue};
use graphweft_tensor::ops::matmul::matmul;
use graphweft_tensor::{Parameter, Result, Tape, Var};

use super::{check_layers, no_encodings};
use crate::graph_ops::{Aggregation, EdgeWeight};
use crate::init::Init;
use crate::keys::keys;
use crate::model::{Model, ModelInfo, ModelKeys, Reach};
use crate::network::{Context, Layer, Network, Shape};
use crate::parts::head::Head;
use crate::parts::input::Input;
use crate::parts::linear::Linear;

keys! {
    /// Columns between layers.
    hidden: usize = 64,
    /// Convolutions.
    layers: usize = 16,
    /// Weight of the first rows.
    alpha: f64 = 0.1,
    /// Of the weight of each convolution's own parameters, which decreases with depth.
    theta: f64 = 0.5,
}

struct Conv {
    /// From 1.
    number: u32,
    weight: Rc<Parameter>,
    alpha: f64,
    beta: f64,
}

impl Layer for Conv {
    fn name(&self) -> String {
        format!("convs.{}", self.number - 1)
    }

    fn parameters(&self) -> Vec<Rc<Parameter>> {
        vec![Rc::clone(&self.weight)]
    }

    fn forward(&self, tape: &mut Tape, cx: &Context, state: &[Var]) -> Result<Vec<Var>> {
        let (h, first) = (&state[0], &state[1]);
        let s = cx.ops.aggregate(tape, self.number, h, Aggregation::Sum, EdgeWeight::Symmetric)?;
        let s = combine(tape, 1.0 - self.alpha, &s, self.alpha, first)?;
        let product = matmul(tape, &s, &self.weight)?;
        let h = combine(tape, 1.0 - self.beta, &s, self.beta, &product)?;
        drop((s, product));
        let dropout = cx.rows(cx.rates.hidden, self.number, 1);
        let end = Epilogue { activation: Activation::Relu, dropout: dropout.as_ref(), ..Epilogue::default() };
        Ok(vec![epilogue(tape, &h, end, cx.dtype)?, first.clone()])
    }
}

impl Model for Config {
    fn describe(&self) -> ModelInfo {
        ModelInfo { self_loops: true, ..ModelInfo::new(Reach::Edges, self.hidden, self.layers) }
    }

    fn network(&self, init: &Init<'_>, shape: &Shape) -> Result<Network> {
        let &Config { hidden, layers, alpha, theta } = self;
        check_layers(Self::NAME, layers)?;
        no_encodings(Self::NAME, shape)?;
        // h⁰, before its dropout and after it.
        let first = init.linear("lins.0", shape.inputs(), hidden)?;
        let mut all = vec![Linear::layer("lins.0", first, |tape, cx, affine, _| {
            let first = Input::features(tape, cx)?.linear(tape, affine, Activation::Relu, cx.dtype)?;
            let drop = cx.rows(cx.rates.hidden, 0, 1);
            let h = epilogue(tape, &first, Epilogue { dropout: drop.as_ref(), ..Epilogue::default() }, cx.dtype)?;
            Ok(vec![h, first])
        })];
        for k in 0..layers {
            let weight = init.glorot(&format!("convs.{k}.weight1"), hidden, hidden)?;
            let beta = (theta / (k as f64 + 1.0)).ln_1p();
            all.push(Rc::new(Conv { number: k as u32 + 1, weight, alpha, beta }));
        }
        all.push(Rc::new(Head::new(init, "lins.1", hidden, shape.classes)?));
        Ok(Network::new(all))
    }
}

impl ModelKeys for Config {
    const NAME: &'static str = "gcnii";
    const ABOUT: &'static str = "a deep GCN whose layers all see the first rows";
}
