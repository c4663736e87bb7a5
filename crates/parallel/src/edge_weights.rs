//! Weights of edges that are made of the edges' features, on the rank that has these.

use graphweft_model::EdgeWeight;
use graphweft_tensor::ops::matmul::times;
use graphweft_tensor::{Error, Matrix, Result, Tape, Var};

/// The weights as numbers per edge, where they are made of `features`; `None` where they are what they are.
pub(crate) fn made_of(tape: &mut Tape, features: Option<&Matrix>, weight: EdgeWeight<'_>) -> Result<Option<Var>> {
    let EdgeWeight::Features(matrix) = weight else { return Ok(None) };
    let problem = || Error::Argument { op: "aggregate", problem: "the graph has no edge features".into() };
    let features = tape.constant(features.ok_or_else(problem)?.clone());
    match matrix {
        Some(matrix) => times(tape, &features, matrix).map(Some),
        None => Ok(Some(features)),
    }
}
