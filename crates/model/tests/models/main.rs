//! What holds for every model: finite numbers in every type, the same bits when computed again and for any number of
//! threads, names and shapes of parameters, and errors that say what to do.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests.

mod expander;
mod means;
mod names;
mod own;
mod refused;
mod registry;

use std::rc::Rc;

use graphweft_graph::dataset::SparseFeatures;
use graphweft_graph::{Csr, SelfLoops};
use graphweft_model::{
    Context, Features, GraphOps, Mode, ModelConfig, Models, Network, Rates, Remat, Shape, Target, TypeCounts,
};
use graphweft_parallel::Local;
use graphweft_tensor::gradcheck::numbers;
use graphweft_tensor::ops::bag::Bag;
use graphweft_tensor::ops::loss::{LossRows, softmax_cross_entropy};
use graphweft_tensor::{DType, Device, DeviceName, Matrix, Precision, Tag, Tape};

const N: usize = 300;
const FEATURES: usize = 20;
const CLASSES: usize = 4;

/// Small ones, and what is different enough to be looked at.
const VARIANTS: [&str; 22] = [
    "name = 'gt'\nhidden = 16\nlayers = 2\nheads = 4",
    "name = 'gt'\nhidden = 16\nlayers = 2\nheads = 2\nnorm = 'batch'",
    "name = 'exphormer'\nhidden = 16\nlayers = 2\nheads = 4",
    "name = 'exphormer'\nhidden = 16\nlayers = 2\nvirtual_nodes = 0\nnorm = 'batch'",
    "name = 'gps'\nhidden = 16\nlayers = 2",
    "name = 'gps'\nhidden = 16\nlayers = 2\nlocal = 'gin'\nnorm = 'layer'",
    "name = 'sgformer'\nhidden = 16\nlayers = 2\nheads = 2",
    "name = 'polynormer'\nhidden = 16\nlayers = 2\nheads = 2\nlocal = 'gat'\nwarm_up = 0",
    "name = 'polynormer'\nhidden = 16\nlayers = 2",
    "name = 'gcn'\nhidden = 16",
    "name = 'gcn'\nhidden = 32\nnorm = 'batch'\nstack = 'tuned'\nresidual = true\ninput_linear = true",
    "name = 'sage'\nhidden = 16\nnorm = 'layer'",
    "name = 'sage'\nhidden = 16\nstack = 'tuned'\nresidual = true",
    "name = 'gat'\nhidden = 32",
    "name = 'gatv2'\nhidden = 32\nstack = 'tuned'\nresidual = true\nnorm = 'layer'",
    "name = 'gin'\nhidden = 16\nnorm = 'batch'",
    "name = 'gin'\nhidden = 32\nactivation = 'gelu'",
    "name = 'simple-hgn'\nhidden = 16\nlayers = 2\nheads = 2\nrelation_width = 4",
    "name = 'gcnii'\nhidden = 16\nlayers = 4",
    "name = 'appnp'\nhidden = 16\nsteps = 4",
    "name = 'sign'\nhidden = 16\nlayers = 3",
    "name = 'mlp'\nhidden = 16\nlayers = 3",
];

/// These, and every other model that there is.
fn models() -> Vec<String> {
    let named = |name: &str| VARIANTS.iter().any(|text| text.contains(&format!("'{name}'")));
    let others = Models::default().names().into_iter().filter(|name| !named(name));
    VARIANTS.into_iter().map(String::from).chain(others.map(|name| format!("name = '{name}'"))).collect()
}

fn config(text: &str) -> ModelConfig {
    toml::from_str(text).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// A hub, isolated nodes, some self-loops.
fn graph() -> Csr<u32> {
    let rows = (0..N as u32).map(|i| -> Vec<u32> {
        match i {
            0 => (1..200).collect(),
            i if i % 11 == 0 => Vec::new(),
            i => (0..i % 6).map(|k| (i * 7 + k * 31) % N as u32).collect(),
        }
    });
    Csr::from_rows(rows, N).unwrap()
}

fn dense(device: &Device, dtype: DType) -> Features {
    let x = device.upload(N, FEATURES, &numbers(3, N * FEATURES), Tag::Activations).unwrap();
    Features::Dense(device.convert("test", &x, dtype.compute()).unwrap())
}

fn sparse(device: &Device, dtype: DType) -> Features {
    let indices: Vec<u32> = (0..N as u32).flat_map(|i| [i % 5, 5 + i % 7, 12 + i % 8]).collect();
    let indptr: Vec<u64> = (0..=N as u64).map(|i| 3 * i).collect();
    let features = SparseFeatures { indptr: indptr.into(), indices: indices.into(), data: None, width: FEATURES };
    Features::Sparse(Rc::new(Bag::new(device, &features, dtype.compute()).unwrap()))
}

struct Run<'a> {
    model: &'a str,
    dtype: DType,
    remat: Remat,
    features: &'a dyn Fn(&Device, DType) -> Features,
    loops: SelfLoops,
    rates: Rates,
}

const RATES: Rates = Rates { input: 0.1, hidden: 0.3, attention: 0.2 };

/// A loss, gradients by name (where there are any), and buffers.
type Outcome = (f64, Vec<(String, Option<Vec<f64>>)>, Vec<Vec<f64>>);

impl<'a> Run<'a> {
    fn new(model: &'a str, dtype: DType) -> Self {
        Self { model, dtype, remat: Remat::None, features: &dense, loops: SelfLoops::Keep, rates: RATES }
    }

    /// The loss, the gradients by name (or that there is none) and the buffers after one step with dropout.
    fn train(&self) -> Outcome {
        self.train_on(&Device::cpu())
    }

    fn train_on(&self, device: &Device) -> Outcome {
        let (network, cx) = self.prepare(device, Mode::Train);
        let mut tape = Tape::new(device);
        let logits = network.forward(&mut tape, &cx).unwrap().unwrap();
        assert_eq!((logits.value().shape(), logits.value().dtype()), ((N, CLASSES), self.dtype.compute()));
        let labels: Rc<[i64]> = (0..N as i64).map(|i| i % CLASSES as i64).collect();
        let rows = LossRows::new((0..N as u32).step_by(3).collect::<Vec<_>>()).unwrap();
        let loss = softmax_cross_entropy(&mut tape, &logits, &labels, &rows, 0.0, 100.0).unwrap();
        let value = f64s(loss.value())[0];
        let one = device.upload(1, 1, &[1.0], Tag::Activations).unwrap();
        let one = device.convert("test", &one, loss.value().dtype()).unwrap();
        tape.backward(vec![(loss, one)], &[], |_| Ok(())).unwrap();
        let gradient = |p: Rc<graphweft_tensor::Parameter>| (p.name().to_string(), p.take_grad().map(|g| f64s(&g)));
        let buffers = network.buffers().iter().map(|b| b.values().unwrap()).collect();
        (value, network.parameters().into_iter().map(gradient).collect(), buffers)
    }

    fn prepare(&self, device: &Device, mode: Mode) -> (Network, Context) {
        self.prepare_model(&config(self.model), device, mode)
    }

    /// The same for a model that has no name here.
    fn prepare_model(&self, config: &ModelConfig, device: &Device, mode: Mode) -> (Network, Context) {
        let prepared = config.prepare(graph().with_self_loops(self.loops), 5).unwrap();
        let edge_features = prepared.features(device, self.dtype.compute()).unwrap();
        let shape = Shape {
            features: FEATURES,
            positional: 0,
            classes: CLASSES,
            edge_features: prepared.columns,
            types: TypeCounts::default(),
            target: Target::Nodes,
        };
        let network = config.build(device, shape, self.dtype.compute(), 7).unwrap();
        let ops: Rc<dyn GraphOps> = Rc::new(Local::new(device, prepared.csr, edge_features).unwrap());
        let cx = Context {
            ops,
            features: (self.features)(device, self.dtype),
            positional: None,
            graphs: None,
            types: None,
            mode,
            seed: 11,
            epoch: 3,
            rates: self.rates,
            remat: self.remat,
            dtype: self.dtype,
        };
        (network, cx)
    }
}

fn f64s(m: &Matrix) -> Vec<f64> {
    m.device().convert("test", m, DType::F64).unwrap().to_vec::<f64>().unwrap()
}

/// Parameters of the half of Polynormer that is not trained at this time.
fn resting(model: &str, name: &str) -> bool {
    let whole = model.contains("warm_up = 0");
    model.contains("polynormer")
        && if whole { name.starts_with("pred_local") } else { name.starts_with("ln.") || name.contains("global") }
}

#[test]
fn gradients_are_finite_in_every_type_and_with_sparse_features() {
    for model in &models() {
        let mut exact = None;
        for (dtype, tolerance) in [(DType::F64, 0.0), (DType::F32, 1e-4), (DType::Bf16, 0.1)] {
            for features in [&dense as &dyn Fn(&Device, DType) -> Features, &sparse] {
                let (loss, gradients, buffers) = Run { features, ..Run::new(model, dtype) }.train();
                assert!(loss.is_finite(), "{model} {dtype}");
                for (name, gradient) in gradients {
                    let Some(gradient) = gradient else {
                        assert!(resting(model, &name), "{model} {dtype}: no gradient for {name}");
                        continue;
                    };
                    assert!(!resting(model, &name), "{model}: {name}");
                    assert!(gradient.iter().all(|x| x.is_finite()), "{model} {dtype} {name}");
                }
                assert!(buffers.iter().flatten().all(|x| x.is_finite()));
            }
            let loss = Run::new(model, dtype).train().0;
            let exact = *exact.get_or_insert(loss);
            assert!((loss - exact).abs() <= tolerance * exact, "{model} {dtype}: {loss}, in f64 {exact}");
        }
    }
}

/// Only here does a gradient that rounding alone makes other than zero show: in f64 it is tiny beside all others.
#[test]
fn parameters_without_effect_are_those_whose_gradient_vanishes() {
    for model in &models() {
        for rates in [RATES, Rates::default()] {
            for features in [&dense as &dyn Fn(&Device, DType) -> Features, &sparse] {
                let run = Run { features, rates, ..Run::new(model, DType::F64) };
                let (_, gradients, _) = run.train();
                let largest = |g: &[f64]| g.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
                let all = gradients.iter().filter_map(|(_, g)| g.as_deref()).map(largest).fold(0.0, f64::max);
                let vanishes = |g: &Option<Vec<f64>>| g.as_deref().is_some_and(|g| largest(g) < 1e-12 * all);
                // Where every node has in-edges, as an expander's do, a batch norm hides biases of values too. That is
                // a property of the graph, which layers do not know.
                let of_graph = |name: &str| model.contains("exphormer") && name.ends_with("lin_value.bias");
                let vanishing = gradients.iter().filter(|(name, g)| vanishes(g) && !of_graph(name));
                let mut found: Vec<_> = vanishing.map(|(name, _)| name.clone()).collect();
                let (network, _) = run.prepare(&Device::cpu(), Mode::Train);
                let said = network.without_effect(rates);
                let mut names: Vec<_> = said.iter().map(|p| p.name().to_string()).collect();
                found.sort();
                names.sort();
                assert_eq!(found, names, "{model}, dropout {}", rates.hidden);
            }
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn a_gpu_computes_the_same_with_the_same_masks() {
    let gpu = DeviceName::Cuda(0).open(Precision::Full).unwrap();
    for model in &models() {
        for features in [&dense as &dyn Fn(&Device, DType) -> Features, &sparse] {
            let run = |dtype| Run { features, ..Run::new(model, dtype) };
            let exact = run(DType::F64).train();
            for (dtype, tolerance) in [(DType::F64, 1e-9), (DType::F32, 1e-4), (DType::Bf16, 0.1)] {
                let found = run(dtype).train_on(&gpu);
                assert!((found.0 - exact.0).abs() <= tolerance * exact.0, "{model} {dtype}: {} {}", found.0, exact.0);
                for ((name, found), (_, exact)) in found.1.iter().zip(&exact.1) {
                    let (Some(found), Some(exact)) = (found, exact) else {
                        assert!(found.is_none() && exact.is_none(), "{model} {dtype} {name}");
                        continue;
                    };
                    // Some gradients are zero but for rounding; and a rounded key may leave a ReLU on the other side.
                    let length = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>().sqrt();
                    let off = length(&found.iter().zip(exact).map(|(a, b)| a - b).collect::<Vec<_>>());
                    let near = off <= 5.0 * tolerance * length(exact).max(1e-2);
                    assert!(dtype == DType::Bf16 || near, "{model} {dtype} {name}: {off} of {}", length(exact));
                }
                assert!(found == run(dtype).train_on(&gpu), "{model} {dtype}: other bits the second time");
                for &remat in &Remat::ALL[1..] {
                    assert!(found == Run { remat, ..run(dtype) }.train_on(&gpu), "{model} {dtype} {remat:?}");
                }
            }
        }
    }
}

#[test]
fn computed_again_is_the_same_to_the_bit() {
    for model in &models() {
        for dtype in [DType::F32, DType::Bf16] {
            let kept = Run::new(model, dtype).train();
            for &remat in &Remat::ALL[1..] {
                let again = Run { remat, ..Run::new(model, dtype) }.train();
                assert_eq!(kept.0, again.0, "{model} {remat:?}");
                for (a, b) in kept.1.iter().zip(&again.1) {
                    assert!(a == b, "{model} {dtype} {remat:?} {}", a.0);
                }
                assert_eq!(kept.2, again.2, "{model} {remat:?}: buffers");
            }
        }
    }
}

#[test]
fn the_same_bits_for_any_number_of_threads() {
    for model in &models() {
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| Run { loops: SelfLoops::Add, ..Run::new(model, DType::F32) }.train())
        };
        let one = run(1);
        assert!(one == run(2) && one == run(3), "{model}");
    }
}

#[test]
fn evaluation_drops_nothing_and_moves_no_buffers() {
    for model in &models() {
        let device = Device::cpu();
        let (network, cx) = Run::new(model, DType::F32).prepare(&device, Mode::Evaluate);
        let before: Vec<Vec<f64>> = network.buffers().iter().map(|b| b.values().unwrap()).collect();
        let run = |epoch| {
            let mut tape = Tape::without_gradients(&device);
            let cx = Context { seed: epoch, ..cx.clone() };
            f64s(network.forward(&mut tape, &cx).unwrap().unwrap().value())
        };
        assert_eq!(run(1), run(2), "{model}");
        let after: Vec<Vec<f64>> = network.buffers().iter().map(|b| b.values().unwrap()).collect();
        assert_eq!(before, after, "{model}");
    }
}

#[test]
fn no_rows_move_no_moments() {
    let device = Device::cpu();
    let (network, cx) = Run::new("name = 'gcn'\nhidden = 16\nnorm = 'batch'", DType::F32).prepare(&device, Mode::Train);
    let moments = || -> Vec<Vec<f64>> { network.buffers().iter().map(|b| b.values().unwrap()).collect() };
    let before = moments();
    let ops: Rc<dyn GraphOps> = Rc::new(Local::new(&device, Csr::new(vec![0], vec![], 0).unwrap(), None).unwrap());
    let features = Features::Dense(device.zeros("test", 0, FEATURES, DType::F32, Tag::Graph).unwrap());
    let forward = |cx: Context| network.forward(&mut Tape::new(&device), &cx).unwrap();
    forward(Context { ops, features, ..cx.clone() });
    assert_eq!(moments(), before);
    forward(cx);
    assert_ne!(moments(), before);
}

#[test]
fn only_polynormers_passes_change_with_the_epoch() {
    let shape = Shape::of_nodes(FEATURES, CLASSES);
    for model in &models() {
        let network = config(model).build(&Device::cpu(), shape, DType::F32, 1).unwrap();
        let phases: Vec<u64> = [0, 1, 99, 100, 1000].map(|epoch| network.phase(epoch)).into();
        let expected = if model.contains("polynormer") && !model.contains("warm_up = 0") {
            [0, 0, 0, 1, 1]
        } else {
            [phases[0]; 5]
        };
        assert_eq!(phases, expected, "{model}");
    }
}

#[test]
fn polynormer_evaluates_the_half_that_was_trained_last() {
    let device = Device::cpu();
    let model = "name = 'polynormer'\nhidden = 16\nlayers = 2\nwarm_up = 2";
    let (network, train) = Run::new(model, DType::F32).prepare(&device, Mode::Train);
    let logits = |epoch| {
        let quiet = Context { mode: Mode::Evaluate, epoch, ..train.clone() };
        f64s(network.forward(&mut Tape::without_gradients(&device), &quiet).unwrap().unwrap().value())
    };
    let local = logits(100);
    for (epoch, changes) in [(1, false), (2, true)] {
        // The moments of batch norm move too: put them back.
        let moments: Vec<Vec<f64>> = network.buffers().iter().map(|b| b.values().unwrap()).collect();
        network.forward(&mut Tape::new(&device), &Context { epoch, ..train.clone() }).unwrap();
        for (b, values) in network.buffers().iter().zip(moments).filter(|(b, _)| b.name() != "phase") {
            b.set(values).unwrap();
        }
        assert_eq!(logits(0) != local, changes, "after epoch {epoch}");
    }
}

#[test]
fn transformers_look_at_positional_encodings() {
    let device = Device::cpu();
    for model in ["gt", "gps", "exphormer"] {
        let text = format!("name = '{model}'\nhidden = 16\nlayers = 1\nheads = 2");
        let (_, cx) = Run::new(&text, DType::F32).prepare(&device, Mode::Evaluate);
        let prepared = config(&text).prepare(graph().with_self_loops(SelfLoops::Keep), 5).unwrap();
        let shape = Shape {
            features: FEATURES,
            positional: 3,
            classes: CLASSES,
            edge_features: prepared.columns,
            types: TypeCounts::default(),
            target: Target::Nodes,
        };
        let network = config(&text).build(&device, shape, DType::F32, 7).unwrap();
        let logits = |seed| {
            let encodings = device.upload(N, 3, &numbers(seed, 3 * N), Tag::Activations).unwrap();
            let encodings = device.convert("test", &encodings, DType::F32).unwrap();
            let cx = Context { positional: Some(encodings), ..cx.clone() };
            f64s(network.forward(&mut Tape::without_gradients(&device), &cx).unwrap().unwrap().value())
        };
        assert_ne!(logits(1), logits(2), "{model}");
    }
}
