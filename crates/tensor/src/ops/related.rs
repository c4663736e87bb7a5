//! Sums over edges of several relations, side by side: y_i^b = Σ_j (a_rb / c_ij)·x_j for b = 1 … B, where r is the
//! relation of the edge and c_ij a number that it has. R-GCN is made of it: c is how many edges of the relation lead to
//! i. Without a table a, each relation has a sum of its own: a_rb is 1 where b = r and 0 elsewhere.
//!
//! It is one pass: a row of x is read once for all sums. An edge has two numbers, c and r; coefficients are looked up,
//! so that nothing else grows with the edges, and the work per edge is B·d, or d without a table.
//!
//! Backward: dx_j = Σ_i Σ_b (a_rb / c_ij)·g_i^b over the transpose. da_rb is the sum of g_i^b·x_j / c_ij over the edges
//! of relation r: each block of rows adds up a table of its own, and these are added in order.

use std::rc::Rc;

use crate::adjacency::{Adjacency, Direction};
use crate::cpu::scratch;
use crate::dry::{Like, Pass, Work, edges};
use crate::error::{Error, Result};
use crate::kernels::kernels;
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::ops::combine::{CombineKernels, Patch};
use crate::ops::spmm::{Along, EdgeWeights, Spmm, SpmmKernels};
use crate::tape::{Backward, Grads, Tape, Var};

const OP: &str = "sums by relation";
/// Numbers of an edge that count: c, and the relation.
pub const NUMBERS: usize = 2;

/// What relations have to do with sums.
#[derive(Clone, Copy, Debug)]
pub enum Table<M> {
    /// Each of so many relations has a sum of its own.
    Each(usize),
    /// A row of coefficients for each relation, one for each sum, in the type of the computation.
    Rows(M),
}

/// The operands of sums by relation.
#[derive(Clone, Copy, Debug)]
pub struct Related<'a> {
    /// The edges.
    pub graph: &'a Adjacency,
    /// c, which is not 0, the relation's number, and whatever else: a row per edge, in the order of the forward
    /// direction.
    pub edges: &'a Matrix,
    /// The coefficients.
    pub table: Table<&'a Matrix>,
    /// To destinations, or from them to sources: the adjoint.
    pub along: Along,
    /// N_src × d; along the transpose N_dst × B·d.
    pub x: &'a Matrix,
}

impl Table<&Matrix> {
    /// How many sums there are.
    pub fn sums(&self) -> usize {
        match self {
            Self::Each(relations) => *relations,
            Self::Rows(rows) => rows.cols(),
        }
    }

    fn relations(&self) -> usize {
        match self {
            Self::Each(relations) => *relations,
            Self::Rows(rows) => rows.rows(),
        }
    }
}

impl<'a> Related<'a> {
    /// Columns of a row of a source.
    pub fn width(&self) -> usize {
        match self.along {
            Along::Edges => self.x.cols(),
            Along::Transpose => self.x.cols() / self.table.sums().max(1),
        }
    }

    /// The edges in the order of the result's rows.
    pub fn direction(&self) -> &'a Direction {
        match self.along {
            Along::Edges => &self.graph.forward,
            Along::Transpose => &self.graph.transpose,
        }
    }

    /// Fails unless all shapes and types agree, `out`'s among them.
    pub(crate) fn check(&self, out: &Matrix) -> Result<()> {
        let (graph, many) = (self.graph, self.table.sums() * self.width());
        self.edges.expect(OP, "edges", graph.num_edges(), self.edges.cols().max(NUMBERS))?;
        let coefficients = match self.table {
            Table::Each(_) => None,
            Table::Rows(rows) => Some(("coefficients", rows)),
        };
        for (what, m) in [Some(("edges", self.edges)), coefficients].into_iter().flatten() {
            if m.dtype() != self.x.dtype().compute() {
                return Err(Error::Type { op: OP, what, got: m.dtype() });
            }
        }
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

    /// The same of the gradient of coefficients.
    pub(crate) fn check_gradient(&self, g: &Matrix, da: &Matrix) -> Result<()> {
        self.check(g)?;
        da.expect(OP, "gradient of coefficients", self.table.relations(), self.table.sums())
    }
}

kernels! {
    /// What a backend does for sums by relation.
    pub trait RelatedKernels {
        /// `out (+)=` the sums side by side: N_dst × B·d; or along the transpose their adjoint, N_src × d.
        fn related(a: &Related<'_>, out: &mut Matrix, write: Write) -> Result<()> {
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
            let columns = match a.table {
                Table::Each(_) => a.width(),
                Table::Rows(_) => a.table.sums() * a.width(),
            };
            // Without a table an edge goes into one of the sums.
            let row = if a.along == Along::Edges { a.width() } else { columns } * a.x.dtype().size();
            dry.tell(Work::new("weighted sum", a.x.dtype(), edges(pass, a.direction(), row, columns, 1)))
        }

        /// `da (+)=` the gradient of the coefficients, from that of the sums; `a` is along the edges.
        fn related_da(a: &Related<'_>, g: &Matrix, da: &mut Matrix, write: Write) -> Result<()> {
            |dry|
            a.check_gradient(g, da)?;
            if let Like::Gpu = dry.like {
                return da_one_by_one(dry, a, g, da, write);
            }
            let _tables = dry.within(|| scratch::tables(g, da))?;
            let row = a.x.cols() * a.x.dtype().size();
            let kind = edges(Pass::ByDestination, a.direction(), row, g.cols(), 1);
            dry.tell(Work::new("sum dw", a.x.dtype(), kind))
        }

        /// Overwrites `weights` (E × 1) with those of the sum number `sum`.
        fn related_weights(a: &Related<'_>, sum: usize, weights: &mut Matrix) -> Result<()> {
            |dry| dry.stream("weights by relation", &[a.edges], &[weights])
        }

        /// Overwrites `totals` (R × 1) with the sums of `products / c` (E × 1) over the edges of each relation.
        fn totals_by_relation(edges: &Matrix, products: &Matrix, totals: &mut Matrix) -> Result<()> {
            |dry|
            let _tables = dry.within(|| scratch::tables(products, totals))?;
            dry.stream("totals by relation", &[edges, products], &[totals])
        }
    }
}

/// The sums one after another, by the kernels of single ones.
pub(crate) fn one_by_one(
    backend: &(impl CombineKernels + SpmmKernels + RelatedKernels),
    a: &Related<'_>,
    out: &mut Matrix,
    write: Write,
) -> Result<()> {
    let (&Related { graph, edges, along, x, .. }, d) = (a, a.width());
    let mut edge = edges.device().uninit(OP, edges.rows(), 1, edges.dtype(), Tag::Workspace)?;
    for sum in 0..a.table.sums() {
        backend.related_weights(a, sum, &mut edge)?;
        let weights = EdgeWeights { edge: Some(&edge), ..EdgeWeights::default() };
        match along {
            Along::Edges => {
                let mut one = x.device().uninit(OP, out.rows(), d, out.dtype(), Tag::Workspace)?;
                backend.spmm(&Spmm { graph, weights, along, x }, &mut one, Write::Set)?;
                backend.copy_patch(&one, out, Patch::columns(one.rows(), 0, sum * d, d), write)?;
            }
            Along::Transpose => {
                let mut one = x.device().uninit(OP, x.rows(), d, x.dtype(), Tag::Workspace)?;
                backend.copy_patch(x, &mut one, Patch::columns(x.rows(), sum * d, 0, d), Write::Set)?;
                let write = if sum == 0 { write } else { Write::Add };
                backend.spmm(&Spmm { graph, weights, along, x: &one }, out, write)?;
            }
        }
    }
    Ok(())
}

/// The columns of the gradient of coefficients one after another.
pub(crate) fn da_one_by_one(
    backend: &(impl CombineKernels + SpmmKernels + RelatedKernels),
    a: &Related<'_>,
    g: &Matrix,
    da: &mut Matrix,
    write: Write,
) -> Result<()> {
    let (&Related { graph, edges, along, x, .. }, d) = (a, a.width());
    let new = |rows, cols, dtype| da.device().uninit(OP, rows, cols, dtype, Tag::Workspace);
    let mut of_g = new(g.rows(), d, g.dtype())?;
    let (mut products, mut totals) = (new(edges.rows(), 1, edges.dtype())?, new(da.rows(), 1, da.dtype())?);
    for sum in 0..a.table.sums() {
        backend.copy_patch(g, &mut of_g, Patch::columns(g.rows(), sum * d, 0, d), Write::Set)?;
        backend.spmm_dw(&Spmm { graph, weights: EdgeWeights::default(), along, x }, &of_g, &mut products)?;
        backend.totals_by_relation(edges, &products, &mut totals)?;
        backend.copy_patch(&totals, da, Patch::columns(da.rows(), 0, sum, 1), write)?;
    }
    Ok(())
}

impl Table<Matrix> {
    /// The same, borrowed.
    pub fn get(&self) -> Table<&Matrix> {
        match self {
            Self::Each(relations) => Table::Each(*relations),
            Self::Rows(rows) => Table::Rows(rows),
        }
    }
}

impl Table<&Var> {
    /// The coefficients themselves.
    pub fn values(&self) -> Table<Matrix> {
        match self {
            Self::Each(relations) => Table::Each(*relations),
            Self::Rows(rows) => Table::Rows(rows.value().clone()),
        }
    }
}

/// The sums of the rows of `x` by relation, side by side; `edges` have c and the relation's number.
pub fn related(tape: &mut Tape, graph: &Rc<Adjacency>, x: &Var, edges: &Matrix, table: Table<&Var>) -> Result<Var> {
    let device = tape.device().clone();
    let values = table.values();
    let sums = Related { graph, edges, table: values.get(), along: Along::Edges, x: x.value() };
    let cols = sums.table.sums() * sums.width();
    let mut out = device.uninit(OP, graph.num_dst(), cols, x.value().dtype(), Tag::Activations)?;
    device.backend().related(&sums, &mut out, Write::Set)?;
    let (inputs, wanted) = match table {
        Table::Each(_) => (vec![x], false),
        Table::Rows(rows) => (vec![x, rows], rows.needs_grad()),
    };
    // x itself is needed by the gradient of the coefficients only.
    let kept = wanted.then(|| x.value().clone());
    let (graph, edges, width) = (Rc::clone(graph), edges.clone(), x.value().cols());
    Ok(tape.push(&inputs, out, || RelatedBackward { graph, edges, table: values, x: kept, width }))
}

struct RelatedBackward {
    graph: Rc<Adjacency>,
    edges: Matrix,
    table: Table<Matrix>,
    x: Option<Matrix>,
    width: usize,
}

impl Backward for RelatedBackward {
    fn backward(self: Box<Self>, grads: &mut Grads<'_>) -> Result<()> {
        let Some(g) = grads.output(0) else { return Ok(()) };
        let (device, Self { graph, edges, table, x, width }) = (grads.device().clone(), *self);
        if let (Some(x), Table::Rows(rows)) = (&x, &table) {
            let mut da = device.uninit(OP, rows.rows(), rows.cols(), rows.dtype(), Tag::Gradients)?;
            let sums = Related { graph: &graph, edges: &edges, table: table.get(), along: Along::Edges, x };
            device.backend().related_da(&sums, &g, &mut da, Write::Set)?;
            grads.put(1, da)?;
        }
        if !grads.wants(0) {
            return Ok(());
        }
        let (mut dx, write) = grads.begin(OP, 0, graph.num_src(), width, g.dtype())?;
        let sums = Related { graph: &graph, edges: &edges, table: table.get(), along: Along::Transpose, x: &g };
        device.backend().related(&sums, &mut dx, write)?;
        grads.put(0, dx)
    }
}

#[cfg(test)]
mod tests;
