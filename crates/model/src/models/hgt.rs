//! HGT of Hu et al., the heterogeneous graph transformer: `torch_geometric.nn.HGTConv`.
//!
//! Keys, queries and values are linear by the type τ of a node. An edge j → i of relation φ has the score
//! μ_φ·(k_j·A_φ)·q_i / √d in each head and brings v_j·M_φ: matrices of d × d per head and relation, and a number μ. One
//! softmax goes over all edges into i, whatever their relations. Then x_i = (1 − s)·x_i + s·(W_τ·gelu(z_i) + b_τ) with
//! s = sigmoid(skip_τ), where dropout of the second term and a normalisation may be asked for.
//!
//! A linear layer and ReLU come first, a linear layer last. Where nodes or edges have no types, all are of one.
//!
//! What grows: a row of keys and values for each pair of a relation and a source ([`RelationMaps`]), at most one per
//! edge, and never a tensor of edges × columns. Rows of sources travel as they are, once: 2·d numbers forward and 2·d
//! back for a row that is pulled, as in the graph transformer, whatever the number of relations is. μ becomes part of
//! A_φ, and s of W_τ, before anything is multiplied by them.

use std::cell::OnceCell;
use std::rc::Rc;

use graphweft_graph::TypedCsr;
use graphweft_tensor::ops::activation::{Activation, activate};
use graphweft_tensor::ops::combine::{concat, scale};
use graphweft_tensor::ops::grouped::GroupedMap;
use graphweft_tensor::ops::linear::Affine;
use graphweft_tensor::ops::matmul::times;
use graphweft_tensor::ops::product::product;
use graphweft_tensor::ops::residual::residual;
use graphweft_tensor::ops::rows::{RowIndex, gather};
use graphweft_tensor::{Device, Matrix, Parameter, Result, Tape, Var};

use crate::graph_ops::{Attend, RelationMaps, Score};
use crate::init::Init;
use crate::keys::keys;
use crate::model::{Model, ModelInfo, ModelKeys, Reach};
use crate::models::{check_heads, check_layers};
use crate::network::{Buffer, Context, Layer, Network, Rates, Shape, TypeCounts};
use crate::parts::constants::{constant, once, pieces};
use crate::parts::head::{Head, parameters};
use crate::parts::input::Embedding;
use crate::parts::norm::{NormKind, Normalisation};
use crate::parts::remat::rows_again;
use crate::parts::typed::{typed_linear, typed_product};
use crate::prepare::Prepared;

keys! {
    /// Columns.
    hidden: usize = 64,
    /// Layers.
    layers: usize = 2,
    /// Attention heads.
    heads: usize = 8,
    /// Normalisation at the end of a layer.
    norm: NormKind = NormKind::None,
}

/// The linear layer that comes first, and ReLU.
struct First(Embedding);

impl Layer for First {
    fn name(&self) -> String {
        self.0.name()
    }

    fn parameters(&self) -> Vec<Rc<Parameter>> {
        self.0.parameters()
    }

    fn sees_edges(&self) -> bool {
        false
    }

    fn forward(&self, tape: &mut Tape, cx: &Context, state: &[Var]) -> Result<Vec<Var>> {
        let x = self.0.forward(tape, cx, state)?;
        x.iter().map(|x| activate(tape, x, Activation::Relu)).collect()
    }
}

struct HgtLayer {
    number: u32,
    attention: Rc<Attention>,
    out: Affine,
    /// A number per type.
    skip: Rc<Parameter>,
    gate: OnceCell<Gate>,
    norm: Normalisation,
}

struct Attention {
    heads: usize,
    types: TypeCounts,
    q: Affine,
    kv: [Affine; 2],
    /// Of keys and of values: for each relation and head d rows of d numbers, what comes out by what goes in.
    maps: [Rc<Parameter>; 2],
    /// A row per relation and head.
    prior: Rc<Parameter>,
    constants: OnceCell<Constants>,
}

/// What scores are made with that is never learned.
struct Constants {
    /// 1 between columns of the same head, for each relation.
    of_a_head: Matrix,
    /// The relation and head of each row of a map.
    owner: Rc<RowIndex>,
    ones: Matrix,
}

/// What a gate is made with.
struct Gate {
    /// The identity, for each type.
    identity: Matrix,
    /// The type of each row of a map.
    owner: Rc<RowIndex>,
    ones: Matrix,
}

impl Attention {
    fn new(init: &Init<'_>, name: &str, d: usize, heads: usize, types: TypeCounts) -> Result<Self> {
        let linear = |part: &str| init.typed_linear(&format!("{name}.{part}"), types.nodes, d, d);
        let (relations, width) = (types.relations, d / heads);
        let map = |part: &str| init.stacked(&format!("{name}.{part}.weight"), vec![relations, heads, width, width]);
        Ok(Self {
            heads,
            types,
            q: linear("q_lin")?,
            kv: [linear("k_lin")?, linear("v_lin")?],
            maps: [map("k_rel")?, map("v_rel")?],
            prior: init.filled(&format!("{name}.p_rel"), vec![relations, heads], relations * heads, 1.0)?,
            constants: OnceCell::new(),
        })
    }

    fn constants(&self, device: &Device, cx: &Context) -> Result<&Constants> {
        let (rows, width) = self.maps[0].value().shape();
        let d = width * self.heads;
        once(&self.constants, || {
            Ok(Constants {
                of_a_head: constant(device, rows, d, cx, |row, col| row % d / width == col / width)?,
                owner: pieces(device, rows, width)?,
                ones: constant(device, 1, width, cx, |_, _| true)?,
            })
        })
    }

    /// The maps of all relations, with zeros between heads, and μ in those of keys.
    fn maps(&self, tape: &mut Tape, cx: &Context) -> Result<[Var; 2]> {
        let device = tape.device().clone();
        let Constants { of_a_head, owner, ones } = self.constants(&device, cx)?;
        let [keys, values] = self.maps.each_ref().map(|map| tape.parameter(map));
        let (prior, ones) = (tape.parameter(&self.prior), tape.constant(ones.clone()));
        let prior = times(tape, &prior, &ones)?;
        let prior = gather(tape, &prior, owner)?;
        let keys = product(tape, &keys, 0.0, &prior)?;
        let of_a_head = tape.constant(of_a_head.clone());
        let spread = |tape: &mut Tape, map: &Var| {
            let all = concat(tape, &vec![map; self.heads])?;
            product(tape, &all, 0.0, &of_a_head)
        };
        Ok([spread(tape, &keys)?, spread(tape, &values)?])
    }

    fn run(&self, tape: &mut Tape, cx: &Context, layer: u32, x: &Var) -> Result<Var> {
        let q = typed_linear(tape, cx, x, std::slice::from_ref(&self.q), cx.dtype)?;
        let kv = typed_linear(tape, cx, x, &self.kv, cx.dtype)?;
        let [keys, values] = self.maps(tape, cx)?;
        let score = Score::Dot { q: &q, kv: &kv };
        let relations = Some(RelationMaps { keys: &keys, values: &values });
        cx.ops.attend(tape, layer, Attend { relations, dropout: cx.edges(layer), ..Attend::new(self.heads, score) })
    }
}

impl HgtLayer {
    /// (1 − s)·x + dropout(s·(W·z + b)), with s by type.
    fn gated(&self, tape: &mut Tape, cx: &Context, x: &Var, z: &Var) -> Result<Var> {
        let (types, d, device) = (self.skip.value().rows(), x.value().cols(), tape.device().clone());
        let Gate { identity, owner, ones } = once(&self.gate, || {
            Ok(Gate {
                identity: constant(&device, types * d, d, cx, |row, col| row % d == col)?,
                owner: pieces(&device, types * d, d)?,
                ones: constant(&device, 1, d, cx, |_, _| true)?,
            })
        })?;
        let (skip, ones) = (tape.parameter(&self.skip), tape.constant(ones.clone()));
        let open = activate(tape, &skip, Activation::Sigmoid)?;
        let open = times(tape, &open, &ones)?;
        let by_row = gather(tape, &open, owner)?;
        let weight = tape.parameter(&self.out.weight);
        let weight = product(tape, &weight, 0.0, &by_row)?;
        let bias = self.out.bias.as_ref().map(|bias| tape.parameter(bias));
        let bias = bias.map(|bias| product(tape, &bias, 0.0, &open)).transpose()?;
        let new = typed_product(tape, cx, z, GroupedMap { weight: &weight, bias: bias.as_ref() })?;
        let (closed, identity) = (scale(tape, -1.0, &by_row)?, tape.constant(identity.clone()));
        let closed = product(tape, &closed, 1.0, &identity)?;
        let old = typed_product(tape, cx, x, GroupedMap { weight: &closed, bias: None })?;
        residual(tape, &old, &new, cx.rows(cx.rates.hidden, self.number, 1).as_ref())
    }
}

impl Layer for HgtLayer {
    fn name(&self) -> String {
        format!("convs.{}", self.number - 1)
    }

    fn parameters(&self) -> Vec<Rc<Parameter>> {
        let Attention { q, kv, maps, prior, .. } = &*self.attention;
        let linear = [q, &kv[0], &kv[1], &self.out].into_iter().flat_map(parameters);
        let others = maps.iter().chain([prior, &self.skip]).cloned();
        linear.chain(others).chain(self.norm.parameters()).collect()
    }

    fn buffers(&self) -> Vec<Rc<Buffer>> {
        self.norm.buffers()
    }

    /// Where all sources are of one type and all edges of one relation, a bias of keys adds the same to all scores.
    fn without_effect(&self, _: Rates) -> Vec<Rc<Parameter>> {
        let Attention { kv, types, .. } = &*self.attention;
        kv[0].bias.iter().filter(|_| *types == TypeCounts::default()).cloned().collect()
    }

    fn forward(&self, tape: &mut Tape, cx: &Context, state: &[Var]) -> Result<Vec<Var>> {
        let (x, attention, layer) = (&state[0], Rc::clone(&self.attention), self.number);
        let state = std::slice::from_ref(x);
        let z = rows_again(tape, cx, state, move |tape, cx, x| Ok(vec![attention.run(tape, cx, layer, &x[0])?]))?;
        let z = activate(tape, &z[0], Activation::Gelu)?;
        let y = self.gated(tape, cx, x, &z)?;
        Ok(vec![self.norm.forward(tape, cx, self.number, &y)?])
    }
}

impl Model for Config {
    fn describe(&self) -> ModelInfo {
        ModelInfo { heads: Some(self.heads), ..ModelInfo::new(Reach::Edges, self.hidden, self.layers) }
    }

    fn reads_types(&self) -> bool {
        true
    }

    fn reads_node_types(&self) -> bool {
        true
    }

    fn prepare_typed(&self, graph: &TypedCsr, types: usize, _: u64) -> Result<Prepared> {
        Prepared::mapped(graph, types)
    }

    fn network(&self, init: &Init<'_>, shape: &Shape) -> Result<Network> {
        let Config { hidden: d, layers, heads, norm } = *self;
        check_heads(Self::NAME, d, heads)?;
        check_layers(Self::NAME, layers)?;
        let mut all: Vec<Rc<dyn Layer>> = vec![Rc::new(First(Embedding::new(init, "input", shape, d)?))];
        for k in 0..layers {
            let name = format!("convs.{k}");
            let types = shape.types;
            all.push(Rc::new(HgtLayer {
                number: k as u32 + 1,
                attention: Rc::new(Attention::new(init, &name, d, heads, types)?),
                out: init.typed_linear(&format!("{name}.out_lin"), types.nodes, d, d)?,
                skip: init.filled(&format!("{name}.skip"), vec![types.nodes], types.nodes, 1.0)?,
                gate: OnceCell::new(),
                norm: Normalisation::new(norm, init, &format!("norms.{k}"), d)?,
            }));
        }
        all.push(Rc::new(Head::new(init, "output", d, shape.classes)?));
        Ok(Network::new(all))
    }
}

impl ModelKeys for Config {
    const NAME: &'static str = "hgt";
    const ABOUT: &'static str = "heterogeneous graph transformer: maps by type of node, matrices by type of edge";
}
