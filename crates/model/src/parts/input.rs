//! The first linear layer of a model: from features, dense or sparse.

use graphweft_tensor::ops::activation::{Activation, activate};
use graphweft_tensor::ops::bag::bag;
use graphweft_tensor::ops::dropout::dropout;
use graphweft_tensor::ops::linear::{Affine, linear};
use graphweft_tensor::{Error, Result, Tape, Var};

use crate::network::{Features, Step};

/// Applies `affine` and `activation` to the features, after dropout of these.
pub fn project(tape: &mut Tape, step: &Step, affine: &Affine, activation: Activation) -> Result<Var> {
    let drop = step.rows(step.rates.input, 0, 7);
    match (&step.features, drop) {
        (Features::Dense(x), drop) => {
            let mut x = tape.constant(x.clone());
            if let Some(drop) = drop {
                x = dropout(tape, &x, &drop)?;
            }
            linear(tape, &x, std::slice::from_ref(affine), activation, step.dtype)
        }
        (Features::Sparse(x), None) => {
            let y = bag(tape, x, affine, step.dtype)?;
            activate(tape, &y, activation)
        }
        (Features::Sparse(_), Some(_)) => {
            Err(Error::Argument { op: "input", problem: "dropout of sparse features is not written yet".into() })
        }
    }
}
