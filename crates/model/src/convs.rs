//! Convolutions: what a node makes of its neighbours. Models stack them; names and shapes of parameters are PyTorch
//! Geometric's.

pub mod compgcn;
pub mod gat;
pub mod gatv2;
pub mod gcn;
pub mod gin;
pub mod rgcn;
pub mod sage;

use std::rc::Rc;

use graphweft_tensor::ops::activation::Activation;
use graphweft_tensor::ops::dropout::RowDropout;
use graphweft_tensor::ops::epilogue::Epilogue;
use graphweft_tensor::{DType, Parameter, Result, Tape, Var};

use crate::network::{Buffer, Context};
use crate::parts::input::Input;

/// What is done to the rows of a convolution before they are written: y = dropout(act(conv(x) + plus)).
#[derive(Clone, Copy, Default)]
pub struct End<'a> {
    /// A residual branch.
    pub plus: Option<&'a Var>,
    /// The activation.
    pub activation: Activation,
    /// The dropout.
    pub dropout: Option<&'a RowDropout>,
}

impl<'a> End<'a> {
    /// The same after mean over `groups` pieces and with a bias.
    pub(crate) fn after(self, groups: usize, bias: Option<&'a Rc<Parameter>>) -> Epilogue<'a> {
        Epilogue { groups, plus: self.plus, bias, activation: self.activation, dropout: self.dropout }
    }
}

/// A convolution over the edges of the graph.
pub trait Conv {
    /// What is trained.
    fn parameters(&self) -> Vec<Rc<Parameter>>;

    /// What else is saved.
    fn buffers(&self) -> Vec<Rc<Buffer>> {
        Vec::new()
    }

    /// The parameter that is added to every row of its output.
    fn bias(&self) -> Option<&Rc<Parameter>>;

    /// Parameters inside on which its output does not depend.
    fn without_effect(&self) -> Vec<Rc<Parameter>> {
        Vec::new()
    }

    /// Convolves `x`; `layer` is the number of the layer this belongs to. The output's elements are of type `dtype`:
    /// what the context stores, or its compute type.
    fn forward(&self, tape: &mut Tape, cx: &Context, layer: u32, x: &Input, end: End<'_>, dtype: DType) -> Result<Var>;
}
