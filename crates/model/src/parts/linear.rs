//! Layers that are one linear map, and what is done to its rows.

use std::rc::Rc;

use graphweft_tensor::ops::activation::Activation;
use graphweft_tensor::ops::epilogue::{Epilogue, epilogue};
use graphweft_tensor::ops::linear::Affine;
use graphweft_tensor::{DType, Parameter, Result, Tape, Var};

use crate::init::{Init, Inputs};
use crate::network::{Context, Layer};
use crate::parts::head::parameters;
use crate::parts::input::Input;

type Forward = dyn Fn(&mut Tape, &Context, &Affine, &[Var]) -> Result<Vec<Var>>;

/// A layer that applies one linear map, row by row.
pub(crate) struct Linear {
    name: String,
    affine: Affine,
    forward: Box<Forward>,
}

impl Linear {
    /// The layer `name`, whose new state is what `forward` makes of its map and of the state before.
    pub(crate) fn layer(
        name: &str,
        affine: Affine,
        forward: impl Fn(&mut Tape, &Context, &Affine, &[Var]) -> Result<Vec<Var>> + 'static,
    ) -> Rc<dyn Layer> {
        Rc::new(Self { name: name.into(), affine, forward: Box::new(forward) })
    }
}

impl Layer for Linear {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn parameters(&self) -> Vec<Rc<Parameter>> {
        parameters(&self.affine).collect()
    }

    fn sees_edges(&self) -> bool {
        false
    }

    fn forward(&self, tape: &mut Tape, cx: &Context, state: &[Var]) -> Result<Vec<Var>> {
        (self.forward)(tape, cx, &self.affine, state)
    }
}

/// Layers `{name}.0`, `{name}.1`, … with ReLU and dropout between them.
pub(crate) struct Perceptron {
    /// What they are called.
    pub(crate) name: &'static str,
    /// The number of the first one, which keys its dropout.
    pub(crate) first: u32,
    /// How many.
    pub(crate) layers: usize,
    /// Columns that come in.
    pub(crate) inputs: Inputs,
    /// Columns between layers.
    pub(crate) hidden: usize,
    /// Columns that come out.
    pub(crate) outputs: usize,
}

impl Perceptron {
    /// The layers, of which the last stores its rows as `stored` says.
    pub(crate) fn build(&self, init: &Init<'_>, stored: fn(DType) -> DType) -> Result<Vec<Rc<dyn Layer>>> {
        (0..self.layers).map(|k| self.one(init, k, stored)).collect()
    }

    fn one(&self, init: &Init<'_>, k: usize, stored: fn(DType) -> DType) -> Result<Rc<dyn Layer>> {
        let (name, last) = (format!("{}.{k}", self.name), k + 1 == self.layers);
        let inputs = if k == 0 { self.inputs } else { self.hidden.into() };
        let affine = init.linear(&name, inputs, if last { self.outputs } else { self.hidden })?;
        let number = self.first + k as u32;
        Ok(Linear::layer(&name, affine, move |tape, cx, affine, state| {
            let x = Input::of(tape, cx, state)?;
            if last {
                return Ok(vec![x.linear(tape, affine, Activation::None, stored(cx.dtype))?]);
            }
            let y = x.linear(tape, affine, Activation::Relu, cx.dtype)?;
            let drop = cx.rows(cx.rates.hidden, number, 1);
            Ok(vec![epilogue(tape, &y, Epilogue { dropout: drop.as_ref(), ..Epilogue::default() }, cx.dtype)?])
        }))
    }
}
