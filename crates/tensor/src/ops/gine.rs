//! Sums of what neighbours and edges come to together: y_i = Σ_j ReLU(x_j + W·e_ij + b), the messages of GINE.
//!
//! The ReLU stands between the edge and the sum, so nothing can be taken out of it as features can be of
//! [dot products](crate::ops::edge_values). A message is made where it is added, and made again in backward: no tensor
//! of edges × columns exists. That is d·F operations per edge for F features that are numbers, and d for each column of
//! categories, of which a row of Wᵀ is looked up.
//!
//! Backward, with m_ij = 1 where a message is above 0: dx_j = Σ_i m_ij·g_i over the transpose, and over the edges dW =
//! Σ (m_ij·g_i)·e_ijᵀ with db = Σ m_ij·g_i: each block of rows adds up a table of its own, and these are added in
//! order. Both need the rows of sources once more.

use std::rc::Rc;

use crate::adjacency::Adjacency;
use crate::cpu::scratch;
use crate::dry::{Dry, Like, Pass, Work, edges};
use crate::error::{Error, Result};
use crate::kernels::kernels;
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::ops::edge_values::EdgeColumns;
use crate::tape::{Backward, Grads, Tape, Var};

const OP: &str = "messages of edges";

/// The operands of the messages.
#[derive(Clone, Copy, Debug)]
pub struct Gine<'a> {
    /// The edges.
    pub graph: &'a Adjacency,
    /// What their features are.
    pub columns: &'a EdgeColumns,
    /// A row of features per edge, in the order of the forward direction and in the type of the computation.
    pub edges: &'a Matrix,
    /// W, and b as one more column: a row per column of `x`, in the type of the computation.
    pub weight: &'a Matrix,
    /// A row per source.
    pub x: &'a Matrix,
}

impl Gine<'_> {
    /// Fails unless shapes and types agree, those of `of_dst` and `of_src` among them, which are like the sums and the
    /// operand.
    pub(crate) fn check(&self, of_dst: Option<&Matrix>, of_src: Option<&Matrix>) -> Result<()> {
        let (graph, d) = (self.graph, self.x.cols());
        self.x.expect(OP, "x", graph.num_src(), d)?;
        self.edges.expect(OP, "edges", graph.num_edges(), self.columns.stored())?;
        self.weight.expect(OP, "weight", d, self.columns.width() + 1)?;
        of_dst.map_or(Ok(()), |m| m.expect(OP, "sums", graph.num_dst(), d))?;
        of_src.map_or(Ok(()), |m| m.expect(OP, "gradient of x", graph.num_src(), d))?;
        let (stored, compute) = (self.x.dtype(), self.x.dtype().compute());
        let rows = [("sums", of_dst), ("gradient of x", of_src)].map(|(what, m)| (what, m, stored));
        let numbers = [("edges", self.edges), ("weight", self.weight)].map(|(what, m)| (what, Some(m), compute));
        for (what, m, dtype) in rows.into_iter().chain(numbers) {
            if let Some(got) = m.map(Matrix::dtype).filter(|got| *got != dtype) {
                return Err(Error::Type { op: OP, what, got });
            }
        }
        Ok(())
    }

    /// The same of the gradient of the weight.
    pub(crate) fn check_gradient(&self, g: &Matrix, dw: &Matrix) -> Result<()> {
        self.check(Some(g), None)?;
        dw.expect(OP, "gradient of the weight", self.weight.rows(), self.weight.cols())
    }

    /// A pass of a device that computes nothing. An edge takes columns for itself and for each of its features.
    fn rehearse(&self, dry: &Dry, pass: Pass) -> Result<()> {
        let direction = if pass == Pass::BySource { &self.graph.transpose } else { &self.graph.forward };
        let d = self.x.cols();
        // As on a GPU: the weight stands there with a row per feature.
        let turned = |like: &Matrix| like.device().uninit(OP, like.cols(), like.rows(), like.dtype(), Tag::Workspace);
        let _weight = if let Like::Gpu = dry.like { Some(dry.within(|| turned(self.weight))?) } else { None };
        if pass == Pass::BySource {
            let _ = self.graph.edges();
        }
        let _pieces = match (&dry.like, pass) {
            (_, Pass::ByDestination) => None,
            (Like::Cpu(_), _) => Some(dry.within(|| scratch::gine_pieces(self.x, direction))?),
            (Like::Gpu, _) => dry.pieces(self.x, direction, d)?,
        };
        let kind = edges(pass, direction, d * self.x.dtype().size(), d * (1 + self.columns.stored()), 1);
        dry.tell(Work::new("weighted sum", self.x.dtype(), kind))
    }
}

kernels! {
    /// What a backend does for it.
    pub trait GineKernels {
        /// `out (+)=` the sums: N_dst × d.
        fn gine(a: &Gine<'_>, out: &mut Matrix, write: Write) -> Result<()> {
            |dry|
            a.check(Some(out), None)?;
            a.rehearse(dry, Pass::Forward)
        }

        /// `dx (+)=` the gradient of the sources' rows, from that of the sums.
        fn gine_dx(a: &Gine<'_>, g: &Matrix, dx: &mut Matrix, write: Write) -> Result<()> {
            |dry|
            a.check(Some(g), Some(dx))?;
            a.rehearse(dry, Pass::BySource)
        }

        /// `dw (+)=` the gradient of the weight.
        fn gine_dw(a: &Gine<'_>, g: &Matrix, dw: &mut Matrix, write: Write) -> Result<()> {
            |dry|
            a.check_gradient(g, dw)?;
            let _tables = dry.within(|| scratch::tables(g, dw))?;
            a.rehearse(dry, Pass::ByDestination)
        }
    }
}

/// The sums of ReLU(x_j + W·e_ij + b) along the edges of `graph`, whose features `columns` and `edges` say; `weight` is
/// W with b as its last column.
pub fn gine(
    tape: &mut Tape,
    graph: &Rc<Adjacency>,
    x: &Var,
    columns: &EdgeColumns,
    edges: &Matrix,
    weight: &Var,
) -> Result<Var> {
    let device = tape.device().clone();
    let (d, dtype) = (x.value().cols(), x.value().dtype());
    let a = Gine { graph, columns, edges, weight: weight.value(), x: x.value() };
    let mut out = device.uninit(OP, graph.num_dst(), d, dtype, Tag::Activations)?;
    device.backend().gine(&a, &mut out, Write::Set)?;
    let saved = GineBackward {
        graph: Rc::clone(graph),
        columns: *columns,
        edges: edges.clone(),
        weight: weight.value().clone(),
        x: x.value().clone(),
    };
    Ok(tape.push(&[x, weight], out, || saved))
}

struct GineBackward {
    graph: Rc<Adjacency>,
    columns: EdgeColumns,
    edges: Matrix,
    weight: Matrix,
    x: Matrix,
}

impl Backward for GineBackward {
    fn backward(self: Box<Self>, grads: &mut Grads<'_>) -> Result<()> {
        let Some(g) = grads.output(0) else { return Ok(()) };
        let (device, Self { graph, columns, edges, weight, x }) = (grads.device().clone(), &*self);
        let a = Gine { graph, columns, edges, weight, x };
        if grads.wants(1) {
            let mut dw = device.uninit(OP, weight.rows(), weight.cols(), weight.dtype(), Tag::Gradients)?;
            device.backend().gine_dw(&a, &g, &mut dw, Write::Set)?;
            grads.put(1, dw)?;
        }
        if !grads.wants(0) {
            return Ok(());
        }
        let (mut dx, write) = grads.begin(OP, 0, x.rows(), x.cols(), x.dtype())?;
        device.backend().gine_dx(&a, &g, &mut dx, write)?;
        grads.put(0, dx)
    }
}

#[cfg(test)]
mod tests;
