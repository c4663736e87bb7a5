//! Several weighted sums of the same rows over the edges at once: y_i^b = Σ_j w_ij^b·x_j for b = 1 … B, side by side.
//!
//! It is [`aggregate`](crate::ops::spmm::aggregate) with B numbers per edge in place of one, in one pass: a row of x is
//! read once for all of them. R-GCN is made of it: with the coefficients of B bases as weights, or with a weight for
//! each relation that is 1/c on the edges of this relation and 0 on others. Weights of 0 are skipped.
//!
//! Backward: dx_j = Σ_i Σ_b w_ij^b·g_i^b over the transpose, and dw_ij^b = g_i^b·x_j where that is wanted.

use std::rc::Rc;

use crate::adjacency::{Adjacency, Direction};
use crate::dry::{Like, Pass, Work, edges};
use crate::error::Result;
use crate::kernels::kernels;
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::ops::combine::{CombineKernels, Patch};
use crate::ops::spmm::{Along, EdgeWeights, Spmm, SpmmKernels};
use crate::tape::{Backward, Grads, Tape, Var};

const OP: &str = "many sums";

/// The operands of several weighted sums.
#[derive(Clone, Copy, Debug)]
pub struct ManySums<'a> {
    /// The edges.
    pub graph: &'a Adjacency,
    /// B numbers per edge, in the order of the forward direction: E × B.
    pub weights: &'a Matrix,
    /// To destinations, or from them to sources: the adjoint.
    pub along: Along,
    /// N_src × d; along the transpose N_dst × B·d.
    pub x: &'a Matrix,
}

impl<'a> ManySums<'a> {
    /// How many sums there are.
    pub fn count(&self) -> usize {
        self.weights.cols()
    }

    /// Columns of a row of a source.
    pub fn width(&self) -> usize {
        match self.along {
            Along::Edges => self.x.cols(),
            Along::Transpose => self.x.cols() / self.count().max(1),
        }
    }

    /// The edges in the order of the result's rows.
    pub fn direction(&self) -> &'a Direction {
        match self.along {
            Along::Edges => &self.graph.forward,
            Along::Transpose => &self.graph.transpose,
        }
    }

    /// Fails unless all shapes agree, `out`'s among them.
    pub(crate) fn check(&self, out: &Matrix) -> Result<()> {
        let (graph, many) = (self.graph, self.count() * self.width());
        self.weights.expect(OP, "weights", graph.num_edges(), self.count())?;
        match self.along {
            Along::Edges => {
                self.x.expect(OP, "x", graph.num_src(), self.width())?;
                out.expect(OP, "out", graph.num_dst(), many)
            }
            Along::Transpose => {
                self.x.expect(OP, "x", graph.num_dst(), many)?;
                out.expect(OP, "out", graph.num_src(), self.width())
            }
        }
    }
}

kernels! {
    /// What a backend does for several weighted sums.
    pub trait ManySumsKernels {
        /// `out (+)=` the sums side by side: N_dst × B·d; or along the transpose their adjoint, N_src × d.
        fn many_sums(a: &ManySums<'_>, out: &mut Matrix, write: Write) -> Result<()> {
            |dry|
            a.check(out)?;
            if let Like::Gpu = dry.like {
                return one_by_one(dry, a, out, write);
            }
            let pass = match a.along {
                Along::Edges => Pass::Forward,
                Along::Transpose => Pass::BySource,
            };
            if a.along == Along::Transpose {
                let _ = a.graph.edges();
            }
            let row = a.x.cols() * a.x.dtype().size();
            dry.tell(Work::new("weighted sum", a.x.dtype(), edges(pass, a.direction(), row, a.count() * a.width(), 1)))
        }

        /// Overwrites `dw` (E × B) with the gradient of the weights, g_i^b·x_j; `a` is along the edges.
        fn many_sums_dw(a: &ManySums<'_>, g: &Matrix, dw: &mut Matrix) -> Result<()> {
            |dry|
            if let Like::Gpu = dry.like {
                return dw_one_by_one(dry, a, g, dw);
            }
            let row = a.x.cols() * a.x.dtype().size();
            let kind = edges(Pass::ByDestination, a.direction(), row, a.count() * a.width(), 1);
            dry.tell(Work::new("sum dw", a.x.dtype(), kind))
        }
    }
}

/// Edge weights of the sum number `k` by themselves.
fn column(backend: &impl CombineKernels, weights: &Matrix, k: usize) -> Result<Matrix> {
    let mut one = weights.device().uninit(OP, weights.rows(), 1, weights.dtype(), Tag::Workspace)?;
    backend.copy_patch(weights, &mut one, Patch::columns(weights.rows(), k, 0, 1), Write::Set)?;
    Ok(one)
}

/// The sums one after another, by the kernels of single ones.
pub(crate) fn one_by_one(
    backend: &(impl CombineKernels + SpmmKernels),
    a: &ManySums<'_>,
    out: &mut Matrix,
    write: Write,
) -> Result<()> {
    let (&ManySums { graph, weights, along, x }, d) = (a, a.width());
    for k in 0..a.count() {
        let edge = column(backend, weights, k)?;
        let weights = EdgeWeights { edge: Some(&edge), ..EdgeWeights::default() };
        match along {
            Along::Edges => {
                let mut one = x.device().uninit(OP, out.rows(), d, out.dtype(), Tag::Workspace)?;
                backend.spmm(&Spmm { graph, weights, along, x }, &mut one, Write::Set)?;
                backend.copy_patch(&one, out, Patch::columns(one.rows(), 0, k * d, d), write)?;
            }
            Along::Transpose => {
                let mut one = x.device().uninit(OP, x.rows(), d, x.dtype(), Tag::Workspace)?;
                backend.copy_patch(x, &mut one, Patch::columns(x.rows(), k * d, 0, d), Write::Set)?;
                let write = if k == 0 { write } else { Write::Add };
                backend.spmm(&Spmm { graph, weights, along, x: &one }, out, write)?;
            }
        }
    }
    Ok(())
}

/// The gradients of weights one after another.
pub(crate) fn dw_one_by_one(
    backend: &(impl CombineKernels + SpmmKernels),
    a: &ManySums<'_>,
    g: &Matrix,
    dw: &mut Matrix,
) -> Result<()> {
    let (&ManySums { graph, along, x, .. }, d) = (a, a.width());
    for k in 0..a.count() {
        let mut of_g = g.device().uninit(OP, g.rows(), d, g.dtype(), Tag::Workspace)?;
        backend.copy_patch(g, &mut of_g, Patch::columns(g.rows(), k * d, 0, d), Write::Set)?;
        let mut one = dw.device().uninit(OP, dw.rows(), 1, dw.dtype(), Tag::Workspace)?;
        backend.spmm_dw(&Spmm { graph, weights: EdgeWeights::default(), along, x }, &of_g, &mut one)?;
        backend.copy_patch(&one, dw, Patch::columns(dw.rows(), 0, k, 1), Write::Set)?;
    }
    Ok(())
}

/// The sums of the rows of `x` with each column of `weights` (E × B), side by side.
pub fn many_sums(tape: &mut Tape, graph: &Rc<Adjacency>, x: &Var, weights: &Var) -> Result<Var> {
    let device = tape.device().clone();
    let sums = ManySums { graph, weights: weights.value(), along: Along::Edges, x: x.value() };
    let cols = sums.count() * sums.width();
    let mut out = device.uninit(OP, graph.num_dst(), cols, x.value().dtype(), Tag::Activations)?;
    device.backend().many_sums(&sums, &mut out, Write::Set)?;
    // x itself is needed by the gradient of the weights only.
    let kept = weights.needs_grad().then(|| x.value().clone());
    let (graph, edge, width) = (Rc::clone(graph), weights.value().clone(), x.value().cols());
    Ok(tape.push(&[x, weights], out, || ManySumsBackward { graph, weights: edge, x: kept, width }))
}

struct ManySumsBackward {
    graph: Rc<Adjacency>,
    weights: Matrix,
    x: Option<Matrix>,
    width: usize,
}

impl Backward for ManySumsBackward {
    fn backward(self: Box<Self>, grads: &mut Grads<'_>) -> Result<()> {
        let Some(g) = grads.output(0) else { return Ok(()) };
        let (device, Self { graph, weights, x, width }) = (grads.device().clone(), *self);
        if let Some(x) = &x {
            let mut dw = device.uninit(OP, weights.rows(), weights.cols(), weights.dtype(), Tag::Activations)?;
            let sums = ManySums { graph: &graph, weights: &weights, along: Along::Edges, x };
            device.backend().many_sums_dw(&sums, &g, &mut dw)?;
            grads.put(1, dw)?;
        }
        if !grads.wants(0) {
            return Ok(());
        }
        let (mut dx, write) = grads.begin(OP, 0, graph.num_src(), width, g.dtype())?;
        let sums = ManySums { graph: &graph, weights: &weights, along: Along::Transpose, x: &g };
        device.backend().many_sums(&sums, &mut dx, write)?;
        grads.put(0, dx)
    }
}

#[cfg(test)]
mod tests;
