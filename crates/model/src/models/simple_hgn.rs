//! Simple-HGN of Lv et al., "Are we really making much progress?" (KDD 2021): attention of GAT that sees the relation φ
//! of an edge, with a residual on attention, residuals on rows, and an output of length 1.
//!
//! Scores are LeakyReLU(a_dst·z_i + a_src·z_j + a_edge·(W_e·r_φ)) per head, with an embedding r of each relation and a
//! slope of 0.05. From the second layer on attention is α = (1 − β)·softmax(scores) + β·α of the layer before, through
//! which nothing is learned there. Then x_i = elu(Σ_j α_ij·z_j + R·x_i); R is there from the second layer on. The last
//! convolution has one head, gives the logits and takes no attention from before; its rows are divided by their length.
//! Dropout is of what comes into a convolution, and of attention. Types of nodes matter in the first linear layer
//! alone.
//!
//! The attention of an earlier layer is not kept: it has E·H numbers. What it was made of is N·2H, the sums a_dst·z_i
//! and a_src·z_j, which are carried from layer to layer; a pass over the edges with the scores of then and the rows of
//! now gives Σ_j α_ij·z_j. Layer k makes k such passes, of which the earlier ones learn about z alone. In such a pass a
//! row is z with two more columns per head: 2·(d + 2H) numbers for a row that is pulled, forward and backward together,
//! and 2d for the layer's own.

use std::cell::OnceCell;
use std::rc::Rc;

use graphweft_graph::TypedCsr;
use graphweft_tensor::ops::activation::Activation;
use graphweft_tensor::ops::combine::{columns, combine, concat};
use graphweft_tensor::ops::convert::convert;
use graphweft_tensor::ops::dropout::dropout;
use graphweft_tensor::ops::edge_values::EdgeColumns;
use graphweft_tensor::ops::epilogue::{Epilogue, epilogue};
use graphweft_tensor::ops::grouped::{GroupedMap, RowTypes, by_type};
use graphweft_tensor::ops::head_dot::head_dot;
use graphweft_tensor::ops::l2norm::l2_norm;
use graphweft_tensor::ops::linear::{Affine, linear};
use graphweft_tensor::ops::matmul::times;
use graphweft_tensor::ops::product::product;
use graphweft_tensor::ops::reshape::reshape;
use graphweft_tensor::{Matrix, Parameter, Result, Tape, Var};

use super::{check_heads, check_layers, check_share};
use crate::graph_ops::{Attend, EdgeValues, HeadVectors, Score};
use crate::init::Init;
use crate::keys::keys;
use crate::model::{Model, ModelInfo, ModelKeys, Reach};
use crate::network::{Context, Layer, Network, Shape};
use crate::parts::constants::{constant, once};
use crate::parts::head::parameters;
use crate::parts::input::Embedding;
use crate::parts::remat::rows_again;
use crate::prepare::Prepared;

/// Of the LeakyReLU, as published.
const SLOPE: f64 = 0.05;

keys! {
    /// Columns, of all heads together.
    hidden: usize = 512,
    /// Convolutions before the last one.
    layers: usize = 2,
    /// The share of attention that is the layer before's.
    beta: f64 = 0.05,
    /// Attention heads.
    heads: usize = 8,
    /// Columns of the embedding of a relation.
    relation_width: usize = 64,
}

/// What makes scores.
struct Scores {
    dst: Rc<Parameter>,
    src: Rc<Parameter>,
    relations: Option<RelationScores>,
}

/// What relations add to scores.
struct RelationScores {
    columns: EdgeColumns,
    /// A row per relation.
    embedding: Rc<Parameter>,
    lin: Affine,
    att: Rc<Parameter>,
    /// 1 where a column belongs to the head of the row.
    own: OnceCell<Matrix>,
}

/// A parameter as it is learned, or as what it is at this time.
#[derive(Clone, Copy)]
enum As {
    Learned,
    Fixed,
}

impl As {
    fn var(self, tape: &mut Tape, parameter: &Rc<Parameter>) -> Var {
        match self {
            Self::Learned => tape.parameter(parameter),
            Self::Fixed => tape.constant(parameter.value()),
        }
    }
}

impl RelationScores {
    /// A row per head, a column per relation: a_edge·(W_e·r_φ).
    fn weight(&self, tape: &mut Tape, cx: &Context, which: As) -> Result<Var> {
        let [att, lin, embedding] = [&self.att, &self.lin.weight, &self.embedding].map(|p| which.var(tape, p));
        let (heads, width) = att.value().shape();
        let device = tape.device().clone();
        let own =
            once(&self.own, || constant(&device, heads, heads * width, cx, |head, column| column / width == head))?;
        let (wide, own) = (concat(tape, &vec![&att; heads])?, tape.constant(own.clone()));
        let by_head = product(tape, &wide, 0.0, &own)?;
        let through = times(tape, &by_head, &lin)?;
        let map = GroupedMap { weight: &embedding, bias: None };
        by_type(tape, &through, &RowTypes::one(heads), &[map], cx.dtype.compute())
    }
}

impl Scores {
    fn new(init: &Init<'_>, name: &str, heads: usize, width: usize, relations: &Relations) -> Result<Self> {
        let called = |part: &str| format!("{name}.{part}");
        let (columns, across) = (relations.columns, relations.width);
        let of_relations = || -> Result<RelationScores> {
            Ok(RelationScores {
                columns,
                // Of variance 1.
                embedding: init.uniform(&called("edge_emb"), columns.width(), across, 3f64.sqrt())?,
                lin: init.projection(&called("lin_edge"), across, heads * across)?,
                att: init.attention(&called("att_edge"), heads, across)?,
                own: OnceCell::new(),
            })
        };
        Ok(Self {
            dst: init.attention(&called("att_dst"), heads, width)?,
            src: init.attention(&called("att_src"), heads, width)?,
            relations: (!columns.is_empty()).then(of_relations).transpose()?,
        })
    }

    fn parameters(&self) -> impl Iterator<Item = Rc<Parameter>> {
        let relations = self.relations.iter().flat_map(|of| [&of.embedding, &of.lin.weight, &of.att]);
        [&self.dst, &self.src].into_iter().chain(relations).cloned()
    }

    /// Attention with these scores over rows `z`, by these vectors; dropout is that of layer `of`.
    fn attend(&self, tape: &mut Tape, cx: &Context, pass: Pass<'_>) -> Result<Var> {
        let Pass { layer, of, z, vectors: [dst, src], which } = pass;
        let weight = self.relations.as_ref().map(|relations| relations.weight(tape, cx, which)).transpose()?;
        let edges = self.relations.as_ref().zip(weight.as_ref());
        let edges = edges.map(|(relations, weight)| EdgeValues { weight, columns: &relations.columns });
        let score = Score::Gat { l: HeadVectors(dst), r: HeadVectors(src), z, slope: SLOPE };
        let heads = dst.value().rows();
        cx.ops.attend(tape, layer, Attend { edges, dropout: cx.edges(of), ..Attend::new(heads, score) })
    }
}

/// A pass over the edges for `layer`, with the scores of layer `of`.
#[derive(Clone, Copy)]
struct Pass<'a> {
    layer: u32,
    of: u32,
    z: &'a Var,
    vectors: [&'a Var; 2],
    which: As,
}

/// What relations there are, and how wide their embeddings.
struct Relations {
    columns: EdgeColumns,
    width: usize,
}

/// One convolution.
struct Conv {
    number: u32,
    /// Convolutions of the model.
    passes: u32,
    lin: Affine,
    scores: Rc<Scores>,
    /// Those of earlier layers, first to last, where it takes something of their attention.
    earlier: Vec<Rc<Scores>>,
    beta: f64,
    /// Picks two more columns of each head as its sums.
    pick: OnceCell<[Matrix; 2]>,
}

impl Conv {
    /// The rows, then what later layers know of its scores.
    fn run(&self, tape: &mut Tape, cx: &Context, state: &[Var]) -> Result<Vec<Var>> {
        let z = linear(tape, &state[0], std::slice::from_ref(&self.lin), Activation::None, cx.dtype)?;
        let [dst, src] = [&self.scores.dst, &self.scores.src].map(|p| tape.parameter(p));
        let (layer, which) = (self.number, As::Learned);
        let pass = Pass { layer, of: layer, z: &z, vectors: [&dst, &src], which };
        let mut rows = self.scores.attend(tape, cx, pass)?;
        let count = self.earlier.len();
        for (k, (scores, sums)) in self.earlier.iter().zip(&state[1..]).enumerate() {
            // Of what the layer before had, and that of the one before, and so on.
            let older = self.beta.powi((count - k) as i32) * if k == 0 { 1.0 } else { 1.0 - self.beta };
            let before = self.again(tape, cx, scores, k as u32 + 1, &z, sums)?;
            let own = if k == 0 { 1.0 - self.beta } else { 1.0 };
            rows = combine(tape, own, &rows, older, &before)?;
        }
        let fixed = |m: &Matrix| tape.constant(m.clone());
        let [z, dst, src] = [z.value(), dst.value(), src.value()].map(fixed);
        let heads = dst.value().rows();
        let sums = head_dot(tape, &z, [&dst, &src])?;
        let [l, r] = sums.each_ref().map(|m| reshape(tape, m, m.value().rows() * heads, 1));
        let sums = concat(tape, &[&l?, &r?])?;
        let sums = reshape(tape, &sums, z.value().rows(), 2 * heads)?;
        Ok(vec![rows, convert(tape, &sums, cx.dtype)?])
    }

    /// What the attention of an earlier layer, whose sums are these, makes of rows `z` of now.
    fn again(&self, tape: &mut Tape, cx: &Context, scores: &Scores, of: u32, z: &Var, sums: &Var) -> Result<Var> {
        let ((rows, d), heads, device) = (z.value().shape(), scores.dst.value().rows(), tape.device().clone());
        let width = d / heads;
        let pick = |at: usize| constant(&device, heads, width + 2, cx, move |_, column| column == width + at);
        let pick = once(&self.pick, || Ok([pick(0)?, pick(1)?]))?;
        let (by_head, sums) = (reshape(tape, z, rows * heads, width)?, reshape(tape, sums, rows * heads, 2)?);
        let wide = concat(tape, &[&by_head, &sums])?;
        let wide = reshape(tape, &wide, rows, heads * (width + 2))?;
        let [dst, src] = pick.each_ref().map(|m| tape.constant(m.clone()));
        // No two passes of a model have the same number.
        let layer = self.number + of * self.passes;
        let pass = Pass { layer, of, z: &wide, vectors: [&dst, &src], which: As::Fixed };
        let found = scores.attend(tape, cx, pass)?;
        let by_head = reshape(tape, &found, rows * heads, width + 2)?;
        let own = columns(tape, &by_head, 0..width)?;
        reshape(tape, &own, rows, d)
    }
}

/// A convolution with what comes before and after it.
struct SimpleHgnLayer {
    name: String,
    conv: Rc<Conv>,
    residual: Option<Affine>,
    kind: Kind,
}

/// What becomes of the rows of a convolution.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// ELU, and the scores are carried on.
    Carried,
    /// ELU: the last one comes next, which takes no attention.
    BeforeLast,
    /// They are divided by their length.
    Last,
}

impl Layer for SimpleHgnLayer {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn parameters(&self) -> Vec<Rc<Parameter>> {
        let linear = std::iter::once(&self.conv.lin).chain(&self.residual).flat_map(parameters);
        linear.chain(self.conv.scores.parameters()).collect()
    }

    fn forward(&self, tape: &mut Tape, cx: &Context, state: &[Var]) -> Result<Vec<Var>> {
        let drop = cx.rows(cx.rates.hidden, self.conv.number, 1);
        let x = drop.map_or_else(|| Ok(state[0].clone()), |drop| dropout(tape, &state[0], &drop))?;
        let inputs: Vec<Var> = std::iter::once(&x).chain(&state[1..]).cloned().collect();
        let conv = Rc::clone(&self.conv);
        let mut found = rows_again(tape, cx, &inputs, move |tape, cx, state| conv.run(tape, cx, state))?;
        let (sums, rows) = (found.pop(), found.swap_remove(0));
        let residual = self
            .residual
            .as_ref()
            .map(|affine| linear(tape, &x, std::slice::from_ref(affine), Activation::None, cx.dtype));
        let residual = residual.transpose()?;
        let (plus, last) = (residual.as_ref(), self.kind == Kind::Last);
        let activation = if last { Activation::None } else { Activation::Elu };
        let dtype = if last { cx.dtype.compute() } else { cx.dtype };
        let y = epilogue(tape, &rows, Epilogue { plus, activation, ..Epilogue::default() }, dtype)?;
        Ok(match self.kind {
            Kind::Last => vec![l2_norm(tape, &y)?],
            Kind::BeforeLast => vec![y],
            Kind::Carried => std::iter::once(y).chain(state[1..].iter().cloned()).chain(sums).collect(),
        })
    }
}

impl Model for Config {
    fn describe(&self) -> ModelInfo {
        let info = ModelInfo::new(Reach::Edges, self.hidden, self.layers);
        ModelInfo { heads: Some(self.heads), hops: self.layers + 1, self_loops: true, ..info }
    }

    fn reads_types(&self) -> bool {
        true
    }

    fn prepare_typed(&self, graph: &TypedCsr, types: usize, _: u64) -> Result<Prepared> {
        let of_edges = graph.types.iter().map(|of| f32::from(*of)).collect();
        Prepared::with_edges(graph.graph.clone(), EdgeColumns::new(0, &[types])?, of_edges)
    }

    fn network(&self, init: &Init<'_>, shape: &Shape) -> Result<Network> {
        let Config { hidden: d, layers, heads, relation_width, beta } = *self;
        check_heads(Self::NAME, d, heads)?;
        check_layers(Self::NAME, layers)?;
        check_share(Self::NAME, "beta", beta)?;
        let relations = Relations { columns: shape.edge_features, width: relation_width };
        let mut all: Vec<Rc<dyn Layer>> = vec![Rc::new(Embedding::new(init, "input", shape, d)?)];
        let mut earlier: Vec<Rc<Scores>> = Vec::new();
        for k in 0..=layers {
            let last = k == layers;
            let name = if last { "output".into() } else { format!("convs.{k}") };
            let (heads, outputs) = if last { (1, shape.classes) } else { (heads, d) };
            let scores = Rc::new(Scores::new(init, &name, heads, outputs / heads, &relations)?);
            let of_earlier = if last { Vec::new() } else { earlier.clone() };
            earlier.push(Rc::clone(&scores));
            let conv = Conv {
                number: k as u32 + 1,
                passes: layers as u32 + 1,
                lin: init.projection(&format!("{name}.lin"), d, outputs)?,
                scores,
                earlier: of_earlier,
                beta,
                pick: OnceCell::new(),
            };
            let residual = (k > 0).then(|| init.projection(&format!("{name}.res"), d, outputs)).transpose()?;
            let kind = match layers - k {
                0 => Kind::Last,
                1 => Kind::BeforeLast,
                _ => Kind::Carried,
            };
            all.push(Rc::new(SimpleHgnLayer { name, conv: Rc::new(conv), residual, kind }));
        }
        Ok(Network::new(all))
    }
}

impl ModelKeys for Config {
    const NAME: &'static str = "simple-hgn";
    const ABOUT: &'static str = "Simple-HGN: GAT that sees types of edges, with residuals on attention and rows";
}
