//! What the kernels over edges are given: operands, seeds, and where gradients go.

use graphweft_tensor::ops::attention::Score;
use graphweft_tensor::ops::spmm::Along;

use super::values::{Values, ValuesMut};

/// Softmax attention of every node over the edges into it.
///
/// ```
/// use graphweft::Graph;
/// use graphweft::kernels::{Attention, EdgeKernels, Score, Seed, Values, ValuesMut};
/// let kernels = EdgeKernels::new(&Graph::from_edges(2, &[0], &[1])?)?;
/// let (q, kv) = ([1.0, 1.0], [0.5, 2.0, 0.5, 3.0]);
/// let score = Score::Dot { q: Values::F64(&q), kv: Values::F64(&kv) };
/// let (bias, edges) = (None, None);
/// let attention = Attention { heads: 1, width: 1, score, bias, edges, dropout: 0.0, seed: Seed::Number(0) };
/// let (mut out, mut lse) = ([0.0; 2], [0.0; 2]);
/// kernels.attention(&attention, ValuesMut::F64(&mut out), ValuesMut::F64(&mut lse))?;
/// // Node 1 sees node 0 alone; node 0 sees nobody.
/// assert_eq!(out, [0.0, 2.0]);
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Attention<'a> {
    /// Heads, which share the columns.
    pub heads: usize,
    /// Columns of a row of the output.
    pub width: usize,
    /// Scores and values.
    pub score: Score<Values<'a>>,
    /// A number per edge and head that is added to the scores, edges in the order of
    /// [`Graph::indices`](crate::Graph::indices).
    pub bias: Option<Values<'a>>,
    /// A row of features per edge, edges in that order, which meet the tail of each head: with the score
    /// [`Dot`](Score::Dot) alone. Behind each head of q stand as many numbers as there are features, and zeros up to a
    /// multiple of four; their product is a part of the score. The same numbers of the output are the weighted sum of
    /// the features, and `width` counts them; kv has none. Features have no gradient.
    pub edges: Option<Values<'a>>,
    /// The part of the weights that is dropped.
    pub dropout: f64,
    /// Which weights these are. Parallel edges share them.
    pub seed: Seed,
}

/// Which weights a dropout drops.
///
/// ```
/// use graphweft::kernels::Seed;
/// assert!(matches!(Seed::Number(7), Seed::Number(7)));
/// ```
#[derive(Clone, Copy, Debug)]
pub enum Seed {
    /// Those of this number.
    Number(u64),
    /// Those of the 64 bits at this address of the GPU, whose choice they are as they stand.
    OnGpu(u64),
}

/// What the backward pass of attention reads beside its operands, and where their gradients go. What is absent is not
/// made.
///
/// ```
/// use graphweft::Graph;
/// use graphweft::kernels::{Attention, AttentionGradients, EdgeKernels, Score, Seed, Values, ValuesMut};
/// let kernels = EdgeKernels::new(&Graph::from_edges(2, &[0], &[1])?)?;
/// let (q, kv) = ([1.0, 1.0], [0.5, 2.0, 0.5, 3.0]);
/// let score = Score::Dot { q: Values::F64(&q), kv: Values::F64(&kv) };
/// let (bias, edges) = (None, None);
/// let attention = Attention { heads: 1, width: 1, score, bias, edges, dropout: 0.0, seed: Seed::Number(0) };
/// let (mut out, mut lse) = ([0.0; 2], [0.0; 2]);
/// kernels.attention(&attention, ValuesMut::F64(&mut out), ValuesMut::F64(&mut lse))?;
/// let (mut dq, mut dkv) = ([0.0; 2], [0.0; 4]);
/// let (dst, src) = (ValuesMut::F64(&mut dq), ValuesMut::F64(&mut dkv));
/// let (out, lse, g) = (Values::F64(&out), Values::F64(&lse), Values::F64(&[0.0, 1.0]));
/// let to = AttentionGradients { out, lse, g, dst, src, value: None, shared: None, bias: None };
/// kernels.attention_backward(&attention, to)?;
/// assert_eq!(dkv[1], 1.0);
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Debug)]
pub struct AttentionGradients<'a> {
    /// The output that forward gave.
    pub out: Values<'a>,
    /// The log-sum-exp of the scores that it gave: a number per node and head.
    pub lse: Values<'a>,
    /// The gradient of the output.
    pub g: Values<'a>,
    /// Of what a destination has: q or l.
    pub dst: ValuesMut<'a>,
    /// Of what a source has: kv or r.
    pub src: ValuesMut<'a>,
    /// Of GAT's z.
    pub value: Option<ValuesMut<'a>>,
    /// Of GATv2's a.
    pub shared: Option<ValuesMut<'a>>,
    /// Of the bias.
    pub bias: Option<ValuesMut<'a>>,
}

/// A weighted sum over edges; the weight of an edge is the product of what is given.
///
/// ```
/// use graphweft::Graph;
/// use graphweft::kernels::{Along, EdgeKernels, Sum, Values, ValuesMut};
/// let kernels = EdgeKernels::new(&Graph::from_edges(2, &[0], &[1])?)?;
/// let (edge, x) = (Values::F64(&[0.5]), Values::F64(&[3.0, 4.0]));
/// let mut out = [0.0; 2];
/// let sum = Sum { along: Along::Edges, width: 1, edge: Some(edge), dst: None, src: None, x };
/// kernels.sum(&sum, ValuesMut::F64(&mut out))?;
/// assert_eq!(out, [0.0, 1.5]);
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Sum<'a> {
    /// To destinations, or back to sources.
    pub along: Along,
    /// Columns of a row.
    pub width: usize,
    /// A number per edge, in the order of [`Graph::indices`](crate::Graph::indices).
    pub edge: Option<Values<'a>>,
    /// A factor per destination.
    pub dst: Option<Values<'a>>,
    /// A factor per source.
    pub src: Option<Values<'a>>,
    /// A row per node.
    pub x: Values<'a>,
}
