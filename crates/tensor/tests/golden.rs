//! Every operation against PyTorch and PyTorch Geometric: outputs and gradients in f64 to 1e-9 and in f32 to 1e-5.
//! `golden/make.py` made the numbers.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use graphweft_graph::Csr;
use graphweft_graph::dataset::SparseFeatures;
use graphweft_graph::npy::NpyFile;
use graphweft_tensor::ops::activation::{Activation, activate};
use graphweft_tensor::ops::attention::{Bias, Score, attention};
use graphweft_tensor::ops::bag::{Bag, bag};
use graphweft_tensor::ops::batch_norm::{Moments, Running, batch_norm};
use graphweft_tensor::ops::combine::{columns, combine, concat};
use graphweft_tensor::ops::global::{Global, Scale, global_attention};
use graphweft_tensor::ops::l2norm::l2_norm;
use graphweft_tensor::ops::linear::{Affine, linear};
use graphweft_tensor::ops::loss::{LossRows, binary_cross_entropy, mean_squared_error, softmax_cross_entropy};
use graphweft_tensor::ops::norm::{Norm, layer_norm};
use graphweft_tensor::ops::residual::post_norm;
use graphweft_tensor::ops::rows::{RowIndex, gather, scatter};
use graphweft_tensor::ops::spmm::{Reduction, WeightVar, aggregate};
use graphweft_tensor::optim::{Optimizer, Rule, clip_factor, gradient_norm};
use graphweft_tensor::{Adjacency, Alone, DType, Device, Ids, Matrix, Parameter, Result, Tag, Tape, Var};

/// The numbers of one operation.
struct Golden(PathBuf);

impl Golden {
    fn new(op: &str) -> Self {
        Self(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(op))
    }

    fn array<T: graphweft_graph::npy::Element>(&self, name: &str) -> (Vec<usize>, Vec<T>) {
        let file = NpyFile::open(self.0.join(format!("{name}.npy"))).unwrap();
        (file.shape().to_vec(), file.elements::<T>().unwrap().to_vec())
    }

    fn list<T: graphweft_graph::npy::Element>(&self, name: &str) -> Vec<T> {
        self.array(name).1
    }

    /// Offsets and columns of a matrix by rows.
    fn sparse(&self) -> (Vec<u64>, Vec<u32>) {
        let (indptr, indices) = (self.list::<i64>("indptr"), self.list::<i64>("indices"));
        (indptr.iter().map(|x| *x as u64).collect(), indices.iter().map(|x| *x as u32).collect())
    }

    fn matrix(&self, device: &Device, name: &str, dtype: DType) -> Matrix {
        let (shape, x) = self.array::<f64>(name);
        let [rows, cols] = shape[..] else { panic!("{name} has shape {shape:?}") };
        let m = device.upload(rows, cols, &x, Tag::Activations).unwrap();
        device.convert("golden", &m, dtype).unwrap()
    }

    fn compare(&self, name: &str, found: &Matrix) {
        let exact = self.list::<f64>(name);
        let tolerance = if found.dtype() == DType::F64 { 1e-9 } else { 1e-5 };
        let found = found.device().convert("golden", found, DType::F64).unwrap().to_vec::<f64>().unwrap();
        assert_eq!(found.len(), exact.len(), "{} {name}", self.0.display());
        let scale = exact.iter().fold(1.0, |m: f64, x| m.max(x.abs()));
        for (k, (x, e)) in found.iter().zip(&exact).enumerate() {
            let near = (x - e).abs() <= tolerance * scale;
            assert!(near, "{} {name} element {k}: {x}, PyTorch has {e}", self.0.display());
        }
    }
}

/// Compares `f` with the numbers of `op`, forward and backward.
fn check(
    op: &str,
    inputs: &[&str],
    parameters: &[&str],
    f: impl Fn(&Golden, &mut Tape, &[Var], &[Rc<Parameter>]) -> Result<Var>,
) {
    let (golden, device) = (Golden::new(op), Device::cpu());
    for dtype in [DType::F64, DType::F32] {
        let mut tape = Tape::new(&device);
        let vars: Vec<Var> = inputs.iter().map(|name| tape.leaf(golden.matrix(&device, name, dtype))).collect();
        let trained: Vec<_> =
            parameters.iter().map(|name| Parameter::new(*name, golden.matrix(&device, name, dtype))).collect();
        let y = f(&golden, &mut tape, &vars, &trained).unwrap();
        golden.compare("y", y.value());
        let g = golden.matrix(&device, "g", dtype);
        let leaves: Vec<&Var> = vars.iter().collect();
        let found = tape.backward(vec![(y, g)], &leaves, |_| Ok(())).unwrap();
        for (name, found) in inputs.iter().zip(found) {
            golden.compare(&format!("d{name}"), &found.unwrap());
        }
        for p in trained {
            golden.compare(&format!("d{}", p.name()), &p.take_grad().unwrap());
        }
    }
}

#[test]
fn activations() {
    for (name, activation) in [
        ("gelu", Activation::Gelu),
        ("relu", Activation::Relu),
        ("leaky_relu", Activation::LeakyRelu { slope: 0.2 }),
        ("elu", Activation::Elu),
    ] {
        check(name, &["x"], &[], |_, tape, x, _| activate(tape, &x[0], activation));
    }
}

#[test]
fn linear_with_gelu() {
    check("linear_gelu", &["x"], &["weight", "bias"], |_, tape, x, p| {
        let layer = Affine { weight: p[0].clone(), bias: Some(p[1].clone()) };
        linear(tape, &x[0], &[layer], Activation::Gelu, x[0].value().dtype())
    });
}

#[test]
fn norms() {
    let norm = |p: &[Rc<Parameter>]| Norm::new(p[0].clone(), p[1].clone());
    check("layer_norm", &["x"], &["weight", "bias"], |_, tape, x, p| layer_norm(tape, &x[0], &norm(p)));
    check("post_norm", &["x", "z"], &["weight", "bias"], |_, tape, x, p| post_norm(tape, &x[0], &x[1], None, &norm(p)));
    check("batch_norm", &["x"], &["weight", "bias"], |golden, tape, x, p| {
        let moments = Moments::of(x[0].value(), None, &Alone)?;
        let near = |found: &[f64], name: &str| {
            let exact = golden.list::<f64>(name);
            assert_eq!(found.len(), exact.len());
            assert!(found.iter().zip(&exact).all(|(f, e)| (f - e).abs() < 1e-6), "{name}: {found:?} {exact:?}");
        };
        let running = Running::new(tape.device(), x[0].value().cols(), 1.0)?;
        running.follow(&moments)?;
        let [mean, variance] = running.numbers()?;
        near(&mean, "running_mean");
        near(&variance, "running_variance");
        batch_norm(tape, &x[0], &norm(p), &moments, Rc::new(Alone))
    });
    check("l2_norm", &["x"], &[], |_, tape, x, _| l2_norm(tape, &x[0]));
}

#[test]
fn losses() {
    let rows = |golden: &Golden| {
        let rows: Vec<u32> = golden.list::<i64>("rows").iter().map(|r| *r as u32).collect();
        LossRows::weighted(rows, golden.list::<f32>("weights"))
    };
    check("cross_entropy", &["x"], &[], |golden, tape, x, _| {
        softmax_cross_entropy(tape, &x[0], &golden.list::<i64>("labels").into(), &rows(golden)?, 0.1, 4.5)
    });
    check("binary_cross_entropy", &["x"], &[], |golden, tape, x, _| {
        let targets = golden.matrix(tape.device(), "targets", x[0].value().dtype());
        binary_cross_entropy(tape, &x[0], &targets, &rows(golden)?, 20.0)
    });
    check("mean_squared_error", &["x"], &[], |golden, tape, x, _| {
        let targets = golden.matrix(tape.device(), "targets", x[0].value().dtype());
        mean_squared_error(tape, &x[0], &targets, &rows(golden)?, 15.0)
    });
}

#[test]
fn rows_by_index() {
    let index = |golden: &Golden, device: &Device| {
        let index = golden.list::<i64>("index").iter().map(|i| *i as u32).collect();
        RowIndex::new(device, 6, index).map(Rc::new)
    };
    check("gather", &["x"], &[], |golden, tape, x, _| gather(tape, &x[0], &index(golden, x[0].value().device())?));
    check("scatter", &["x"], &[], |golden, tape, x, _| scatter(tape, &x[0], &index(golden, x[0].value().device())?));
}

#[test]
fn combinations() {
    check("combine", &["x", "z"], &[], |_, tape, x, _| combine(tape, 0.7, &x[0], -1.3, &x[1]));
    check("concat", &["x", "z"], &[], |_, tape, x, _| {
        let wide = concat(tape, &[&x[0], &x[1]])?;
        columns(tape, &wide, 2..6)
    });
}

#[test]
fn ten_steps_of_each_optimizer() {
    for (name, rule) in [
        ("optim_adam", Rule::adam(0.1)),
        ("optim_adam_w", Rule::adam_w(0.1)),
        ("optim_sgd", Rule::Sgd { momentum: 0.9, weight_decay: 0.1 }),
    ] {
        let (golden, device) = (Golden::new(name), Device::cpu());
        for dtype in [DType::F64, DType::F32] {
            let parameters = ["a", "b"].map(|p| Parameter::new(p, golden.matrix(&device, p, dtype)));
            let mut optimizer = Optimizer::new(rule, &parameters).unwrap();
            for step in 0..10 {
                for p in &parameters {
                    let (shape, g) = golden.array::<f64>(&format!("{}_gradients", p.name()));
                    let (rows, cols) = (shape[1], shape[2]);
                    let g = &g[step * rows * cols..][..rows * cols];
                    let g = device.upload(rows, cols, g, Tag::Gradients).unwrap();
                    p.set_grad(Some(device.convert("golden", &g, dtype).unwrap()));
                }
                let norm = gradient_norm(&parameters).unwrap();
                optimizer.step(0.05, clip_factor(norm, 2.0)).unwrap();
            }
            for p in &parameters {
                golden.compare(&format!("{}_end", p.name()), &p.value());
            }
        }
    }
}

/// The graph of all operations over edges: isolated nodes, hubs both ways, self-loops, parallel edges.
fn graph(device: &Device) -> Rc<Adjacency> {
    let (indptr, indices) = Golden::new("graph").sparse();
    let nodes = indptr.len() - 1;
    Rc::new(Adjacency::new(device, Csr::new(indptr, indices, nodes).unwrap()).unwrap())
}

const HEADS: usize = 2;

#[test]
fn attention_with_and_without_a_term_in_the_scores() {
    check("attention", &["q", "kv"], &[], |_, tape, x, _| {
        let graph = graph(tape.device());
        attention(tape, &graph, HEADS, Score::Dot { q: &x[0], kv: &x[1] }, Bias::None, None, None)
    });
    check("attention_bias", &["q", "kv", "bias"], &[], |_, tape, x, _| {
        let graph = graph(tape.device());
        attention(tape, &graph, HEADS, Score::Dot { q: &x[0], kv: &x[1] }, Bias::PerEdge(&x[2]), None, None)
    });
    check("attention_features", &["q", "kv", "weight"], &[], |golden, tape, x, _| {
        let graph = graph(tape.device());
        let feat = golden.matrix(tape.device(), "feat", x[2].value().dtype());
        let bias = Bias::Features { feat: &feat, weight: &x[2] };
        attention(tape, &graph, HEADS, Score::Dot { q: &x[0], kv: &x[1] }, bias, None, None)
    });
}

#[test]
fn attention_with_other_scores() {
    check("gat", &["l", "r", "z"], &[], |_, tape, x, _| {
        let graph = graph(tape.device());
        let (heads, score) = (x[0].value().cols(), Score::Gat { l: &x[0], r: &x[1], z: &x[2], slope: 0.2 });
        attention(tape, &graph, heads, score, Bias::None, None, None)
    });
    check("gatv2", &["l", "r", "a"], &[], |_, tape, x, _| {
        let graph = graph(tape.device());
        let score = Score::Gatv2 { l: &x[0], r: &x[1], value: None, a: &x[2], slope: 0.2 };
        attention(tape, &graph, x[2].value().rows(), score, Bias::None, None, None)
    });
}

#[test]
fn aggregations() {
    for (name, reduction) in
        [("spmm_sum", Reduction::Sum), ("spmm_mean", Reduction::Mean), ("spmm_max", Reduction::Max(Ids::Same))]
    {
        check(name, &["x"], &[], |_, tape, x, _| {
            let graph = graph(tape.device());
            aggregate(tape, &graph, &x[0], reduction.clone(), WeightVar::None)
        });
        if let Reduction::Max(_) = reduction {
            continue;
        }
        check(&format!("{name}_weights"), &["x", "weight"], &[], |_, tape, x, _| {
            let graph = graph(tape.device());
            aggregate(tape, &graph, &x[0], reduction.clone(), WeightVar::PerEdge(&x[1]))
        });
    }
    check("spmm_sum_factors", &["x"], &[], |golden, tape, x, _| {
        let graph = graph(tape.device());
        let [dst, src] = ["dst", "src"].map(|name| golden.matrix(tape.device(), name, x[0].value().dtype()));
        aggregate(tape, &graph, &x[0], Reduction::Sum, WeightVar::Factors { dst: &dst, src: &src })
    });
}

#[test]
fn sparse_features() {
    check("bag", &[], &["weight", "bias"], |golden, tape, _, p| {
        let (indptr, indices) = golden.sparse();
        let data = Some(golden.list::<f32>("data").into());
        let dtype = p[0].value().dtype();
        let features = SparseFeatures { indptr: indptr.into(), indices: indices.into(), data, width: 9 };
        let features = Rc::new(Bag::new(tape.device(), &features, dtype)?);
        bag(tape, &features, None, &Affine { weight: p[0].clone(), bias: Some(p[1].clone()) }, dtype)
    });
}

#[test]
fn attention_of_all_to_all() {
    for (name, scale) in [("global", Scale::One), ("global_sgformer", Scale::Norms)] {
        check(name, &["q", "k", "v"], &[], |_, tape, x, _| {
            let own = if scale == Scale::Norms { x[0].value().rows() as f64 } else { 0.0 };
            let operands = Global { heads: HEADS, q: &x[0], k: &x[1], v: &x[2], own, epsilon: 0.0, scale };
            global_attention(tape, operands, Rc::new(Alone))
        });
    }
    check("global_sgformer_module", &["x"], &["q", "k", "v"], |_, tape, x, p| {
        let dtype = x[0].value().dtype();
        let [q, k, v] = [0, 1, 2].map(|at| {
            let layer = Affine { weight: p[at].clone(), bias: None };
            linear(tape, &x[0], &[layer], Activation::None, dtype)
        });
        let (q, k) = (l2_norm(tape, &q?)?, l2_norm(tape, &k?)?);
        let own = x[0].value().rows() as f64;
        global_attention(
            tape,
            Global { heads: 1, q: &q, k: &k, v: &v?, own, epsilon: 0.0, scale: Scale::One },
            Rc::new(Alone),
        )
    });
}
