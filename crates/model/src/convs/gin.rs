//! GIN: x'_i = MLP((1 + ε)·x_i + Σ x_j) with ε = 0 and two linear layers.
//!
//! Where the input is wider than the output, the first linear layer goes before the sum, with which it commutes.

use std::rc::Rc;

use graphweft_tensor::ops::activation::Activation;
use graphweft_tensor::ops::epilogue::{Epilogue, epilogue};
use graphweft_tensor::ops::linear::{Affine, linear};
use graphweft_tensor::{DType, Parameter, Result, Tape, Var};

use super::{Conv, End};
use crate::graph_ops::{Aggregation, EdgeWeight};
use crate::init::{Init, Inputs};
use crate::network::{Buffer, Context};
use crate::parts::head::parameters;
use crate::parts::input::Input;
use crate::parts::norm::{NormKind, Normalisation};

/// `{name}.nn.lins.{0,1}.*`, `{name}.nn.norms.0.*`, `{name}.eps`.
pub struct GinConv {
    lins: [Affine; 2],
    norm: Normalisation,
    activation: Activation,
    /// Always 0, but part of what PyTorch Geometric saves.
    epsilon: Rc<Buffer>,
}

impl GinConv {
    /// A convolution called `name`; normalisation and activation stand between the linear layers.
    pub fn new(
        init: &Init<'_>,
        name: &str,
        inputs: impl Into<Inputs>,
        outputs: usize,
        norm: NormKind,
        activation: Activation,
    ) -> Result<Self> {
        let lin = |k: usize, inputs: Inputs| init.linear(&format!("{name}.nn.lins.{k}"), inputs, outputs);
        Ok(Self {
            lins: [lin(0, inputs.into())?, lin(1, outputs.into())?],
            norm: Normalisation::wrapped(norm, init, &format!("{name}.nn.norms.0"), outputs)?,
            activation,
            epsilon: Buffer::new(format!("{name}.eps"), vec![0.0]),
        })
    }
}

impl Conv for GinConv {
    fn parameters(&self) -> Vec<Rc<Parameter>> {
        self.lins.iter().flat_map(parameters).chain(self.norm.parameters()).collect()
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
        let sum = |tape: &mut Tape, x: &Var| cx.ops.aggregate(tape, layer, x, Aggregation::Sum, EdgeWeight::None);
        let h = match x {
            Input::Dense(x) if inputs <= outputs => {
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
