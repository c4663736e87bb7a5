//! GAT: z = x·Wᵀ; attention over z with scores LeakyReLU(a_dst·z_i + a_src·z_j) per head; heads side by side, or their
//! mean. Where edges have features, a_edge·(W_e·e_ij) is in the sum as well.

use std::rc::Rc;

use graphweft_tensor::ops::activation::Activation;
use graphweft_tensor::ops::edge_values::EdgeColumns;
use graphweft_tensor::ops::epilogue::epilogue;
use graphweft_tensor::ops::linear::Affine;
use graphweft_tensor::{DType, Parameter, Result, Tape, Var};

use super::{Conv, End};
use crate::graph_ops::{Attend, HeadVectors, Score};
use crate::init::{Init, Inputs};
use crate::network::Context;
use crate::parts::edges::EdgeLinear;
use crate::parts::head::parameters;
use crate::parts::input::Input;
use crate::parts::remat::attention_again;

/// Of the LeakyReLU, as in the paper.
pub(crate) const SLOPE: f64 = 0.2;

/// What becomes of the heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heads {
    /// They share the output's columns.
    Concat(usize),
    /// Each is as wide as the output, which is their mean.
    Mean(usize),
}

impl Heads {
    /// Their number, the width of one, and how many pieces a row of the output is the mean of.
    pub(crate) fn of(self, outputs: usize) -> (usize, usize, usize) {
        match self {
            Self::Concat(heads) => (heads, outputs / heads.max(1), 1),
            Self::Mean(heads) => (heads, outputs, heads),
        }
    }
}

/// `{name}.lin.weight`, `{name}.att_src`, `{name}.att_dst`, `{name}.bias`; with features of edges
/// `{name}.lin_edge.weight` and `{name}.att_edge`.
pub struct GatConv {
    groups: usize,
    attention: Rc<Attention>,
    bias: Option<Rc<Parameter>>,
}

struct Attention {
    lin: Affine,
    src: Rc<Parameter>,
    dst: Rc<Parameter>,
    edges: Option<EdgeScore>,
}

/// What features of edges add to scores.
struct EdgeScore {
    lin: EdgeLinear,
    att: Rc<Parameter>,
}

impl GatConv {
    /// A convolution called `name`, with a bias or without.
    pub fn new(init: &Init<'_>, name: &str, between: Between<'_>, heads: Heads, bias: Bias) -> Result<Self> {
        let Between { inputs, outputs, edges } = between;
        let (heads, width, groups) = heads.of(outputs);
        let lin = init.projection(&format!("{name}.lin"), inputs, heads * width)?;
        let (src, dst) = (
            init.attention(&format!("{name}.att_src"), heads, width)?,
            init.attention(&format!("{name}.att_dst"), heads, width)?,
        );
        let bias = match bias {
            Bias::Zeros => Some(init.vector(&format!("{name}.bias"), outputs, 0.0)?),
            Bias::None => None,
        };
        let linear = EdgeLinear::glorot(init, &format!("{name}.lin_edge"), edges, heads * width)?;
        let score = |lin| Ok(EdgeScore { lin, att: init.attention(&format!("{name}.att_edge"), heads, width)? });
        let edges = linear.map(score).transpose()?;
        Ok(Self { groups, attention: Rc::new(Attention { lin, src, dst, edges }), bias })
    }
}

/// What a convolution with attention leads from and to, and the features of edges that it looks at.
#[derive(Clone, Copy)]
pub struct Between<'a> {
    /// Columns of its input.
    pub inputs: Inputs,
    /// Columns of its output.
    pub outputs: usize,
    /// Of edges.
    pub edges: &'a EdgeColumns,
}

/// Whether a convolution has a bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bias {
    /// It has none.
    None,
    /// It starts as zeros.
    Zeros,
}

impl Attention {
    fn run(&self, tape: &mut Tape, cx: &Context, layer: u32, x: &Input) -> Result<Var> {
        let z = x.linear(tape, &self.lin, Activation::None, cx.dtype)?;
        let (dst, src) = (tape.parameter(&self.dst), tape.parameter(&self.src));
        let heads = src.value().rows();
        let score = Score::Gat { l: HeadVectors(&dst), r: HeadVectors(&src), z: &z, slope: SLOPE };
        let by_head = |EdgeScore { lin, att }: &EdgeScore| {
            let att = tape.parameter(att);
            lin.times(tape, &att)
        };
        let weight = self.edges.as_ref().map(by_head).transpose()?;
        let edges = self.edges.as_ref().zip(weight.as_ref()).map(|(edges, weight)| edges.lin.with(weight));
        cx.ops.attend(tape, layer, Attend { edges, dropout: cx.edges(layer), ..Attend::new(heads, score) })
    }
}

impl Conv for GatConv {
    fn parameters(&self) -> Vec<Rc<Parameter>> {
        let Attention { lin, src, dst, edges } = &*self.attention;
        let edges = edges.iter().flat_map(|edges| [Rc::clone(edges.lin.weight()), Rc::clone(&edges.att)]);
        parameters(lin).chain([Rc::clone(src), Rc::clone(dst)]).chain(edges).chain(self.bias.clone()).collect()
    }

    fn bias(&self) -> Option<&Rc<Parameter>> {
        self.bias.as_ref()
    }

    fn forward(&self, tape: &mut Tape, cx: &Context, layer: u32, x: &Input, end: End<'_>, dtype: DType) -> Result<Var> {
        let attention = Rc::clone(&self.attention);
        let rows = attention_again(tape, cx, x, move |tape, cx, x| attention.run(tape, cx, layer, x))?;
        epilogue(tape, &rows, end.after(self.groups, self.bias.as_ref()), dtype)
    }
}
