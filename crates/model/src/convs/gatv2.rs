//! GATv2: attention with scores a·LeakyReLU(x_i·W_rᵀ + x_j·W_lᵀ) over the values x_j·W_lᵀ; heads side by side, or their
//! mean. Where edges have features, e_ij·W_eᵀ is in the sum as well. (l and r as PyTorch Geometric names them: sources
//! are left.)

use std::rc::Rc;

use graphweft_tensor::ops::activation::Activation;
use graphweft_tensor::ops::epilogue::epilogue;
use graphweft_tensor::ops::linear::Affine;
use graphweft_tensor::{DType, Parameter, Result, Tape, Var};

use super::gat::{Between, Heads, SLOPE};
use super::{Conv, End};
use crate::graph_ops::{Attend, Score};
use crate::init::Init;
use crate::network::Context;
use crate::parts::edges::EdgeLinear;
use crate::parts::head::parameters;
use crate::parts::input::Input;
use crate::parts::remat::attention_again;

/// `{name}.lin_l.*`, `{name}.lin_r.*`, `{name}.att`, `{name}.bias`; with features of edges `{name}.lin_edge.weight`.
pub struct Gatv2Conv {
    groups: usize,
    attention: Rc<Attention>,
    bias: Rc<Parameter>,
}

struct Attention {
    source: Affine,
    destination: Affine,
    a: Rc<Parameter>,
    edges: Option<EdgeLinear>,
}

impl Gatv2Conv {
    /// A convolution called `name`.
    pub fn new(init: &Init<'_>, name: &str, between: Between<'_>, heads: Heads) -> Result<Self> {
        let Between { inputs, outputs, edges } = between;
        let (heads, width, groups) = heads.of(outputs);
        let lin = |side: &str| -> Result<Affine> {
            let name = format!("{name}.{side}");
            let bias = Some(init.vector(&format!("{name}.bias"), heads * width, 0.0)?);
            Ok(Affine { bias, ..init.projection(&name, inputs, heads * width)? })
        };
        let a = init.attention(&format!("{name}.att"), heads, width)?;
        let edges = EdgeLinear::glorot(init, &format!("{name}.lin_edge"), edges, heads * width)?;
        let attention = Attention { source: lin("lin_l")?, destination: lin("lin_r")?, a, edges };
        let bias = init.vector(&format!("{name}.bias"), outputs, 0.0)?;
        Ok(Self { groups, attention: Rc::new(attention), bias })
    }
}

impl Attention {
    fn run(&self, tape: &mut Tape, cx: &Context, layer: u32, x: &Input) -> Result<Var> {
        let r = x.linear(tape, &self.source, Activation::None, cx.dtype)?;
        let l = x.linear(tape, &self.destination, Activation::None, cx.dtype)?;
        let a = tape.parameter(&self.a);
        let heads = a.value().rows();
        let score = Score::Gatv2 { l: &l, r: &r, value: None, a: &a, slope: SLOPE };
        let weight = self.edges.as_ref().map(|edges| tape.parameter(edges.weight()));
        let edges = self.edges.as_ref().zip(weight.as_ref()).map(|(edges, weight)| edges.with(weight));
        cx.ops.attend(tape, layer, Attend { edges, dropout: cx.edges(layer), ..Attend::new(heads, score) })
    }
}

impl Conv for Gatv2Conv {
    fn parameters(&self) -> Vec<Rc<Parameter>> {
        let Attention { source, destination, a, edges } = &*self.attention;
        let ends = [source, destination].into_iter().flat_map(parameters);
        let edges = edges.iter().map(|edges| Rc::clone(edges.weight()));
        ends.chain([Rc::clone(a), Rc::clone(&self.bias)]).chain(edges).collect()
    }

    fn bias(&self) -> Option<&Rc<Parameter>> {
        Some(&self.bias)
    }

    fn forward(&self, tape: &mut Tape, cx: &Context, layer: u32, x: &Input, end: End<'_>, dtype: DType) -> Result<Var> {
        let attention = Rc::clone(&self.attention);
        let rows = attention_again(tape, cx, x, move |tape, cx, x| attention.run(tape, cx, layer, x))?;
        epilogue(tape, &rows, end.after(self.groups, Some(&self.bias)), dtype)
    }
}
