//! GCN: x' = Â·x·Wᵀ + b with Â_ij = 1/√(d_i·d_j).
//!
//! Product and aggregation commute, so the narrower side is aggregated. Where that is the input, bias and activation
//! end the product; a layer on constant features then has no aggregation in backward at all.

use std::rc::Rc;

use graphweft_tensor::ops::activation::Activation;
use graphweft_tensor::ops::epilogue::{Epilogue, epilogue};
use graphweft_tensor::ops::linear::{Affine, linear};
use graphweft_tensor::{DType, Parameter, Result, Tape, Var};

use super::{Conv, End};
use crate::graph_ops::{Aggregation, EdgeWeight};
use crate::init::{Init, Inputs};
use crate::network::Context;
use crate::parts::head::parameters;
use crate::parts::input::Input;

/// `{name}.lin.weight`, `{name}.bias`.
pub struct GcnConv {
    affine: Affine,
}

impl GcnConv {
    /// A convolution called `name`.
    pub fn new(init: &Init<'_>, name: &str, inputs: impl Into<Inputs>, outputs: usize) -> Result<Self> {
        let bias = init.vector(&format!("{name}.bias"), outputs, 0.0)?;
        Ok(Self { affine: Affine { bias: Some(bias), ..init.projection(&format!("{name}.lin"), inputs, outputs)? } })
    }
}

impl Conv for GcnConv {
    fn parameters(&self) -> Vec<Rc<Parameter>> {
        parameters(&self.affine).collect()
    }

    fn bias(&self) -> Option<&Rc<Parameter>> {
        self.affine.bias.as_ref()
    }

    fn forward(&self, tape: &mut Tape, cx: &Context, layer: u32, x: &Input, end: End<'_>, dtype: DType) -> Result<Var> {
        let (outputs, inputs) = self.affine.weight.value().shape();
        let aggregate =
            |tape: &mut Tape, x: &Var| cx.ops.aggregate(tape, layer, x, Aggregation::Sum, EdgeWeight::Symmetric);
        match x {
            Input::Dense(x) if inputs <= outputs => {
                let sum = aggregate(tape, x)?;
                let affine = std::slice::from_ref(&self.affine);
                if end.plus.is_none() {
                    let y = linear(tape, &sum, affine, end.activation, dtype)?;
                    return epilogue(tape, &y, Epilogue { dropout: end.dropout, ..Epilogue::default() }, dtype);
                }
                let y = linear(tape, &sum, affine, Activation::None, cx.dtype)?;
                epilogue(tape, &y, end.after(1, None), dtype)
            }
            _ => {
                let product = Affine { bias: None, ..self.affine.clone() };
                let y = x.linear(tape, &product, Activation::None, cx.dtype)?;
                let y = aggregate(tape, &y)?;
                epilogue(tape, &y, end.after(1, self.affine.bias.as_ref()), dtype)
            }
        }
    }
}
