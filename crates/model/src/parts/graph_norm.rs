//! GraphNorm of Cai et al., with `torch_geometric.nn.GraphNorm`: the columns of each graph by their own moments.
//!
//! With the mean μ of a column over the nodes of a graph, o = x − s∘μ, where s is learned, and y = b + w∘o/√(mean(o²) +
//! ε) with the mean over the same nodes. What a graph has in common, such as its degree, may so be kept in part.
//! Nothing looks beyond a graph: it is the same in training and in evaluation, and the same on any ranks.

use std::rc::Rc;

use graphweft_tensor::ops::activation::{Activation, activate};
use graphweft_tensor::ops::combine::combine;
use graphweft_tensor::ops::epilogue::{Epilogue, epilogue};
use graphweft_tensor::ops::norm::Norm;
use graphweft_tensor::ops::product::product;
use graphweft_tensor::ops::segments::Readout;
use graphweft_tensor::{Parameter, Result, Tag, Tape, Var};

use crate::network::Context;
use crate::parts::readout::graphs;

/// Normalises `x`, with s in `share`.
pub(crate) fn graph_norm(tape: &mut Tape, cx: &Context, x: &Var, norm: &Norm, share: &Rc<Parameter>) -> Result<Var> {
    let (of, (_, d), dtype) = (graphs("model.norm = \"graph\"", cx)?, x.value().shape(), x.value().dtype());
    // A row per graph of the same numbers.
    let rows = |tape: &mut Tape, of_columns: &Rc<Parameter>| {
        let zeros = tape.device().zeros("graph norm", of.count(), d, dtype, Tag::Activations)?;
        let zeros = tape.constant(zeros);
        epilogue(tape, &zeros, Epilogue { bias: Some(of_columns), ..Epilogue::default() }, dtype)
    };
    let mean = of.readout(tape, x, Readout::Mean)?;
    let share = rows(tape, share)?;
    let mean = product(tape, &mean, 0.0, &share)?;
    let mean = of.spread(tape, &mean)?;
    let off = combine(tape, 1.0, x, -1.0, &mean)?;
    drop((mean, share));
    let squares = product(tape, &off, 0.0, &off)?;
    let variance = of.readout(tape, &squares, Readout::Mean)?;
    drop(squares);
    let scale = activate(tape, &variance, Activation::InverseRoot { epsilon: norm.epsilon })?;
    let weight = rows(tape, &norm.weight)?;
    let scale = product(tape, &scale, 0.0, &weight)?;
    let scale = of.spread(tape, &scale)?;
    let y = product(tape, &off, 0.0, &scale)?;
    epilogue(tape, &y, Epilogue { bias: Some(&norm.bias), ..Epilogue::default() }, dtype)
}
