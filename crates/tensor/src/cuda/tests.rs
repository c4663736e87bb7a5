//! The same operations on the CPU and on a GPU. Without a GPU these tests are ignored; on a machine that has one, run
//! the test binary with `--include-ignored`.

use std::rc::Rc;

use super::Cuda;
use super::attention::{Passes, Tails, Types, Variant};
use super::compile::{Defines, Source, machine_code};
use super::gpu::Architecture;
use super::numbers::number;
use crate::adjacency::Adjacency;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::Error;
use crate::gradcheck::numbers;
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::ops::activation::Activation;
use crate::ops::attention::{Bias, Score, attention};
use crate::ops::attention_blocks::{Block, attention_blocks};
use crate::ops::dropout::{RowDropout, dropout as dropout_of};
use crate::ops::edge_values::EdgeColumns;
use crate::ops::gine::gine;
use crate::ops::graphs::{Case, Function, InputType, dropout, from_rows, renumbered, upload};
use crate::ops::linear::{Affine, linear};
use crate::ops::loss::{LossRows, softmax_cross_entropy};
use crate::ops::spmm::{Reduction, WeightVar, aggregate};
use crate::optim::{Optimizer, Rule, clip_factor, gradient_norm, length};
use crate::parameter::Parameter;
use crate::random::{Dropout, Ids};
use crate::tape::Tape;

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
    (&super::activation::SOURCE, &[&[]]),
    (&super::address::SOURCE, &[&[]]),
    (&super::batch_norm::MOMENTS, &[&[]]),
    (&super::batch_norm::SOURCE, &[&ROWS[0], &ROWS[1]]),
    (&super::blas::SOURCE, &[&[("WIDE", 0)], &[("WIDE", 1)]]),
    (&super::combine::PATCH, &[&ROWS[0], &ROWS[1]]),
    (&super::combine::SOURCE, &[&[]]),
    (&super::convert::SOURCE, &[&[("TARGET", 0)], &[("TARGET", 1)], &[("TARGET", 2)]]),
    (&super::dropout::SOURCE, &[&ROWS[0], &ROWS[1]]),
    (&super::edge_values::SOURCE, &[&[]]),
    (&super::epilogue::SOURCE, &[&ROWS[0], &ROWS[1]]),
    (&super::global::SOURCE, &[&[]]),
    (&super::head_dot::SOURCE, &[&ROWS[0], &ROWS[1]]),
    (&super::l2norm::SOURCE, &[&ROWS[0], &ROWS[1]]),
    (&super::linear::SOURCE, &[&ROWS[0], &ROWS[1]]),
    (&super::loss::SOURCE, &[&[]]),
    (&super::many_rows::SOURCE, &[&ROWS[0], &ROWS[1]]),
    (&super::norm::SOURCE, &[&ROWS[0], &ROWS[1]]),
    (&super::optim::SOURCE, &[&[("CHUNK", 4096)]]),
    (&super::optim::SQUARES, &[&[("CHUNK", 4096)]]),
    (&super::parts::SOURCE, &[&[]]),
    (&super::product::SOURCE, &[&[]]),
    (&super::residual::SOURCE, &[&ROWS[0], &ROWS[1]]),
    (&super::related::SOURCE, &[&[]]),
    (&super::rows::MERGE, &[&[]]),
    (&super::rows::SOURCE, &[&ROWS[0], &ROWS[1]]),
];

/// What kernels are tried on: the oldest that there is a profile for, and the newest.
const ARCHITECTURES: [Architecture; 2] = [Architecture { major: 8, minor: 0 }, Architecture { major: 9, minor: 0 }];

#[test]
#[cfg_attr(not(nvrtc), ignore = "needs NVRTC, which test.sh installs")]
fn every_kernel_compiles_for_every_architecture() {
    for (source, variants) in SOURCES {
        for (variant, dtype) in variants.iter().flat_map(|v| [DType::F32, DType::F64, DType::Bf16].map(|t| (v, t))) {
            for architecture in ARCHITECTURES {
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
    for architecture in ARCHITECTURES {
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
        tails: Tails::default(),
        dropout: false,
    };
    let tails = |width, columns| Tails { width, given: true, inside: 0, columns };
    let inside = |inside, columns| Tails { inside, columns, ..Tails::default() };
    let gat = Variant { score: 1, types: types(Bf16, Bf16, F32, F32), ..dot };
    let gatv2 = Variant { score: 2, types: types(F32, Bf16, F32, Bf16), ..dot };
    for (variant, heads, width) in [
        (dot, 8, 16),
        (Variant { bias: 2, features: 3, dropout: true, ..dot }, 9, 8),
        (Variant { types: types(F32, Bf16, F32, Bf16), bias: 1, dropout: true, ..dot }, 3, 40),
        (Variant { types: types(F64, F64, F64, F64), ..dot }, 2, 3),
        (Variant { tails: tails(16, [16, 0]), ..dot }, 8, 16),
        (Variant { tails: tails(8, [0, 1]), bias: 1, dropout: true, ..dot }, 8, 16),
        (Variant { tails: tails(20, [3, 2]), types: types(F64, F64, F64, F64), dropout: true, ..dot }, 2, 3),
        (Variant { tails: tails(4, [1, 0]), types: types(F32, Bf16, F32, Bf16), ..dot }, 3, 40),
        (Variant { tails: Tails { given: false, ..tails(4, [1, 0]) }, ..dot }, 3, 40),
        (gat, 8, 16),
        (Variant { bias: 1, dropout: true, types: types(F64, F64, F64, F64), ..gat }, 1, 1),
        (Variant { tails: inside(16, [16, 0]), ..gat }, 8, 16),
        (Variant { tails: inside(16, [3, 3]), bias: 2, features: 3, dropout: true, ..gat }, 9, 8),
        (Variant { tails: inside(5, [0, 1]), types: types(F64, F64, F64, F64), ..gat }, 1, 1),
        (Variant { tails: inside(16, [16, 0]), ..gatv2 }, 8, 16),
        (Variant { tails: inside(100, [1, 2]), own_values: true, dropout: true, ..gatv2 }, 8, 16),
        (Variant { tails: inside(5, [0, 1]), types: types(F64, F64, F64, F64), ..gatv2 }, 2, 5),
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
        let shape = super::spmm::Shape::new(columns, x.size().min(out.size()));
        let defines = shape.defines(x, out);
        compiles(&super::spmm::SUMS, &defines);
        if x == out {
            compiles(&super::spmm::MAXIMA, &defines);
            compiles(&super::bag::SOURCE, &Defines::of(x));
            compiles(&super::sums::ROWS, &Defines::of(x));
        }
        for columns in [EdgeColumns::numbers(16), EdgeColumns::new(1, &[5, 6, 2]).unwrap()] {
            compiles(&super::gine::SOURCE, &super::gine::defines(&shape, &columns, x));
        }
        let defines = Defines::of(x).with("A_TYPE", number(out)).with("B_TYPE", number(x)).with("THREADS", 256);
        compiles(&super::sums::PIECES, &defines);
    }
    let sizes = [256, 20, 6, 0].into_iter().zip(super::floor::SIZES);
    let defines = sizes.fold(Defines::of(F32).with("THREADS", 256), |d, (size, name)| d.with(name, size));
    compiles(&super::floor::SOURCE, &defines);
}

/// Everything over edges once, in cases small enough for compute-sanitizer: hubs whose pieces are merged in two steps,
/// both ways. One test each, so that its tools, which are slow, can have several at a time.
mod over_edges_on_a_gpu {
    use super::*;

    const ROW: (usize, usize, InputType) = (40, 32, InputType::Stored);
    const WIDE: (usize, usize, InputType) = (40, 64, InputType::Stored);

    fn graph(device: &Device) -> Rc<Adjacency> {
        let rows = (0..40u32).map(|i| match i {
            3 => (0..33 * 256).map(|k| if k % 100 == 0 { k % 40 } else { 5 }).collect(),
            i => (0..i % 7).map(|k| (i * 31 + k * 17) % 40).collect(),
        });
        from_rows(device, rows, 40)
    }

    fn edges() -> usize {
        graph(&Device::cpu()).num_edges()
    }

    fn check(what: &str, inputs: &[(usize, usize, InputType)], f: &Function<'_>) {
        Case { graph: &graph, inputs, f }.agrees_on_a_gpu(what, 5e-5, 3e-2);
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn dot() {
        check("dot", &[ROW, WIDE, (4, 3, InputType::Computed)], &|tape, graph, x| {
            let feat = upload(tape.device(), 9, (edges(), 3), x[2].value().dtype());
            let bias = Bias::Features { feat: &feat, weight: &x[2] };
            attention(tape, graph, 4, Score::Dot { q: &x[0], kv: &x[1] }, bias, None, Some(dropout(graph)))
        });
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn additive() {
        let (heads, per_edge) = ((40, 4, InputType::Computed), (edges(), 4, InputType::Computed));
        check("gat", &[heads, heads, ROW, per_edge], &|tape, graph, x| {
            let score = Score::Gat { l: &x[0], r: &x[1], z: &x[2], slope: 0.2 };
            attention(tape, graph, 4, score, Bias::PerEdge(&x[3]), None, None)
        });
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn additive_by_column() {
        check("gatv2", &[ROW, ROW, (4, 8, InputType::Computed)], &|tape, graph, x| {
            let score = Score::Gatv2 { l: &x[0], r: &x[1], value: None, a: &x[2], slope: 0.2 };
            attention(tape, graph, 4, score, Bias::None, None, None)
        });
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn blocks() {
        check("blocks", &[ROW, WIDE], &|tape, graph, x| {
            let block = Block { graph, kv: &x[1], bias: Bias::None, edges: None, dropout: None };
            attention_blocks(tape, 4, &x[0], &[block.clone(), block])
        });
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn mean() {
        check("mean", &[ROW, (edges(), 1, InputType::Computed)], &|tape, graph, x| {
            aggregate(tape, graph, &x[0], Reduction::Mean, WeightVar::PerEdge(&x[1]))
        });
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn max() {
        check("max", &[ROW], &|tape, graph, x| {
            aggregate(tape, graph, &x[0], Reduction::Max(renumbered(40)), WeightVar::None)
        });
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn messages() {
        let columns = EdgeColumns::numbers(3);
        check("messages", &[ROW, (32, 4, InputType::Computed)], &|tape, graph, x| {
            let features = upload(tape.device(), 9, (edges(), 3), x[1].value().dtype());
            gine(tape, graph, &x[0], &columns, &features, &x[1])
        });
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn nothing_but_loads() {
        let device = crate::ops::tests::gpu();
        let (on_gpu, tables) = (graph(&device), [64, 20, 6].map(|cols| upload(&device, 1, (40, cols), DType::Bf16)));
        device.backend().touch(&on_gpu.forward, &tables.iter().collect::<Vec<_>>()).unwrap();
    }
}

/// What is captured once gives what computing gives, in every epoch, and takes no memory that somebody else has.
#[test]
#[ignore = "needs a GPU"]
fn captured_work_on_a_gpu_is_the_same_work() {
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
    let captured_work = device.capture(|| work(2)).unwrap().unwrap();
    assert!(device.ledger().now().total() > before, "what it holds is counted");
    for (epoch, expected) in expected.iter().enumerate().rev() {
        // Others may ask for memory meanwhile.
        let other = work(17).unwrap();
        let kept = numbers(&other);
        let found = captured_work.run(epoch as u64).unwrap();
        assert!(numbers(found) == *expected && numbers(&other) == kept, "epoch {epoch}");
    }
    drop(captured_work);
    assert_eq!(device.ledger().now().total(), before);
    // What the host takes part in fails, and leaves everything as it was.
    assert!(device.capture(|| x.to_vec::<f32>().map(drop)).is_err());
    assert!(device.capture(|| device.upload(1, 1, &[1.0f32], Tag::Workspace)).is_err());
    assert!(device.capture(|| device.zeros("large", 1 << 20, 77, DType::F32, Tag::Workspace)).is_err());
    assert!(numbers(&work(4).unwrap()) == expected[4]);
}

/// A captured update moves parameters as an update does, bit by bit, whatever it is told; and nothing where a number is
/// not finite.
#[test]
#[ignore = "needs a GPU"]
fn a_captured_update_on_a_gpu_is_the_same_update() {
    let device = crate::ops::tests::gpu();
    let up = |rows, cols, x: &[f32], tag| device.upload(rows, cols, x, tag).unwrap();
    // One has several chunks of squares, one has nothing at all.
    let shapes = [(3, 5), (300, 257), (0, 4), (1, 1)];
    let rules = [
        Rule::adam_w(0.1),
        Rule::adam(0.1),
        Rule::Sgd { momentum: 0.0, weight_decay: 0.0 },
        Rule::Sgd { momentum: 0.9, weight_decay: 0.2 },
    ];
    for (rule, clip) in rules.into_iter().flat_map(|rule| [(rule, 0.0), (rule, 0.5)]) {
        let of = |(k, (rows, cols)): (usize, &(usize, usize))| {
            Parameter::new(format!("p{k}"), up(*rows, *cols, &floats(k as u64, rows * cols), Tag::Parameters))
        };
        let new = || shapes.iter().enumerate().map(of).collect::<Vec<_>>();
        let (plain, captured) = (new(), new());
        let mut optimizers = [&plain, &captured].map(|parameters| Optimizer::new(rule, parameters).unwrap());
        // What the gradients, and the loss, are made from is changed between the runs.
        let mut gradients: Vec<_> = (shapes.iter().enumerate())
            .map(|(k, (rows, cols))| up(*rows, *cols, &floats(k as u64 + 10, rows * cols), Tag::Activations))
            .collect();
        let doubled = |m: &Matrix| {
            let mut g = device.uninit("test", m.rows(), m.cols(), DType::F32, Tag::Gradients)?;
            device.backend().convert(&mut g, m)?;
            device.backend().add(&mut g, m)?;
            Ok::<_, Error>(Some(g))
        };
        let give = |to: &[Rc<Parameter>]| {
            for (p, g) in to.iter().zip(&gradients) {
                p.set_grad(doubled(g)?);
            }
            Ok::<_, Error>(())
        };
        let mut source = up(1, 1, &[1.0], Tag::Activations);
        let loss = || device.convert("test", &source, DType::F64);
        // What is captured was done before: kernels are loaded, and there is idle memory.
        let spare = new();
        give(&spare).unwrap();
        drop(loss().unwrap());
        gradient_norm(&spare).unwrap();
        Optimizer::new(rule, &spare).unwrap().step(0.1, 1.0).unwrap();
        let [by_hand, ahead] = &mut optimizers;
        let captured_work = device.capture(|| {
            give(&captured)?;
            ahead.capture(clip, &loss()?)
        });
        let captured_work = captured_work.unwrap().unwrap();
        let same = |by_hand: &Optimizer, ahead: &Optimizer| {
            let all = |parameters: &[Rc<Parameter>], optimizer: &Optimizer| {
                let state = optimizer.state();
                let state = state.iter().map(|(_, m)| m.to_vec::<f32>().unwrap());
                parameters.iter().map(|p| p.value().to_vec::<f32>().unwrap()).chain(state).collect::<Vec<_>>()
            };
            all(&plain, by_hand) == all(&captured, ahead)
        };
        for lr in [0.1, 0.03, 0.2] {
            give(&plain).unwrap();
            let norm = gradient_norm(&plain).unwrap();
            by_hand.step(lr, if clip > 0.0 { clip_factor(norm, clip) } else { 1.0 }).unwrap();
            let (moved, loss, sums) = captured_work.step(1, &ahead.next(lr)).unwrap();
            assert_eq!((moved.len(), loss), (shapes.len(), 1.0));
            assert_eq!(length(moved.iter().map(|p| &**p), &sums).unwrap(), norm);
            ahead.has_stepped();
            assert!(same(by_hand, ahead), "{rule:?} {clip} {lr}");
        }
        let before: Vec<_> = captured.iter().map(|p| p.value().to_vec::<f32>().unwrap()).collect();
        device.backend().upload(&mut source, bytemuck::bytes_of(&f32::NAN)).unwrap();
        assert!(captured_work.step(1, &ahead.next(0.1)).unwrap().1.is_nan());
        assert!(captured.iter().zip(before).all(|(p, before)| p.value().to_vec::<f32>().unwrap() == before));
        assert!(captured_work.run(1).is_err(), "it must be told");
        device.backend().upload(&mut source, bytemuck::bytes_of(&1f32)).unwrap();
        let mut first = gradients.swap_remove(0);
        device.backend().upload(&mut first, bytemuck::cast_slice(&[f32::INFINITY; 15])).unwrap();
        let (_, _, sums) = captured_work.step(1, &ahead.next(0.1)).unwrap();
        let error = length(captured.iter().map(|p| &**p), &sums).unwrap_err().to_string();
        assert!(error.contains("p0") && same(by_hand, ahead), "{error}");
    }
}

#[test]
fn a_missing_gpu_is_an_error_that_says_what_to_do() {
    if let Err(error) = Cuda::new(0) {
        assert!(error.to_string().contains("cuda:0"), "{error}");
    }
}
