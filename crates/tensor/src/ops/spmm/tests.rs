use super::*;
use crate::device::Device;
use crate::gradcheck::check;
use crate::ops::graphs::InputType::{Computed, Stored};
use crate::ops::graphs::{
    Case, blocks, cases_agree_with_f64, empty, f64s, near, renumbered, same_bits_for_any_number_of_threads, small,
    upload, with_hub,
};
use crate::ops::tests::on_every_device;

on_every_device!(
    gradients,
    equals_a_dense_product_in_f64,
    the_smallest_original_id_wins_among_equals,
    block_by_block_is_the_same,
    gradients_are_added_to_what_is_there,
    nonsense_is_refused,
    a_nan_is_the_maximum
);

/// Every reduction and weight, by number.
const MODES: usize = 7;

fn mode(tape: &mut Tape, graph: &Rc<Adjacency>, x: &[Var], mode: usize) -> Result<Var> {
    let factors = |rows| upload(tape.device(), 9, (rows, 1), x[0].value().dtype().compute());
    let (dst, src) = (factors(graph.num_dst()), factors(graph.num_src()));
    let factors = WeightVar::Factors { dst: &dst, src: &src };
    let (reduction, weight) = match mode {
        0 => (Reduction::Sum, WeightVar::None),
        1 => (Reduction::Sum, WeightVar::PerEdge(&x[1])),
        2 => (Reduction::Sum, factors),
        3 => (Reduction::Mean, WeightVar::None),
        4 => (Reduction::Mean, WeightVar::PerEdge(&x[1])),
        5 => (Reduction::Mean, factors),
        _ => (Reduction::Max(renumbered(graph.num_src())), WeightVar::None),
    };
    aggregate(tape, graph, &x[0], reduction, weight)
}

fn gradients(device: &Device) {
    for graph in [vec![small(device)], empty(device).to_vec()].concat() {
        for (k, width) in (0..MODES).flat_map(|k| [(k, 1), (k, 5)]) {
            let up = |seed, rows, cols| upload(device, seed, (rows, cols), DType::F64);
            let inputs = [up(1, graph.num_src(), width), up(2, graph.num_edges(), 1)];
            check(device, &inputs, &[], |tape, x| mode(tape, &graph, x, k)).unwrap();
        }
    }
}

/// W as a dense matrix.
fn dense(graph: &Adjacency, edge: &[f64], dst: &[f64], src: &[f64]) -> Vec<f64> {
    let mut w = vec![0.0; graph.num_dst() * graph.num_src()];
    for i in 0..graph.num_dst() {
        for e in graph.forward.csr.edges_of(i) {
            let j = graph.forward.csr.indices()[e] as usize;
            w[i * graph.num_src() + j] += edge[e] * dst[i] * src[j];
        }
    }
    w
}

fn equals_a_dense_product_in_f64(device: &Device) {
    let (graph, d) = (with_hub(device), 3);
    let (n, edges) = (graph.num_dst(), graph.num_edges());
    let x = upload(device, 1, (n, d), DType::F64);
    let factors = f64s(&upload(device, 9, (n, 1), DType::F64));
    let per_edge = f64s(&upload(device, 2, (edges, 1), DType::F64));
    let mean: Vec<f64> = (0..n).map(|i| 1.0 / graph.forward.csr.degree(i).max(1) as f64).collect();
    let both: Vec<f64> = mean.iter().zip(&factors).map(|(a, b)| a * b).collect();
    let (ones, one) = (vec![1.0; edges], vec![1.0; n]);
    let matrices = [
        dense(&graph, &ones, &one, &one),
        dense(&graph, &per_edge, &one, &one),
        dense(&graph, &ones, &factors, &factors),
        dense(&graph, &ones, &mean, &one),
        dense(&graph, &per_edge, &mean, &one),
        dense(&graph, &ones, &both, &factors),
    ];
    for (k, w) in matrices.iter().enumerate() {
        let mut tape = Tape::new(device);
        let vars = [tape.leaf(x.clone()), tape.leaf(upload(device, 2, (edges, 1), DType::F64))];
        let out = mode(&mut tape, &graph, &vars, k).unwrap();
        let rows = f64s(&x);
        let expected: Vec<f64> =
            (0..n * d).map(|at| (0..n).map(|j| w[at / d * n + j] * rows[j * d + at % d]).sum()).collect();
        near(&f64s(out.value()), &expected, 1e-12, &format!("mode {k}"));
    }
}

fn the_smallest_original_id_wins_among_equals(device: &Device) {
    let graph = small(device);
    // Renumbered ids descend, so the last source wins; sources 0 and 5 are equal in column 0, all in column 1.
    let x: Vec<f32> = [7.0, 1.0, 2.0, 3.0, 4.0, 7.0].iter().flat_map(|x| [*x, 1.0]).collect();
    for (ids, row, first, second) in [
        (Ids::Same, 4, 0, 0),
        (renumbered(6), 4, 5, 5),
        (renumbered(6), 0, 0, 1),
        (Ids::Same, 0, 0, 0),
        (Ids::Same, 3, 0, 0),
        (renumbered(6), 3, 5, 5),
    ] {
        let mut tape = Tape::new(device);
        let x = tape.leaf(device.upload(6, 2, &x, Tag::Activations).unwrap());
        let out = aggregate(&mut tape, &graph, &x, Reduction::Max(ids), WeightVar::None).unwrap();
        let mut g = [0f32; 10];
        g[2 * row..2 * row + 2].fill(1.0);
        let g = device.upload(5, 2, &g, Tag::Activations).unwrap();
        let found = tape.backward(vec![(out, g)], &[&x], |_| Ok(())).unwrap();
        let mut expected = [0f32; 12];
        expected[2 * first] = 1.0;
        expected[2 * second + 1] = 1.0;
        assert_eq!(found[0].as_ref().unwrap().to_vec::<f32>().unwrap(), expected);
    }
}

/// With tolerances for f32 and bf16.
fn cases(check: impl Fn(&Case<'_>, &str, f64, f64)) {
    let edges = with_hub(&Device::cpu()).num_edges();
    for (k, width) in (0..MODES).flat_map(|k| [1, 5, 8, 13, 16, 47, 128, 260].map(|w| (k, w))) {
        let case = Case {
            graph: &with_hub,
            inputs: &[(300, width, Stored), (edges, 1, Computed)],
            f: &|tape, graph, x| mode(tape, graph, x, k),
        };
        // The hub adds up 20,000 numbers of both signs.
        check(&case, &format!("mode {k}, width {width}:"), 5e-5, 1e-2);
    }
}

cases_agree_with_f64!(cases);

#[test]
fn the_same_bits_for_any_number_of_threads() {
    for k in 0..MODES {
        let run = || {
            let edges = with_hub(&Device::cpu()).num_edges();
            let inputs = &[(300, 21, Stored), (edges, 1, Computed)];
            let f = &|tape: &mut Tape, graph: &_, x: &[Var]| mode(tape, graph, x, k);
            Case { graph: &with_hub, inputs, f }.run(&Device::cpu(), DType::F32)
        };
        same_bits_for_any_number_of_threads(run, &format!("mode {k}"));
    }
}

fn block_by_block_is_the_same(device: &Device) {
    for (dtype, tolerance) in [(DType::F64, 1e-12), (DType::F32, 1e-5)] {
        let (graph, d) = (with_hub(device), 21);
        let n = graph.num_dst();
        let x = upload(device, 1, (n, d), dtype);
        let new = || device.zeros(OP, n, d, dtype, Tag::Activations).unwrap();
        let (mut whole, mut sum, mut parts) = (new(), new(), new());
        let ids = |first: usize, rows: usize| Ids::Listed((first..first + rows).map(|j| 999 - j as u64).collect());
        let mut arg = device.zeros(OP, n, d, DType::F32, Tag::Activations).unwrap();
        let mut args = device.zeros(OP, n, d, DType::F32, Tag::Activations).unwrap();
        let backend = device.backend();
        let weights = EdgeWeights::default();
        backend.spmm(&Spmm { graph: &graph, weights, along: Along::Edges, x: &x }, &mut whole, Write::Set).unwrap();
        for (block, first, _) in blocks(device, &graph, 77) {
            let rows = block.num_src();
            let some: Vec<f64> = f64s(&x)[first * d..(first + rows) * d].to_vec();
            let some = device.upload(rows, d, &some, Tag::Activations).unwrap();
            let x = &device.convert(OP, &some, dtype).unwrap();
            backend.spmm(&Spmm { graph: &block, weights, along: Along::Edges, x }, &mut sum, Write::Add).unwrap();
            let write = if first == 0 { Write::Set } else { Write::Add };
            let ids = ids(first, rows);
            backend.spmm_max(&SpmmMax { graph: &block, x, ids: &ids }, &mut parts, &mut args, write).unwrap();
        }
        near(&f64s(&sum), &f64s(&whole), tolerance, "sum");
        let all = ids(0, n);
        backend.spmm_max(&SpmmMax { graph: &graph, x: &x, ids: &all }, &mut whole, &mut arg, Write::Set).unwrap();
        assert_eq!(f64s(&parts), f64s(&whole));
        assert_eq!(
            bytemuck::cast_vec::<f32, u32>(args.to_vec().unwrap()),
            bytemuck::cast_vec::<f32, u32>(arg.to_vec().unwrap())
        );
        let g = upload(device, 3, (n, d), dtype);
        let mut dx = new();
        let gradient = MaxGradient { graph: &graph, ids: &all, arg: &arg, g: &g };
        backend.spmm_max_dx(&gradient, &mut dx, Write::Set).unwrap();
        for (block, first, _) in blocks(device, &graph, 77) {
            let rows = block.num_src();
            let mut part = device.uninit(OP, rows, d, dtype, Tag::Activations).unwrap();
            let gradient = MaxGradient { graph: &block, ids: &ids(first, rows), arg: &args, g: &g };
            backend.spmm_max_dx(&gradient, &mut part, Write::Set).unwrap();
            near(&f64s(&part), &f64s(&dx)[first * d..(first + rows) * d], tolerance, "dx");
        }
    }
}

fn gradients_are_added_to_what_is_there(device: &Device) {
    for (k, dtype) in (0..MODES).flat_map(|k| [(k, DType::F64), (k, DType::F32)]) {
        let graph = with_hub(device);
        let gradient = |times: usize| {
            let mut tape = Tape::new(device);
            let x = tape.leaf(upload(device, 1, (300, 21), dtype));
            let weight = tape.leaf(upload(device, 2, (graph.num_edges(), 1), dtype));
            let vars = [x, weight];
            let outs: Vec<Var> = (0..times).map(|_| mode(&mut tape, &graph, &vars, k).unwrap()).collect();
            let g = upload(device, 3, (300, 21), dtype);
            let outs = outs.into_iter().map(|o| (o, g.clone())).collect();
            f64s(tape.backward(outs, &[&vars[0]], |_| Ok(())).unwrap()[0].as_ref().unwrap())
        };
        let twice: Vec<f64> = gradient(1).iter().map(|x| 2.0 * x).collect();
        near(&gradient(2), &twice, 1e-6, &format!("mode {k}"));
    }
}

fn nonsense_is_refused(device: &Device) {
    let graph = small(device);
    let mut tape = Tape::new(device);
    let mut leaf = |rows, cols| tape.leaf(upload(device, 1, (rows, cols), DType::F32));
    let (good, short, weight) = (leaf(6, 2), leaf(5, 2), leaf(12, 1));
    let mut run = |x: &Var, reduction, weight| aggregate(&mut tape, &graph, x, reduction, weight);
    assert!(run(&good, Reduction::Sum, WeightVar::PerEdge(&weight)).is_ok());
    assert!(run(&short, Reduction::Sum, WeightVar::None).is_err());
    assert!(run(&good, Reduction::Sum, WeightVar::PerEdge(&short)).is_err());
    assert!(run(&good, Reduction::Max(Ids::Same), WeightVar::PerEdge(&weight)).is_err());
    let large = Ids::Listed((0..6).map(|k| k << 32).collect());
    assert!(run(&good, Reduction::Max(large), WeightVar::None).is_err());
    assert!(run(&good, Reduction::Max(renumbered(5)), WeightVar::None).is_err());
}

fn a_nan_is_the_maximum(device: &Device) {
    let graph = small(device);
    for width in [1, 16] {
        let x: Vec<f32> = (0..6 * width).map(|k| if k / width == 2 { f32::NAN } else { 1.0 }).collect();
        let mut tape = Tape::new(device);
        let x = tape.leaf(device.upload(6, width, &x, Tag::Activations).unwrap());
        let out = aggregate(&mut tape, &graph, &x, Reduction::Max(Ids::Same), WeightVar::None).unwrap();
        let out = out.value().to_vec::<f32>().unwrap();
        let found: Vec<bool> = out.chunks(width).map(|row| row.iter().all(|x| x.is_nan())).collect();
        assert_eq!(found, [false, false, true, false, true]);
    }
}
