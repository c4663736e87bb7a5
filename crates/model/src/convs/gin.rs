//! GIN: x'_i = MLP((1 + ε)·x_i + Σ x_j) with ε = 0 and two linear layers. Where edges have features it is GINE, whose
//! sum is Σ ReLU(x_j + W·e_ij + b).
//!
//! Where the input is wider than the output, the first linear layer goes before the sum, with which it commutes. It
//! does not commute with the ReLU of GINE.

use std::rc::Rc;

use graphweft_tensor::ops::activation::Activation;
use graphweft_tensor::ops::combine::concat;
use graphweft_tensor::ops::edge_values::EdgeColumns;
use graphweft_tensor::ops::epilogue::{Epilogue, epilogue};
use graphweft_tensor::ops::linear::{Affine, linear};
use graphweft_tensor::ops::reshape::reshape;
use graphweft_tensor::{DType, Error, Parameter, Result, Tape, Var};

use super::gat::Between;
use super::{Conv, End};
use crate::graph_ops::{Aggregation, EdgeValues, EdgeWeight};
use crate::init::{Init, Inputs};
use crate::network::{Buffer, Context};
use crate::parts::head::parameters;
use crate::parts::input::Input;
use crate::parts::norm::{NormKind, Normalisation};

/// `{name}.nn.lins.{0,1}.*`, `{name}.nn.norms.0.*`, `{name}.eps`; with features of edges `{name}.lin.*`.
pub struct GinConv {
    lins: [Affine; 2],
    messages: Option<Messages>,
    norm: Normalisation,
    activation: Activation,
    /// Always 0, but part of what PyTorch Geometric saves.
    epsilon: Rc<Buffer>,
}

/// What features of edges add to rows before the ReLU.
struct Messages {
    lin: Affine,
    columns: EdgeColumns,
}

impl Messages {
    fn sum(&self, tape: &mut Tape, cx: &Context, layer: u32, x: &Var) -> Result<Var> {
        let weight = tape.parameter(&self.lin.weight);
        let bias = self.lin.bias.as_ref().map(|bias| tape.parameter(bias));
        let columns = x.value().cols();
        let bias = bias.map(|bias| reshape(tape, &bias, columns, 1)).transpose()?;
        let weight = concat(tape, &std::iter::once(&weight).chain(&bias).collect::<Vec<_>>())?;
        let messages = EdgeWeight::Messages(EdgeValues { weight: &weight, columns: &self.columns });
        cx.ops.aggregate(tape, layer, x, Aggregation::Sum, messages)
    }
}

impl GinConv {
    /// A convolution called `name`; normalisation and activation stand between the linear layers.
    pub fn new(
        init: &Init<'_>,
        name: &str,
        between: Between<'_>,
        norm: NormKind,
        activation: Activation,
    ) -> Result<Self> {
        let Between { inputs, outputs, edges } = between;
        let lin = |k: usize, inputs: Inputs| init.linear(&format!("{name}.nn.lins.{k}"), inputs, outputs);
        let messages = || -> Result<_> {
            Ok(Messages { lin: init.linear(&format!("{name}.lin"), edges.width(), inputs.width)?, columns: *edges })
        };
        Ok(Self {
            lins: [lin(0, inputs)?, lin(1, outputs.into())?],
            messages: (!edges.is_empty()).then(messages).transpose()?,
            norm: Normalisation::wrapped(norm, init, &format!("{name}.nn.norms.0"), outputs)?,
            activation,
            epsilon: Buffer::new(format!("{name}.eps"), vec![0.0]),
        })
    }
}

impl Conv for GinConv {
    fn parameters(&self) -> Vec<Rc<Parameter>> {
        let messages = self.messages.iter().map(|messages| &messages.lin);
        self.lins.iter().chain(messages).flat_map(parameters).chain(self.norm.parameters()).collect()
    }

    fn buffers(&self) -> Vec<Rc<Buffer>> {
        std::iter::once(Rc::clone(&self.epsilon)).chain(self.norm.buffers()).collect()
    }

    fn bias(&self) -> Option<&Rc<Parameter>> {
        self.lins[1].bias.as_ref()
    }

    fn without_effect(&self) -> Vec<Rc<Parameter>> {
        self.norm.hidden([self.lins[0].bias.as_ref()])
    }

    fn forward(&self, tape: &mut Tape, cx: &Context, layer: u32, x: &Input, end: End<'_>, dtype: DType) -> Result<Var> {
        let (outputs, inputs) = self.lins[0].weight.value().shape();
        let inside = if self.norm.is_none() { self.activation } else { Activation::None };
        let sum = |tape: &mut Tape, x: &Var| match &self.messages {
            Some(messages) => messages.sum(tape, cx, layer, x),
            None => cx.ops.aggregate(tape, layer, x, Aggregation::Sum, EdgeWeight::None),
        };
        let h = match x {
            Input::Sparse(..) if self.messages.is_some() => return Err(sparse()),
            Input::Dense(x) if inputs <= outputs || self.messages.is_some() => {
                let neighbours = sum(tape, x)?;
                let all = Epilogue { plus: Some(x), ..Epilogue::default() };
                let all = epilogue(tape, &neighbours, all, x.value().dtype())?;
                linear(tape, &all, std::slice::from_ref(&self.lins[0]), inside, cx.dtype)?
            }
            _ => {
                let product = Affine { bias: None, ..self.lins[0].clone() };
                let own = x.linear(tape, &product, Activation::None, cx.dtype)?;
                let neighbours = sum(tape, &own)?;
                let bias = self.lins[0].bias.as_ref();
                let all = Epilogue { plus: Some(&own), bias, activation: inside, ..Epilogue::default() };
                epilogue(tape, &neighbours, all, cx.dtype)?
            }
        };
        let h = if self.norm.is_none() {
            h
        } else {
            let h = self.norm.forward(tape, cx, layer, &h)?;
            epilogue(tape, &h, Epilogue { activation: self.activation, ..Epilogue::default() }, cx.dtype)?
        };
        let last = std::slice::from_ref(&self.lins[1]);
        if end.plus.is_none() {
            let y = linear(tape, &h, last, end.activation, dtype)?;
            return epilogue(tape, &y, Epilogue { dropout: end.dropout, ..Epilogue::default() }, dtype);
        }
        let y = linear(tape, &h, last, Activation::None, cx.dtype)?;
        epilogue(tape, &y, end.after(1, None), dtype)
    }
}

/// Rows of sparse features are not made dense for every edge.
fn sparse() -> Error {
    let problem = "features of edges are added to rows, and these are sparse: set model.edges = \"ignore\", or \
                   model.stack = \"tuned\" and model.input_linear = true";
    Error::Argument { op: "gin", problem: problem.into() }
}
