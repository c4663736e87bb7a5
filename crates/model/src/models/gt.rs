//! The graph transformer: attention over edges and a feed-forward network, each with residual and normalisation.
//!
//! Where edges have features e_ij, keys and values are k_j + W·e_ij and v_j + W·e_ij, as in PyTorch Geometric's
//! `TransformerConv`.
//!
//! Where nodes have types, the linear maps of attention (q, k, v and the output projection) are those of a node's type.
//!
//! Input: h = features·W + b (+ positional encodings·W_p + b_p). Each layer: q, k, v from h; softmax attention over
//! in-edges; output projection; h = norm(h + dropout(·)); a network of twice the width; h = norm(h + dropout(·)).
//! Output: a linear layer.

use std::rc::Rc;

use graphweft_tensor::ops::linear::Affine;
use graphweft_tensor::{Parameter, Result, Tape, Var};

use crate::graph_ops::{Attend, Score};
use crate::init::Init;
use crate::keys::keys;
use crate::model::{Model, ModelInfo, ModelKeys, Reach, UseEdges, UseTypes};
use crate::models::{check_heads, check_layers};
use crate::network::{Buffer, Context, Layer, Network, Rates, Shape};
use crate::parts::block::Block;
use crate::parts::edges::EdgeLinear;
use crate::parts::head::{Head, parameters};
use crate::parts::input::Embedding;
use crate::parts::norm::NormKind;
use crate::parts::readout::{GraphHead, ReadoutKind};
use crate::parts::remat::rows_again;
use crate::parts::typed::typed_linear;

keys! {
    /// Columns.
    hidden: usize = 128,
    /// Layers.
    layers: usize = 4,
    /// Attention heads.
    heads: usize = 8,
    /// Normalisation after each half of a layer.
    norm: NormKind = NormKind::Layer,
    /// Whether layers use features of edges, where the data have some.
    edges: UseEdges = UseEdges::Use,
    /// Whether nodes of each type have linear maps of their own in attention.
    types: UseTypes = UseTypes::Use,
    /// Whole graphs: how the nodes of one become a row.
    readout: ReadoutKind = ReadoutKind::Mean,
}

struct GtLayer {
    number: u32,
    /// Of nodes.
    types: usize,
    heads: usize,
    attention: Rc<Projections>,
    block: Block,
}

struct Projections {
    q: Affine,
    kv: [Affine; 2],
    edges: Option<EdgeLinear>,
}

impl Layer for GtLayer {
    fn name(&self) -> String {
        format!("layers.{}", self.number)
    }

    fn parameters(&self) -> Vec<Rc<Parameter>> {
        let p = &self.attention;
        let linear = [&p.q, &p.kv[0], &p.kv[1]].into_iter().chain(self.block.linear());
        let edges = p.edges.iter().map(|edges| Rc::clone(edges.weight()));
        linear.flat_map(parameters).chain(edges).chain(self.block.norms()).collect()
    }

    fn buffers(&self) -> Vec<Rc<Buffer>> {
        self.block.buffers()
    }

    fn without_effect(&self, rates: Rates) -> Vec<Rc<Parameter>> {
        // Where sources are of several types, their biases differ.
        self.attention.kv[0]
            .bias
            .iter()
            .filter(|_| self.types == 1)
            .cloned()
            .chain(self.block.without_effect(rates))
            .collect()
    }

    fn forward(&self, tape: &mut Tape, cx: &Context, state: &[Var]) -> Result<Vec<Var>> {
        let x = &state[0];
        let (p, layer, heads) = (Rc::clone(&self.attention), self.number, self.heads);
        let inside =
            move |tape: &mut Tape, cx: &Context, x: &[Var]| Ok(vec![attend(&p, tape, cx, layer, heads, &x[0])?]);
        let z = rows_again(tape, cx, std::slice::from_ref(x), inside)?;
        Ok(vec![self.block.forward(tape, cx, self.number, x, &z[0])?])
    }
}

fn attend(p: &Projections, tape: &mut Tape, cx: &Context, layer: u32, heads: usize, x: &Var) -> Result<Var> {
    let q = typed_linear(tape, cx, x, std::slice::from_ref(&p.q), cx.dtype)?;
    let kv = typed_linear(tape, cx, x, &p.kv, cx.dtype)?;
    let score = Score::Dot { q: &q, kv: &kv };
    let weight = p.edges.as_ref().map(|edges| tape.parameter(edges.weight()));
    let edges = p.edges.as_ref().zip(weight.as_ref()).map(|(edges, weight)| edges.with(weight));
    cx.ops.attend(tape, layer, Attend { edges, dropout: cx.edges(layer), ..Attend::new(heads, score) })
}

impl Model for Config {
    fn describe(&self) -> ModelInfo {
        let info = ModelInfo::new(Reach::Edges, self.hidden, self.layers);
        ModelInfo { heads: Some(self.heads), reads_out: true, edges: self.edges, ..info }
    }

    fn reads_node_types(&self) -> bool {
        self.types == UseTypes::Use
    }

    fn network(&self, init: &Init<'_>, shape: &Shape) -> Result<Network> {
        let Config { hidden: d, layers, heads, norm, readout, edges: _, types: _ } = *self;
        let types = shape.types.nodes;
        check_heads(Self::NAME, d, heads)?;
        check_layers(Self::NAME, layers)?;
        let mut all: Vec<Rc<dyn Layer>> = vec![Rc::new(Embedding::new(init, "input", shape, d)?)];
        for k in 0..layers {
            let linear = |name: &str| init.typed_linear(&format!("layers.{k}.{name}"), types, d, d);
            let projections = Projections {
                edges: EdgeLinear::new(init, &format!("layers.{k}.conv.lin_edge"), &shape.edge_features, d)?,
                q: linear("conv.lin_query")?,
                kv: [linear("conv.lin_key")?, linear("conv.lin_value")?],
            };
            all.push(Rc::new(GtLayer {
                number: k as u32 + 1,
                types,
                heads,
                attention: Rc::new(projections),
                block: Block::new(init, &format!("layers.{k}"), norm, d, types)?,
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
    const NAME: &'static str = "gt";
    const ABOUT: &'static str = "graph transformer: attention over edges, then a feed-forward network";
}
