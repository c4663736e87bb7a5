//! The last linear layer of a model: logits.

use std::rc::Rc;

use graphweft_tensor::ops::activation::Activation;
use graphweft_tensor::ops::linear::{Affine, linear};
use graphweft_tensor::{Parameter, Result, Tape, Var};

use crate::init::Init;
use crate::network::{Context, Layer};

/// Logits from the first matrix of the state, in the type of the computation.
pub struct Head {
    affine: Affine,
}

impl Head {
    /// A layer called `name`.
    pub fn new(init: &Init<'_>, name: &str, inputs: usize, classes: usize) -> Result<Self> {
        Ok(Self { affine: init.linear(name, inputs, classes)? })
    }
}

impl Layer for Head {
    fn name(&self) -> String {
        "output".into()
    }

    fn parameters(&self) -> Vec<Rc<Parameter>> {
        parameters(&self.affine).collect()
    }

    fn sees_edges(&self) -> bool {
        false
    }

    fn forward(&self, tape: &mut Tape, cx: &Context, state: &[Var]) -> Result<Vec<Var>> {
        let affine = std::slice::from_ref(&self.affine);
        Ok(vec![linear(tape, &state[0], affine, Activation::None, cx.dtype.compute())?])
    }
}

/// The parameters of a linear layer.
pub fn parameters(affine: &Affine) -> impl Iterator<Item = Rc<Parameter>> {
    [Some(Rc::clone(&affine.weight)), affine.bias.clone()].into_iter().flatten()
}
