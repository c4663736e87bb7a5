//! Polynormer of Deng, Yue and Zhang: `torch_geometric.nn.models.Polynormer`. Local layers, then layers that attend to
//! all nodes; every layer multiplies what it finds by a function of its input, so that depth raises the degree of a
//! polynomial.
//!
//! Local layer: h = relu(x·W + b); x = relu(norm(conv(x) + x·U + c)); x = (1 − β)·LN(h ∘ x) + β·x. The sum of all
//! layers' x goes on. Layer over all nodes: x = relu(LN(attention(x)) ∘ (x·H + b + β)·W + c) with q, k = σ(x·Q),
//! σ(x·K).
//!
//! The local half is trained alone for the first `warm_up` epochs, with logits of its own (`pred_local`); from then on
//! the logits are those of `pred_global`. Which half is in use is part of what is saved (the buffer `phase`), so that
//! evaluation always follows the last training step, and so does whoever loads the model.

use std::rc::Rc;

use graphweft_tensor::ops::activation::Activation;
use graphweft_tensor::ops::combine::combine;
use graphweft_tensor::ops::epilogue::{Epilogue, epilogue};
use graphweft_tensor::ops::global::{Global, Scale};
use graphweft_tensor::ops::linear::{Affine, linear};
use graphweft_tensor::ops::norm::{Norm, layer_norm};
use graphweft_tensor::ops::product::product;
use graphweft_tensor::{Parameter, Result, Tape, Var};
use serde::{Deserialize, Serialize};

use super::{check_heads, check_layers, check_share, no_encodings};
use crate::convs::gat::{Between, Bias, GatConv, Heads};
use crate::convs::gcn::GcnConv;
use crate::convs::{Conv, End};
use crate::init::Init;
use crate::keys::keys;
use crate::model::{Model, ModelInfo, ModelKeys, Reach};
use crate::network::{Buffer, Context, Layer, Mode, Network, Rates, Shape};
use crate::parts::head::parameters;
use crate::parts::input::Input;
use crate::parts::norm::{NormKind, Normalisation};

/// The small number that PyTorch Geometric adds to denominators.
const EPSILON: f64 = 1e-6;

keys! {
    /// Columns.
    hidden: usize = 64,
    /// Local layers.
    layers: usize = 5,
    /// Layers that attend to all nodes.
    global_layers: usize = 2,
    /// Heads of both.
    heads: usize = 1,
    /// How local layers look at neighbours.
    local: LocalKind = LocalKind::Gcn,
    /// Weight of what is not multiplied.
    beta: f64 = 0.9,
    /// Epochs without the layers that attend to all nodes.
    warm_up: u64 = 100,
}

/// How local layers look at neighbours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LocalKind {
    /// GCN.
    #[default]
    Gcn,
    /// GAT.
    Gat,
}

impl LocalKind {
    pub(crate) fn adds_self_loops(self) -> bool {
        matches!(self, Self::Gcn)
    }
}

/// Which half gives the logits.
#[derive(Clone)]
struct Phase {
    /// First epoch with the layers over all nodes.
    warm_up: u64,
    /// 1 from then on.
    reached: Rc<Buffer>,
}

impl Phase {
    fn has_come(&self, epoch: u64) -> bool {
        epoch >= self.warm_up
    }

    fn is_global(&self, cx: &Context) -> Result<bool> {
        Ok(match cx.mode {
            Mode::Train => self.has_come(cx.whole_epoch()),
            Mode::Evaluate => self.reached.values()?.iter().any(|x| *x > 0.0),
        })
    }
}

struct Local {
    number: u32,
    gate: Affine,
    conv: Box<dyn Conv>,
    branch: Affine,
    post: Normalisation,
    norm: Norm,
    beta: f64,
}

impl Layer for Local {
    fn name(&self) -> String {
        format!("local_convs.{}", self.number - 1)
    }

    fn parameters(&self) -> Vec<Rc<Parameter>> {
        let norm = [Rc::clone(&self.norm.weight), Rc::clone(&self.norm.bias)];
        let linear = parameters(&self.gate).chain(parameters(&self.branch));
        linear.chain(self.conv.parameters()).chain(self.post.parameters()).chain(norm).collect()
    }

    fn buffers(&self) -> Vec<Rc<Buffer>> {
        self.conv.buffers().into_iter().chain(self.post.buffers()).collect()
    }

    fn without_effect(&self, _: Rates) -> Vec<Rc<Parameter>> {
        let mut all = self.post.hidden([self.conv.bias(), self.branch.bias.as_ref()]);
        all.extend(self.conv.without_effect());
        all
    }

    /// From x and the sum so far, or the features, to both. After the first layer x is the sum.
    fn forward(&self, tape: &mut Tape, cx: &Context, state: &[Var]) -> Result<Vec<Var>> {
        let x = Input::of(tape, cx, state)?;
        let gate = x.linear(tape, &self.gate, Activation::Relu, cx.dtype)?;
        let branch = x.linear(tape, &self.branch, Activation::None, cx.dtype)?;
        let end = End { plus: Some(&branch), ..End::default() };
        let y = self.conv.forward(tape, cx, self.number, &x, end, cx.dtype)?;
        drop((x, branch));
        let y = self.post.forward(tape, cx, self.number, &y)?;
        let dropout = cx.rows(cx.rates.hidden, self.number, 1);
        let end = Epilogue { activation: Activation::Relu, dropout: dropout.as_ref(), ..Epilogue::default() };
        let y = epilogue(tape, &y, end, cx.dtype)?;
        let z = product(tape, &gate, 0.0, &y)?;
        let z = layer_norm(tape, &z, &self.norm)?;
        let y = combine(tape, 1.0 - self.beta, &z, self.beta, &y)?;
        let Some(before) = state.last() else { return Ok(vec![y]) };
        let sum = epilogue(tape, &y, Epilogue { plus: Some(before), ..Epilogue::default() }, cx.dtype)?;
        Ok(vec![y, sum])
    }
}

/// The sum of all local layers, normalised where it goes on to the layers over all nodes.
struct Middle {
    norm: Norm,
    phase: Phase,
}

impl Layer for Middle {
    fn name(&self) -> String {
        "ln".into()
    }

    fn parameters(&self) -> Vec<Rc<Parameter>> {
        vec![Rc::clone(&self.norm.weight), Rc::clone(&self.norm.bias)]
    }

    fn buffers(&self) -> Vec<Rc<Buffer>> {
        vec![Rc::clone(&self.phase.reached)]
    }

    fn phase(&self, epoch: u64) -> u64 {
        self.phase.has_come(epoch).into()
    }

    fn forward(&self, tape: &mut Tape, cx: &Context, state: &[Var]) -> Result<Vec<Var>> {
        let (sum, is_global) = (&state[state.len() - 1], self.phase.is_global(cx)?);
        if cx.mode == Mode::Train {
            self.phase.reached.set(vec![f64::from(u8::from(is_global))])?;
        }
        Ok(vec![if is_global { layer_norm(tape, sum, &self.norm)? } else { sum.clone() }])
    }
}

/// Attention to all nodes.
struct All {
    number: u32,
    name: String,
    heads: usize,
    gate: Affine,
    qkv: [Affine; 3],
    norm: Norm,
    out: Affine,
    beta: f64,
    phase: Phase,
}

impl Layer for All {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn parameters(&self) -> Vec<Rc<Parameter>> {
        let norm = [Rc::clone(&self.norm.weight), Rc::clone(&self.norm.bias)];
        let linear = std::iter::once(&self.gate).chain(&self.qkv).chain(std::iter::once(&self.out));
        linear.flat_map(parameters).chain(norm).collect()
    }

    fn forward(&self, tape: &mut Tape, cx: &Context, state: &[Var]) -> Result<Vec<Var>> {
        if !self.phase.is_global(cx)? {
            return Ok(state.to_vec());
        }
        let (x, one) = (&state[0], std::slice::from_ref::<Affine>);
        let gate = linear(tape, x, one(&self.gate), Activation::None, cx.dtype)?;
        let q = linear(tape, x, one(&self.qkv[0]), Activation::Sigmoid, cx.dtype)?;
        let k = linear(tape, x, one(&self.qkv[1]), Activation::Sigmoid, cx.dtype)?;
        let v = linear(tape, x, one(&self.qkv[2]), Activation::None, cx.dtype)?;
        let heads = self.heads;
        let operands = Global { heads, q: &q, k: &k, v: &v, own: 0.0, epsilon: EPSILON, scale: Scale::One };
        let z = cx.ops.global(tape, self.number, operands)?;
        drop((q, k, v));
        let z = layer_norm(tape, &z, &self.norm)?;
        let z = product(tape, &gate, self.beta, &z)?;
        let y = linear(tape, &z, one(&self.out), Activation::Relu, cx.dtype)?;
        let dropout = cx.rows(cx.rates.hidden, self.number, 1);
        Ok(vec![epilogue(tape, &y, Epilogue { dropout: dropout.as_ref(), ..Epilogue::default() }, cx.dtype)?])
    }
}

/// The logits of either half.
struct Last {
    local: Affine,
    global: Affine,
    phase: Phase,
}

impl Layer for Last {
    fn name(&self) -> String {
        "pred".into()
    }

    fn parameters(&self) -> Vec<Rc<Parameter>> {
        parameters(&self.local).chain(parameters(&self.global)).collect()
    }

    fn forward(&self, tape: &mut Tape, cx: &Context, state: &[Var]) -> Result<Vec<Var>> {
        let affine = if self.phase.is_global(cx)? { &self.global } else { &self.local };
        let affine = std::slice::from_ref(affine);
        Ok(vec![linear(tape, &state[0], affine, Activation::None, cx.dtype.compute())?])
    }
}

impl Model for Config {
    fn describe(&self) -> ModelInfo {
        ModelInfo {
            heads: Some(self.heads),
            self_loops: self.local.adds_self_loops(),
            ..ModelInfo::new(Reach::Anywhere, self.hidden, self.layers)
        }
    }

    fn network(&self, init: &Init<'_>, shape: &Shape) -> Result<Network> {
        let &Config { hidden: d, layers, global_layers, heads, local, beta, warm_up } = self;
        check_layers(Self::NAME, layers)?;
        check_heads(Self::NAME, d, heads)?;
        check_share(Self::NAME, "beta", beta)?;
        no_encodings(Self::NAME, shape)?;
        let mut all: Vec<Rc<dyn Layer>> = Vec::new();
        for k in 0..layers {
            let inputs = if k == 0 { shape.inputs() } else { d.into() };
            let name = format!("local_convs.{k}");
            let conv: Box<dyn Conv> = match local {
                LocalKind::Gcn => Box::new(GcnConv::new(init, &name, inputs, d)?),
                LocalKind::Gat => {
                    // There are none: this model does not ask for features of edges.
                    let between = Between { inputs, outputs: d, edges: &shape.edge_features };
                    Box::new(GatConv::new(init, &name, between, Heads::Concat(heads), Bias::None)?)
                }
            };
            all.push(Rc::new(Local {
                number: k as u32 + 1,
                gate: init.linear(&format!("h_lins.{k}"), inputs, d)?,
                conv,
                branch: init.linear(&format!("lins.{k}"), inputs, d)?,
                post: Normalisation::new(NormKind::Batch, init, &format!("post_bns.{k}"), d)?,
                norm: init.norm(&format!("lns.{k}"), d)?,
                beta,
            }));
        }
        let phase = Phase { warm_up, reached: Buffer::new("phase", vec![0.0]) };
        all.push(Rc::new(Middle { norm: init.norm("ln", d)?, phase: phase.clone() }));
        for k in 0..global_layers {
            let name = format!("global_attn.{k}");
            let lin = |which: &str| init.linear(&format!("{name}.{which}"), d, d);
            let plain = |which: &str| -> Result<Affine> { Ok(Affine { bias: None, ..lin(which)? }) };
            all.push(Rc::new(All {
                number: (layers + k) as u32 + 1,
                heads,
                gate: lin("h_lins")?,
                qkv: [plain("q")?, plain("k")?, plain("v")?],
                norm: init.norm(&format!("{name}.lns"), d)?,
                out: lin("lin_out")?,
                beta,
                phase: phase.clone(),
                name,
            }));
        }
        let (local, global) =
            (init.linear("pred_local", d, shape.classes)?, init.linear("pred_global", d, shape.classes)?);
        all.push(Rc::new(Last { local, global, phase }));
        Ok(Network::new(all))
    }
}

impl ModelKeys for Config {
    const NAME: &'static str = "polynormer";
    const ABOUT: &'static str = "local layers, then attention to all nodes, with products";
}
