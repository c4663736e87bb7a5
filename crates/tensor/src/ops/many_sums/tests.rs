use super::*;
use crate::device::Device;
use crate::dtype::DType;
use crate::gradcheck::check;
use crate::ops::combine::columns;
use crate::ops::graphs::{empty, f64s, small, upload, with_hub};
use crate::ops::spmm::{Reduction, WeightVar, aggregate};
use crate::ops::tests::on_every_device;

on_every_device!(gradients, equals_sums_one_by_one, is_added_to_what_is_there);

fn gradients(device: &Device) {
    for graph in [vec![small(device)], empty(device).to_vec()].concat() {
        for (width, count) in [(1, 1), (5, 3), (3, 1), (2, 4)] {
            let up = |seed, rows, cols| upload(device, seed, (rows, cols), DType::F64);
            let inputs = [up(1, graph.num_src(), width), up(2, graph.num_edges(), count)];
            check(device, &inputs, &[], |tape, x| many_sums(tape, &graph, &x[0], &x[1])).unwrap();
        }
    }
}

fn equals_sums_one_by_one(device: &Device) {
    let (graph, count) = (with_hub(device), 3);
    for (dtype, d, within) in [(DType::F64, 5, 1e-12), (DType::F32, 16, 1e-4), (DType::Bf16, 8, 0.2)] {
        let mut tape = Tape::new(device);
        let x = tape.constant(upload(device, 1, (graph.num_src(), d), dtype));
        let w = tape.constant(upload(device, 2, (graph.num_edges(), count), dtype.compute()));
        let all = many_sums(&mut tape, &graph, &x, &w).unwrap();
        for k in 0..count {
            let one = columns(&mut tape, &w, k..k + 1).unwrap();
            let expected = aggregate(&mut tape, &graph, &x, Reduction::Sum, WeightVar::PerEdge(&one)).unwrap();
            let found = columns(&mut tape, &all, k * d..(k + 1) * d).unwrap();
            let (found, expected) = (f64s(found.value()), f64s(expected.value()));
            let far = found.iter().zip(&expected).find(|(a, b)| (*a - *b).abs() > within * b.abs().max(1.0));
            assert_eq!(far, None, "{dtype:?}, sum {k}");
        }
    }
}

fn is_added_to_what_is_there(device: &Device) {
    let graph = small(device);
    let (d, count) = (3, 2);
    let x = upload(device, 1, (graph.num_src(), d), DType::F64);
    let weights = upload(device, 2, (graph.num_edges(), count), DType::F64);
    let g = upload(device, 3, (graph.num_dst(), count * d), DType::F64);
    for (along, x, shape) in
        [(Along::Edges, &x, (graph.num_dst(), count * d)), (Along::Transpose, &g, (graph.num_src(), d))]
    {
        let sums = ManySums { graph: &graph, weights: &weights, along, x };
        let run = |write| {
            let mut out = upload(device, 4, shape, DType::F64);
            device.backend().many_sums(&sums, &mut out, write).unwrap();
            f64s(&out)
        };
        let (set, added, before) = (run(Write::Set), run(Write::Add), f64s(&upload(device, 4, shape, DType::F64)));
        assert!(set.iter().zip(&before).zip(&added).all(|((a, b), sum)| (a + b - sum).abs() < 1e-12));
        let mut short = upload(device, 4, (shape.0, shape.1 + 1), DType::F64);
        assert!(device.backend().many_sums(&sums, &mut short, Write::Set).is_err());
    }
}
