//! GraphSAGE: x'_i = mean of x_j·W_lᵀ + b + x_i·W_rᵀ. The mean and the product commute, so the narrower side is
//! aggregated; with the maximum the input is.

use std::rc::Rc;

use graphweft_tensor::ops::activation::Activation;
use graphweft_tensor::ops::epilogue::{Epilogue, epilogue};
use graphweft_tensor::ops::linear::{Affine, linear};
use graphweft_tensor::{DType, Error, Parameter, Result, Tape, Var};

use super::{Conv, End};
use crate::graph_ops::{Aggregation, EdgeWeight};
use crate::init::{Init, Inputs};
use crate::network::Context;
use crate::parts::head::parameters;
use crate::parts::input::Input;

/// `{name}.lin_l.weight`, `{name}.lin_l.bias`, `{name}.lin_r.weight`.
pub struct SageConv {
    aggregation: Aggregation,
    neighbours: Affine,
    own: Affine,
}

impl SageConv {
    /// A convolution called `name`.
    pub fn new(
        init: &Init<'_>,
        name: &str,
        inputs: impl Into<Inputs>,
        outputs: usize,
        aggregation: Aggregation,
    ) -> Result<Self> {
        let inputs = inputs.into();
        let own = init.linear(&format!("{name}.lin_r"), inputs, outputs)?;
        Ok(Self {
            aggregation,
            neighbours: init.linear(&format!("{name}.lin_l"), inputs, outputs)?,
            own: Affine { bias: None, ..own },
        })
    }
}

impl Conv for SageConv {
    fn parameters(&self) -> Vec<Rc<Parameter>> {
        parameters(&self.neighbours).chain(parameters(&self.own)).collect()
    }

    fn bias(&self) -> Option<&Rc<Parameter>> {
        self.neighbours.bias.as_ref()
    }

    fn forward(&self, tape: &mut Tape, cx: &Context, layer: u32, x: &Input, end: End<'_>, dtype: DType) -> Result<Var> {
        let (outputs, inputs) = self.neighbours.weight.value().shape();
        let none = Activation::None;
        let aggregate = |tape: &mut Tape, x: &Var| cx.ops.aggregate(tape, layer, x, self.aggregation, EdgeWeight::None);
        let first = inputs <= outputs || self.aggregation == Aggregation::Max;
        let (neighbours, bias) = match x {
            Input::Dense(x) if first => {
                let mean = aggregate(tape, x)?;
                (linear(tape, &mean, std::slice::from_ref(&self.neighbours), none, cx.dtype)?, None)
            }
            Input::Sparse(..) if self.aggregation == Aggregation::Max => {
                let problem = "model.aggregation = \"max\" takes no sparse features: take \"mean\"".into();
                return Err(Error::Argument { op: "sage", problem });
            }
            _ => {
                let product = Affine { bias: None, ..self.neighbours.clone() };
                let y = x.linear(tape, &product, none, cx.dtype)?;
                (aggregate(tape, &y)?, self.neighbours.bias.as_ref())
            }
        };
        let own = x.linear(tape, &self.own, none, cx.dtype)?;
        let sum = match end.plus {
            None => neighbours,
            Some(plus) => epilogue(tape, &neighbours, Epilogue { plus: Some(plus), ..Epilogue::default() }, cx.dtype)?,
        };
        epilogue(tape, &sum, End { plus: Some(&own), ..end }.after(1, bias), dtype)
    }
}
