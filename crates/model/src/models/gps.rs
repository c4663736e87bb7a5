//! GraphGPS of Rampášek et al., with `torch_geometric.nn.GPSConv`: in every layer a convolution over edges beside
//! attention to all nodes.
//!
//! On one graph that is linear (queries and keys are positive, their products need no exponential). Of whole graphs,
//! which are small, each node attends to all nodes of its graph by softmax, as in `GPSConv`'s multihead attention.
//!
//! a = norm1(x + conv(x)); b = norm2(x + attention(x)); h = a + b; x = norm3(h + MLP(h)), with dropout of each branch.

use std::rc::Rc;

use graphweft_tensor::ops::activation::Activation;
use graphweft_tensor::ops::edge_values::EdgeColumns;
use graphweft_tensor::ops::epilogue::{Epilogue, epilogue};
use graphweft_tensor::ops::global::{Global, Scale};
use graphweft_tensor::ops::linear::{Affine, linear};
use graphweft_tensor::{Parameter, Result, Tape, Var};
use serde::{Deserialize, Serialize};

use super::{check_heads, check_layers};
use crate::convs::gat::{Between, Bias, GatConv, Heads};
use crate::convs::gcn::GcnConv;
use crate::convs::gin::GinConv;
use crate::convs::sage::SageConv;
use crate::convs::{Conv, End};
use crate::graph_ops::Aggregation;
use crate::init::Init;
use crate::keys::keys;
use crate::model::{Model, ModelInfo, ModelKeys, Reach, UseEdges};
use crate::network::{Buffer, Context, Layer, Network, Rates, Shape, Target};
use crate::parts::head::{Head, parameters};
use crate::parts::input::{Embedding, Input};
use crate::parts::norm::{NormKind, Normalisation};
use crate::parts::readout::{GraphHead, ReadoutKind};

/// Keeps denominators from zero.
const EPSILON: f64 = 1e-6;

keys! {
    /// Columns.
    hidden: usize = 64,
    /// Layers.
    layers: usize = 4,
    /// Heads of the attention to all nodes, and of a local GAT.
    heads: usize = 4,
    /// The convolution over edges.
    local: LocalKind = LocalKind::Gcn,
    /// All three normalisations of a layer.
    norm: NormKind = NormKind::Batch,
    /// Whole graphs: how the nodes of one become a row.
    readout: ReadoutKind = ReadoutKind::Mean,
    /// Whether a local GAT or GIN looks at features of edges, where the data have some.
    edges: UseEdges = UseEdges::Use,
}

/// A convolution over edges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LocalKind {
    /// GCN.
    #[default]
    Gcn,
    /// GraphSAGE with means.
    Sage,
    /// GAT.
    Gat,
    /// GIN; GINE where edges have features.
    Gin,
}

impl LocalKind {
    pub(crate) fn adds_self_loops(self) -> bool {
        matches!(self, Self::Gcn | Self::Gat)
    }

    /// Whether it looks at features of edges.
    fn reads_edges(self) -> bool {
        matches!(self, Self::Gat | Self::Gin)
    }

    fn conv(self, init: &Init<'_>, name: &str, d: usize, heads: usize, edges: &EdgeColumns) -> Result<Box<dyn Conv>> {
        let between = Between { inputs: d.into(), outputs: d, edges };
        Ok(match self {
            Self::Gcn => Box::new(GcnConv::new(init, name, d, d)?),
            Self::Sage => Box::new(SageConv::new(init, name, d, d, Aggregation::Mean)?),
            Self::Gat => Box::new(GatConv::new(init, name, between, Heads::Concat(heads), Bias::Zeros)?),
            Self::Gin => Box::new(GinConv::new(init, name, between, NormKind::None, Activation::Relu)?),
        })
    }
}

struct GpsLayer {
    number: u32,
    heads: usize,
    of: Target,
    conv: Box<dyn Conv>,
    qkv: [Affine; 3],
    out: Affine,
    mlp: [Affine; 2],
    norms: [Normalisation; 3],
}

impl Layer for GpsLayer {
    fn name(&self) -> String {
        format!("convs.{}", self.number - 1)
    }

    fn parameters(&self) -> Vec<Rc<Parameter>> {
        let linear = self.qkv.iter().chain(std::iter::once(&self.out)).chain(&self.mlp).flat_map(parameters);
        let norms = self.norms.iter().flat_map(Normalisation::parameters);
        self.conv.parameters().into_iter().chain(linear).chain(norms).collect()
    }

    fn buffers(&self) -> Vec<Rc<Buffer>> {
        self.conv.buffers().into_iter().chain(self.norms.iter().flat_map(Normalisation::buffers)).collect()
    }

    fn without_effect(&self, rates: Rates) -> Vec<Rc<Parameter>> {
        let [near, far, after] = &self.norms;
        let mut all = self.conv.without_effect();
        // A softmax subtracts the bias of keys again.
        all.extend(self.qkv[1].bias.iter().filter(|_| self.of == Target::Graphs).cloned());
        all.extend(near.hidden_in_residual(rates, self.conv.bias()));
        all.extend(far.hidden_in_residual(rates, self.out.bias.as_ref()));
        all.extend(after.hidden_in_residual(rates, self.mlp[1].bias.as_ref()));
        all
    }

    fn forward(&self, tape: &mut Tape, cx: &Context, state: &[Var]) -> Result<Vec<Var>> {
        let (x, one) = (&state[0], std::slice::from_ref::<Affine>);
        let near = self.conv.forward(tape, cx, self.number, &Input::Dense(x.clone()), End::default(), cx.dtype)?;
        let near = self.norms[0].forward_residual(tape, cx, self.number, 1, x, &near)?;
        let far = self.attend(tape, cx, x)?;
        let far = linear(tape, &far, one(&self.out), Activation::None, cx.dtype)?;
        let far = self.norms[1].forward_residual(tape, cx, self.number, 2, x, &far)?;
        let h = epilogue(tape, &near, Epilogue { plus: Some(&far), ..Epilogue::default() }, cx.dtype)?;
        drop((near, far));
        let inner = linear(tape, &h, one(&self.mlp[0]), Activation::Relu, cx.dtype)?;
        let dropout = cx.rows(cx.rates.hidden, self.number, 3);
        let inner = epilogue(tape, &inner, Epilogue { dropout: dropout.as_ref(), ..Epilogue::default() }, cx.dtype)?;
        let z = linear(tape, &inner, one(&self.mlp[1]), Activation::None, cx.dtype)?;
        drop(inner);
        Ok(vec![self.norms[2].forward_residual(tape, cx, self.number, 4, &h, &z)?])
    }
}

impl GpsLayer {
    fn attend(&self, tape: &mut Tape, cx: &Context, x: &Var) -> Result<Var> {
        if let Some(graphs) = &cx.graphs {
            let [q, kv] = [&self.qkv[..1], &self.qkv[1..]];
            let q = linear(tape, x, q, Activation::None, cx.dtype)?;
            let kv = linear(tape, x, kv, Activation::None, cx.dtype)?;
            return graphs.within(tape, self.heads, &q, &kv, cx.pairs(self.number));
        }
        let product = |tape: &mut Tape, k: usize, activation| {
            linear(tape, x, std::slice::from_ref(&self.qkv[k]), activation, cx.dtype)
        };
        let (q, k) = (product(tape, 0, Activation::Sigmoid)?, product(tape, 1, Activation::Sigmoid)?);
        let v = product(tape, 2, Activation::None)?;
        let heads = self.heads;
        let operands = Global { heads, q: &q, k: &k, v: &v, own: 0.0, epsilon: EPSILON, scale: Scale::One };
        cx.ops.global(tape, self.number, operands)
    }
}

impl Model for Config {
    fn describe(&self) -> ModelInfo {
        ModelInfo {
            heads: Some(self.heads),
            reads_out: true,
            self_loops: self.local.adds_self_loops(),
            edges: if self.local.reads_edges() { self.edges } else { UseEdges::Ignore },
            ..ModelInfo::new(Reach::Anywhere, self.hidden, self.layers)
        }
    }

    fn network(&self, init: &Init<'_>, shape: &Shape) -> Result<Network> {
        let &Config { hidden: d, layers, heads, local, norm, readout, edges: _ } = self;
        check_heads(Self::NAME, d, heads)?;
        check_layers(Self::NAME, layers)?;
        let mut all: Vec<Rc<dyn Layer>> = vec![Rc::new(Embedding::new(init, "input", shape, d)?)];
        for k in 0..layers {
            let name = |part: &str| format!("convs.{k}.{part}");
            let lin = |part: &str, inputs, outputs| init.linear(&name(part), inputs, outputs);
            let normal = |part: &str| Normalisation::wrapped(norm, init, &name(part), d);
            all.push(Rc::new(GpsLayer {
                number: k as u32 + 1,
                heads,
                of: shape.target,
                conv: local.conv(init, &name("conv"), d, heads, &shape.edge_features)?,
                qkv: [lin("attn.q", d, d)?, lin("attn.k", d, d)?, lin("attn.v", d, d)?],
                out: lin("attn.attn_out", d, d)?,
                mlp: [lin("mlp.0", d, 2 * d)?, lin("mlp.3", 2 * d, d)?],
                norms: [normal("norm1")?, normal("norm2")?, normal("norm3")?],
            }));
        }
        all.push(match shape.of_graphs() {
            true => Rc::new(GraphHead::new(init, "output", readout, d, shape.classes)?),
            false => Rc::new(Head::new(init, "output", d, shape.classes)?),
        });
        Ok(Network::new(all))
    }
}

impl ModelKeys for Config {
    const NAME: &'static str = "gps";
    const ABOUT: &'static str = "convolution over edges beside attention to all nodes";
}
