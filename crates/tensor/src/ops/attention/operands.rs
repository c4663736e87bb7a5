//! What attention is made of: scores, terms that are added to them, and what edges bring.

use crate::dtype::DType;
use crate::ops::edge_values::EdgeTail;
use crate::random::{Dropout, Ids};
use crate::tape::Var;

/// A term added to the scores of edges. What is learnt of it is an `X`: a [`Matrix`](crate::Matrix) or a reference to
/// one for kernels and where it is kept for backward, a [`Var`] on the tape. Features of edges are an `F`, which gets
/// no gradient.
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

/// The features of edges, as attention takes them.
#[derive(Clone, Debug)]
pub struct EdgeTerms<X> {
    /// What edges have.
    pub tail: EdgeTail,
    /// What their features are multiplied by inside of a LeakyReLU: a row per head for GAT, a row per column for GATv2,
    /// in the type of the computation. Dot products have tails in place of it.
    pub weight: Option<X>,
}

impl<X> From<EdgeTail> for EdgeTerms<X> {
    fn from(tail: EdgeTail) -> Self {
        Self { tail, weight: None }
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
