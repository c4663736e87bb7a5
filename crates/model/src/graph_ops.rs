//! What a model may ask of a graph.
//!
//! Only these operations look across rows, so only they differ between one rank and many, and between strategies. Each
//! call carries the id of its layer: exchanges are metered, and planned, by layer.

use std::rc::Rc;

use graphweft_tensor::ops::attention::Bias;
use graphweft_tensor::ops::batch_norm::Moments;
use graphweft_tensor::ops::edge_values::EdgeColumns;
use graphweft_tensor::ops::global::{Global, global_attention};
use graphweft_tensor::ops::related::Table;
use graphweft_tensor::{Dropout, Ids, Matrix, Reduce, Result, Tape, Var};

pub use graphweft_tensor::ops::attention::Score;

/// A row per head, the same on all ranks: GAT's scores are sums of its products with rows, by head. They are made where
/// rows arrive, so that only the rows travel.
#[derive(Clone, Copy, Debug)]
pub struct HeadVectors<X>(pub X);

/// How an edge j → i gets its score; a row of q, kv, z, l and r per node of this rank, a is the same on all. GATv2 has
/// no values beside r.
pub type EdgeScore<X> = Score<X, HeadVectors<X>>;

/// A term added to the scores of edges; features of edges are the graph's own.
pub type EdgeBias<'a> = Bias<&'a Var, ()>;

/// What edges add, a linear function of their features, which are the graph's own: to keys and values where scores are
/// dot products, else inside of the LeakyReLU.
#[derive(Clone, Copy)]
pub struct EdgeValues<'a> {
    /// A column per feature, and a row per column of queries, or of GATv2's l; per head for GAT. The same on all ranks.
    pub weight: &'a Var,
    /// What the graph's columns of features are.
    pub columns: &'a EdgeColumns,
}

/// What relations make of keys and values: a source is seen through the matrices of the relation of the edge. With dot
/// products as scores only. The matrices of all relations stand one below the other, [out, in] each; they are zero
/// between the columns of different heads, and the same on all ranks.
#[derive(Clone, Copy)]
pub struct RelationMaps<'a> {
    /// Of keys: a column per column of the queries.
    pub keys: &'a Var,
    /// Of values.
    pub values: &'a Var,
}

/// The operands of attention over edges.
#[derive(Clone, Copy)]
pub struct Attend<'a> {
    /// Heads; they share the columns equally.
    pub heads: usize,
    /// Scores and values.
    pub score: EdgeScore<&'a Var>,
    /// A term added to the scores.
    pub bias: EdgeBias<'a>,
    /// What edges add by their features.
    pub edges: Option<EdgeValues<'a>>,
    /// What the relations of edges, which are the graph's own, make of keys and values. Without bias, features of edges
    /// and tokens.
    pub relations: Option<RelationMaps<'a>>,
    /// Keys and values of tokens, a row each, the same on all ranks. Every node attends to them beside its in-edges, in
    /// one softmax, with a [dot product](Score::Dot) as score.
    pub tokens: Option<&'a Var>,
    /// Dropout of weights, keyed by original ids.
    pub dropout: Option<Dropout>,
}

impl<'a> Attend<'a> {
    /// Along edges alone, without dropout.
    pub fn new(heads: usize, score: EdgeScore<&'a Var>) -> Self {
        Self { heads, score, bias: EdgeBias::None, edges: None, relations: None, tokens: None, dropout: None }
    }
}

/// How the neighbours of a node become one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregation {
    /// Their sum.
    Sum,
    /// Their mean over all in-edges, wherever these are.
    Mean,
    /// Their maximum per column; the smallest original id wins among equals. Takes no weights.
    Max,
}

/// What the rows of neighbours are multiplied with.
#[derive(Clone, Copy, Default)]
pub enum EdgeWeight<'a> {
    /// 1.
    #[default]
    None,
    /// 1/√(d_i·d_j) with the in-degrees of both ends in the whole graph, and 0 where there are none: the weights of
    /// GCN.
    Symmetric,
    /// A number per edge of this rank.
    PerEdge(&'a Var),
    /// Several sums come out, side by side, with [coefficients by relation](graphweft_tensor::ops::related). The edges'
    /// features are c and the relation; the coefficients are the same on all ranks. With sums only.
    Relations(Table<&'a Var>),
    /// None: what is summed is [ReLU(x_j + W·e_ij + b)](graphweft_tensor::ops::gine), with features e of edges and b as
    /// one more column of the weight. With sums only.
    Messages(EdgeValues<'a>),
}

/// Softmax attention of tokens, with a [dot product](Score::Dot) as score.
#[derive(Clone, Copy)]
pub struct TokensAttend<'a> {
    /// Heads, which share the columns.
    pub heads: usize,
    /// Queries: a row per token.
    pub q: &'a Var,
    /// Keys and values: a row per node of this rank.
    pub kv: &'a Var,
    /// Of weights.
    pub dropout: Option<Dropout>,
}

/// What is summed over ranks: accounts are kept by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Total {
    /// What linear attention knows of all nodes.
    Global,
    /// Moments of columns.
    Moments,
    /// Gradients of parameters.
    Gradients,
    /// Losses.
    Loss,
    /// Scores, and what ranks agree on between steps.
    Metrics,
    /// What is counted or collected once.
    Setup,
}

/// A rank's rows among all.
#[derive(Clone, Copy, Debug)]
pub struct OwnRows<'a> {
    /// Nodes of this rank.
    pub rows: usize,
    /// Nodes of all ranks.
    pub total: u64,
    /// Original ids of this rank's nodes.
    pub ids: &'a Ids,
}

/// A rank among all, whatever the strategy: its rows, sums over ranks, and what tokens see.
pub trait Membership {
    /// Its rows.
    fn own(&self) -> OwnRows<'_>;

    /// Nodes of this rank: rows of every operand.
    fn rows(&self) -> usize {
        self.own().rows
    }

    /// Sums over ranks, for a layer; those that no layer asks for count as layer 0's.
    fn reduce(&self, total: Total, layer: u32) -> Rc<dyn Reduce>;

    /// As [`GraphOps::tokens_attend`].
    fn tokens_attend(&self, tape: &mut Tape, layer: u32, a: TokensAttend<'_>) -> Result<Var>;
}

/// Operations over the edges and over all nodes, on the rows of this rank. Every rank calls the same ones in the same
/// order.
pub trait GraphOps {
    /// What does not depend on the strategy.
    fn member(&self) -> &dyn Membership;

    /// Says that `rows`, the features, are the same at every step: what others have of them may be fetched once and
    /// kept.
    fn keep(&self, rows: &Matrix) {
        let _ = rows;
    }

    /// Whether the same operands give the same rows at every step, so that what does not change may be computed once.
    fn repeats(&self) -> bool {
        true
    }

    /// Copies the edges to where the kernels are, where a step has other ones than the step before.
    fn bring(&self) -> Result<()> {
        Ok(())
    }

    /// Nodes of this rank: rows of every operand.
    fn rows(&self) -> usize {
        self.member().rows()
    }

    /// Nodes of all ranks.
    fn total_rows(&self) -> u64 {
        self.member().own().total
    }

    /// Original ids of this rank's nodes.
    fn ids(&self) -> &Ids {
        self.member().own().ids
    }

    /// Sums over ranks, for a layer; those that no layer asks for count as layer 0's.
    fn reduce(&self, total: Total, layer: u32) -> Rc<dyn Reduce> {
        self.member().reduce(total, layer)
    }

    /// Softmax attention of each node over its in-edges, and over tokens where there are some.
    fn attend(&self, tape: &mut Tape, layer: u32, a: Attend<'_>) -> Result<Var>;

    /// Softmax attention of tokens over all nodes of all ranks. The result is the same on all ranks.
    fn tokens_attend(&self, tape: &mut Tape, layer: u32, a: TokensAttend<'_>) -> Result<Var> {
        self.member().tokens_attend(tape, layer, a)
    }

    /// Aggregates the rows of `x` along the edges.
    fn aggregate(&self, tape: &mut Tape, layer: u32, x: &Var, how: Aggregation, weight: EdgeWeight<'_>) -> Result<Var>;

    /// Linear attention of every node over all nodes.
    fn global(&self, tape: &mut Tape, layer: u32, operands: Global<&Var>) -> Result<Var> {
        global_attention(tape, operands, self.reduce(Total::Global, layer))
    }

    /// The moments of the columns of `x` over all nodes. They are the same when a layer is computed again, whatever has
    /// become of running moments meanwhile.
    fn moments(&self, layer: u32, x: &Matrix) -> Result<Moments> {
        Moments::of(x, None, &*self.reduce(Total::Moments, layer))
    }
}
