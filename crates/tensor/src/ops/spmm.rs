//! Aggregation over the edges of a graph: out_i = reduce over j of w_ij·x_j, with sum, mean or maximum.
//!
//! The weight of an edge is a product of what is given: a number per edge, a factor per destination, a factor per
//! source. GCN's 1/√(d_i·d_j) is two vectors of factors, the mean is one (1 / degree), so neither needs a tensor of the
//! size of the edges.
//!
//! Backward of a sum is the same kernel over the transpose with the factors' roles exchanged: dx_j = Σ_i w_ij·g_i.
//! Weights on edges get dw_ij = g_i·x_j, times the factors, in one more pass, if that gradient is wanted.
//!
//! The maximum takes no weights. It keeps who was largest, as the original id of the source, a u32 per element; among
//! equals the smallest id wins, whatever the numbering. Backward goes by source and takes g_i where the id is its own.
//! Ids are unique, so both halves work block by block as they are, with values and ids carried from block to block.

use std::rc::Rc;

use crate::adjacency::{Adjacency, Direction};
use crate::dry::{Pass, Work, WorkKind};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::kernels;
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::random::Ids;
use crate::tape::{Tape, Var, one_output};

const OP: &str = "aggregate";
const BACK: &str = "aggregate backward";

/// The parts of the weights w_ij; absent ones are 1.
#[derive(Clone, Copy, Debug, Default)]
pub struct EdgeWeights<'a> {
    /// A number per edge, in the order of the forward direction: E × 1.
    pub edge: Option<&'a Matrix>,
    /// A factor per destination: a column.
    pub dst: Option<&'a Matrix>,
    /// A factor per source: a column.
    pub src: Option<&'a Matrix>,
}

impl EdgeWeights<'_> {
    fn check(&self, graph: &Adjacency) -> Result<()> {
        for (what, rows, column) in [
            ("edge weights", graph.num_edges(), self.edge),
            ("destination factors", graph.num_dst(), self.dst),
            ("source factors", graph.num_src(), self.src),
        ] {
            column.map_or(Ok(()), |m| m.expect(OP, what, rows, 1))?;
        }
        Ok(())
    }
}

/// Which way a sum goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Along {
    /// From sources to destinations.
    Edges,
    /// From destinations to sources: the adjoint.
    Transpose,
}

/// The operands of a weighted sum over edges.
#[derive(Clone, Copy, Debug)]
pub struct Spmm<'a> {
    /// The edges.
    pub graph: &'a Adjacency,
    /// Their weights, W.
    pub weights: EdgeWeights<'a>,
    /// W·x, or Wᵀ·x.
    pub along: Along,
    /// A row per source, or per destination along the transpose.
    pub x: &'a Matrix,
}

impl<'a> Spmm<'a> {
    /// The edges in the order of the result's rows.
    pub fn direction(&self) -> &'a Direction {
        match self.along {
            Along::Edges => &self.graph.forward,
            Along::Transpose => &self.graph.transpose,
        }
    }
}

/// The operands of a maximum over edges.
#[derive(Clone, Copy, Debug)]
pub struct SpmmMax<'a> {
    /// The edges.
    pub graph: &'a Adjacency,
    /// A row per source.
    pub x: &'a Matrix,
    /// Original ids of the sources.
    pub ids: &'a Ids,
}

/// What the gradient of a maximum is made of.
#[derive(Clone, Copy, Debug)]
pub struct MaxGradient<'a> {
    /// The edges.
    pub graph: &'a Adjacency,
    /// Original ids of the sources.
    pub ids: &'a Ids,
    /// Whose value every element was.
    pub arg: &'a Matrix,
    /// The gradient of the maximum.
    pub g: &'a Matrix,
}

kernels! {
    /// What a backend does for aggregation.
    pub trait SpmmKernels {
        /// Overwrites `to`, a column, with `numerator` (1 where absent) divided by the number of edges into each
        /// destination, or 0 where there are none.
        fn inverse_degrees(graph: &Adjacency, numerator: Option<&Matrix>, to: &mut Matrix) -> Result<()> {
            |dry|
            let read = 8 * graph.num_dst() + numerator.map_or(0, Matrix::bytes);
            let kind = WorkKind::Stream { read, written: to.bytes(), rows: to.rows() };
            dry.tell(Work::new("inverse degrees", to.dtype(), kind))
        }

        /// `out (+)= W·x`, or Wᵀ·x along the transpose. Where x is f32 or bf16, out may be the other.
        fn spmm(a: &Spmm<'_>, out: &mut Matrix, write: Write) -> Result<()> {
            |dry|
            let (direction, weighted) = (a.direction(), a.weights.edge.is_some());
            let pass = match a.along {
                Along::Edges => Pass::Forward,
                Along::Transpose => Pass::BySource,
            };
            if weighted && a.along == Along::Transpose {
                let _ = a.graph.edges();
            }
            let _pieces = dry.pieces(a.x, direction, a.x.cols())?;
            dry.sum(if weighted { "weighted sum" } else { "sum" }, pass, direction, a.x)
        }

        /// Overwrites `dw` (E × 1) with the gradient of the weights on edges, g_i·x_j times the factors.
        fn spmm_dw(a: &Spmm<'_>, g: &Matrix, dw: &mut Matrix) -> Result<()> {
            |dry| dry.sum("sum dw", Pass::ByDestination, &a.graph.forward, a.x)
        }

        /// The maximum and, in the bits of `arg`, the original id of its source; 0 and `u32::MAX` where there is no
        /// edge. [`Write::Add`] goes on from what both hold after earlier blocks of the same rows.
        fn spmm_max(a: &SpmmMax<'_>, out: &mut Matrix, arg: &mut Matrix, write: Write) -> Result<()> {
            |dry|
            let _pieces = dry.pieces(a.x, &a.graph.forward, 2 * a.x.cols())?;
            dry.sum("max", Pass::Forward, &a.graph.forward, a.x)
        }

        /// `dx (+)=` the sum of the g_i whose maximum was this source.
        fn spmm_max_dx(a: &MaxGradient<'_>, dx: &mut Matrix, write: Write) -> Result<()> {
            |dry|
            let _pieces = dry.pieces(a.g, &a.graph.transpose, a.g.cols())?;
            dry.sum("max", Pass::BySource, &a.graph.transpose, a.g)
        }
    }
}

/// How the neighbours of a node become one row.
#[derive(Clone, Debug)]
pub enum Reduction {
    /// Their sum.
    Sum,
    /// Their sum divided by the number of edges *in this adjacency*. Where that is one block of several, give 1 /
    /// degree as factors of destinations, and sum.
    Mean,
    /// Their maximum per column, 0 for nodes without neighbours; without weights. The original ids of the sources
    /// decide between equals, and must be below 2³² − 1.
    Max(Ids),
}

/// The weights of edges on the tape.
#[derive(Clone, Copy, Default)]
pub enum WeightVar<'a> {
    /// All 1.
    #[default]
    None,
    /// E × 1, with a gradient.
    PerEdge(&'a Var),
    /// Products of a factor per destination and a factor per source, both columns, without gradients.
    Factors {
        /// N_dst × 1.
        dst: &'a Matrix,
        /// N_src × 1.
        src: &'a Matrix,
    },
}

/// Aggregates the rows of `x` along the edges of `graph`.
pub fn aggregate(
    tape: &mut Tape,
    graph: &Rc<Adjacency>,
    x: &Var,
    reduction: Reduction,
    weight: WeightVar<'_>,
) -> Result<Var> {
    x.value().expect(OP, "x", graph.num_src(), x.value().cols())?;
    let mut saved = match reduction {
        Reduction::Max(ids) => return max(tape, graph, x, ids, weight),
        Reduction::Sum | Reduction::Mean => {
            Saved { graph: Rc::clone(graph), x: None, edge: None, dst: None, src: None }
        }
    };
    let mut inputs = vec![x];
    match weight {
        WeightVar::None => {}
        WeightVar::PerEdge(w) => {
            inputs.push(w);
            saved.edge = Some(w.value().clone());
        }
        WeightVar::Factors { dst, src } => (saved.dst, saved.src) = (Some(dst.clone()), Some(src.clone())),
    }
    saved.weights().check(graph)?;
    let device = tape.device().clone();
    let (d, dtype) = (x.value().cols(), x.value().dtype());
    if let Reduction::Mean = reduction {
        let mut factors = device.uninit(OP, graph.num_dst(), 1, dtype.compute(), Tag::Activations)?;
        device.backend().inverse_degrees(graph, saved.dst.as_ref(), &mut factors)?;
        saved.dst = Some(factors);
    }
    let mut out = device.uninit(OP, graph.num_dst(), d, dtype, Tag::Activations)?;
    let sum = Spmm { graph, weights: saved.weights(), along: Along::Edges, x: x.value() };
    device.backend().spmm(&sum, &mut out, Write::Set)?;
    // x itself is needed by the gradient of the weights only.
    saved.x = inputs.get(1).filter(|w| w.needs_grad()).map(|_| x.value().clone());
    Ok(tape.push(&inputs, out, || {
        one_output(move |g, grads| {
            let device = grads.device().clone();
            let (Saved { graph, x, edge, .. }, weights) = (&saved, saved.weights());
            if let (Some(x), Some(edge)) = (x, edge) {
                let mut dw = device.uninit(BACK, edge.rows(), 1, edge.dtype(), Tag::Activations)?;
                device.backend().spmm_dw(&Spmm { graph, weights, along: Along::Edges, x }, &g, &mut dw)?;
                grads.put(1, dw)?;
            }
            if !grads.wants(0) {
                return Ok(());
            }
            let (mut dx, write) = grads.begin(BACK, 0, graph.num_src(), d, dtype)?;
            device.backend().spmm(&Spmm { graph, weights, along: Along::Transpose, x: &g }, &mut dx, write)?;
            grads.put(0, dx)
        })
    }))
}

struct Saved {
    graph: Rc<Adjacency>,
    x: Option<Matrix>,
    edge: Option<Matrix>,
    dst: Option<Matrix>,
    src: Option<Matrix>,
}

impl Saved {
    fn weights(&self) -> EdgeWeights<'_> {
        EdgeWeights { edge: self.edge.as_ref(), dst: self.dst.as_ref(), src: self.src.as_ref() }
    }
}

fn max(tape: &mut Tape, graph: &Rc<Adjacency>, x: &Var, ids: Ids, weight: WeightVar<'_>) -> Result<Var> {
    if !matches!(weight, WeightVar::None) {
        return Err(Error::Argument { op: OP, problem: "the maximum takes no weights".into() });
    }
    let device = tape.device().clone();
    let (d, dtype) = (x.value().cols(), x.value().dtype());
    let mut out = device.uninit(OP, graph.num_dst(), d, dtype, Tag::Activations)?;
    let mut arg = device.uninit(OP, graph.num_dst(), d, DType::F32, Tag::Activations)?;
    device.backend().spmm_max(&SpmmMax { graph, x: x.value(), ids: &ids }, &mut out, &mut arg, Write::Set)?;
    let graph = Rc::clone(graph);
    Ok(tape.push(&[x], out, || {
        one_output(move |g, grads| {
            let device = grads.device().clone();
            let (mut dx, write) = grads.begin(BACK, 0, graph.num_src(), d, dtype)?;
            let gradient = MaxGradient { graph: &graph, ids: &ids, arg: &arg, g: &g };
            device.backend().spmm_max_dx(&gradient, &mut dx, write)?;
            grads.put(0, dx)
        })
    }))
}

#[cfg(test)]
mod tests;
