//! A source that stands for k nodes counts as k parallel edges from it do: outputs and gradients of whole models.

#![allow(clippy::unwrap_used, clippy::expect_used)] // Helpers of tests.

use std::rc::Rc;

use graphweft_graph::Csr;
use graphweft_model::{Context, Features, Mode, ModelConfig, Rates, Remat, Shape};
use graphweft_parallel::Local;
use graphweft_tensor::ops::loss::{LossRows, softmax_cross_entropy};
use graphweft_tensor::{DType, Device, Ids, Tag, Tape};

const N: usize = 40;
const FEATURES: usize = 6;
const CLASSES: usize = 3;

/// Every source k of a row `times(k)` times.
fn graph(times: impl Fn(u32) -> usize) -> Csr<u32> {
    let (mut indptr, mut indices) = (vec![0u64], Vec::new());
    for i in 0..N as u32 {
        let mut row: Vec<u32> = (0..i % 7).map(|k| (i * 5 + k * 13) % N as u32).chain([i]).collect();
        row.sort_unstable();
        row.dedup();
        indices.extend(row.iter().flat_map(|j| std::iter::repeat_n(*j, times(*j))));
        indptr.push(indices.len() as u64);
    }
    Csr::new(indptr, indices, N).unwrap()
}

/// Logits, the loss and all gradients.
fn run(model: &str, csr: Csr<u32>, degrees: &[u32], scales: Option<&[f32]>) -> Vec<Vec<f64>> {
    let (device, config): (_, ModelConfig) = (Device::cpu(), toml::from_str(model).unwrap());
    let ops = Local::cut(&device, csr, None, Ids::Same, degrees, scales).unwrap();
    let shape = Shape::of_nodes(FEATURES, CLASSES);
    let network = config.build(&device, shape, DType::F64, 3).unwrap();
    let x: Vec<f64> = (0..N * FEATURES).map(|k| ((k * 37 % 101) as f64 - 50.0) / 50.0).collect();
    let context = Context {
        ops: Rc::new(ops),
        features: Features::Dense(device.upload(N, FEATURES, &x, Tag::Graph).unwrap()),
        positional: None,
        graphs: None,
        types: None,
        mode: Mode::Train,
        seed: 5,
        epoch: 1,
        rates: Rates::default(),
        remat: Remat::None,
        dtype: DType::F64,
    };
    let mut tape = Tape::new(&device);
    let logits = network.forward(&mut tape, &context).unwrap().expect("a model has layers");
    let rows = LossRows::new((0..N as u32).collect::<Vec<_>>()).unwrap();
    let labels: Rc<[i64]> = (0..N).map(|k| (k % CLASSES) as i64).collect();
    let loss = softmax_cross_entropy(&mut tape, &logits, &labels, &rows, 0.0, N as f64).unwrap();
    let mut all = vec![logits.value().to_vec::<f64>().unwrap(), loss.value().to_vec::<f64>().unwrap()];
    let one = device.upload(1, 1, &[1.0f64], Tag::Workspace).unwrap();
    tape.backward(vec![(loss, one)], &[], |_| Ok(())).unwrap();
    all.extend(network.parameters().iter().filter_map(|p| Some(p.take_grad()?.to_vec::<f64>().unwrap())));
    all
}

#[test]
fn a_source_that_stands_for_many_is_as_many_edges() {
    // Powers of two: their logarithms are what exp undoes to the last bits.
    let times = |k: u32| [1, 2, 4][k as usize % 3];
    let scales: Vec<f32> = (0..N as u32).map(|k| times(k) as f32).collect();
    let many = graph(times);
    let degrees: Vec<u32> = (0..N).map(|i| many.degree(i) as u32).collect();
    for model in [
        "name = 'gcn'\nhidden = 8",
        "name = 'sage'\nhidden = 8",
        "name = 'sage'\nhidden = 8\naggregation = 'max'",
        "name = 'gin'\nhidden = 8",
        "name = 'gt'\nhidden = 8\nlayers = 2\nheads = 2",
        "name = 'gat'\nhidden = 8\nheads = 2",
        "name = 'gatv2'\nhidden = 8\nheads = 2",
    ] {
        let expected = run(model, many.clone(), &degrees, None);
        let found = run(model, graph(|_| 1), &degrees, Some(&scales));
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(&expected) {
            let apart = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            // ln 2 has the precision of f32.
            assert!(apart < 1e-6, "{model}: {apart}");
        }
        let plain = run(model, graph(|_| 1), &degrees, None);
        let differs = plain[0].iter().zip(&found[0]).any(|(a, b)| (a - b).abs() > 1e-3);
        assert!(differs || model.contains("max"), "{model}: scales change nothing");
    }
}
