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
//! have numbers behind each head: see [`edge_values`](crate::ops::edge_values).
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
use crate::random::{Dropout, Ids};
use crate::tape::{Backward, Grads, Tape, Var};

const OP: &str = "attention";

/// A term added to the scores of edges. What is learnt of it is an `X`: a [`Matrix`] or a reference to one for kernels
/// and where it is kept for backward, a [`Var`] on the tape. Features of edges are an `F`, which gets no gradient.
#[derive(Clone, Copy, Debug, Default)]
pub enum Bias<X, F = X> {
    /// None.
    #[default]
    None,
    /// A number per edge and head: E × H.
    PerEdge(X),
    /// A linear function of edge features: E × F, with a weight H × F. No tensor of edges × heads is made.
    Features {
        /// E × F; `()` where they are those of the graph.
        feat: F,
        /// H × F.
        weight: X,
    },
}

impl<X, F> Bias<X, F> {
    /// The same, by reference.
    pub fn as_ref(&self) -> Bias<&X, &F> {
        match self {
            Self::None => Bias::None,
            Self::PerEdge(x) => Bias::PerEdge(x),
            Self::Features { feat, weight } => Bias::Features { feat, weight },
        }
    }

    /// The same of something else: `learnt` of the X, with features that `given` makes.
    pub fn map<Y, G>(self, learnt: impl FnOnce(X) -> Y, given: impl FnOnce(F) -> G) -> Bias<Y, G> {
        match self {
            Self::None => Bias::None,
            Self::PerEdge(x) => Bias::PerEdge(learnt(x)),
            Self::Features { feat, weight } => Bias::Features { feat: given(feat), weight: learnt(weight) },
        }
    }

    /// What gets a gradient: the numbers of edges, or the weight.
    pub fn learnt(self) -> Option<X> {
        match self {
            Self::None => None,
            Self::PerEdge(x) | Self::Features { weight: x, .. } => Some(x),
        }
    }
}

/// Dropout on the weights of edges, keyed by original ids.
#[derive(Clone, Debug)]
pub struct EdgeDropout {
    /// Rate and key.
    pub dropout: Dropout,
    /// Original ids of the sources.
    pub src: Ids,
    /// Original ids of the destinations.
    pub dst: Ids,
}

/// How an edge j → i gets its score for a head, with the operands: matrices by reference for kernels, matrices where
/// they are kept for backward, variables on the tape. GAT's l and r are numbers, an `L` and an `R`: operands like the
/// others, or what makes them of rows.
#[derive(Clone, Copy, Debug)]
pub enum Score<X, L = X, R = L> {
    /// q_i·k_j / √d_h.
    Dot {
        /// Queries, a row per destination.
        q: X,
        /// Keys and values side by side, a row per source, twice as wide as `q` without tails.
        kv: X,
    },
    /// LeakyReLU(l_i + r_j): see [`gat`](crate::ops::gat).
    Gat {
        /// A row per destination, a column per head, in the type of the computation.
        l: L,
        /// The same per source.
        r: R,
        /// Values, a row per source.
        z: X,
        /// Of the LeakyReLU, where its argument is not positive.
        slope: f64,
    },
    /// a·LeakyReLU(l_i + r_j): see [`gatv2`](crate::ops::gatv2).
    Gatv2 {
        /// A row per destination.
        l: X,
        /// A row per source.
        r: X,
        /// Values, a row per source; r where they are absent.
        value: Option<X>,
        /// A row per head, in the type of the computation.
        a: X,
        /// Of the LeakyReLU, where its argument is not positive.
        slope: f64,
    },
}

impl<X, L, R> Score<X, L, R> {
    /// The same, by reference.
    pub fn as_ref(&self) -> Score<&X, &L, &R> {
        match self {
            Self::Dot { q, kv } => Score::Dot { q, kv },
            Self::Gat { l, r, z, slope } => Score::Gat { l, r, z, slope: *slope },
            Self::Gatv2 { l, r, value, a, slope } => Score::Gatv2 { l, r, value: value.as_ref(), a, slope: *slope },
        }
    }
}

impl<L, R> Score<&Var, L, R> {
    /// The type in which rows are stored.
    pub fn dtype(&self) -> DType {
        match self {
            Self::Dot { q: x, .. } | Self::Gat { z: x, .. } | Self::Gatv2 { l: x, .. } => x.value().dtype(),
        }
    }
}

impl<X> Score<X> {
    /// The same of what `f` makes of the operands.
    pub fn map<Y>(self, f: impl Fn(X) -> Y) -> Score<Y> {
        match self {
            Self::Dot { q, kv } => Score::Dot { q: f(q), kv: f(kv) },
            Self::Gat { l, r, z, slope } => Score::Gat { l: f(l), r: f(r), z: f(z), slope },
            Self::Gatv2 { l, r, value, a, slope } => {
                Score::Gatv2 { l: f(l), r: f(r), value: value.map(&f), a: f(a), slope }
            }
        }
    }

    /// The operands by where their gradients come from.
    pub(crate) fn operands(self) -> Operands<X> {
        match self {
            Self::Dot { q, kv } => Operands { dst: q, src: kv, value: None, shared: None },
            Self::Gat { l, r, z, .. } => Operands { dst: l, src: r, value: Some(z), shared: None },
            Self::Gatv2 { l, r, value, a, .. } => Operands { dst: l, src: r, value, shared: Some(a) },
        }
    }
}

/// The operands of a score, by where their gradients come from.
pub(crate) struct Operands<X> {
    /// The pass by destination.
    pub(crate) dst: X,
    /// The pass by source.
    pub(crate) src: X,
    /// The pass by source, where values are a matrix of their own.
    pub(crate) value: Option<X>,
    /// The pass by destination, summed over all edges.
    pub(crate) shared: Option<X>,
}

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
    /// What edges bring for the tails behind the heads of `q`, of the output and of their gradients, if there are any;
    /// with dot products only.
    pub edges: Option<&'a EdgeTail>,
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
        self.edges.map_or(0, |edges| edges.columns.tail())
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
            if !matches!(self.score, Score::Dot { .. }) {
                let problem = "features of edges are added to keys and values of dot products only".into();
                return Err(Error::Argument { op: OP, problem });
            }
            rows.as_ref().map_or(Ok(()), |rows| rows.expect(OP, "edge features", edges, columns.stored()))?;
        }
        match self.bias {
            Bias::None => Ok(()),
            Bias::PerEdge(bias) => bias.expect(OP, "bias", edges, heads),
            Bias::Features { feat, weight } => {
                feat.expect(OP, "edge features", edges, weight.cols())?;
                weight.expect(OP, "edge weight", heads, feat.cols())
            }
        }
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
    /// Overwritten with the gradient of the bias (as the bias) or of the edge weight.
    pub bias: Option<&'a mut Matrix>,
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
    edges: Option<EdgeTail>,
    dropout: Option<EdgeDropout>,
) -> Result<Var> {
    let inputs = score.operands();
    let mut vars = vec![inputs.dst, inputs.src];
    let [value, shared, bias_at] = [inputs.value, inputs.shared, bias.learnt()].map(|var| {
        var.map(|var| {
            vars.push(var);
            vars.len() - 1
        })
    });
    let kept = |var: &Var| var.value().clone();
    let (score, bias) = (score.map(kept), bias.map(kept, Matrix::clone));
    let call = Call { graph: Rc::clone(graph), heads, score, bias, edges, dropout };
    let operands = call.operands();
    operands.check()?;
    let device = tape.device().clone();
    let (d, dtype) = operands.output();
    let mut out = device.uninit(OP, graph.num_dst(), d, dtype, Tag::Activations)?;
    let mut lse = device.uninit(OP, graph.num_dst(), heads, dtype.compute(), Tag::Activations)?;
    device.backend().attention(&operands, &mut out, &mut lse)?;
    let saved = out.clone();
    Ok(tape.push(&vars, out, || AttentionBackward { call, out: saved, lse, value, shared, bias: bias_at }))
}

/// All operands, kept for backward.
struct Call {
    graph: Rc<Adjacency>,
    heads: usize,
    score: Score<Matrix>,
    bias: Bias<Matrix>,
    edges: Option<EdgeTail>,
    dropout: Option<EdgeDropout>,
}

impl Call {
    fn operands(&self) -> Attention<'_> {
        let (score, bias, edges) = (self.score.as_ref(), self.bias.as_ref(), self.edges.as_ref());
        Attention { graph: &self.graph, heads: self.heads, score, bias, edges, dropout: self.dropout.as_ref() }
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
        let to = DstGrads { row: &mut row, write: Write::Set, shared: dshared.as_mut(), bias: dbias.as_mut() };
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
mod tests;
