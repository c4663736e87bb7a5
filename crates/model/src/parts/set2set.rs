//! Set2Set of Vinyals, Bengio and Kudlur, with `torch_geometric.nn.aggr.Set2Set`: a row per graph that does not depend
//! on the order of its nodes.
//!
//! An LSTM makes a query of what it got before, q = LSTM(q‖r), starting from zeros. The answer is r = Σ a_i·x_i over
//! the nodes of the graph, where a is the softmax of x_i·q inside it. After three such steps q‖r is the row of the
//! graph, twice as wide as those of nodes.

use std::rc::Rc;

use graphweft_tensor::ops::activation::{Activation, activate};
use graphweft_tensor::ops::combine::{columns, concat, scale};
use graphweft_tensor::ops::linear::{Affine, linear};
use graphweft_tensor::ops::product::product;
use graphweft_tensor::ops::residual::residual;
use graphweft_tensor::ops::segments::Segments;
use graphweft_tensor::{Parameter, Result, Tag, Tape, Var};

use crate::init::Init;
use crate::parts::head::parameters;

/// How often the LSTM asks.
const STEPS: usize = 3;

/// An LSTM of one layer, named as PyTorch names it.
pub(crate) struct Set2Set {
    /// From q‖r to the four gates.
    input: Affine,
    /// From q to the four gates.
    hidden: Affine,
    width: usize,
}

impl Set2Set {
    /// An LSTM called `name` for rows of `width` columns.
    pub(crate) fn new(init: &Init<'_>, name: &str, width: usize) -> Result<Self> {
        let bound = (width.max(1) as f64).sqrt().recip();
        let affine = |side: &str, inputs| -> Result<Affine> {
            Ok(Affine {
                weight: init.uniform(&format!("{name}.weight_{side}_l0"), 4 * width, inputs, bound)?,
                bias: Some(init.bias(&format!("{name}.bias_{side}_l0"), 4 * width, bound)?),
            })
        };
        Ok(Self { input: affine("ih", 2 * width)?, hidden: affine("hh", width)?, width })
    }

    pub(crate) fn parameters(&self) -> Vec<Rc<Parameter>> {
        [&self.input, &self.hidden].into_iter().flat_map(parameters).collect()
    }

    /// From a row per node to a row per graph.
    pub(crate) fn forward(&self, tape: &mut Tape, of: &Segments, x: &Var) -> Result<Var> {
        let (d, dtype, device) = (self.width, x.value().dtype(), tape.device().clone());
        let zeros = |width| device.zeros("set2set", of.count(), width, dtype, Tag::Activations);
        let (mut both, mut query, mut cell) =
            (tape.constant(zeros(2 * d)?), tape.constant(zeros(d)?), tape.constant(zeros(d)?));
        // Keys and values are the rows themselves.
        let rows = concat(tape, &[x, x])?;
        for _ in 0..STEPS {
            let seen = linear(tape, &both, std::slice::from_ref(&self.input), Activation::None, dtype)?;
            let known = linear(tape, &query, std::slice::from_ref(&self.hidden), Activation::None, dtype)?;
            let gates = residual(tape, &seen, &known, None)?;
            let gate = |tape: &mut Tape, k: usize, how| {
                let gate = columns(tape, &gates, k * d..(k + 1) * d)?;
                activate(tape, &gate, how)
            };
            let [take, keep] = [gate(tape, 0, Activation::Sigmoid)?, gate(tape, 1, Activation::Sigmoid)?];
            let [new, show] = [gate(tape, 2, Activation::Tanh)?, gate(tape, 3, Activation::Sigmoid)?];
            let (kept, taken) = (product(tape, &keep, 0.0, &cell)?, product(tape, &take, 0.0, &new)?);
            cell = residual(tape, &kept, &taken, None)?;
            let shown = activate(tape, &cell, Activation::Tanh)?;
            query = product(tape, &show, 0.0, &shown)?;
            // Scores of attention are divided by that root.
            let asked = scale(tape, (d as f64).sqrt(), &query)?;
            let answer = of.attend_by(tape, &asked, &rows)?;
            both = concat(tape, &[&query, &answer])?;
        }
        Ok(both)
    }
}
