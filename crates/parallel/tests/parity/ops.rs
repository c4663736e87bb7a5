//! Every operation of a graph, with operands that are the same in original ids whoever has them.

use graphweft_model::{Aggregation, Attend, EdgeBias, EdgeWeight, GraphOps, Score, TokensAttend, Total};
use graphweft_tensor::gradcheck::numbers;
use graphweft_tensor::ops::batch_norm::batch_norm;
use graphweft_tensor::ops::global::{Global, Scale};
use graphweft_tensor::ops::norm::Norm;
use graphweft_tensor::{DType, Device, Dropout, Matrix, Parameter, Result, Tag, Tape, Var};

pub(crate) const LAYER: u32 = 3;
pub(crate) const TOKENS: usize = 2;
pub(crate) const EDGE_FEATURES: usize = 3;
/// Weights that are made of edge features.
pub(crate) const SUMS: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScoreKind {
    Dot,
    Gat,
    Gatv2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bias {
    None,
    PerEdge,
    Features,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    None,
    Symmetric,
    PerEdge,
    /// Several sums, with weights made of the edges' features.
    Features,
    /// With these as they are.
    Own,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Attend(ScoreKind, Bias),
    WithTokens(Bias),
    TokensAttend,
    Aggregate(Aggregation, Weight),
    Global(Scale),
    Moments,
}

/// Place the rows of an operand are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowsOf {
    Nodes,
    Edges,
    /// On every rank; gradients are parts of a sum.
    Everywhere(usize),
}

/// Heads, and columns of one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) heads: usize,
    pub(crate) width: usize,
}

impl Size {
    pub(crate) fn d(&self) -> usize {
        self.heads * self.width
    }
}

/// All of them.
pub(crate) fn all() -> Vec<Op> {
    use Aggregation::{Max, Mean, Sum};
    let kinds = [ScoreKind::Dot, ScoreKind::Gat, ScoreKind::Gatv2];
    let attends = kinds.into_iter().flat_map(|k| [Bias::None, Bias::PerEdge, Bias::Features].map(|b| Op::Attend(k, b)));
    let weights = [Weight::None, Weight::Symmetric, Weight::PerEdge];
    let sums = [Sum, Mean].into_iter().flat_map(|how| weights.map(|w| Op::Aggregate(how, w)));
    let rest = [
        Op::Aggregate(Sum, Weight::Features),
        Op::Aggregate(Sum, Weight::Own),
        Op::Aggregate(Max, Weight::None),
        Op::WithTokens(Bias::None),
        Op::WithTokens(Bias::Features),
        Op::TokensAttend,
        Op::Global(Scale::One),
        Op::Global(Scale::Norms),
        Op::Moments,
    ];
    attends.chain(sums).chain(rest).collect()
}

impl Weight {
    /// Sums side by side.
    pub(crate) fn sums(self) -> usize {
        match self {
            Self::None | Self::Symmetric | Self::PerEdge => 1,
            Self::Features => SUMS,
            Self::Own => EDGE_FEATURES,
        }
    }
}

impl Op {
    /// RowsOf and columns of every operand.
    pub(crate) fn inputs(&self, s: Size) -> Vec<(RowsOf, usize)> {
        let d = s.d();
        let bias = |bias: Bias| match bias {
            Bias::None => None,
            Bias::PerEdge => Some((RowsOf::Edges, s.heads)),
            Bias::Features => Some((RowsOf::Everywhere(s.heads), EDGE_FEATURES)),
        };
        let vector = (RowsOf::Everywhere(s.heads), s.width);
        let node = |cols| (RowsOf::Nodes, cols);
        match *self {
            Self::Attend(ScoreKind::Dot, b) => [node(d), node(2 * d)].into_iter().chain(bias(b)).collect(),
            Self::Attend(ScoreKind::Gat, b) => [node(d), vector, vector].into_iter().chain(bias(b)).collect(),
            Self::Attend(ScoreKind::Gatv2, b) => [node(d), node(d), vector].into_iter().chain(bias(b)).collect(),
            Self::WithTokens(b) => {
                [node(d), node(2 * d), (RowsOf::Everywhere(TOKENS), 2 * d)].into_iter().chain(bias(b)).collect()
            }
            Self::TokensAttend => vec![(RowsOf::Everywhere(TOKENS), d), node(2 * d)],
            Self::Aggregate(_, Weight::PerEdge) => vec![node(d), (RowsOf::Edges, 1)],
            Self::Aggregate(_, Weight::Features) => {
                vec![node(d), (RowsOf::Everywhere(EDGE_FEATURES), SUMS)]
            }
            Self::Aggregate(..) | Self::Moments => vec![node(d)],
            Self::Global(_) => vec![node(d); 3],
        }
    }

    /// Columns of the output.
    pub(crate) fn columns(&self, s: Size) -> usize {
        match self {
            Self::Aggregate(_, weight) => weight.sums() * s.d(),
            _ => s.d(),
        }
    }

    pub(crate) fn output(&self) -> RowsOf {
        if *self == Self::TokensAttend { RowsOf::Everywhere(TOKENS) } else { RowsOf::Nodes }
    }

    pub(crate) fn run(&self, ops: &dyn GraphOps, tape: &mut Tape, s: Size, x: &[Var]) -> Result<Var> {
        let dropout = Some(Dropout::new(0.5, 1, 2, LAYER, 0));
        let bias = |bias: Bias, at: usize| match bias {
            Bias::None => EdgeBias::None,
            Bias::PerEdge => EdgeBias::PerEdge(&x[at]),
            Bias::Features => EdgeBias::Features { feat: (), weight: &x[at] },
        };
        let attend = |score, bias| Attend { heads: s.heads, score, bias, dropout };
        match *self {
            Self::Attend(ScoreKind::Dot, b) => {
                ops.attend(tape, LAYER, attend(Score::Dot { q: &x[0], kv: &x[1] }, bias(b, 2)))
            }
            Self::Attend(ScoreKind::Gat, b) => {
                let score = Score::Gat { z: &x[0], dst: &x[1], src: &x[2], slope: 0.2 };
                ops.attend(tape, LAYER, attend(score, bias(b, 3)))
            }
            Self::Attend(ScoreKind::Gatv2, b) => {
                let score = Score::Gatv2 { l: &x[0], r: &x[1], a: &x[2], slope: 0.2 };
                ops.attend(tape, LAYER, attend(score, bias(b, 3)))
            }
            Self::WithTokens(b) => {
                let a = attend(Score::Dot { q: &x[0], kv: &x[1] }, bias(b, 3));
                ops.attend_with_tokens(tape, LAYER, a, &x[2])
            }
            Self::TokensAttend => {
                ops.tokens_attend(tape, LAYER, TokensAttend { heads: s.heads, q: &x[0], kv: &x[1], dropout })
            }
            Self::Aggregate(how, weight) => {
                let weight = match weight {
                    Weight::None => EdgeWeight::None,
                    Weight::Symmetric => EdgeWeight::Symmetric,
                    Weight::PerEdge => EdgeWeight::PerEdge(&x[1]),
                    Weight::Features => EdgeWeight::Features(Some(&x[1])),
                    Weight::Own => EdgeWeight::Features(None),
                };
                ops.aggregate(tape, LAYER, &x[0], how, weight)
            }
            Self::Global(scale) => {
                let own = ops.total_rows() as f64;
                let (q, k, v) = (&x[0], &x[1], &x[2]);
                ops.global(tape, LAYER, Global { heads: s.heads, q, k, v, own, epsilon: 0.1, scale })
            }
            Self::Moments => {
                let moments = ops.moments(LAYER, x[0].value(), &vec![0.1; s.d()])?;
                let device = tape.device().clone();
                let row = |value: f64| -> Result<Matrix> {
                    let row = device.upload(1, s.d(), &vec![value; s.d()], Tag::Parameters)?;
                    device.convert("test", &row, x[0].value().dtype())
                };
                let (weight, bias) = (Parameter::new("w", row(1.5)?), Parameter::new("b", row(0.5)?));
                let norm = Norm { weight, bias, epsilon: 1e-5 };
                batch_norm(tape, &x[0], &norm, &moments, ops.reduce(Total::Moments, LAYER))
            }
        }
    }
}

/// Operand `k` of `rows` × `cols`, or the rows of it that are listed.
pub(crate) fn operand(
    device: &Device,
    k: u64,
    rows: usize,
    cols: usize,
    listed: Option<&[u64]>,
    dtype: DType,
) -> Matrix {
    let all = numbers(k + 1, rows * cols);
    let some: Vec<f64> = match listed {
        None => all,
        Some(ids) => ids.iter().flat_map(|i| all[*i as usize * cols..][..cols].to_vec()).collect(),
    };
    let m = device.upload(listed.map_or(rows, <[u64]>::len), cols, &some, Tag::Activations).unwrap();
    device.convert("test", &m, dtype).unwrap()
}

pub(crate) fn f64s(m: &Matrix) -> Vec<f64> {
    m.device().convert("test", m, DType::F64).unwrap().to_vec::<f64>().unwrap()
}
