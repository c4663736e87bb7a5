//! SGFormer of Wu et al.: `torch_geometric.nn.models.SGFormer`. One branch attends to all nodes, in linear time;
//! another one is a GCN; the logits are a linear function of their weighted sum.
//!
//! Attention branch: t = act(norm(features·W + b)), then t = act(norm((attention(t) + t)/2)), where queries and keys of
//! a head have length one and a node's own value has the weight of all nodes. Graph branch: g⁰ likewise with batch
//! norm, then g = act(norm(conv(g))) + g⁰. Self-loops are added unless the configuration says otherwise.

use std::rc::Rc;

use graphweft_tensor::ops::activation::Activation;
use graphweft_tensor::ops::combine::combine;
use graphweft_tensor::ops::epilogue::{Epilogue, epilogue};
use graphweft_tensor::ops::global::{Global, Scale};
use graphweft_tensor::ops::l2norm::l2_norm;
use graphweft_tensor::ops::linear::{Affine, linear};
use graphweft_tensor::ops::reshape::reshape;
use graphweft_tensor::{Parameter, Result, Tape, Var};

use super::{check_layers, check_share, no_encodings};
use crate::convs::gcn::GcnConv;
use crate::convs::{Conv, End};
use crate::init::Init;
use crate::keys::keys;
use crate::model::{Model, ModelInfo, ModelKeys, Reach};
use crate::network::{Buffer, Context, Layer, Network, Rates, Shape};
use crate::parts::head::parameters;
use crate::parts::input::Input;
use crate::parts::linear::Linear;
use crate::parts::norm::{NormKind, Normalisation};

keys! {
    /// Columns.
    hidden: usize = 64,
    /// Layers that attend to all nodes.
    layers: usize = 1,
    /// Their heads, each as wide as all columns.
    heads: usize = 1,
    /// Layers of the GCN.
    graph_layers: usize = 2,
    /// Weight of the GCN in the sum.
    graph_weight: f64 = 0.5,
}

/// Rows, normalised, activated and dropped.
fn finish(
    tape: &mut Tape,
    cx: &Context,
    norm: &Normalisation,
    layer: u32,
    stream: u32,
    x: &Var,
    plus: Option<&Var>,
) -> Result<Var> {
    let y = norm.forward(tape, cx, layer, x)?;
    let dropout = cx.rows(cx.rates.hidden, layer, stream);
    let end = Epilogue { activation: Activation::Relu, dropout: dropout.as_ref(), ..Epilogue::default() };
    let y = epilogue(tape, &y, end, cx.dtype)?;
    epilogue(tape, &y, Epilogue { plus, ..Epilogue::default() }, cx.dtype)
}

/// Both branches' first rows.
struct First {
    affine: [Affine; 2],
    norms: [Normalisation; 2],
}

impl Layer for First {
    fn name(&self) -> String {
        "fcs.0".into()
    }

    fn parameters(&self) -> Vec<Rc<Parameter>> {
        let branch = |k: usize| parameters(&self.affine[k]).chain(self.norms[k].parameters());
        branch(0).chain(branch(1)).collect()
    }

    fn buffers(&self) -> Vec<Rc<Buffer>> {
        self.norms.iter().flat_map(Normalisation::buffers).collect()
    }

    fn without_effect(&self, _: Rates) -> Vec<Rc<Parameter>> {
        self.affine.iter().zip(&self.norms).flat_map(|(affine, norm)| norm.hidden([affine.bias.as_ref()])).collect()
    }

    fn forward(&self, tape: &mut Tape, cx: &Context, _: &[Var]) -> Result<Vec<Var>> {
        let x = Input::features(tape, cx)?;
        (0..2)
            .map(|k| {
                let y = x.linear(tape, &self.affine[k], Activation::None, cx.dtype)?;
                finish(tape, cx, &self.norms[k], 0, 1 + k as u32, &y, None)
            })
            .collect()
    }
}

/// Attention to all nodes.
struct All {
    number: u32,
    heads: usize,
    qkv: [Affine; 3],
    norm: Normalisation,
}

impl Layer for All {
    fn name(&self) -> String {
        format!("trans_conv.attns.{}", self.number - 1)
    }

    fn parameters(&self) -> Vec<Rc<Parameter>> {
        self.qkv.iter().flat_map(parameters).chain(self.norm.parameters()).collect()
    }

    fn forward(&self, tape: &mut Tape, cx: &Context, state: &[Var]) -> Result<Vec<Var>> {
        let (t, rows, heads) = (&state[0], cx.ops.rows(), self.heads);
        let product =
            |tape: &mut Tape, k: usize| linear(tape, t, std::slice::from_ref(&self.qkv[k]), Activation::None, cx.dtype);
        let unit = |tape: &mut Tape, x: &Var| -> Result<Var> {
            let width = x.value().cols();
            let y = reshape(tape, x, rows * heads, width / heads)?;
            let y = l2_norm(tape, &y)?;
            reshape(tape, &y, rows, width)
        };
        let q = product(tape, 0)?;
        let q = unit(tape, &q)?;
        let k = product(tape, 1)?;
        let k = unit(tape, &k)?;
        let v = product(tape, 2)?;
        let own = cx.ops.total_rows() as f64;
        let operands = Global { heads, q: &q, k: &k, v: &v, own, epsilon: 0.0, scale: Scale::One };
        let z = cx.ops.global(tape, self.number, operands)?;
        drop((q, k, v));
        let z = epilogue(tape, &z, Epilogue { groups: heads, ..Epilogue::default() }, cx.dtype)?;
        let z = combine(tape, 0.5, &z, 0.5, t)?;
        let mut next = state.to_vec();
        next[0] = finish(tape, cx, &self.norm, self.number, 1, &z, None)?;
        Ok(next)
    }
}

/// A layer of the GCN.
struct Graph {
    number: u32,
    conv: GcnConv,
    norm: Normalisation,
}

impl Layer for Graph {
    fn name(&self) -> String {
        format!("graph_conv.{}", self.number)
    }

    fn parameters(&self) -> Vec<Rc<Parameter>> {
        self.conv.parameters().into_iter().chain(self.norm.parameters()).collect()
    }

    fn buffers(&self) -> Vec<Rc<Buffer>> {
        self.norm.buffers()
    }

    fn without_effect(&self, _: Rates) -> Vec<Rc<Parameter>> {
        self.norm.hidden([self.conv.bias()])
    }

    /// From t, g and, after the first of these layers, g⁰.
    fn forward(&self, tape: &mut Tape, cx: &Context, state: &[Var]) -> Result<Vec<Var>> {
        let (g, first) = (&state[1], state.last().unwrap_or(&state[1]));
        let y = self.conv.forward(tape, cx, self.number, &Input::Dense(g.clone()), End::default(), cx.dtype)?;
        let y = finish(tape, cx, &self.norm, self.number, 2, &y, Some(first))?;
        Ok(vec![state[0].clone(), y, first.clone()])
    }
}

impl Model for Config {
    fn describe(&self) -> ModelInfo {
        ModelInfo {
            heads: Some(self.heads),
            hops: self.graph_layers,
            self_loops: true,
            ..ModelInfo::new(Reach::Anywhere, self.hidden, self.layers)
        }
    }

    fn network(&self, init: &Init<'_>, shape: &Shape) -> Result<Network> {
        let &Config { hidden: d, layers, heads, graph_layers, graph_weight } = self;
        check_layers(Self::NAME, layers.min(heads))?;
        check_share(Self::NAME, "graph_weight", graph_weight)?;
        no_encodings(Self::NAME, shape)?;
        let norm = |kind, branch: &str, k: usize| Normalisation::new(kind, init, &format!("{branch}.bns.{k}"), d);
        let (trans, graph) = (NormKind::Layer, NormKind::Batch);
        let mut all: Vec<Rc<dyn Layer>> = vec![Rc::new(First {
            affine: [
                init.linear("trans_conv.fcs.0", shape.inputs(), d)?,
                init.linear("graph_conv.fcs.0", shape.inputs(), d)?,
            ],
            norms: [norm(trans, "trans_conv", 0)?, norm(graph, "graph_conv", 0)?],
        })];
        for k in 0..layers {
            let lin = |which: &str| -> Result<Affine> {
                let lin = init.linear(&format!("trans_conv.attns.{k}.{which}"), d, heads * d)?;
                Ok(Affine { bias: None, ..lin })
            };
            let qkv = [lin("q")?, lin("k")?, lin("v")?];
            all.push(Rc::new(All { number: k as u32 + 1, heads, qkv, norm: norm(trans, "trans_conv", k + 1)? }));
        }
        for k in 0..graph_layers {
            let conv = GcnConv::new(init, &format!("graph_conv.convs.{k}"), d, d)?;
            let number = (layers + k) as u32 + 1;
            all.push(Rc::new(Graph { number, conv, norm: norm(graph, "graph_conv", k + 1)? }));
        }
        all.push(Linear::layer("fc", init.linear("fc", d, shape.classes)?, move |tape, cx, affine, state| {
            let sum = combine(tape, graph_weight, &state[1], 1.0 - graph_weight, &state[0])?;
            Ok(vec![linear(tape, &sum, std::slice::from_ref(affine), Activation::None, cx.dtype.compute())?])
        }));
        Ok(Network::new(all))
    }
}

impl ModelKeys for Config {
    const NAME: &'static str = "sgformer";
    const ABOUT: &'static str = "attention to all nodes beside a GCN";
}
