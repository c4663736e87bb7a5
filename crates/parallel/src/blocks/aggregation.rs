//! Sums, means and maxima over blocks of sources.
//!
//! Out of a block come sums that are added to those of other blocks; the mean is a sum weighted by 1/degree in the
//! whole graph. Backward of a sum needs no row of a source, except for the gradient of weights on edges, and of
//! messages that rows and edges make together. The maximum carries the original id of its source from block to block.

use graphweft_model::{Aggregation, EdgeValues, EdgeWeight};
use graphweft_tensor::ops::Write;
use graphweft_tensor::ops::edge_values::EdgeColumns;
use graphweft_tensor::ops::gine::Gine;
use graphweft_tensor::ops::related::{Related, Table};
use graphweft_tensor::ops::spmm::{Along, EdgeWeights, MaxGradient, Spmm, SpmmMax};
use graphweft_tensor::{DType, Error, Matrix, Result, Tag, Tape, Var};

use super::{Block, Factor};
use crate::gathered::{check_sum, no_features};

const OP: &str = "aggregate";

/// How rows become one.
#[derive(Clone)]
pub(crate) struct Call {
    how: Aggregation,
    symmetric: bool,
    /// A number per edge of this rank.
    weight: Option<Matrix>,
    /// Coefficients by relation, of several sums.
    table: Option<Table<Matrix>>,
    messages: Option<Messages>,
    /// Of the sources' rows.
    cols: usize,
    dtype: DType,
}

/// What rows and features of edges make together: W, with b as its last column, and what the features are.
#[derive(Clone)]
struct Messages {
    weight: Matrix,
    columns: EdgeColumns,
}

impl Call {
    pub(crate) fn new(x: &Var, how: Aggregation, weight: EdgeWeight<'_>) -> Result<Self> {
        if how == Aggregation::Max && !matches!(weight, EdgeWeight::None) {
            return Err(Error::Argument { op: OP, problem: "the maximum takes no weights".into() });
        }
        let per_edge = match weight {
            EdgeWeight::PerEdge(w) => Some(w.value().clone()),
            _ => None,
        };
        let table = match weight {
            EdgeWeight::Relations(table) => {
                check_sum(how)?;
                Some(table.values())
            }
            _ => None,
        };
        let messages = match weight {
            EdgeWeight::Messages(EdgeValues { weight, columns }) => {
                check_sum(how)?;
                Some(Messages { weight: weight.value().clone(), columns: *columns })
            }
            _ => None,
        };
        let symmetric = matches!(weight, EdgeWeight::Symmetric);
        Ok(Self { how, symmetric, weight: per_edge, table, messages, cols: x.value().cols(), dtype: x.value().dtype() })
    }

    /// Whether edges have values that only the rank of their destination has.
    pub(crate) fn has_values_per_edge(&self) -> bool {
        self.weight.is_some() || self.table.is_some() || self.messages.is_some()
    }

    /// Whether the gradient of rows is made of these.
    pub(crate) fn needs_rows(&self) -> bool {
        self.messages.is_some()
    }

    pub(crate) fn is_maximum(&self) -> bool {
        self.how == Aggregation::Max
    }

    /// How many sums there are.
    fn sums(&self) -> usize {
        self.table.as_ref().map_or(1, |table| table.get().sums())
    }

    /// The sums by relation over a block's edges; nothing where there are no relations.
    fn related<'a>(&'a self, block: &'a Block, along: Along, x: &'a Matrix) -> Result<Option<Related<'a>>> {
        let Some(table) = &self.table else { return Ok(None) };
        Ok(Some(Related { graph: &block.graph, edges: features(block)?, table: table.get(), along, x }))
    }

    /// The messages of a block's edges, where it is these that are summed.
    fn made<'a>(&'a self, block: &'a Block, x: &'a Matrix) -> Result<Option<Gine<'a>>> {
        let Some(Messages { weight, columns }) = &self.messages else { return Ok(None) };
        Ok(Some(Gine { graph: &block.graph, columns, edges: features(block)?, weight, x }))
    }

    /// Calls `kernel` with the weights of a block's edges.
    fn weighted<T>(&self, block: &Block, x: &Matrix, kernel: impl FnOnce(EdgeWeights<'_>) -> Result<T>) -> Result<T> {
        let device = x.device();
        let dst = match (self.how == Aggregation::Mean, self.symmetric) {
            (false, false) => None,
            (false, true) => Some(Factor::Root),
            (true, false) => Some(Factor::Mean),
            (true, true) => Some(Factor::MeanRoot),
        };
        let dst = dst.map(|factor| block.dst.factors(device, factor, self.dtype)).transpose()?;
        let src = self.symmetric.then(|| block.src.factors(device, Factor::Root, self.dtype)).transpose()?;
        let edge = match (&self.weight, &block.edges) {
            (Some(all), Some(edges)) => Some(edges.values(all)?),
            _ => None,
        };
        kernel(EdgeWeights { edge: edge.as_ref(), dst: dst.as_ref(), src: src.as_ref() })
    }

    /// What the first block makes of `x`: sums or maxima of the block's destinations, with the ids of the latter.
    pub(crate) fn begin(&self, block: &Block, x: &Matrix, tag: Tag) -> Result<Folded> {
        let new = |dtype| x.device().uninit(OP, block.num_dst(), self.sums() * self.cols, dtype, tag);
        let arg = self.is_maximum().then(|| new(DType::F32)).transpose()?;
        let mut folded = Folded { out: new(self.dtype)?, arg };
        self.fold_as(block, x, &mut folded, Write::Set)?;
        Ok(folded)
    }

    /// Adds another block.
    pub(crate) fn fold(&self, block: &Block, x: &Matrix, to: &mut Folded) -> Result<()> {
        self.fold_as(block, x, to, Write::Add)
    }

    fn fold_as(&self, block: &Block, x: &Matrix, to: &mut Folded, write: Write) -> Result<()> {
        if x.shape() != (block.num_src(), self.cols) {
            let (got, expected) = (x.shape(), (block.num_src(), self.cols));
            return Err(Error::Shape { op: OP, what: "x", got, expected });
        }
        let (device, graph) = (x.device().clone(), &*block.graph);
        if let Some(sums) = self.related(block, Along::Edges, x)? {
            return device.backend().related(&sums, &mut to.out, write);
        }
        if let Some(messages) = self.made(block, x)? {
            return device.backend().gine(&messages, &mut to.out, write);
        }
        match &mut to.arg {
            Some(arg) => {
                let maximum = SpmmMax { graph, x, ids: block.src.ids() };
                device.backend().spmm_max(&maximum, &mut to.out, arg, write)
            }
            None => self.weighted(block, x, |weights| {
                device.backend().spmm(&Spmm { graph, weights, along: Along::Edges, x }, &mut to.out, write)
            }),
        }
    }

    /// The gradient of the sources' rows, from that of the destinations'; `x` are the former where they are needed.
    pub(crate) fn gradient(
        &self,
        block: &Block,
        x: Option<&Matrix>,
        g: &Matrix,
        arg: Option<&Matrix>,
        tag: Tag,
    ) -> Result<Matrix> {
        let (device, graph) = (g.device().clone(), &*block.graph);
        let mut dx = device.uninit(OP, block.num_src(), self.cols, self.dtype, tag)?;
        if let Some(x) = x
            && let Some(messages) = self.made(block, x)?
        {
            device.backend().gine_dx(&messages, g, &mut dx, Write::Set)?;
            return Ok(dx);
        }
        if let Some(sums) = self.related(block, Along::Transpose, g)? {
            device.backend().related(&sums, &mut dx, Write::Set)?;
            return Ok(dx);
        }
        match arg {
            Some(arg) => {
                let gradient = MaxGradient { graph, ids: block.src.ids(), arg, g };
                device.backend().spmm_max_dx(&gradient, &mut dx, Write::Set)?;
            }
            None => self.weighted(block, g, |weights| {
                device.backend().spmm(&Spmm { graph, weights, along: Along::Transpose, x: g }, &mut dx, Write::Set)
            })?,
        }
        Ok(dx)
    }

    /// Adds the gradients of the weights of a block's edges, whose sources have the rows `x`, to `dw`; or those of the
    /// coefficients.
    pub(crate) fn weight_gradient(&self, block: &Block, x: &Matrix, g: &Matrix, dw: &mut Matrix) -> Result<()> {
        let Some(edges) = &block.edges else { return Ok(()) };
        let device = g.device();
        if let Some(sums) = self.related(block, Along::Edges, x)? {
            return device.backend().related_da(&sums, g, dw, Write::Add);
        }
        if let Some(messages) = self.made(block, x)? {
            return device.backend().gine_dw(&messages, g, dw, Write::Add);
        }
        let mut some = device.uninit(OP, block.graph.num_edges(), 1, dw.dtype(), Tag::Workspace)?;
        self.weighted(block, x, |weights| {
            let sum = Spmm { graph: &block.graph, weights, along: Along::Edges, x };
            device.backend().spmm_dw(&sum, g, &mut some)
        })?;
        edges.add_values(&some, dw)
    }

    /// Zeros as what has a gradient beside rows, if there is something.
    pub(crate) fn weight_sums(&self) -> Result<Option<Matrix>> {
        let zeros = |w: &Matrix| w.device().zeros(OP, w.rows(), w.cols(), w.dtype(), Tag::Activations);
        let coefficients = match &self.table {
            Some(Table::Rows(rows)) => Some(rows),
            Some(Table::Each(_)) | None => None,
        };
        let of_edges = self.messages.as_ref().map(|messages| &messages.weight);
        self.weight.as_ref().or(coefficients).or(of_edges).map(zeros).transpose()
    }
}

/// The features of a block's edges.
fn features(block: &Block) -> Result<&Matrix> {
    block.edges.as_ref().and_then(|edges| edges.features.as_ref()).ok_or_else(|| no_features(OP))
}

/// Sums or maxima over some blocks.
pub(crate) struct Folded {
    pub(crate) out: Matrix,
    /// Of maxima: the original ids of their sources.
    pub(crate) arg: Option<Matrix>,
}

/// What the tape sees of a call: x, and what has a gradient beside it. Also whether that one is wanted.
pub(crate) fn inputs<'a>(tape: &Tape, x: &'a Var, weight: EdgeWeight<'a>) -> (Vec<&'a Var>, bool) {
    match weight {
        EdgeWeight::PerEdge(w)
        | EdgeWeight::Relations(Table::Rows(w))
        | EdgeWeight::Messages(EdgeValues { weight: w, .. }) => (vec![x, w], tape.wants(&[w])),
        EdgeWeight::None | EdgeWeight::Symmetric | EdgeWeight::Relations(Table::Each(_)) => (vec![x], false),
    }
}
