use super::*;
use crate::device::Device;
use crate::dtype::DType;
use crate::gradcheck::check;
use crate::ops::combine::columns;
use crate::ops::graphs::{empty, f64s, small, upload, with_hub};
use crate::ops::spmm::{Reduction, WeightVar, aggregate};
use crate::ops::tests::on_every_device;

on_every_device!(gradients, equals_sums_one_by_one, is_added_to_what_is_there, odd_operands_are_refused);

const RELATIONS: usize = 4;

/// c and a relation for each edge.
fn numbers(device: &Device, edges: usize, dtype: DType) -> Matrix {
    let rows: Vec<f64> = (0..edges).flat_map(|e| [(1 + e % 5) as f64, (e * 7 % RELATIONS) as f64]).collect();
    let rows = device.upload(edges, NUMBERS, &rows, Tag::Graph).unwrap();
    device.convert(OP, &rows, dtype.compute()).unwrap()
}

/// A sum for each relation, or so many of all.
fn table(sums: Option<&Var>) -> Table<&Var> {
    sums.map_or(Table::Each(RELATIONS), Table::Rows)
}

fn gradients(device: &Device) {
    for graph in [vec![small(device)], empty(device).to_vec()].concat() {
        let edges = numbers(device, graph.num_edges(), DType::F64);
        for (width, sums) in [(1, 1), (5, 3), (3, 1), (2, 4)] {
            let up = |seed, rows, cols| upload(device, seed, (rows, cols), DType::F64);
            let inputs = [up(1, graph.num_src(), width), up(2, RELATIONS, sums)];
            check(device, &inputs, &[], |tape, x| related(tape, &graph, &x[0], &edges, table(Some(&x[1])))).unwrap();
            check(device, &inputs[..1], &[], |tape, x| related(tape, &graph, &x[0], &edges, table(None))).unwrap();
        }
    }
}

fn equals_sums_one_by_one(device: &Device) {
    let graph = with_hub(device);
    // 20,000 numbers of both signs make a row of the hub, one after another.
    for (dtype, d, within) in [(DType::F64, 5, 1e-11), (DType::F32, 16, 1e-3), (DType::Bf16, 8, 0.2)] {
        let edges = numbers(device, graph.num_edges(), dtype);
        let of_edges = f64s(&edges);
        for sums in [Some(3), None] {
            let mut tape = Tape::new(device);
            let x = tape.constant(upload(device, 1, (graph.num_src(), d), dtype));
            let rows = sums.map(|sums| tape.constant(upload(device, 2, (RELATIONS, sums), dtype.compute())));
            let all = related(&mut tape, &graph, &x, &edges, table(rows.as_ref())).unwrap();
            for k in 0..sums.unwrap_or(RELATIONS) {
                let coefficient = |r: usize| match (&rows, sums) {
                    (Some(rows), Some(sums)) => f64s(rows.value())[r * sums + k],
                    _ => f64::from(u8::from(r == k)),
                };
                let by_relation: Vec<f64> = (0..RELATIONS).map(coefficient).collect();
                let weights: Vec<f64> =
                    of_edges.chunks(NUMBERS).map(|edge| by_relation[edge[1] as usize] / edge[0]).collect();
                let w = device.upload(weights.len(), 1, &weights, Tag::Graph).unwrap();
                let w = tape.constant(device.convert(OP, &w, dtype.compute()).unwrap());
                let one = aggregate(&mut tape, &graph, &x, Reduction::Sum, WeightVar::PerEdge(&w)).unwrap();
                let found = columns(&mut tape, &all, k * d..(k + 1) * d).unwrap();
                let (found, expected) = (f64s(found.value()), f64s(one.value()));
                let far = found.iter().zip(&expected).find(|(a, b)| (*a - *b).abs() > within * b.abs().max(1.0));
                assert_eq!(far, None, "{dtype:?}, sum {k} of {sums:?}");
            }
        }
    }
}

fn is_added_to_what_is_there(device: &Device) {
    let (graph, d, sums) = (small(device), 3, 2);
    let edges = numbers(device, graph.num_edges(), DType::F64);
    let x = upload(device, 1, (graph.num_src(), d), DType::F64);
    let rows = upload(device, 2, (RELATIONS, sums), DType::F64);
    let g = upload(device, 3, (graph.num_dst(), sums * d), DType::F64);
    let a = Related { graph: &graph, edges: &edges, table: Table::Rows(&rows), along: Along::Edges, x: &x };
    let back = Related { along: Along::Transpose, x: &g, ..a };
    type Kernel<'a> = &'a dyn Fn(&mut Matrix, Write) -> Result<()>;
    let adds = |shape: (usize, usize), kernel: Kernel<'_>| {
        let run = |write| {
            let mut out = upload(device, 4, shape, DType::F64);
            kernel(&mut out, write).unwrap();
            f64s(&out)
        };
        let (set, added, before) = (run(Write::Set), run(Write::Add), f64s(&upload(device, 4, shape, DType::F64)));
        assert!(set.iter().zip(&before).zip(&added).all(|((a, b), sum)| (a + b - sum).abs() < 1e-12));
        assert_ne!(set, added);
    };
    adds((graph.num_dst(), sums * d), &|out, write| device.backend().related(&a, out, write));
    adds((graph.num_src(), d), &|out, write| device.backend().related(&back, out, write));
    adds((RELATIONS, sums), &|out, write| device.backend().related_da(&a, &g, out, write));
}

fn odd_operands_are_refused(device: &Device) {
    let graph = small(device);
    let (edges, x) =
        (numbers(device, graph.num_edges(), DType::F64), upload(device, 1, (graph.num_src(), 3), DType::F64));
    let a = Related { graph: &graph, edges: &edges, table: Table::Each(RELATIONS), along: Along::Edges, x: &x };
    let run = |a: &Related<'_>, cols: usize| {
        let mut out = upload(device, 4, (graph.num_dst(), cols), DType::F64);
        device.backend().related(a, &mut out, Write::Set)
    };
    assert!(run(&a, 3 * RELATIONS).is_ok());
    assert!(run(&a, 3).is_err());
    let [short, narrow] =
        [(graph.num_edges() - 1, NUMBERS), (graph.num_edges(), 1)].map(|shape| upload(device, 2, shape, DType::F64));
    let single = numbers(device, graph.num_edges(), DType::F32);
    for edges in [&short, &narrow, &single] {
        assert!(run(&Related { edges, ..a }, 3 * RELATIONS).is_err());
    }
}
