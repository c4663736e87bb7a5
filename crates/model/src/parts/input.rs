//! What a layer works on: the features at first, rows of the state afterwards.

use std::rc::Rc;

use graphweft_tensor::ops::activation::Activation;
use graphweft_tensor::ops::bag::{Bag, bag};
use graphweft_tensor::ops::combine::concat;
use graphweft_tensor::ops::dropout::{RowDropout, dropout};
use graphweft_tensor::ops::epilogue::{Epilogue, epilogue};
use graphweft_tensor::ops::linear::{Affine, linear};
use graphweft_tensor::{DType, Error, Parameter, Result, Tape, Var};

use crate::init::Init;
use crate::network::{Context, Features, Layer, Shape};
use crate::parts::head::parameters;

/// Stream of the dropout of features.
const STREAM: u32 = 7;

/// Rows that a layer multiplies by its weights.
pub enum Input {
    /// A row per node.
    Dense(Var),
    /// A bag of words, with the dropout of its entries.
    Sparse(Rc<Bag>, Option<RowDropout>),
}

impl Input {
    /// A row per node, for a convolution that takes nothing else.
    ///
    /// # Errors
    /// Of a bag of words.
    pub fn dense(&self, op: &'static str) -> Result<&Var> {
        match self {
            Self::Dense(x) => Ok(x),
            Self::Sparse(..) => {
                let problem = "sparse features need model.stack = \"tuned\" and model.input_linear = true".into();
                Err(Error::Argument { op, problem })
            }
        }
    }

    /// The features, after dropout at the rate for inputs.
    pub fn features(tape: &mut Tape, cx: &Context) -> Result<Self> {
        let drop = cx.rows(cx.rates.input, 0, STREAM);
        Ok(match &cx.features {
            Features::Sparse(bag) => Self::Sparse(Rc::clone(bag), drop),
            Features::Dense(x) => {
                let x = tape.constant(x.clone());
                Self::Dense(match drop {
                    Some(drop) => dropout(tape, &x, &drop)?,
                    None => x,
                })
            }
        })
    }

    /// The first matrix of a state, or the features where there is none yet.
    pub fn of(tape: &mut Tape, cx: &Context, state: &[Var]) -> Result<Self> {
        state.first().map_or_else(|| Self::features(tape, cx), |x| Ok(Self::Dense(x.clone())))
    }

    /// Applies `affine` and `activation`; the output's elements are of type `dtype`.
    pub fn linear(&self, tape: &mut Tape, affine: &Affine, activation: Activation, dtype: DType) -> Result<Var> {
        match self {
            Self::Dense(x) => linear(tape, x, std::slice::from_ref(affine), activation, dtype),
            Self::Sparse(x, drop) => {
                let y = bag(tape, x, drop.as_ref(), affine, dtype)?;
                epilogue(tape, &y, Epilogue { activation, ..Epilogue::default() }, dtype)
            }
        }
    }

    /// Applies several layers to the same rows, with their outputs side by side.
    pub fn side_by_side(&self, tape: &mut Tape, layers: &[Affine], dtype: DType) -> Result<Var> {
        match self {
            Self::Dense(x) => linear(tape, x, layers, Activation::None, dtype),
            Self::Sparse(x, drop) => {
                let parts = layers.iter().map(|a| bag(tape, x, drop.as_ref(), a, dtype)).collect::<Result<Vec<_>>>()?;
                concat(tape, &parts.iter().collect::<Vec<_>>())
            }
        }
    }
}

/// The first layer of a transformer: features·W + b, plus positional encodings·W_p + b_p where there are any.
pub struct Embedding {
    features: Affine,
    positional: Option<Affine>,
}

impl Embedding {
    /// Layers called `{name}` and `positional`.
    pub fn new(init: &Init<'_>, name: &str, shape: &Shape, hidden: usize) -> Result<Self> {
        let positional =
            (shape.positional > 0).then(|| init.linear("positional", shape.positional, hidden)).transpose()?;
        Ok(Self { features: init.linear(name, shape.inputs(), hidden)?, positional })
    }
}

impl Layer for Embedding {
    fn name(&self) -> String {
        "input".into()
    }

    fn parameters(&self) -> Vec<Rc<Parameter>> {
        std::iter::once(&self.features).chain(&self.positional).flat_map(parameters).collect()
    }

    fn sees_edges(&self) -> bool {
        false
    }

    fn forward(&self, tape: &mut Tape, cx: &Context, _: &[Var]) -> Result<Vec<Var>> {
        let h = Input::features(tape, cx)?.linear(tape, &self.features, Activation::None, cx.dtype)?;
        let (Some(affine), Some(encodings)) = (&self.positional, &cx.positional) else { return Ok(vec![h]) };
        let p = tape.constant(encodings.clone());
        let p = linear(tape, &p, std::slice::from_ref(affine), Activation::None, cx.dtype)?;
        Ok(vec![epilogue(tape, &h, Epilogue { plus: Some(&p), ..Epilogue::default() }, cx.dtype)?])
    }
}
