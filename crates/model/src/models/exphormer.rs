//! Exphormer of Shirzad et al.: the graph transformer on a graph that has more edges. Random expander edges let
//! anything reach anything in a few layers; virtual nodes, or tokens, see all nodes and are seen by all. The kind of an
//! edge gives its score a learned term per head.
//!
//! Layers are the [graph transformer](super::gt)'s. A token has rows of its own in every layer, made by the same
//! weights as a node's; it attends to all nodes, and nodes attend to tokens and neighbours in one softmax.
//!
//! Where edges of the data have features, these and the kind are in keys and values, as in the graph transformer. An
//! edge of the expander has zeros, and in each column of categories one of its own.

use std::rc::Rc;

use graphweft_graph::Csr;
use graphweft_tensor::ops::activation::Activation;
use graphweft_tensor::ops::linear::{Affine, linear};
use graphweft_tensor::{Error, Parameter, Result, Tape, Var};

use super::{check_heads, check_layers};
use crate::graph_ops::{Attend, EdgeBias, Score, TokensAttend};
use crate::init::Init;
use crate::keys::keys;
use crate::model::{Model, ModelInfo, ModelKeys, Reach, UseEdges};
use crate::network::{Buffer, Context, Layer, Mode, Network, Rates, Shape};
use crate::parts::block::Block;
use crate::parts::edges::EdgeLinear;
use crate::parts::head::{Head, parameters};
use crate::parts::input::Embedding;
use crate::parts::norm::NormKind;
use crate::prepare::Prepared;

keys! {
    /// Columns.
    hidden: usize = 80,
    /// Layers.
    layers: usize = 4,
    /// Attention heads.
    heads: usize = 2,
    /// Normalisation after each half of a layer.
    norm: NormKind = NormKind::Layer,
    /// Random permutations whose edges are added, in both directions: each node gets twice as many in-edges.
    expander_degree: usize = 3,
    /// Virtual nodes.
    virtual_nodes: usize = 4,
    /// Whether layers use features of edges, where the data have some.
    edges: UseEdges = UseEdges::Use,
}

/// The embedding of nodes, and the first rows of tokens.
struct First {
    nodes: Embedding,
    tokens: Option<Rc<Parameter>>,
}

impl Layer for First {
    fn name(&self) -> String {
        self.nodes.name()
    }

    fn parameters(&self) -> Vec<Rc<Parameter>> {
        self.nodes.parameters().into_iter().chain(self.tokens.clone()).collect()
    }

    fn forward(&self, tape: &mut Tape, cx: &Context, state: &[Var]) -> Result<Vec<Var>> {
        let mut state = self.nodes.forward(tape, cx, state)?;
        if let Some(tokens) = &self.tokens {
            let rows = tape.parameter(tokens);
            state.push(as_stored(tape, cx, &rows)?);
        }
        Ok(state)
    }
}

/// Rows of a parameter in the type of activations.
fn as_stored(tape: &mut Tape, cx: &Context, rows: &Var) -> Result<Var> {
    graphweft_tensor::ops::convert::convert(tape, rows, cx.dtype)
}

struct ExphormerLayer {
    number: u32,
    attention: Rc<Attention>,
    block: Block,
    who: Attending,
}

/// Who attends in a layer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Attending {
    /// In the last one, whose tokens nobody looks at.
    Nodes,
    /// In others.
    NodesAndTokens,
}

struct Attention {
    heads: usize,
    q: Affine,
    kv: [Affine; 2],
    edges: EdgeTerm,
}

/// What edges add.
enum EdgeTerm {
    /// Their kind, to the score: a weight per head and kind.
    Bias(Rc<Parameter>),
    /// Kind and features, to keys and values.
    Values(EdgeLinear),
}

impl EdgeTerm {
    fn parameter(&self) -> &Rc<Parameter> {
        match self {
            Self::Bias(weight) => weight,
            Self::Values(linear) => linear.weight(),
        }
    }
}

impl Attention {
    /// From rows of nodes and tokens to what those who attend found.
    fn run(&self, tape: &mut Tape, cx: &Context, layer: u32, state: &[Var], who: Attending) -> Result<Vec<Var>> {
        let q = |tape: &mut Tape, x: &Var| linear(tape, x, std::slice::from_ref(&self.q), Activation::None, cx.dtype);
        let kv = |tape: &mut Tape, x: &Var| linear(tape, x, &self.kv, Activation::None, cx.dtype);
        let (own_q, own_kv) = (q(tape, &state[0])?, kv(tape, &state[0])?);
        let weight = tape.parameter(self.edges.parameter());
        let (heads, dropout) = (self.heads, cx.edges(layer));
        let (bias, edges) = match &self.edges {
            EdgeTerm::Bias(_) => (EdgeBias::Features { feat: (), weight: &weight }, None),
            EdgeTerm::Values(linear) => (EdgeBias::None, Some(linear.with(&weight))),
        };
        let token_kv = state.get(1).map(|tokens| kv(tape, tokens)).transpose()?;
        let attend = Attend::new(heads, Score::Dot { q: &own_q, kv: &own_kv });
        let attend = Attend { bias, edges, tokens: token_kv.as_ref(), dropout, ..attend };
        let mut out = vec![cx.ops.attend(tape, layer, attend)?];
        if let (Some(tokens), Attending::NodesAndTokens) = (state.get(1), who) {
            let token_q = q(tape, tokens)?;
            out.push(cx.ops.tokens_attend(tape, layer, TokensAttend { heads, q: &token_q, kv: &own_kv, dropout })?);
        }
        Ok(out)
    }
}

impl Layer for ExphormerLayer {
    fn name(&self) -> String {
        format!("layers.{}", self.number - 1)
    }

    fn parameters(&self) -> Vec<Rc<Parameter>> {
        let Attention { q, kv, edges, .. } = &*self.attention;
        let edge = edges.parameter();
        let linear = [q, &kv[0], &kv[1]].into_iter().chain(self.block.linear());
        linear.flat_map(parameters).chain(std::iter::once(Rc::clone(edge))).chain(self.block.norms()).collect()
    }

    fn buffers(&self) -> Vec<Rc<Buffer>> {
        self.block.buffers()
    }

    fn without_effect(&self, rates: Rates) -> Vec<Rc<Parameter>> {
        self.attention.kv[0].bias.iter().cloned().chain(self.block.without_effect(rates)).collect()
    }

    fn forward(&self, tape: &mut Tape, cx: &Context, state: &[Var]) -> Result<Vec<Var>> {
        let (attention, layer, who) = (Rc::clone(&self.attention), self.number, self.who);
        let found = if cx.remat.of_attention() {
            let again = cx.clone();
            let inputs: Vec<&Var> = state.iter().collect();
            tape.checkpoint(&inputs, move |tape, state| attention.run(tape, &again, layer, state, who))?
        } else {
            attention.run(tape, cx, layer, state, who)?
        };
        // Tokens are not dropped, since they are no nodes.
        let quiet = Context { mode: Mode::Evaluate, ..cx.clone() };
        let steps = [cx, &quiet];
        let rows = state.iter().zip(&found).zip(steps);
        rows.map(|((x, z), cx)| self.block.forward(tape, cx, self.number, x, z)).collect()
    }
}

impl Model for Config {
    fn describe(&self) -> ModelInfo {
        let info = ModelInfo::new(Reach::Anywhere, self.hidden, self.layers);
        ModelInfo { heads: Some(self.heads), edges: self.edges, ..info }
    }

    fn prepare(&self, csr: Csr<u32>, seed: u64) -> Result<Prepared> {
        Prepared::expander(&csr, self.expander_degree, seed)
    }

    fn network(&self, init: &Init<'_>, shape: &Shape) -> Result<Network> {
        let &Config { hidden: d, layers, heads, norm, virtual_nodes, .. } = self;
        check_heads(Self::NAME, d, heads)?;
        check_layers(Self::NAME, layers)?;
        if virtual_nodes > 0 && norm == NormKind::Batch {
            let problem =
                "model.norm = \"batch\" has no moments for virtual nodes: take \"layer\", or model.virtual_nodes = 0";
            return Err(Error::Argument { op: Self::NAME, problem: problem.into() });
        }
        let tokens = (virtual_nodes > 0).then(|| init.uniform("tokens", virtual_nodes, d, 1.0)).transpose()?;
        let mut all: Vec<Rc<dyn Layer>> =
            vec![Rc::new(First { nodes: Embedding::new(init, "input", shape, d)?, tokens })];
        for k in 0..layers {
            let lin = |name: &str, inputs, outputs| init.linear(&format!("layers.{k}.{name}"), inputs, outputs);
            let name = format!("layers.{k}.conv.lin_edge");
            let linear = match Prepared::are_kinds(&shape.edge_features) {
                true => None,
                false => EdgeLinear::new(init, &name, &shape.edge_features, d)?,
            };
            let kinds = shape.edge_features.width();
            let bias = || {
                let bound = (kinds.max(1) as f64).sqrt().recip();
                init.uniform(&format!("layers.{k}.edge.weight"), heads, kinds, bound).map(EdgeTerm::Bias)
            };
            let attention = Attention {
                heads,
                q: lin("conv.lin_query", d, d)?,
                kv: [lin("conv.lin_key", d, d)?, lin("conv.lin_value", d, d)?],
                edges: linear.map_or_else(bias, |linear| Ok(EdgeTerm::Values(linear)))?,
            };
            all.push(Rc::new(ExphormerLayer {
                number: k as u32 + 1,
                attention: Rc::new(attention),
                block: Block::new(init, &format!("layers.{k}"), norm, d, 1)?,
                who: if k + 1 == layers { Attending::Nodes } else { Attending::NodesAndTokens },
            }));
        }
        all.push(Rc::new(Head::new(init, "output", d, shape.classes)?));
        Ok(Network::new(all))
    }
}

impl ModelKeys for Config {
    const NAME: &'static str = "exphormer";
    const ABOUT: &'static str = "the graph transformer with expander edges and virtual nodes";
}
