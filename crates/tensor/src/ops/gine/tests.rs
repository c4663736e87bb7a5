use super::*;
use crate::device::Device;
use crate::dtype::DType;
use crate::gradcheck::{check, numbers};
use crate::ops::graphs::InputType::{Computed, Stored};
use crate::ops::graphs::{
    Case, cases_agree_with_f64, empty, f64s, near, same_bits_over_a_hub, small, upload, with_hub,
};
use crate::ops::tests::on_every_device;

on_every_device!(gradients, equals_its_definition, is_added_to_what_is_there, odd_operands_are_refused);

/// Numbers alone, categories alone, both.
fn kinds() -> [EdgeColumns; 3] {
    [EdgeColumns::numbers(3), EdgeColumns::new(0, &[4]).unwrap(), EdgeColumns::new(2, &[3, 1, 5]).unwrap()]
}

/// Features of `count` edges.
fn features(device: &Device, count: usize, columns: &EdgeColumns, dtype: DType) -> Matrix {
    let width = columns.dense();
    let drawn = numbers(5, count * (width + 1));
    let row = |e: usize| {
        let categories = columns.categories().iter().enumerate().map(move |(k, of)| (e * (7 + k) % of) as f64);
        drawn[e * width..][..width].iter().copied().chain(categories).collect::<Vec<_>>()
    };
    let rows: Vec<f64> = (0..count).flat_map(row).collect();
    let rows = device.upload(count, columns.stored(), &rows, Tag::Graph).unwrap();
    device.convert(OP, &rows, dtype.compute()).unwrap()
}

fn gradients(device: &Device) {
    for graph in [vec![small(device)], empty(device).to_vec()].concat() {
        for columns in kinds() {
            let edges = features(device, graph.num_edges(), &columns, DType::F64);
            for width in [1, 5, 17] {
                let up = |seed, rows, cols| upload(device, seed, (rows, cols), DType::F64);
                let inputs = [up(1, graph.num_src(), width), up(2, width, columns.width() + 1)];
                check(device, &inputs, &[], |tape, x| gine(tape, &graph, &x[0], &columns, &edges, &x[1])).unwrap();
            }
        }
    }
}

/// The sums, edge by edge.
fn by_edge(graph: &Adjacency, columns: &EdgeColumns, edges: &[f64], weight: &[f64], x: &[f64]) -> Vec<f64> {
    let (d, width) = (x.len() / graph.num_src(), columns.width());
    let mut out = vec![0.0; graph.num_dst() * d];
    for i in 0..graph.num_dst() {
        for e in graph.forward.csr.edges_of(i) {
            let (j, stored) = (graph.forward.csr.indices()[e] as usize, &edges[e * columns.stored()..]);
            let mut wide = vec![0.0; width + 1];
            wide[width] = 1.0;
            wide[..columns.dense()].copy_from_slice(&stored[..columns.dense()]);
            let mut first = columns.dense();
            for (id, count) in stored[columns.dense()..].iter().zip(columns.categories()) {
                wide[first + *id as usize] = 1.0;
                first += count;
            }
            for c in 0..d {
                let of_edge = weight[c * (width + 1)..].iter().zip(&wide).map(|(w, e)| w * e).sum::<f64>();
                out[i * d + c] += (x[j * d + c] + of_edge).max(0.0);
            }
        }
    }
    out
}

fn equals_its_definition(device: &Device) {
    let graph = with_hub(device);
    for columns in kinds() {
        let edges = features(device, graph.num_edges(), &columns, DType::F64);
        let (x, w) = (upload(device, 1, (300, 5), DType::F64), upload(device, 2, (5, columns.width() + 1), DType::F64));
        let mut tape = Tape::new(device);
        let expected = by_edge(&graph, &columns, &f64s(&edges), &f64s(&w), &f64s(&x));
        let (x, w) = (tape.leaf(x), tape.leaf(w));
        let found = gine(&mut tape, &graph, &x, &columns, &edges, &w).unwrap();
        near(&f64s(found.value()), &expected, 1e-12, &format!("{columns:?}"));
    }
}

fn cases(mut check: impl FnMut(&Case<'_>, &str, f64, f64)) {
    for columns in kinds() {
        for (d, hub) in [(16, true), (40, false), (7, false)] {
            let graph = |device: &Device| if hub { with_hub(device) } else { small(device) };
            let f = |tape: &mut Tape, graph: &Rc<Adjacency>, x: &[Var]| {
                let edges = features(tape.device(), graph.num_edges(), &columns, x[0].value().dtype());
                gine(tape, graph, &x[0], &columns, &edges, &x[1])
            };
            let rows = graph(&Device::cpu()).num_src();
            let inputs = [(rows, d, Stored), (d, columns.width() + 1, Computed)];
            check(&Case { graph: &graph, inputs: &inputs, f: &f }, &format!("{d} columns, {columns:?}"), 5e-5, 2e-2);
        }
    }
}

cases_agree_with_f64!(cases);

#[test]
fn the_same_bits_for_any_number_of_threads() {
    let columns = EdgeColumns::new(2, &[3, 4]).unwrap();
    same_bits_over_a_hub("messages", &[(300, 16, Stored), (16, columns.width() + 1, Computed)], |tape, graph, x| {
        let edges = features(tape.device(), graph.num_edges(), &columns, DType::F32);
        gine(tape, graph, &x[0], &columns, &edges, &x[1])
    });
}

fn is_added_to_what_is_there(device: &Device) {
    let (graph, d, columns) = (small(device), 3, EdgeColumns::new(1, &[4]).unwrap());
    let edges = features(device, graph.num_edges(), &columns, DType::F64);
    let up = |seed, rows, cols| upload(device, seed, (rows, cols), DType::F64);
    let (x, weight) = (up(1, graph.num_src(), d), up(2, d, columns.width() + 1));
    let g = up(3, graph.num_dst(), d);
    let a = Gine { graph: &graph, columns: &columns, edges: &edges, weight: &weight, x: &x };
    type Kernel<'a> = &'a dyn Fn(&mut Matrix, Write) -> Result<()>;
    let adds = |like: &Matrix, kernel: Kernel<'_>| {
        let run = |write| {
            let mut out = up(4, like.rows(), like.cols());
            kernel(&mut out, write).unwrap();
            f64s(&out)
        };
        let (set, added, before) = (run(Write::Set), run(Write::Add), f64s(&up(4, like.rows(), like.cols())));
        assert!(set.iter().zip(&before).zip(&added).all(|((a, b), sum)| (a + b - sum).abs() < 1e-12));
        assert_ne!(set, added);
    };
    adds(&g, &|out, write| device.backend().gine(&a, out, write));
    adds(&x, &|out, write| device.backend().gine_dx(&a, &g, out, write));
    adds(&weight, &|out, write| device.backend().gine_dw(&a, &g, out, write));
}

fn odd_operands_are_refused(device: &Device) {
    let (graph, columns) = (small(device), EdgeColumns::new(1, &[4]).unwrap());
    let up = |rows, cols, dtype| upload(device, 1, (rows, cols), dtype);
    let edges = features(device, graph.num_edges(), &columns, DType::F64);
    let (x, weight) = (up(graph.num_src(), 3, DType::F64), up(3, 6, DType::F64));
    let run = |a: &Gine<'_>, cols| {
        let mut out = up(graph.num_dst(), cols, DType::F64);
        device.backend().gine(a, &mut out, Write::Set)
    };
    let a = Gine { graph: &graph, columns: &columns, edges: &edges, weight: &weight, x: &x };
    assert!(run(&a, 3).is_ok());
    assert!(run(&a, 4).is_err());
    let (odd_weight, single) = (up(3, 5, DType::F64), up(3, 6, DType::F32));
    assert!(run(&Gine { weight: &odd_weight, ..a }, 3).is_err());
    assert!(run(&Gine { weight: &single, ..a }, 3).is_err());
    let (few, odd_edges) = (up(graph.num_src() - 1, 3, DType::F64), up(graph.num_edges(), 3, DType::F64));
    assert!(run(&Gine { x: &few, ..a }, 3).is_err());
    assert!(run(&Gine { edges: &odd_edges, ..a }, 3).is_err());
}
