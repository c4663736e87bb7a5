//! Sums, means and maxima over blocks of sources.
//!
//! Out of a block come sums that are added to those of other blocks; the mean is a sum weighted by 1/degree in the
//! whole graph. Backward of a sum needs no row of a source, except for the gradient of weights on edges. The maximum
//! carries the original id of its source from block to block.

use graphweft_model::{Aggregation, EdgeWeight};
use graphweft_tensor::ops::Write;
use graphweft_tensor::ops::many_sums::ManySums;
use graphweft_tensor::ops::spmm::{Along, EdgeWeights, MaxGradient, Spmm, SpmmMax};
use graphweft_tensor::{DType, Error, Matrix, Result, Tag, Tape, Var};

use super::{Block, Factor};

const OP: &str = "aggregate";

/// How rows become one.
#[derive(Clone)]
pub(crate) struct Call {
    how: Aggregation,
    symmetric: bool,
    /// A number per edge of this rank, or a row of them for as many sums.
    weight: Option<Matrix>,
    /// Of the sources' rows.
    cols: usize,
    /// How many sums there are.
    sums: usize,
    dtype: DType,
}

impl Call {
    pub(crate) fn new(x: &Var, how: Aggregation, weight: EdgeWeight<'_>) -> Result<Self> {
        if how == Aggregation::Max && !matches!(weight, EdgeWeight::None) {
            return Err(Error::Argument { op: OP, problem: "the maximum takes no weights".into() });
        }
        let per_edge = match weight {
            EdgeWeight::PerEdge(w) => Some(w.value().clone()),
            EdgeWeight::None | EdgeWeight::Symmetric | EdgeWeight::Features(_) => None,
        };
        let sums = per_edge.as_ref().map_or(1, Matrix::cols);
        if sums != 1 && how != Aggregation::Sum {
            return Err(Error::Argument { op: OP, problem: "several weights per edge are for sums".into() });
        }
        let symmetric = matches!(weight, EdgeWeight::Symmetric);
        Ok(Self { how, symmetric, weight: per_edge, cols: x.value().cols(), sums, dtype: x.value().dtype() })
    }

    /// Whether edges have values that only the rank of their destination has.
    pub(crate) fn has_values_per_edge(&self) -> bool {
        self.weight.is_some()
    }

    pub(crate) fn is_maximum(&self) -> bool {
        self.how == Aggregation::Max
    }

    /// Where there are several sums: the weights of a block's edges.
    fn of_many(&self, block: &Block) -> Result<Option<Matrix>> {
        match (&self.weight, &block.edges) {
            (Some(all), Some(edges)) if self.sums != 1 => edges.values(all).map(Some),
            _ => Ok(None),
        }
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
        let new = |dtype| x.device().uninit(OP, block.num_dst(), self.sums * self.cols, dtype, tag);
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
        if let Some(weights) = &self.of_many(block)? {
            return device.backend().many_sums(
                &ManySums { graph, weights, along: Along::Edges, x },
                &mut to.out,
                write,
            );
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

    /// The gradient of the sources' rows, from that of the destinations'.
    pub(crate) fn gradient(&self, block: &Block, g: &Matrix, arg: Option<&Matrix>, tag: Tag) -> Result<Matrix> {
        let (device, graph) = (g.device().clone(), &*block.graph);
        let mut dx = device.uninit(OP, block.num_src(), self.cols, self.dtype, tag)?;
        if let Some(weights) = &self.of_many(block)? {
            let sums = ManySums { graph, weights, along: Along::Transpose, x: g };
            device.backend().many_sums(&sums, &mut dx, Write::Set)?;
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

    /// Adds the gradients of the weights of a block's edges, whose sources have the rows `x`, to `dw`.
    pub(crate) fn weight_gradient(&self, block: &Block, x: &Matrix, g: &Matrix, dw: &mut Matrix) -> Result<()> {
        let Some(edges) = &block.edges else { return Ok(()) };
        let device = g.device();
        let mut some = device.uninit(OP, block.graph.num_edges(), self.sums, dw.dtype(), Tag::Workspace)?;
        if let Some(weights) = &self.of_many(block)? {
            let sums = ManySums { graph: &block.graph, weights, along: Along::Edges, x };
            device.backend().many_sums_dw(&sums, g, &mut some)?;
            return edges.add_values(&some, dw);
        }
        self.weighted(block, x, |weights| {
            let sum = Spmm { graph: &block.graph, weights, along: Along::Edges, x };
            device.backend().spmm_dw(&sum, g, &mut some)
        })?;
        edges.add_values(&some, dw)
    }

    /// Zeros as the weights, if these are given by edge.
    pub(crate) fn weight_sums(&self) -> Result<Option<Matrix>> {
        let zeros = |w: &Matrix| w.device().zeros(OP, w.rows(), w.cols(), w.dtype(), Tag::Activations);
        self.weight.as_ref().map(zeros).transpose()
    }
}

/// Sums or maxima over some blocks.
pub(crate) struct Folded {
    pub(crate) out: Matrix,
    /// Of maxima: the original ids of their sources.
    pub(crate) arg: Option<Matrix>,
}

/// What the tape sees of a call: x, and the weights if they are given by edge.
pub(crate) fn inputs<'a>(tape: &Tape, x: &'a Var, weight: EdgeWeight<'a>) -> (Vec<&'a Var>, bool) {
    match weight {
        EdgeWeight::PerEdge(w) => (vec![x, w], tape.wants(&[w])),
        EdgeWeight::None | EdgeWeight::Symmetric | EdgeWeight::Features(_) => (vec![x], false),
    }
}
