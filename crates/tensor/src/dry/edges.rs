//! Passes over edges, rehearsed.

use super::{Dry, Like, Pass, Reuse, Work, WorkKind, gpu};
use crate::adjacency::Direction;
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::attention::{Attention, Bias, Score};

impl Dry {
    /// A pass of attention, with what it takes for the time of the call: on a GPU, `size` numbers of each piece of a
    /// row.
    pub(crate) fn attend(&self, a: &Attention<'_>, pass: Pass, size: usize) -> Result<()> {
        let _pieces = match &self.like {
            Like::Cpu(cpu) => cpu.attention_pieces(a, pass)?,
            Like::Gpu => {
                let direction = if pass == Pass::BySource { &a.graph.transpose } else { &a.graph.forward };
                Some(gpu::pieces(a.device(), direction, size.next_multiple_of(8), a.output().1.compute())?)
            }
        };
        let (op, table) = match (a.score, a.bias) {
            (Score::Dot { kv, .. }, Bias::None) if a.edges.is_none() => ("attention", kv),
            (Score::Dot { kv, .. }, _) => ("attention with bias", kv),
            (Score::Gat { z, .. }, Bias::None) => ("gat", z),
            (Score::Gat { z, .. }, _) => ("gat with bias", z),
            (Score::Gatv2 { r, .. }, Bias::None) => ("gatv2", r),
            (Score::Gatv2 { r, .. }, _) => ("gatv2 with bias", r),
        };
        let width = a.output().0;
        let (direction, columns) = match pass {
            // The row of a destination, its gradient, and two numbers for each head.
            Pass::BySource => (&a.graph.transpose, 2 * width + 2 * a.heads),
            Pass::Forward | Pass::ByDestination => (&a.graph.forward, table.cols()),
        };
        let dropout = a.dropout.is_some_and(|d| d.dropout.is_active());
        let row = columns * table.dtype().size();
        self.tell(Work { op, dtype: table.dtype(), dropout, kind: edges(pass, direction, row, width, a.heads) })
    }

    /// Takes what an aggregation of the rows of `x` does for the time of the call.
    pub(crate) fn pieces(&self, x: &Matrix, direction: &Direction, size: usize) -> Result<Option<Matrix>> {
        match &self.like {
            Like::Cpu(cpu) => cpu.spmm_pieces(x, direction, size),
            Like::Gpu => gpu::pieces(x.device(), direction, size.next_multiple_of(8), x.dtype().compute()).map(Some),
        }
    }

    /// A pass over edges that takes the rows of `x` as they are.
    pub(crate) fn sum(&self, op: &'static str, pass: Pass, direction: &Direction, x: &Matrix) -> Result<()> {
        let row = x.cols() * x.dtype().size();
        self.tell(Work::new(op, x.dtype(), edges(pass, direction, row, x.cols(), 1)))
    }
}

/// Edges that read `row` bytes each, of `width` columns for so many heads.
pub(crate) fn edges(pass: Pass, direction: &Direction, row: usize, width: usize, heads: usize) -> WorkKind {
    let csr = &direction.csr;
    let (fours, reuse) = *direction.rehearsed.get_or_init(|| {
        let fours = csr.indptr().windows(2).map(|w| (w[1] - w[0]).div_ceil(4) as usize).sum();
        (fours, Reuse::of(csr))
    });
    let (edges, rows, sources) = (csr.num_edges(), csr.num_dst(), csr.num_src());
    WorkKind::Edges { pass, edges, rows, fours, sources, row, reuse: Some(reuse), width, heads }
}
