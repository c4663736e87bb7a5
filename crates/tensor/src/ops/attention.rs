//! Sparse multi-head attention over the edges of a graph, fused.
//!
//! For destination i and head h, over the edges j → i: e_ij = q_i·k_j / √d_h (+ bias), α = softmax over j, out_i = Σ
//! α_ij v_j. One pass over the neighbours with an online softmax; only the output and the log-sum-exp are kept.
//! Backward recomputes α = exp(e − LSE) and, with D_i = g_i·out_i, makes two passes: one by destination for dq, one by
//! source for dk and dv. No tensor of the size of the edges exists, and nothing is added atomically.
//!
//! Scores differ between models ([`Score`]): dot products here, [`gat`](crate::ops::gat) and
//! [`gatv2`](crate::ops::gatv2) in files of their own. All else is shared.
//!
//! Edges may also add a linear function of their features to keys and values; queries, outputs and their gradients then
//! have numbers behind each head: see [`edge_values`](crate::ops::edge_values). GAT and GATv2 have such a function
//! inside of their LeakyReLU.
//!
//! Keys and values of a node are one row `k ‖ v`, so that an edge touches one contiguous piece of memory.

use std::rc::Rc;

use crate::adjacency::Adjacency;
use crate::cpu::scratch;
use crate::device::Device;
use crate::dry::{Like, Pass};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::kernels;
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::ops::edge_values::EdgeTail;
use crate::ops::rows::RowIndex;
use crate::tape::{Backward, Grads, Tape, Var};

mod operands;

pub(crate) use operands::Operands;
pub use operands::{Bias, EdgeDropout, EdgeTerms, Score};

const OP: &str = "attention";

/// The operands of attention.
pub struct Attention<'a> {
    /// Who attends to whom.
    pub graph: &'a Adjacency,
    /// Heads; they share the columns equally.
    pub heads: usize,
    /// Scores and values.
    pub score: Score<&'a Matrix>,
    /// A term added to the scores.
    pub bias: Bias<&'a Matrix>,
    /// Features of edges, if there are any: with dot products for the tails behind the heads of `q`, of the output and
    /// of their gradients.
    pub edges: Option<&'a EdgeTail>,
    /// With other scores, what these are multiplied by: see [`EdgeTerms`].
    pub edge_weight: Option<&'a Matrix>,
    /// Dropout of weights.
    pub dropout: Option<&'a EdgeDropout>,
}

impl<'a> Attention<'a> {
    /// Columns and type of the output.
    pub fn output(&self) -> (usize, DType) {
        let like = match self.score {
            Score::Dot { q, .. } => q,
            Score::Gat { z, .. } => z,
            Score::Gatv2 { l, .. } => l,
        };
        (like.cols(), like.dtype())
    }

    /// Numbers behind each head of the output.
    pub fn tail(&self) -> usize {
        match self.score {
            Score::Dot { .. } => self.edges.map_or(0, |edges| edges.columns.tail()),
            Score::Gat { .. } | Score::Gatv2 { .. } => 0,
        }
    }

    /// Columns of the values.
    pub fn values(&self) -> usize {
        self.output().0.saturating_sub(self.heads * self.tail())
    }

    /// Where everything is.
    pub fn device(&self) -> &Device {
        match self.score {
            Score::Dot { q: m, .. } | Score::Gat { l: m, .. } | Score::Gatv2 { l: m, .. } => m.device(),
        }
    }

    /// Whether the operands fit together.
    ///
    /// # Errors
    /// Naming the operand that does not.
    pub fn check(&self) -> Result<()> {
        let (wide, d, heads, edges) = (self.output().0, self.values(), self.heads, self.graph.num_edges());
        if heads == 0 || d == 0 || !d.is_multiple_of(heads) {
            return Err(Error::Argument { op: OP, problem: format!("{d} columns cannot be shared by {heads} heads") });
        }
        let (dst, src) = (self.graph.num_dst(), self.graph.num_src());
        match self.score {
            Score::Dot { q, kv } => {
                q.expect(OP, "q", dst, wide)?;
                kv.expect(OP, "kv", src, 2 * d)?;
            }
            Score::Gat { l, r, z, .. } => {
                l.expect(OP, "l", dst, heads)?;
                r.expect(OP, "r", src, heads)?;
                z.expect(OP, "z", src, d)?;
                computed("l", l, z)?;
                computed("r", r, z)?;
            }
            Score::Gatv2 { l, r, value, a, .. } => {
                l.expect(OP, "l", dst, d)?;
                r.expect(OP, "r", src, d)?;
                value.map_or(Ok(()), |m| m.expect(OP, "value", src, d))?;
                a.expect(OP, "a", heads, d / heads)?;
                computed("a", a, l)?;
            }
        }
        if let Some(EdgeTail { columns, rows }) = self.edges {
            rows.as_ref().map_or(Ok(()), |rows| rows.expect(OP, "edge features", edges, columns.stored()))?;
        }
        self.check_edge_weight()?;
        match self.bias {
            Bias::None => Ok(()),
            Bias::PerEdge(bias) => bias.expect(OP, "bias", edges, heads),
            Bias::Features { feat, weight } => {
                feat.expect(OP, "edge features", edges, weight.cols())?;
                weight.expect(OP, "edge weight", heads, feat.cols())
            }
        }
    }

    fn check_edge_weight(&self) -> Result<()> {
        let problem = match (self.score, self.edges, self.edge_weight) {
            (Score::Dot { .. }, _, None) | (_, None, None) => return Ok(()),
            (Score::Dot { .. }, _, Some(_)) => {
                "features of edges are in the tails of dot products: they take no weight"
            }
            (_, Some(_), None) => "features of edges need a weight where scores are no dot products",
            (_, None, Some(_)) => "a weight of features of edges needs these features",
            (Score::Gat { l: rows, .. } | Score::Gatv2 { l: rows, .. }, Some(edges), Some(weight)) => {
                weight.expect(OP, "edge weight", rows.cols(), edges.columns.width())?;
                return computed("edge weight", weight, rows);
            }
        };
        Err(Error::Argument { op: OP, problem: problem.into() })
    }

    /// Where edges of the transpose stand in the forward direction, if something depends on that.
    pub(crate) fn map(&self) -> Option<&'a [u64]> {
        match self.bias {
            Bias::None if self.edges.is_none_or(|edges| edges.rows.is_none()) => None,
            _ => Some(self.graph.edges()),
        }
    }
}

/// Fails if `m` has another type than that in which `rows` are computed with.
fn computed(what: &'static str, m: &Matrix, rows: &Matrix) -> Result<()> {
    if m.dtype() == rows.dtype().compute() {
        return Ok(());
    }
    Err(Error::Type { op: OP, what, got: m.dtype() })
}

/// Numbers of a partial softmax on a GPU: m and s of each head, and the columns.
fn state_size(a: &Attention<'_>) -> usize {
    (2 * a.heads).next_multiple_of(8) + a.output().0
}

kernels! {
    /// What a backend does for attention.
    pub trait AttentionKernels {
        /// Overwrites `out` (a row per destination) and `lse` (a row per destination, a column per head).
        fn attention(a: &Attention<'_>, out: &mut Matrix, lse: &mut Matrix) -> Result<()> {
            |dry| dry.attend(a, Pass::Forward, state_size(a))
        }

        /// Folds the edges of one block into `state`, a row `m ‖ s ‖ acc` of 2·heads + d numbers per destination. A
        /// state starts as −∞, 0, 0 and after all blocks is made an output by [`AttentionKernels::attention_finish`].
        fn attention_fold(a: &Attention<'_>, state: &mut Matrix) -> Result<()> {
            |dry| dry.attend(a, Pass::Forward, state_size(a))
        }

        /// Merges states of some rows, which were folded elsewhere over other edges, into `state`: row k of `partial`
        /// into row k of the list `index`. A row that is listed more than once takes them in order of k.
        fn attention_merge(heads: usize, partial: &Matrix, index: &RowIndex, state: &mut Matrix) -> Result<()> {
            |dry|
            // As many rows of the state are read and written as are merged into it.
            dry.stream("attention merge", &[partial, partial], &[partial])
        }

        /// Overwrites `out` and `lse` with what a state comes to.
        fn attention_finish(heads: usize, state: &Matrix, out: &mut Matrix, lse: &mut Matrix) -> Result<()> {
            |dry| dry.stream("attention finish", &[state], &[out, lse])
        }

        /// Overwrites `d` (as `lse`) with D_i = g_i·out_i.
        fn attention_d(heads: usize, g: &Matrix, out: &Matrix, d: &mut Matrix) -> Result<()> {
            |dry| dry.stream("attention d", &[g, out], &[d])
        }

        /// The pass by destination.
        fn attention_dst(a: &Attention<'_>, s: &Saved<'_>, to: DstGrads<'_>) -> Result<()> {
            |dry|
            let size = to.row.cols();
            if let Like::Gpu = dry.like {
                return dry.attend(a, Pass::ByDestination, size);
            }
            let _shared = dry.within(|| scratch::attention_shared(a))?;
            let _edges = dry.within(|| scratch::attention_edges(a))?;
            let _bias = match a.bias {
                Bias::Features { feat, .. } if to.bias.is_some() => {
                    Some(dry.within(|| scratch::attention_bias(a, feat.cols()))?)
                }
                _ => None,
            };
            dry.attend(a, Pass::ByDestination, size)
        }

        /// The pass by source.
        fn attention_src(a: &Attention<'_>, s: &Saved<'_>, to: SrcGrads<'_>) -> Result<()> {
            |dry|
            let _known = match dry.like {
                Like::Cpu(_) => None,
                // lse and D side by side.
                Like::Gpu => Some(a.device().uninit("known", s.lse.rows(), 2 * a.heads, s.lse.dtype(), Tag::Workspace)?),
            };
            // It is made now where values on edges need it.
            let _ = a.map();
            let size = to.row.cols() + to.value.map_or(0, |value| value.cols());
            dry.attend(a, Pass::BySource, size)
        }
    }
}

/// What the pass by destination writes.
pub struct DstGrads<'a> {
    /// The gradient of the destinations' operand: q or l.
    pub row: &'a mut Matrix,
    /// How it is written.
    pub write: Write,
    /// Overwritten with the gradient of GATv2's `a`.
    pub shared: Option<&'a mut Matrix>,
    /// Overwritten with the gradient of the bias (as the bias) or of its weight.
    pub bias: Option<&'a mut Matrix>,
    /// Overwritten with the gradient of what features of edges are multiplied by inside of a LeakyReLU.
    pub edge_weight: Option<&'a mut Matrix>,
}

/// What the pass by source overwrites.
pub struct SrcGrads<'a> {
    /// The gradient of the sources' operand: kv or r. Where GATv2 has no values of their own, those of r as values are
    /// in it.
    pub row: &'a mut Matrix,
    /// The gradient of the values, where they are a matrix of their own: GAT's z, GATv2's value.
    pub value: Option<&'a mut Matrix>,
}

/// What backward has beside the operands.
pub struct Saved<'a> {
    /// The log-sum-exp of forward.
    pub lse: &'a Matrix,
    /// The gradient of the output.
    pub g: &'a Matrix,
    /// D_i = g_i·out_i.
    pub d: &'a Matrix,
}

/// Attention along `graph` with `heads` heads. Where `edges` bring something, the queries are
/// [widened](crate::ops::edge_values::widen), and the output is to be [absorbed](crate::ops::edge_values::absorb).
pub fn attention(
    tape: &mut Tape,
    graph: &Rc<Adjacency>,
    heads: usize,
    score: Score<&Var>,
    bias: Bias<&Var, &Matrix>,
    edges: Option<EdgeTerms<&Var>>,
    dropout: Option<EdgeDropout>,
) -> Result<Var> {
    let inputs = score.operands();
    let mut vars = vec![inputs.dst, inputs.src];
    let weight = edges.as_ref().and_then(|edges| edges.weight);
    let [value, shared, bias_at, weight_at] = [inputs.value, inputs.shared, bias.learnt(), weight].map(|var| {
        var.map(|var| {
            vars.push(var);
            vars.len() - 1
        })
    });
    let kept = |var: &Var| var.value().clone();
    let (score, bias, edge_weight) = (score.map(kept), bias.map(kept, Matrix::clone), weight.map(kept));
    let edges = edges.map(|edges| edges.tail);
    let call = Call { graph: Rc::clone(graph), heads, score, bias, edges, edge_weight, dropout };
    let operands = call.operands();
    operands.check()?;
    let device = tape.device().clone();
    let (d, dtype) = operands.output();
    let mut out = device.uninit(OP, graph.num_dst(), d, dtype, Tag::Activations)?;
    let mut lse = device.uninit(OP, graph.num_dst(), heads, dtype.compute(), Tag::Activations)?;
    device.backend().attention(&operands, &mut out, &mut lse)?;
    let saved = out.clone();
    Ok(tape.push(&vars, out, || AttentionBackward {
        call,
        out: saved,
        lse,
        value,
        shared,
        bias: bias_at,
        edge_weight: weight_at,
    }))
}

/// All operands, kept for backward.
struct Call {
    graph: Rc<Adjacency>,
    heads: usize,
    score: Score<Matrix>,
    bias: Bias<Matrix>,
    edges: Option<EdgeTail>,
    edge_weight: Option<Matrix>,
    dropout: Option<EdgeDropout>,
}

impl Call {
    fn operands(&self) -> Attention<'_> {
        Attention {
            graph: &self.graph,
            heads: self.heads,
            score: self.score.as_ref(),
            bias: self.bias.as_ref(),
            edges: self.edges.as_ref(),
            edge_weight: self.edge_weight.as_ref(),
            dropout: self.dropout.as_ref(),
        }
    }
}

struct AttentionBackward {
    call: Call,
    out: Matrix,
    lse: Matrix,
    /// Which inputs these are. Input 0 is the destinations' operand, input 1 the sources'.
    value: Option<usize>,
    shared: Option<usize>,
    bias: Option<usize>,
    edge_weight: Option<usize>,
}

impl Backward for AttentionBackward {
    fn backward(self: Box<Self>, grads: &mut Grads<'_>) -> Result<()> {
        let Some(g) = grads.output(0) else { return Ok(()) };
        let device = grads.device().clone();
        let a = self.call.operands();
        let new = |m: &Matrix, tag| device.uninit("attention backward", m.rows(), m.cols(), m.dtype(), tag);
        let mut d = new(&self.lse, Tag::Workspace)?;
        device.backend().attention_d(a.heads, &g, &self.out, &mut d)?;
        let saved = Saved { lse: &self.lse, g: &g, d: &d };
        let Operands { dst, src, value, shared } = a.score.operands();
        let bias = a.bias.learnt();
        let wanted = |grads: &Grads<'_>, at: Option<usize>, m: Option<&Matrix>| match (at, m) {
            (Some(at), Some(m)) if grads.wants(at) => new(m, Tag::Activations).map(Some),
            _ => Ok(None),
        };
        let mut row = new(dst, Tag::Activations)?;
        let (mut dshared, mut dbias) = (wanted(grads, self.shared, shared)?, wanted(grads, self.bias, bias)?);
        let mut dweight = wanted(grads, self.edge_weight, a.edge_weight)?;
        let to = DstGrads {
            row: &mut row,
            write: Write::Set,
            shared: dshared.as_mut(),
            bias: dbias.as_mut(),
            edge_weight: dweight.as_mut(),
        };
        device.backend().attention_dst(&a, &saved, to)?;
        if grads.wants(1) || self.value.is_some_and(|at| grads.wants(at)) {
            let mut row = new(src, Tag::Activations)?;
            // The pass computes both or none.
            let mut dvalue = value.map(|m| new(m, Tag::Activations)).transpose()?;
            device.backend().attention_src(&a, &saved, SrcGrads { row: &mut row, value: dvalue.as_mut() })?;
            grads.put(1, row)?;
            put(grads, self.value, dvalue)?;
        }
        put(grads, self.shared, dshared)?;
        put(grads, self.bias, dbias)?;
        put(grads, self.edge_weight, dweight)?;
        grads.put(0, row)
    }
}

fn put(grads: &mut Grads<'_>, at: Option<usize>, gradient: Option<Matrix>) -> Result<()> {
    match (at, gradient) {
        (Some(at), Some(gradient)) => grads.put(at, gradient),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod edge_tests;
#[cfg(test)]
mod term_tests;
#[cfg(test)]
mod tests;
