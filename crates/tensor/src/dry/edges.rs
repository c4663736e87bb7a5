//! Passes over edges, rehearsed.

use super::{Dry, Kind, Like, Pass, Reuse, gpu};
use crate::adjacency::{Adjacency, Direction};
use crate::backend::Floor;
use crate::cpu::scratch;
use crate::dtype::DType;
use crate::error::Result;
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::ops::attention::{Attention, AttentionKernels, Bias, DstGrads, Saved, Score, SrcGrads};
use crate::ops::bag::BagKernels;
use crate::ops::dropout::RowDropout;
use crate::ops::rows::RowIndex;
use crate::ops::spmm::{Along, EdgeWeights, SpmmKernels};
use crate::random::Ids;

impl Dry {
    /// A pass of attention, with what it takes for the time of the call: on a GPU, `size` numbers of each piece of a row.
    fn attend(&self, a: &Attention<'_>, pass: Pass, size: usize) -> Result<()> {
        let _pieces = match &self.like {
            Like::Cpu(cpu) => cpu.attention_pieces(a, pass)?,
            Like::Gpu => {
                let direction = if pass == Pass::BySource { &a.graph.transpose } else { &a.graph.forward };
                Some(gpu::pieces(a.device(), direction, size.next_multiple_of(8), a.output().1.compute())?)
            }
        };
        let (op, table) = match (a.score, a.bias) {
            (Score::Dot { kv, .. }, Bias::None) => ("attention", kv),
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
        self.tell(op, table.dtype(), dropout, edges(pass, direction, row, (width, a.heads)))
    }

    /// Takes what an aggregation of the rows of `x` does for the time of the call.
    fn pieces(&self, x: &Matrix, direction: &Direction, size: usize) -> Result<Option<Matrix>> {
        match &self.like {
            Like::Cpu(cpu) => cpu.spmm_pieces(x, direction, size),
            Like::Gpu => gpu::pieces(x.device(), direction, size.next_multiple_of(8), x.dtype().compute()).map(Some),
        }
    }

    fn sum(&self, op: &'static str, pass: Pass, direction: &Direction, x: &Matrix) -> Result<()> {
        self.tell(op, x.dtype(), false, edges(pass, direction, x.cols() * x.dtype().size(), (x.cols(), 1)))
    }
}

/// Edges that read `row` bytes each, of `width` columns for so many heads.
fn edges(pass: Pass, direction: &Direction, row: usize, (width, heads): (usize, usize)) -> Kind {
    let csr = &direction.csr;
    let (fours, reuse) = *direction.rehearsed.get_or_init(|| {
        let fours = csr.indptr().windows(2).map(|w| (w[1] - w[0]).div_ceil(4) as usize).sum();
        (fours, Reuse::of(csr))
    });
    let (edges, rows, sources) = (csr.num_edges(), csr.num_dst(), csr.num_src());
    Kind::Edges { pass, edges, rows, fours, sources, row, reuse: Some(reuse), width, heads }
}

/// Numbers of a partial softmax: m and s of each head, and the columns.
fn state_size(a: &Attention<'_>) -> usize {
    (2 * a.heads).next_multiple_of(8) + a.output().0
}

impl AttentionKernels for Dry {
    fn attention(&self, a: &Attention<'_>, _: &mut Matrix, _: &mut Matrix) -> Result<()> {
        self.attend(a, Pass::Forward, state_size(a))
    }

    fn attention_fold(&self, a: &Attention<'_>, _: &mut Matrix) -> Result<()> {
        self.attend(a, Pass::Forward, state_size(a))
    }

    fn attention_merge(&self, _: usize, partial: &Matrix, _: &RowIndex, _: &mut Matrix) -> Result<()> {
        // As many rows of the state are read and written as are merged into it.
        self.stream("attention merge", &[partial, partial], &[partial])
    }

    fn attention_finish(&self, _: usize, state: &Matrix, out: &mut Matrix, lse: &mut Matrix) -> Result<()> {
        self.stream("attention finish", &[state], &[out, lse])
    }

    fn attention_d(&self, _: usize, g: &Matrix, out: &Matrix, d: &mut Matrix) -> Result<()> {
        self.stream("attention d", &[g, out], &[d])
    }

    fn attention_dst(&self, a: &Attention<'_>, _: &Saved<'_>, to: DstGrads<'_>) -> Result<()> {
        let size = to.row.cols();
        if let Like::Gpu = self.like {
            return self.attend(a, Pass::ByDestination, size);
        }
        let _shared = self.within(|| scratch::attention_shared(a))?;
        let _bias = match a.bias {
            Bias::Features { feat, .. } if to.bias.is_some() => {
                Some(self.within(|| scratch::attention_bias(a, feat.cols()))?)
            }
            _ => None,
        };
        self.attend(a, Pass::ByDestination, size)
    }

    fn attention_src(&self, a: &Attention<'_>, s: &Saved<'_>, to: SrcGrads<'_>) -> Result<()> {
        let _known = match self.like {
            Like::Cpu(_) => None,
            // lse and D side by side.
            Like::Gpu => Some(a.device().uninit("known", s.lse.rows(), 2 * a.heads, s.lse.dtype(), Tag::Workspace)?),
        };
        // It is made now where values on edges need it.
        let _ = a.map();
        let size = to.row.cols() + to.value.map_or(0, |value| value.cols());
        self.attend(a, Pass::BySource, size)
    }
}

impl SpmmKernels for Dry {
    fn inverse_degrees(&self, graph: &Adjacency, numerator: Option<&Matrix>, to: &mut Matrix) -> Result<()> {
        let read = 8 * graph.num_dst() + numerator.map_or(0, Matrix::bytes);
        self.tell("inverse degrees", to.dtype(), false, Kind::Stream { read, written: to.bytes(), rows: to.rows() })
    }

    fn spmm(
        &self,
        graph: &Adjacency,
        weights: &EdgeWeights<'_>,
        along: Along,
        x: &Matrix,
        _: &mut Matrix,
        _: Write,
    ) -> Result<()> {
        let (direction, pass) = match along {
            Along::Edges => (&graph.forward, Pass::Forward),
            Along::Transpose => (&graph.transpose, Pass::BySource),
        };
        if weights.edge.is_some() && along == Along::Transpose {
            let _ = graph.edges();
        }
        let _pieces = self.pieces(x, direction, x.cols())?;
        let op = if weights.edge.is_some() { "weighted sum" } else { "sum" };
        self.sum(op, pass, direction, x)
    }

    fn spmm_dw(&self, graph: &Adjacency, _: &EdgeWeights<'_>, x: &Matrix, _: &Matrix, _: &mut Matrix) -> Result<()> {
        self.sum("sum dw", Pass::ByDestination, &graph.forward, x)
    }

    fn spmm_max(&self, graph: &Adjacency, x: &Matrix, _: &Ids, _: &mut Matrix, _: &mut Matrix, _: Write) -> Result<()> {
        let _pieces = self.pieces(x, &graph.forward, 2 * x.cols())?;
        self.sum("max", Pass::Forward, &graph.forward, x)
    }

    fn spmm_max_dx(&self, graph: &Adjacency, _: &Ids, _: &Matrix, g: &Matrix, _: &mut Matrix, _: Write) -> Result<()> {
        let _pieces = self.pieces(g, &graph.transpose, g.cols())?;
        self.sum("max", Pass::BySource, &graph.transpose, g)
    }
}

impl BagKernels for Dry {
    fn transpose(&self, from: &Matrix, to: &mut Matrix) -> Result<()> {
        self.stream("transpose", &[from], &[to])
    }

    fn spread_row(&self, row: &Matrix, to: &mut Matrix) -> Result<()> {
        self.stream("spread row", &[row], &[to])
    }

    fn sum_rows(&self, from: &Matrix, to: &mut Matrix) -> Result<()> {
        let _parts = self.within(|| scratch::sum_rows(from))?;
        self.stream("sum rows", &[from], &[to])
    }

    fn drop_entries(
        &self,
        graph: &Adjacency,
        entries: Option<&Matrix>,
        drop: &RowDropout,
        to: &mut Matrix,
    ) -> Result<()> {
        let read = 4 * graph.num_edges() + entries.map_or(0, Matrix::bytes);
        let kind = Kind::Stream { read, written: to.bytes(), rows: graph.num_dst() };
        self.tell("drop entries", to.dtype(), drop.dropout.is_active(), kind)
    }
}

impl Floor for Dry {
    fn touch(&self, direction: &Direction, tables: &[&Matrix]) -> Result<u64> {
        let dtype = tables.first().map_or(DType::F32, |m| m.dtype());
        let width = tables.iter().map(|m| m.cols()).sum();
        self.tell("floor", dtype, false, edges(Pass::Forward, direction, width * dtype.size(), (width, 1)))?;
        Ok(0)
    }
}
