use std::ops::Range;

use super::*;
use crate::cpu::{Cpu, Isa};
use crate::dry::tests::takes_as_much;
use crate::gradcheck::{check, numbers};
use crate::ops::graphs::{blocks, dropout, empty, f64s, near, rows_of, small, upload, with_hub};
use crate::ops::tests::on_every_device;
use crate::random::Ids;

on_every_device!(
    gradients,
    gradients_with_bias_and_dropout,
    equals_dense_softmax_in_f64,
    block_by_block_is_the_same,
    blocks_without_edges_or_rows
);

fn gradients(device: &Device) {
    let graph = small(device);
    let upload = |seed, r, c| device.upload(r, c, &numbers(seed, r * c), Tag::Activations).unwrap();
    for heads in [1, 2, 3] {
        let inputs = [upload(1, 5, 6), upload(2, 6, 12)];
        check(device, &inputs, &[], |tape, x| {
            attention(tape, &graph, heads, Score::Dot { q: &x[0], kv: &x[1] }, Bias::None, None, None)
        })
        .unwrap();
    }
}

fn gradients_with_bias_and_dropout(device: &Device) {
    let graph = small(device);
    let upload = |seed, r, c| device.upload(r, c, &numbers(seed, r * c), Tag::Activations).unwrap();
    let (edges, heads) = (graph.num_edges(), 2);
    let feat = upload(4, edges, 3);
    for drop in [None, Some(dropout(&graph))] {
        let inputs = [upload(1, 5, 6), upload(2, 6, 12), upload(3, edges, heads)];
        check(device, &inputs, &[], |tape, x| {
            attention(tape, &graph, heads, Score::Dot { q: &x[0], kv: &x[1] }, Bias::PerEdge(&x[2]), None, drop.clone())
        })
        .unwrap();
        let inputs = [upload(1, 5, 6), upload(2, 6, 12), upload(3, heads, 3)];
        check(device, &inputs, &[], |tape, x| {
            let bias = Bias::Features { feat: &feat, weight: &x[2] };
            attention(tape, &graph, heads, Score::Dot { q: &x[0], kv: &x[1] }, bias, None, drop.clone())
        })
        .unwrap();
    }
}

fn equals_dense_softmax_in_f64(device: &Device) {
    let (graph, heads, w) = (small(device), 2, 3);
    let (d, n) = (heads * w, graph.num_dst());
    let (q, kv) = (numbers(1, n * d), numbers(2, graph.num_src() * 2 * d));
    let up = |rows, cols, x: &[f64]| device.upload(rows, cols, x, Tag::Activations).unwrap();
    let mut tape = Tape::new(device);
    let (qv, kvv) = (tape.leaf(up(n, d, &q)), tape.leaf(up(graph.num_src(), 2 * d, &kv)));
    let out = attention(&mut tape, &graph, heads, Score::Dot { q: &qv, kv: &kvv }, Bias::None, None, None)
        .unwrap()
        .value()
        .to_vec::<f64>()
        .unwrap();
    for i in 0..n {
        for h in 0..heads {
            let score = |j: usize| (0..w).map(|c| q[i * d + h * w + c] * kv[j * 2 * d + h * w + c]).sum::<f64>();
            let weights: Vec<(usize, f64)> = graph
                .forward
                .csr
                .row(i)
                .iter()
                .map(|&j| (j as usize, (score(j as usize) / (w as f64).sqrt()).exp()))
                .collect();
            let total: f64 = weights.iter().map(|(_, p)| p).sum();
            for c in 0..w {
                let sum: f64 = weights.iter().map(|(j, p)| p / total * kv[j * 2 * d + d + h * w + c]).sum();
                assert!((out[i * d + h * w + c] - sum).abs() < 1e-12);
            }
        }
    }
}

/// What edges bring of their own.
#[derive(Clone, Copy)]
enum Edges {
    Plain,
    /// A bias from features, and dropout.
    WithExtras,
}
use Edges::{Plain, WithExtras};

/// The types of q and of kv.
#[derive(Clone, Copy)]
struct Types {
    q: DType,
    kv: DType,
}

/// Heads and the width of one.
type Heads = [usize; 2];

/// out, dq, dkv and the bias's gradient on the graph with a hub.
fn run(device: &Device, heads: Heads, types: Types, edges: Edges) -> Vec<Vec<f64>> {
    rounded(device, heads, types, types, edges)
}

/// The same in f64, of the numbers that those types hold.
fn exactly(heads: Heads, given: Types, edges: Edges) -> Vec<Vec<f64>> {
    rounded(&Device::cpu(), heads, given, Types { q: DType::F64, kv: DType::F64 }, edges)
}

/// The same of numbers that are rounded to the types of `given` first.
fn rounded(device: &Device, [heads, width]: Heads, given: Types, types: Types, extras: Edges) -> Vec<Vec<f64>> {
    let graph = with_hub(device);
    let (n, d) = (graph.num_dst(), heads * width);
    let upload = |(rows, cols), x: &[f64], given, dtype| {
        let m = device.upload(rows, cols, x, Tag::Activations).unwrap();
        device.convert("test", &device.convert("test", &m, given).unwrap(), dtype).unwrap()
    };
    let of_rows = |seed, cols, given, dtype| {
        let x: Vec<f64> = numbers(seed, n * cols).iter().map(|x| 2.0 * x).collect();
        upload((n, cols), &x, given, dtype)
    };
    let mut tape = Tape::new(device);
    let q = tape.leaf(of_rows(1, d, given.q, types.q));
    let kv = tape.leaf(of_rows(2, 2 * d, given.kv, types.kv));
    let (exact, compute, edges) = (given.q.compute(), types.q.compute(), graph.num_edges());
    let weight = tape.leaf(upload((heads, 2), &numbers(5, 2 * heads), exact, compute));
    let feat = upload((edges, 2), &numbers(6, 2 * edges), exact, compute);
    let (bias, drop) = match extras {
        WithExtras => (Bias::Features { feat: &feat, weight: &weight }, Some(dropout(&graph))),
        Plain => (Bias::None, None),
    };
    let out = attention(&mut tape, &graph, heads, Score::Dot { q: &q, kv: &kv }, bias, None, drop).unwrap();
    let value = out.value().clone();
    let gradient = of_rows(3, d, given.q, types.q);
    let found = tape.backward(vec![(out, gradient)], &[&q, &kv, &weight], |_| Ok(())).unwrap();
    let f64s = |m: &Matrix| device.convert("test", m, DType::F64).unwrap().to_vec::<f64>().unwrap();
    std::iter::once(&value).chain(found.iter().flatten()).map(f64s).collect()
}

#[test]
fn every_instruction_set_and_type_agrees_with_f64() {
    use DType::{Bf16, F32, F64};
    let shapes = [[8, 16], [16, 16], [3, 8], [1, 32], [2, 5], [5, 16], [9, 8]];
    for ([heads, width], extras) in shapes.into_iter().flat_map(|s| [(s, Plain), (s, WithExtras)]) {
        for (q, kv) in [(F64, F64), (F32, F32), (F32, Bf16), (Bf16, Bf16)] {
            let what = format!("{heads}×{width} {q} {kv}");
            takes_as_much(&what, |device| run(device, [heads, width], Types { q, kv }, extras));
        }
        for (q, kv) in [(F32, F32), (F32, Bf16), (Bf16, Bf16)] {
            let exact = exactly([heads, width], Types { q, kv }, extras);
            for isa in [Isa::Portable, Isa::Avx2, Isa::Avx512, Isa::Avx512Bf16] {
                // Portable code adds up the hub's 20,000 edges one after another.
                let single = if isa == Isa::Portable || width % 8 != 0 { 5e-5 } else { 2e-5 };
                let tolerance = if kv == F32 { single } else { 2e-2 };
                let device = Device::with_backend(Box::new(Cpu::with_isa(isa)));
                let found = run(&device, [heads, width], Types { q, kv }, extras);
                agree(&found, &exact, tolerance, &format!("{heads}×{width} {isa} {q} {kv}"));
            }
        }
    }
}

fn agree(found: &[Vec<f64>], exact: &[Vec<f64>], tolerance: f64, what: &str) {
    for (name, (x, e)) in ["out", "dq", "dkv", "dweight"].iter().zip(found.iter().zip(exact)) {
        near(x, e, tolerance, &format!("{what} {name}"));
    }
}

#[cfg(feature = "cuda")]
#[test]
#[ignore = "needs a GPU"]
fn a_gpu_agrees_with_f64() {
    use DType::{Bf16, F32, F64};
    let usual = [[8, 16], [16, 16], [3, 8], [1, 32], [2, 5], [5, 16], [9, 8]];
    let shapes = usual.into_iter().chain([[32, 8], [1, 1], [4, 128], [2, 96], [12, 64], [3, 40], [1, 300]]);
    let case = |[heads, width]: Heads, extras| {
        let device = crate::ops::tests::gpu();
        for (q, kv, tolerance) in [(F64, F64, 1e-11), (F32, F32, 5e-5), (F32, Bf16, 2e-2), (Bf16, Bf16, 2e-2)] {
            let found = run(&device, [heads, width], Types { q, kv }, extras);
            let exact = exactly([heads, width], Types { q, kv }, extras);
            agree(&found, &exact, tolerance, &format!("{heads}×{width} {q} {kv}"));
            let again = run(&device, [heads, width], Types { q, kv }, extras);
            assert!(found == again, "{heads}×{width} {q} {kv}: other bits the second time");
        }
    };
    // Side by side: most of the time goes to compiling kernels.
    std::thread::scope(|scope| {
        for (shape, extras) in shapes.flat_map(|s| [(s, Plain), (s, WithExtras)]) {
            scope.spawn(move || case(shape, extras));
        }
    });
}

#[test]
fn the_same_bits_for_any_number_of_threads() {
    let run = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| run(&Device::cpu(), [8, 16], Types { q: DType::F32, kv: DType::F32 }, WithExtras))
    };
    let one = run(1);
    assert!(one == run(2) && one == run(3));
}

#[test]
fn memory_beyond_the_operands_is_one_number_per_node_and_head() {
    edge_tests::adds_a_number_per_node_and_head(None);
}

/// One of each score, with 2 heads of width `w`.
fn scores(device: &Device, n: usize, heads: usize, w: usize, dtype: DType) -> [Score<Matrix>; 4] {
    let up = |seed, rows, cols, dtype| upload(device, seed, (rows, cols), dtype);
    let (d, c) = (heads * w, dtype.compute());
    let gatv2 =
        |value| Score::Gatv2 { l: up(1, n, d, dtype), r: up(2, n, d, dtype), value, a: up(3, heads, w, c), slope: 0.2 };
    [
        Score::Dot { q: up(1, n, d, dtype), kv: up(2, n, 2 * d, dtype) },
        Score::Gat { l: up(1, n, heads, c), r: up(2, n, heads, c), z: up(3, n, d, dtype), slope: 0.2 },
        gatv2(None),
        gatv2(Some(up(4, n, d, dtype))),
    ]
}

/// The score of a block that has only these sources.
fn restricted(score: &Score<Matrix>, sources: &Range<usize>) -> Score<Matrix> {
    let some = |m: &Matrix| rows_of(m, sources.clone());
    match score {
        Score::Dot { q, kv } => Score::Dot { q: q.clone(), kv: some(kv) },
        Score::Gat { l, r, z, slope } => Score::Gat { l: l.clone(), r: some(r), z: some(z), slope: *slope },
        Score::Gatv2 { l, r, value, a, slope } => {
            Score::Gatv2 { l: l.clone(), r: some(r), value: value.as_ref().map(some), a: a.clone(), slope: *slope }
        }
    }
}

/// What both passes of backward give: by destination, shared, bias; by source, values.
fn backward(call: &Call, out: &Matrix, lse: &Matrix) -> ([Matrix; 3], Vec<Matrix>) {
    let a = call.operands();
    let device = out.device();
    let zeros = |m: &Matrix| device.zeros("test", m.rows(), m.cols(), m.dtype(), Tag::Activations).unwrap();
    let g = upload(device, 7, out.shape(), out.dtype());
    let mut d = zeros(lse);
    device.backend().attention_d(a.heads, &g, out, &mut d).unwrap();
    let saved = Saved { lse, g: &g, d: &d };
    let Operands { dst, src, value, shared } = a.score.operands();
    let Bias::PerEdge(bias) = a.bias else { panic!("with a bias") };
    let (mut row, mut dshared, mut dbias) = (zeros(dst), zeros(shared.unwrap_or(lse)), zeros(bias));
    let shared = shared.map(|_| &mut dshared);
    let to = DstGrads { row: &mut row, write: Write::Add, shared, bias: Some(&mut dbias), edge_weight: None };
    device.backend().attention_dst(&a, &saved, to).unwrap();
    let (mut by_src, mut dvalue) = (zeros(src), value.map(zeros));
    device.backend().attention_src(&a, &saved, SrcGrads { row: &mut by_src, value: dvalue.as_mut() }).unwrap();
    ([row, dshared, dbias], std::iter::once(by_src).chain(dvalue).collect())
}

fn block_by_block_is_the_same(device: &Device) {
    for (heads, w, dtype, tolerance) in [
        (2, 3, DType::F64, 1e-12),
        (2, 16, DType::F32, 2e-5),
        (16, 16, DType::F32, 2e-5),
        (8, 16, DType::Bf16, 4e-2),
        (2, 5, DType::F32, 5e-5),
    ] {
        let graph = with_hub(device);
        let (n, d) = (graph.num_dst(), heads * w);
        let drop = dropout(&graph);
        let bias = upload(device, 9, (graph.num_edges(), heads), dtype.compute());
        let new = |cols, dtype| device.uninit("test", n, cols, dtype, Tag::Activations).unwrap();
        for score in scores(device, n, heads, w, dtype) {
            let cut: Vec<Call> = blocks(device, &graph, 77)
                .into_iter()
                .map(|(block, first, edges)| {
                    let sources = first..first + block.num_src();
                    let ids = sources.clone().map(|j| drop.src.view().of(j)).collect();
                    Call {
                        graph: block,
                        heads,
                        score: restricted(&score, &sources),
                        bias: Bias::PerEdge(rows_of(&bias, edges)),
                        edges: None,
                        edge_weight: None,
                        dropout: Some(EdgeDropout { src: Ids::Listed(ids), ..drop.clone() }),
                    }
                })
                .collect();
            let bias = Bias::PerEdge(bias.clone());
            let dropout = Some(drop.clone());
            let whole = Call { graph: graph.clone(), heads, score, bias, edges: None, edge_weight: None, dropout };
            let c = dtype.compute();
            let (mut out, mut lse, mut out2, mut lse2) = (new(d, dtype), new(heads, c), new(d, dtype), new(heads, c));
            device.backend().attention(&whole.operands(), &mut out, &mut lse).unwrap();
            let start: Vec<f64> = (0..n * (2 * heads + d))
                .map(|k| if k % (2 * heads + d) < heads { f64::NEG_INFINITY } else { 0.0 })
                .collect();
            let state = device.upload(n, 2 * heads + d, &start, Tag::Activations).unwrap();
            let mut state = device.convert("test", &state, c).unwrap();
            for call in &cut {
                device.backend().attention_fold(&call.operands(), &mut state).unwrap();
            }
            device.backend().attention_finish(heads, &state, &mut out2, &mut lse2).unwrap();
            near(&f64s(&out2), &f64s(&out), tolerance, "out");
            let finite = |m: &Matrix| f64s(m).into_iter().filter(|x| x.is_finite()).collect::<Vec<_>>();
            near(&finite(&lse2), &finite(&lse), tolerance, "lse");

            let ([row, shared, _], by_src) = backward(&whole, &out, &lse);
            let parts: Vec<_> = cut.iter().map(|call| backward(call, &out, &lse)).collect();
            let sum = |k: usize| {
                parts
                    .iter()
                    .map(|p| f64s(&p.0[k]))
                    .reduce(|a, b| a.iter().zip(b).map(|(a, b)| a + b).collect())
                    .unwrap()
            };
            near(&sum(0), &f64s(&row), 2.0 * tolerance, "by destination");
            near(&sum(1), &f64s(&shared), 2.0 * tolerance, "shared");
            for (k, by_src) in by_src.iter().enumerate() {
                let parts: Vec<f64> = parts.iter().flat_map(|p| f64s(&p.1[k])).collect();
                near(&parts, &f64s(by_src), 2.0 * tolerance, "by source");
            }
        }
    }
}

fn blocks_without_edges_or_rows(device: &Device) {
    for (graph, dtype) in empty(device).into_iter().flat_map(|g| [(g.clone(), DType::F32), (g, DType::F64)]) {
        let mut tape = Tape::new(device);
        let mut leaf = |rows, cols| tape.leaf(upload(device, 1, (rows, cols), dtype));
        let (q, kv) = (leaf(graph.num_dst(), 16), leaf(graph.num_src(), 32));
        let out = attention(&mut tape, &graph, 1, Score::Dot { q: &q, kv: &kv }, Bias::None, None, None).unwrap();
        assert!(f64s(out.value()).iter().all(|x| *x == 0.0));
        let g = upload(device, 2, out.value().shape(), dtype);
        for found in tape.backward(vec![(out, g)], &[&q, &kv], |_| Ok(())).unwrap() {
            assert!(f64s(&found.unwrap()).iter().all(|x| *x == 0.0));
        }
    }
}
