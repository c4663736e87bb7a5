//! Attention with features of edges inside of the LeakyReLU of GAT and GATv2.

use super::edge_tests::{features, kinds, tail, widths};
use super::*;
use crate::gradcheck::check;
use crate::ops::edge_values::EdgeColumns;
use crate::ops::graphs::InputType::{Computed, Stored};
use crate::ops::graphs::{
    Case, cases_agree_with_f64, dense_attention, dropout, empty, f64s, near, same_bits_over_a_hub, small, upload,
    with_hub,
};
use crate::ops::tests::on_every_device;

on_every_device!(gradients, equals_its_definition);
cases_agree_with_f64!(cases);

const SLOPE: f64 = 0.2;

/// Which score.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Gat,
    Gatv2,
}

impl Kind {
    /// Rows and columns of the operands: GAT's l, r, z, GATv2's l, r, a; and of the weight.
    fn shapes(self, [n, m]: [usize; 2], [heads, width]: [usize; 2], columns: &EdgeColumns) -> [[usize; 2]; 4] {
        let (d, f) = (heads * width, columns.width());
        match self {
            Self::Gat => [[n, heads], [m, heads], [m, d], [heads, f]],
            Self::Gatv2 => [[n, d], [m, d], [heads, width], [d, f]],
        }
    }

    /// x: the operands, the weight, and a bias per edge if there is one.
    fn run(
        self,
        tape: &mut Tape,
        graph: &Rc<Adjacency>,
        x: &[Var],
        columns: &EdgeColumns,
        dropout: Option<EdgeDropout>,
    ) -> Result<Var> {
        let (heads, score) = match self {
            Self::Gat => (x[0].value().cols(), Score::Gat { l: &x[0], r: &x[1], z: &x[2], slope: SLOPE }),
            Self::Gatv2 => {
                (x[2].value().rows(), Score::Gatv2 { l: &x[0], r: &x[1], value: None, a: &x[2], slope: SLOPE })
            }
        };
        let tail = tail(tape.device(), graph.num_edges(), columns, x[0].value().dtype());
        let bias = x.get(4).map_or(Bias::None, Bias::PerEdge);
        attention(tape, graph, heads, score, bias, Some(EdgeTerms { tail, weight: Some(&x[3]) }), dropout)
    }
}

fn operands(device: &Device, shapes: &[[usize; 2]]) -> Vec<Matrix> {
    let up = |(k, [rows, cols]): (usize, &[usize; 2])| upload(device, k as u64 + 1, (*rows, *cols), DType::F64);
    shapes.iter().enumerate().map(up).collect()
}

fn gradients(device: &Device) {
    for graph in [vec![small(device)], empty(device).to_vec()].concat() {
        let ends = [graph.num_dst(), graph.num_src()];
        for (columns, kind) in kinds().into_iter().flat_map(|columns| [Kind::Gat, Kind::Gatv2].map(|k| (columns, k))) {
            for (heads, drop) in [(1, false), (2, true), (3, false)] {
                let bias = [graph.num_edges(), heads];
                let mut shapes = kind.shapes(ends, [heads, 2], &columns).to_vec();
                shapes.extend(drop.then_some(bias));
                check(device, &operands(device, &shapes), &[], |tape, x| {
                    kind.run(tape, &graph, x, &columns, drop.then(|| dropout(&graph)))
                })
                .unwrap();
            }
        }
    }
}

fn equals_its_definition(device: &Device) {
    let (graph, heads, w) = (small(device), 2, 3);
    let (ends, edges) = ([graph.num_dst(), graph.num_src()], graph.num_edges());
    for (columns, kind) in kinds().into_iter().flat_map(|columns| [Kind::Gat, Kind::Gatv2].map(|k| (columns, k))) {
        let inputs = operands(device, &kind.shapes(ends, [heads, w], &columns));
        let mut tape = Tape::new(device);
        let vars: Vec<Var> = inputs.iter().map(|m| tape.leaf(m.clone())).collect();
        let out = kind.run(&mut tape, &graph, &vars, &columns, Some(dropout(&graph))).unwrap();
        let x: Vec<Vec<f64>> = inputs.iter().map(f64s).collect();
        let stored = features(edges, &columns);
        // A row of weights times one-hot features.
        let product = |e: usize, row: usize| {
            let (mut given, weight) = (stored[e * columns.stored()..].iter(), &x[3][row * columns.width()..]);
            let numbers = given.by_ref().take(columns.dense()).zip(weight).map(|(x, w)| x * w).sum::<f64>();
            numbers + columns.places().zip(given).map(|([first, _], id)| weight[first + *id as usize]).sum::<f64>()
        };
        let leaky = |x: f64| x.max(0.0) + SLOPE * x.min(0.0);
        let score = |e: usize, j: usize, i: usize, h: usize| match kind {
            Kind::Gat => leaky(x[0][i * heads + h] + x[1][j * heads + h] + product(e, h)),
            Kind::Gatv2 => {
                let of = |c: usize| x[2][c] * leaky(x[0][i * heads * w + c] + x[1][j * heads * w + c] + product(e, c));
                (h * w..(h + 1) * w).map(of).sum()
            }
        };
        let values = if let Kind::Gat = kind { &x[2] } else { &x[1] };
        let expected = dense_attention(&graph, heads, values, Some(&dropout(&graph)), score);
        near(&f64s(out.value()), &expected, 1e-12, &format!("{kind:?} {columns:?}"));
    }
}

/// With tolerances for f32 and bf16.
fn cases(check: impl Fn(&Case<'_>, &str, f64, f64)) {
    // Every shape meets some of the columns, and all of these several shapes.
    let shapes = [[8, 16], [3, 8], [1, 32], [2, 5], [9, 8]];
    let each = (0..shapes.len()).flat_map(|k| [[k, k], [k, (k + 2) % 5]]);
    for ([shape, of], kind) in each.flat_map(|at| [(at, Kind::Gat), (at, Kind::Gatv2)]) {
        let ([heads, width], columns) = (shapes[shape], widths()[of]);
        let stored = match kind {
            Kind::Gat => [Computed, Computed, Stored, Computed],
            Kind::Gatv2 => [Stored, Stored, Computed, Computed],
        };
        let shapes = kind.shapes([300, 300], [heads, width], &columns);
        let inputs: Vec<_> = shapes.into_iter().zip(stored).map(|([rows, cols], of)| (rows, cols, of)).collect();
        let drop = |graph: &Rc<Adjacency>| (of % 2 == 1).then(|| dropout(graph));
        let f = &|tape: &mut Tape, graph: &Rc<Adjacency>, x: &[Var]| kind.run(tape, graph, x, &columns, drop(graph));
        // As in the tests of tails: other widths are served by portable code.
        let single = if width == 5 { 1e-4 } else { 2e-5 };
        let what = format!("{kind:?} {heads}×{width} {columns:?}");
        check(&Case { graph: &with_hub, inputs: &inputs, f }, &what, single, 4e-2);
    }
}

#[test]
fn the_same_bits_for_any_number_of_threads() {
    let [.., columns] = kinds();
    let gat = [(300, 4, Computed), (300, 4, Computed), (300, 64, Stored), (4, columns.width(), Computed)];
    let gatv2 = [(300, 64, Stored), (300, 64, Stored), (4, 16, Computed), (64, columns.width(), Computed)];
    for (kind, inputs) in [(Kind::Gat, gat), (Kind::Gatv2, gatv2)] {
        same_bits_over_a_hub("edges", &inputs, |tape, graph, x| {
            kind.run(tape, graph, x, &columns, Some(dropout(graph)))
        });
    }
}

#[test]
fn an_id_that_is_no_category_stays_inside() {
    let device = Device::cpu();
    let graph = crate::ops::graphs::from_rows(&device, vec![vec![0, 0, 0, 0]], 1);
    let columns = EdgeColumns::new(0, &[3]).unwrap();
    for (dtype, kind) in [DType::F32, DType::F64].into_iter().flat_map(|t| [(t, Kind::Gat), (t, Kind::Gatv2)]) {
        let ids = device.upload(4, 1, &[f64::NAN, -5.0, 1e30, 2.0], Tag::Graph).unwrap();
        let rows = Some(device.convert("test", &ids, dtype).unwrap());
        let mut tape = Tape::new(&device);
        let shapes = kind.shapes([1, 1], [1, 16], &columns);
        let x = shapes.map(|[rows, cols]| tape.leaf(upload(&device, 1, (rows, cols), dtype)));
        let score = match kind {
            Kind::Gat => Score::Gat { l: &x[0], r: &x[1], z: &x[2], slope: SLOPE },
            Kind::Gatv2 => Score::Gatv2 { l: &x[0], r: &x[1], value: None, a: &x[2], slope: SLOPE },
        };
        let terms = EdgeTerms { tail: EdgeTail { columns, rows }, weight: Some(&x[3]) };
        let out = attention(&mut tape, &graph, 1, score, Bias::None, Some(terms), None).unwrap();
        // Shares of one and the same source.
        let values = if let Kind::Gat = kind { &x[2] } else { &x[1] };
        near(&f64s(out.value()), &f64s(values.value()), 1e-6, "the source's values");
    }
}

#[test]
fn nonsense_is_refused() {
    let (device, columns) = (Device::cpu(), EdgeColumns::numbers(3));
    let (graph, mut tape) = (small(&device), Tape::new(&device));
    let mut leaf = |rows, cols, dtype| tape.leaf(upload(&device, 1, (rows, cols), dtype));
    let (l, r, z) = (leaf(5, 2, DType::F32), leaf(6, 2, DType::F32), leaf(6, 4, DType::F32));
    let (right, narrow, half) = (leaf(2, 3, DType::F32), leaf(2, 2, DType::F32), leaf(2, 3, DType::Bf16));
    let mut run = |weight: Option<&Var>, edges: usize| {
        let score = Score::Gat { l: &l, r: &r, z: &z, slope: SLOPE };
        let tail = tail(&device, edges, &columns, DType::F32);
        attention(&mut tape, &graph, 2, score, Bias::None, Some(EdgeTerms { tail, weight }), None).is_ok()
    };
    let edges = graph.num_edges();
    assert!(run(Some(&right), edges));
    assert!(!run(Some(&right), edges - 1));
    assert!(!run(Some(&narrow), edges));
    assert!(!run(Some(&half), edges));
    assert!(!run(None, edges));
}
