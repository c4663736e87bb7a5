//! The same operations on the CPU and on a GPU. Without a GPU these tests are ignored; on a machine that has one, run the test
//! binary with `--include-ignored`.

use std::rc::Rc;

use graphweft_graph::Csr;

use super::Cuda;
use super::compile::{Defines, Source, machine_code};
use crate::adjacency::Adjacency;
use crate::device::Device;
use crate::dtype::DType;
use crate::gradcheck::numbers;
use crate::ledger::Tag;
use crate::ops::activation::Activation;
use crate::ops::attention::{BiasVar, attention};
use crate::ops::linear::{Affine, linear};
use crate::tape::{Parameter, Tape};

fn devices() -> [Device; 2] {
    [Device::cpu(), Device::with_backend(Box::new(Cuda::new(0).unwrap()))]
}

fn floats(seed: u64, len: usize) -> Vec<f32> {
    numbers(seed, len).into_iter().map(|x| x as f32).collect()
}

fn assert_near(a: &[f32], b: &[f32], tolerance: f32) {
    assert_eq!(a.len(), b.len());
    let worst = a.iter().zip(b).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max);
    assert!(worst <= tolerance, "{worst}");
}

#[test]
#[ignore = "needs a GPU"]
fn linear_on_a_gpu_equals_the_cpu() {
    for (rows, k, out) in [(1, 1, 1), (1000, 128, 130), (77, 33, 5)] {
        let results = devices().map(|device| {
            let up = |seed, r, c, tag| device.upload(r, c, &floats(seed, r * c), tag).unwrap();
            let layer = |seed, bias| Affine {
                weight: Parameter::new("w", up(seed, out, k, Tag::Parameters)),
                bias: Some(Parameter::new("b", up(seed + 1, 1, out, Tag::Parameters))).filter(|_| bias),
            };
            let mut tape = Tape::without_gradients(&device);
            let x = tape.constant(up(1, rows, k, Tag::Activations));
            let y = linear(&mut tape, &x, &[layer(2, true), layer(4, false)], Activation::Gelu, DType::F32).unwrap();
            y.value().to_vec::<f32>().unwrap()
        });
        assert_near(&results[0], &results[1], 1e-5);
    }
}

#[test]
#[ignore = "needs a GPU"]
fn attention_on_a_gpu_equals_the_cpu() {
    let mut indptr = vec![0u64];
    let mut indices = Vec::new();
    for i in 0..500u32 {
        let degree = if i == 3 { 9000 } else { i % 19 };
        let mut row: Vec<u32> = (0..degree).map(|k| (i * 31 + k * 17) % 500).collect();
        row.sort_unstable();
        indices.extend(row);
        indptr.push(indices.len() as u64);
    }
    for (heads, d) in [(8, 128), (3, 15), (1, 32)] {
        let results = devices().map(|device| {
            let graph = Rc::new(Adjacency::new(&device, Csr::new(indptr.clone(), indices.clone(), 500).unwrap()));
            let up = |seed, c| device.upload(500, c, &floats(seed, 500 * c), Tag::Activations).unwrap();
            let mut tape = Tape::without_gradients(&device);
            let (q, kv) = (tape.constant(up(1, d)), tape.constant(up(2, 2 * d)));
            let out = attention(&mut tape, &graph, heads, &q, &kv, BiasVar::None, None).unwrap();
            out.value().to_vec::<f32>().unwrap()
        });
        assert_near(&results[0], &results[1], 1e-4);
    }
}

/// Every source with the numbers that it is specialised for, beside the type of the elements.
const SOURCES: &[(&Source, &[&[(&str, usize)]])] = &[(&super::attention::SOURCE, &[&[]]), (&super::linear::SOURCE, &[&[]])];

#[test]
#[cfg_attr(not(nvrtc), ignore = "needs NVRTC, which test.sh installs")]
fn every_kernel_compiles_for_every_architecture() {
    for (source, variants) in SOURCES {
        for (variant, dtype) in variants.iter().flat_map(|v| [DType::F32, DType::F64, DType::Bf16].map(|t| (v, t))) {
            for architecture in [(8, 0), (9, 0)] {
                let defines = variant.iter().fold(Defines::of(dtype), |d, (name, value)| d.with(name, *value));
                if let Err(problem) = machine_code(source, &defines, architecture, None) {
                    panic!("{problem}");
                }
            }
        }
    }
}

#[test]
fn a_missing_gpu_is_an_error_that_says_what_to_do() {
    if let Err(error) = Cuda::new(0) {
        assert!(error.to_string().contains("cuda:0"), "{error}");
    }
}
