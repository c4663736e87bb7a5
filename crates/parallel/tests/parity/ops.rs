//! Every operation of a graph, with operands that are the same in original ids whoever has them.

use graphweft_model::{
    Aggregation, Attend, EdgeBias, EdgeValues, EdgeWeight, GraphOps, HeadVectors, RelationMaps, Score, TokensAttend,
    Total,
};
use graphweft_tensor::gradcheck::numbers;
use graphweft_tensor::ops::batch_norm::batch_norm;
use graphweft_tensor::ops::edge_values::EdgeColumns;
use graphweft_tensor::ops::global::{Global, Scale};
use graphweft_tensor::ops::norm::Norm;
use graphweft_tensor::ops::product::product;
use graphweft_tensor::ops::related::Table;
use graphweft_tensor::{DType, Device, Dropout, Matrix, Parameter, Result, Tag, Tape, Var};

pub(crate) const LAYER: u32 = 3;
pub(crate) const TOKENS: usize = 2;
pub(crate) const EDGE_FEATURES: usize = 3;
/// Relations of edges, and sums by relation with coefficients.
const RELATIONS: usize = 3;
const SUMS: usize = 2;

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

/// What features of edges are taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Features {
    Numbers,
    /// A number and two ids.
    Categories,
}

impl Features {
    pub(crate) fn columns(self) -> EdgeColumns {
        match self {
            Self::Numbers => EdgeColumns::numbers(EDGE_FEATURES),
            Self::Categories => EdgeColumns::new(1, &[3, 4]).unwrap(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    None,
    Symmetric,
    PerEdge,
    /// Sums by relation, with coefficients.
    Bases,
    /// A sum for each relation.
    Each,
    /// ReLU of what rows and edges come to.
    Messages(Features),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Attend(ScoreKind, Bias),
    WithTokens(Bias),
    /// With features of edges: in keys and values, or inside of a LeakyReLU.
    Edges(ScoreKind, Features),
    EdgesWithTokens(Features),
    /// Dot products, with maps of relations.
    Relations,
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
        Op::Aggregate(Sum, Weight::Bases),
        Op::Aggregate(Sum, Weight::Each),
        Op::Aggregate(Sum, Weight::Messages(Features::Numbers)),
        Op::Aggregate(Sum, Weight::Messages(Features::Categories)),
        Op::Aggregate(Max, Weight::None),
        Op::WithTokens(Bias::None),
        Op::WithTokens(Bias::Features),
        Op::Edges(ScoreKind::Dot, Features::Numbers),
        Op::EdgesWithTokens(Features::Categories),
        Op::Relations,
        Op::TokensAttend,
        Op::Global(Scale::One),
        Op::Global(Scale::Norms),
        Op::Moments,
    ];
    let edges = kinds.map(|kind| Op::Edges(kind, Features::Categories));
    attends.chain(sums).chain(edges).chain(rest).collect()
}

impl Weight {
    /// Sums side by side.
    pub(crate) fn sums(self) -> usize {
        match self {
            Self::None | Self::Symmetric | Self::PerEdge | Self::Messages(_) => 1,
            Self::Bases => SUMS,
            Self::Each => RELATIONS,
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
            Self::Edges(kind, features) => {
                let rows = if kind == ScoreKind::Gat { s.heads } else { d };
                let weight = (RowsOf::Everywhere(rows), features.columns().width());
                Self::Attend(kind, Bias::None).inputs(s).into_iter().chain([weight]).collect()
            }
            Self::EdgesWithTokens(features) => {
                let weight = (RowsOf::Everywhere(d), features.columns().width());
                vec![node(d), node(2 * d), weight, (RowsOf::Everywhere(TOKENS), 2 * d)]
            }
            Self::Relations => {
                let map = (RowsOf::Everywhere(RELATIONS * d), d);
                vec![node(d), node(2 * d), map, map]
            }
            Self::TokensAttend => vec![(RowsOf::Everywhere(TOKENS), d), node(2 * d)],
            Self::Aggregate(_, Weight::PerEdge) => vec![node(d), (RowsOf::Edges, 1)],
            Self::Aggregate(_, Weight::Bases) => vec![node(d), (RowsOf::Everywhere(RELATIONS), SUMS)],
            Self::Aggregate(_, Weight::Messages(features)) => {
                vec![node(d), (RowsOf::Everywhere(d), features.columns().width() + 1)]
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
        let attend = |score, bias| Attend { bias, dropout, ..Attend::new(s.heads, score) };
        let score = |kind: ScoreKind| match kind {
            ScoreKind::Dot => Score::Dot { q: &x[0], kv: &x[1] },
            ScoreKind::Gat => Score::Gat { l: HeadVectors(&x[1]), r: HeadVectors(&x[2]), z: &x[0], slope: 0.2 },
            ScoreKind::Gatv2 => Score::Gatv2 { l: &x[0], r: &x[1], value: None, a: &x[2], slope: 0.2 },
        };
        // What stands behind the operands of a score.
        let more = |kind: ScoreKind| if kind == ScoreKind::Dot { 2 } else { 3 };
        let with_edges = |kind, columns| {
            let edges = Some(EdgeValues { weight: &x[more(kind)], columns });
            Attend { edges, ..attend(score(kind), EdgeBias::None) }
        };
        match *self {
            Self::Attend(kind, b) => ops.attend(tape, LAYER, attend(score(kind), bias(b, more(kind)))),
            Self::WithTokens(b) => {
                let a = attend(Score::Dot { q: &x[0], kv: &x[1] }, bias(b, 3));
                ops.attend(tape, LAYER, Attend { tokens: Some(&x[2]), ..a })
            }
            Self::Edges(kind, features) => ops.attend(tape, LAYER, with_edges(kind, &features.columns())),
            Self::EdgesWithTokens(features) => {
                let columns = features.columns();
                ops.attend(tape, LAYER, Attend { tokens: Some(&x[3]), ..with_edges(ScoreKind::Dot, &columns) })
            }
            Self::Relations => {
                let [keys, values] = [own_heads(tape, s, &x[2])?, own_heads(tape, s, &x[3])?];
                let relations = Some(RelationMaps { keys: &keys, values: &values });
                let a = attend(Score::Dot { q: &x[0], kv: &x[1] }, EdgeBias::None);
                ops.attend(tape, LAYER, Attend { relations, ..a })
            }
            Self::TokensAttend => {
                ops.tokens_attend(tape, LAYER, TokensAttend { heads: s.heads, q: &x[0], kv: &x[1], dropout })
            }
            Self::Aggregate(how, Weight::Messages(features)) => {
                let columns = features.columns();
                let weight = EdgeWeight::Messages(EdgeValues { weight: &x[1], columns: &columns });
                ops.aggregate(tape, LAYER, &x[0], how, weight)
            }
            Self::Aggregate(how, weight) => {
                let weight = match weight {
                    Weight::None | Weight::Messages(_) => EdgeWeight::None,
                    Weight::Symmetric => EdgeWeight::Symmetric,
                    Weight::PerEdge => EdgeWeight::PerEdge(&x[1]),
                    Weight::Bases => EdgeWeight::Relations(Table::Rows(&x[1])),
                    Weight::Each => EdgeWeight::Relations(Table::Each(RELATIONS)),
                };
                ops.aggregate(tape, LAYER, &x[0], how, weight)
            }
            Self::Global(scale) => {
                let own = ops.total_rows() as f64;
                let (q, k, v) = (&x[0], &x[1], &x[2]);
                ops.global(tape, LAYER, Global { heads: s.heads, q, k, v, own, epsilon: 0.1, scale })
            }
            Self::Moments => {
                let moments = ops.moments(LAYER, x[0].value())?;
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

/// A map of relations with zeros between heads.
fn own_heads(tape: &mut Tape, s: Size, map: &Var) -> Result<Var> {
    let (rows, d) = map.value().shape();
    let same = |at: usize| at / d % d / s.width == at % d / s.width;
    let mask: Vec<f64> = (0..rows * d).map(|at| f64::from(u8::from(same(at)))).collect();
    let device = tape.device().clone();
    let mask = device.convert("test", &device.upload(rows, d, &mask, Tag::Workspace)?, map.value().dtype())?;
    let mask = tape.constant(mask);
    product(tape, map, 0.0, &mask)
}

/// The relation of each edge.
pub(crate) fn relations(edges: usize) -> Vec<u16> {
    (0..edges).map(|edge| (edge * 5 % 7 % RELATIONS) as u16).collect()
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

/// Features of all edges, or of those that are listed: a number, then ids below 3 and 4, which serve as numbers too.
pub(crate) fn edge_features(device: &Device, rows: usize, listed: Option<&[u64]>, dtype: DType) -> Matrix {
    let m = operand(device, 50, rows, EDGE_FEATURES, listed, DType::F64);
    let mut x = f64s(&m);
    for row in x.chunks_exact_mut(EDGE_FEATURES) {
        // Sums by relation divide by it.
        row[0] += 2.0;
        for (x, count) in row[1..].iter_mut().zip([3.0, 4.0]) {
            *x = (x.abs() * count).floor();
        }
    }
    let m = device.upload(m.rows(), EDGE_FEATURES, &x, Tag::Graph).unwrap();
    device.convert("test", &m, dtype).unwrap()
}

pub(crate) fn f64s(m: &Matrix) -> Vec<f64> {
    m.device().convert("test", m, DType::F64).unwrap().to_vec::<f64>().unwrap()
}
