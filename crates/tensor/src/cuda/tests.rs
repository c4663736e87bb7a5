//! The same operations on the CPU and on a GPU. Without a GPU these tests are ignored; on a machine that has one, run the test
//! binary with `--include-ignored`.

use std::rc::Rc;

use super::Cuda;
use super::attention::{Passes, Types, Variant};
use super::compile::{Defines, Source, machine_code};
use super::numbers::number;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::Error;
use crate::gradcheck::numbers;
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::ops::activation::Activation;
use crate::ops::attention::{BiasVar, attention};
use crate::ops::attention_blocks::{Block, attention_blocks};
use crate::ops::dropout::{RowDropout, dropout as dropout_of};
use crate::ops::gat::{Gat, gat};
use crate::ops::gatv2::{Gatv2, gatv2};
use crate::ops::graphs::{Case, Function, Kind, dropout, from_rows, renumbered, upload};
use crate::ops::linear::{Affine, linear};
use crate::ops::loss::{LossRows, softmax_cross_entropy};
use crate::ops::spmm::{Reduction, WeightVar, aggregate};
use crate::random::{Dropout, Ids};
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

/// A source with the numbers that it is specialised for, beside the type of the elements.
type Variants = (&'static Source, &'static [&'static [(&'static str, usize)]]);

/// Rows of two shapes: narrow, and wide and not divisible.
const ROWS: [[(&str, usize); 3]; 2] =
    [[("VEC", 2), ("LANES", 16), ("TURNS", 1)], [("VEC", 1), ("LANES", 32), ("TURNS", 17)]];

const SOURCES: &[Variants] = &[
    (&super::address::SOURCE, &[&[]]),
    (&super::blas::SOURCE, &[&[("WIDE", 0)], &[("WIDE", 1)]]),
    (&super::elementwise::SOURCE, &[&[("TARGET", 0)], &[("TARGET", 1)], &[("TARGET", 2)]]),
    (&super::columns::SOURCE, &[&ROWS[0], &ROWS[1]]),
    (&super::global::SOURCE, &[&[]]),
    (&super::head_dot::SOURCE, &[&[]]),
    (&super::loss::SOURCE, &[&[]]),
    (&super::norm::SOURCE, &[&ROWS[0], &ROWS[1]]),
    (&super::optim::SOURCE, &[&[("CHUNK", 4096)]]),
    (&super::optim::SQUARES, &[&[("CHUNK", 4096)]]),
    (&super::parts::SOURCE, &[&[]]),
    (&super::rows::MERGE, &[&[]]),
    (&super::rowwise::SOURCE, &[&ROWS[0], &ROWS[1]]),
];

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

/// A source of operations over edges compiles for its defines.
fn compiles(source: &Source, defines: &Defines) {
    for architecture in [(8, 0), (9, 0)] {
        if let Err(problem) = machine_code(source, defines, architecture, None) {
            panic!("{problem}");
        }
    }
}

#[test]
#[cfg_attr(not(nvrtc), ignore = "needs NVRTC, which test.sh installs")]
fn every_kind_of_attention_compiles() {
    use DType::{Bf16, F32, F64};
    let types = |out, value, dst, src| Types { out, value, dst, src };
    let dot = Variant {
        score: 0,
        types: types(Bf16, Bf16, Bf16, Bf16),
        own_values: false,
        bias: 0,
        features: 1,
        dropout: false,
    };
    let gat = Variant { score: 1, types: types(Bf16, Bf16, F32, F32), ..dot };
    let gatv2 = Variant { score: 2, types: types(F32, Bf16, F32, Bf16), ..dot };
    for (variant, heads, width) in [
        (dot, 8, 16),
        (Variant { bias: 2, features: 3, dropout: true, ..dot }, 9, 8),
        (Variant { types: types(F32, Bf16, F32, Bf16), bias: 1, dropout: true, ..dot }, 3, 40),
        (Variant { types: types(F64, F64, F64, F64), ..dot }, 2, 3),
        (gat, 8, 16),
        (Variant { bias: 1, dropout: true, types: types(F64, F64, F64, F64), ..gat }, 1, 1),
        (gatv2, 4, 32),
        (Variant { own_values: true, bias: 2, features: 70, dropout: true, ..gatv2 }, 2, 5),
    ] {
        compiles(&super::attention::FORWARD, &variant.defines(heads, width, Passes::Forward));
        compiles(&super::attention::BACKWARD, &variant.defines(heads, width, Passes::Backward));
    }
}

#[test]
#[cfg_attr(not(nvrtc), ignore = "needs NVRTC, which test.sh installs")]
fn every_kind_of_aggregation_compiles() {
    use DType::{Bf16, F32, F64};
    for (x, out, columns) in [(F32, F32, 128), (F32, Bf16, 16), (Bf16, F32, 8), (Bf16, Bf16, 47), (F64, F64, 1)] {
        let defines = super::spmm::Shape::new(columns, x.size().min(out.size())).defines(x, out);
        compiles(&super::spmm::SUMS, &defines);
        if x == out {
            compiles(&super::spmm::MAXIMA, &defines);
            compiles(&super::bag::SOURCE, &Defines::of(x));
            compiles(&super::sums::ROWS, &Defines::of(x));
        }
        let defines = Defines::of(x).with("A_TYPE", number(out)).with("B_TYPE", number(x)).with("THREADS", 256);
        compiles(&super::sums::PIECES, &defines);
    }
    let sizes = [256, 20, 6, 0].into_iter().zip(super::floor::SIZES);
    let defines = sizes.fold(Defines::of(F32).with("THREADS", 256), |d, (size, name)| d.with(name, size));
    compiles(&super::floor::SOURCE, &defines);
}

/// Everything over edges once, in cases small enough for compute-sanitizer: hubs whose pieces are merged in two steps, both ways.
#[test]
#[ignore = "needs a GPU"]
fn one_small_case_of_every_kernel_over_edges_on_a_gpu() {
    let graph = |device: &Device| {
        let rows = (0..40u32).map(|i| match i {
            3 => (0..33 * 256).map(|k| if k % 100 == 0 { k % 40 } else { 5 }).collect(),
            i => (0..i % 7).map(|k| (i * 31 + k * 17) % 40).collect(),
        });
        from_rows(device, rows, 40)
    };
    let edges = graph(&Device::cpu()).num_edges();
    let (row, wide) = ((40, 32, Kind::Stored), (40, 64, Kind::Stored));
    let (heads, per_edge) = ((40, 4, Kind::Computed), (edges, 4, Kind::Computed));
    let check = |what: &str, inputs: &[_], f: &Function<'_>| {
        Case { graph: &graph, inputs, f }.agrees_on_a_gpu(what, 5e-5, 3e-2);
    };
    check("dot", &[row, wide, (4, 3, Kind::Computed)], &|tape, graph, x| {
        let feat = upload(tape.device(), 9, (edges, 3), x[2].value().dtype());
        let bias = BiasVar::Features { feat: &feat, weight: &x[2] };
        attention(tape, graph, 4, &x[0], &x[1], bias, Some(dropout(graph)))
    });
    check("gat", &[heads, heads, row, per_edge], &|tape, graph, x| {
        gat(tape, graph, Gat { l: &x[0], r: &x[1], z: &x[2], slope: 0.2 }, BiasVar::PerEdge(&x[3]), None)
    });
    check("gatv2", &[row, row, (4, 8, Kind::Computed)], &|tape, graph, x| {
        gatv2(tape, graph, Gatv2 { l: &x[0], r: &x[1], value: None, a: &x[2], slope: 0.2 }, BiasVar::None, None)
    });
    check("blocks", &[row, wide], &|tape, graph, x| {
        let block = Block { graph, kv: &x[1], bias: BiasVar::None, dropout: None };
        attention_blocks(tape, 4, &x[0], &[block.clone(), block])
    });
    check("mean", &[row, (edges, 1, Kind::Computed)], &|tape, graph, x| {
        aggregate(tape, graph, &x[0], Reduction::Mean, WeightVar::PerEdge(&x[1]))
    });
    check("max", &[row], &|tape, graph, x| {
        aggregate(tape, graph, &x[0], Reduction::Max(renumbered(40)), WeightVar::None)
    });
    let device = crate::ops::tests::gpu();
    let (on_gpu, tables) = (graph(&device), [64, 20, 6].map(|cols| upload(&device, 1, (40, cols), DType::Bf16)));
    device.backend().touch(&on_gpu.forward, &tables.iter().collect::<Vec<_>>()).unwrap();
}

/// What is recorded once gives what computing gives, in every epoch, and takes no memory that somebody else has.
#[test]
#[ignore = "needs a GPU"]
fn recorded_work_on_a_gpu_is_the_same_work() {
    let device = crate::ops::tests::gpu();
    let x = device.upload(50, 40, &floats(1, 2000), Tag::Activations).unwrap();
    let weight = Parameter::new("w", device.upload(24, 40, &floats(2, 24 * 40), Tag::Parameters).unwrap());
    let bias = Parameter::new("b", device.upload(1, 24, &floats(3, 24), Tag::Parameters).unwrap());
    let (labels, rows) = ((0..50).map(|k| k % 24).collect(), LossRows::new((0..50).collect::<Vec<u32>>()).unwrap());
    let work = |epoch: u64| {
        let mut tape = Tape::new(&device);
        let mask = |stream| RowDropout { dropout: Dropout::new(0.5, 7, epoch, 3, stream), ids: Ids::Same };
        let input = tape.constant(x.clone());
        let input = dropout_of(&mut tape, &input, &mask(0))?;
        let affine = Affine { weight: Rc::clone(&weight), bias: Some(Rc::clone(&bias)) };
        let y = linear(&mut tape, &input, &[affine], Activation::Gelu, DType::F32)?;
        let y = dropout_of(&mut tape, &y, &mask(1))?;
        let loss = softmax_cross_entropy(&mut tape, &y, &labels, &rows, 0.0, 50.0)?;
        let value = loss.value().clone();
        tape.start_from(&loss);
        drop((loss, y, input));
        tape.backward(Vec::new(), &[], |_| Ok(()))?;
        Ok::<_, Error>([Some(value), weight.take_grad(), bias.take_grad()].map(Option::unwrap))
    };
    let numbers = |all: &[Matrix; 3]| all.each_ref().map(|m| m.to_vec::<f32>().unwrap());
    let expected: Vec<_> = (0..6).map(|epoch| numbers(&work(epoch).unwrap())).collect();
    assert!(expected[0] != expected[1], "dropout does something");
    let before = device.ledger().now().total();
    let recording = device.record(|| work(2)).unwrap().unwrap();
    assert!(device.ledger().now().total() > before, "what it holds is counted");
    for (epoch, expected) in expected.iter().enumerate().rev() {
        // Others may ask for memory meanwhile.
        let other = work(17).unwrap();
        let kept = numbers(&other);
        let found = recording.run(epoch as u64).unwrap();
        assert!(numbers(found) == *expected && numbers(&other) == kept, "epoch {epoch}");
    }
    drop(recording);
    assert_eq!(device.ledger().now().total(), before);
    // What the host takes part in fails, and leaves everything as it was.
    assert!(device.record(|| x.to_vec::<f32>().map(drop)).is_err());
    assert!(device.record(|| device.upload(1, 1, &[1.0f32], Tag::Workspace)).is_err());
    assert!(device.record(|| device.zeros("large", 1 << 20, 77, DType::F32, Tag::Workspace)).is_err());
    assert!(numbers(&work(4).unwrap()) == expected[4]);
}

#[test]
fn a_missing_gpu_is_an_error_that_says_what_to_do() {
    if let Err(error) = Cuda::new(0) {
        assert!(error.to_string().contains("cuda:0"), "{error}");
    }
}
