//! Whole models: twenty epochs with dropout 0.5 on ranks are twenty epochs on one.

use std::rc::Rc;
use std::time::Duration;

use graphweft_comm::{Communicator, threads};
use graphweft_graph::partition::Partition;
use graphweft_graph::{Csr, Permutation, TypedCsr};
use graphweft_model::{
    Context, Features, GraphOps, Mode, ModelConfig, Prepared, Rates, Remat, Shape, Target, Total, TypeCounts,
};
use graphweft_parallel::{Layout, Link, Local, Strategy, spread};
use graphweft_tensor::ops::edge_values::EdgeColumns;
use graphweft_tensor::ops::grouped::RowTypes;
use graphweft_tensor::ops::loss::{LossRows, softmax_cross_entropy};
use graphweft_tensor::optim::{Optimizer, Rule};
use graphweft_tensor::{DType, Device, Matrix, Parameter, Tag, Tape};

use crate::ops::{f64s, operand};
use crate::{DeviceName, Failure, near, open, strategies};

const N: usize = 60;
const FEATURES: usize = 8;
const CLASSES: usize = 3;
const EPOCHS: u64 = 20;
const NODE_TYPES: usize = 3;

const GT: &str = "name = 'gt'\nhidden = 12\nlayers = 2\nheads = 3";
const GT_WITH_EDGES: &str = "name = 'gt'\nhidden = 12\nlayers = 2\nheads = 3\nedges = 'use'";
const GAT: &str = "name = 'gat'\nhidden = 12\nheads = 3";
const HGT: &str = "name = 'hgt'\nhidden = 12\nlayers = 2\nheads = 3";
const GAT_WITH_EDGES: &str = "name = 'gat'\nhidden = 12\nlayers = 2\nheads = 3\nedges = 'use'";
const GATV2_WITH_EDGES: &str = "name = 'gatv2'\nhidden = 12\nlayers = 2\nheads = 3\nedges = 'use'";
const GIN_WITH_EDGES: &str = "name = 'gin'\nhidden = 12\nlayers = 2\nedges = 'use'";
const SIMPLE_HGN: &str = "name = 'simple-hgn'\nhidden = 12\nlayers = 3\nheads = 3\nrelation_width = 4\nbeta = 0.3";
const RGCN: &str = "name = 'rgcn'\nhidden = 12\nlayers = 2\nbases = 2";
const SAGE: &str = "name = 'sage'\nhidden = 12\nnorm = 'layer'";

/// One of each other, and what is different enough.
const OTHERS: [&str; 23] = [
    "name = 'gt'\nhidden = 12\nlayers = 2\nheads = 2\nnorm = 'batch'",
    "name = 'gt'\nhidden = 12\nlayers = 2\nheads = 2\ntypes = 'use'",
    "name = 'hgt'\nhidden = 12\nheads = 2\nnorm = 'batch'",
    "name = 'exphormer'\nhidden = 12\nlayers = 2\nheads = 2",
    "name = 'exphormer'\nhidden = 12\nlayers = 2\nheads = 3\nvirtual_nodes = 0\nnorm = 'batch'",
    "name = 'exphormer'\nhidden = 12\nlayers = 2\nheads = 3\nedges = 'use'",
    "name = 'gps'\nhidden = 12\nlayers = 2\nheads = 3",
    "name = 'sgformer'\nhidden = 12\nlayers = 2\nheads = 2",
    "name = 'polynormer'\nhidden = 12\nlayers = 2\nheads = 2\nlocal = 'gat'\nwarm_up = 0",
    "name = 'gcn'\nhidden = 12\nnorm = 'batch'\nstack = 'tuned'\nresidual = true\ninput_linear = true",
    "name = 'sage'\nhidden = 12\nstack = 'tuned'\nresidual = true",
    "name = 'gatv2'\nhidden = 12\nheads = 3\nstack = 'tuned'\nresidual = true\nnorm = 'layer'",
    "name = 'gps'\nhidden = 12\nlayers = 2\nheads = 3\nlocal = 'gat'\nedges = 'use'",
    "name = 'gin'\nhidden = 12\nnorm = 'batch'",
    "name = 'gin'\nhidden = 12\nstack = 'tuned'\nresidual = true\ninput_linear = true\nedges = 'use'",
    "name = 'gps'\nhidden = 12\nlayers = 2\nheads = 3\nlocal = 'gin'\nedges = 'use'",
    "name = 'gin'\nhidden = 12\nactivation = 'gelu'",
    "name = 'rgcn'\nhidden = 12\nresidual = true\nnorm = 'batch'",
    "name = 'rgcn'\nhidden = 12\nblocks = 3",
    "name = 'gcnii'\nhidden = 12\nlayers = 4",
    "name = 'appnp'\nhidden = 12\nsteps = 4",
    "name = 'sign'\nhidden = 12\nhops = 2\nlayers = 3",
    "name = 'mlp'\nhidden = 12\nlayers = 3",
];

/// A hub, nodes without in-edges, parallel edges, self-loops.
fn graph() -> Csr<u32> {
    let (mut indptr, mut indices) = (vec![0u64], Vec::new());
    for i in 0..N as u32 {
        let mut row: Vec<u32> = match i {
            0 => (1..40).collect(),
            i if i % 11 == 0 => Vec::new(),
            i => (0..i % 6).map(|k| (i * 7 + k * 31) % N as u32).chain([i, i / 2, i / 2]).collect(),
        };
        row.sort_unstable();
        indices.extend(row);
        indptr.push(indices.len() as u64);
    }
    Csr::new(indptr, indices, N).unwrap()
}

/// Whether nodes have types for it.
fn typed(model: &str) -> bool {
    model.contains("'hgt'") || model.contains("types")
}

/// The graph of a model. Its edges have types where the model tells them apart, and features where it says what to do
/// with them.
fn prepared(config: &ModelConfig, model: &str) -> Prepared {
    const TYPES: usize = 3;
    if config.reads_types() {
        let graph = graph();
        // Parallel edges are of different types.
        let types: Vec<u16> = (0..graph.num_edges()).map(|e| (e % TYPES) as u16).collect();
        return config.prepare_typed(&TypedCsr::new(&graph, &types), TYPES, 5).unwrap();
    }
    let plain = config.prepare(graph(), 5).unwrap();
    if !model.contains("edges") {
        return plain;
    }
    let row = |edge: usize| [edge as f32 % 7.0 - 3.0, (edge % 4) as f32, (edge % 3) as f32];
    let values = (0..graph().num_edges()).flat_map(row).collect();
    plain.with_features(EdgeColumns::new(1, &[4, 3]).unwrap(), values).unwrap()
}

/// The last nodes come first: these are not learned from, so that some ranks have nothing to learn.
fn partition(ranks: usize) -> Partition {
    let backwards = Permutation::from_old_of_new((0..N as u64).rev().collect()).unwrap();
    Partition::new(backwards, (0..=ranks).map(|p| (p * N / ranks) as u64).collect()).unwrap()
}

/// Losses, then parameters after the last epoch.
type Trained = (Vec<f64>, Vec<(String, Vec<f64>)>);

/// How a model is trained.
#[derive(Clone, Copy)]
struct Training {
    /// Features of edges.
    edge_features: EdgeColumns,
    relations: usize,
    /// Whether nodes have types.
    typed: bool,
    remat: Remat,
    dtype: DType,
}

/// Trains on the rows of original ids `nodes`.
fn train(
    config: &ModelConfig,
    ops: &Rc<dyn GraphOps>,
    device: &Device,
    nodes: &[u64],
    how: Training,
) -> Result<Trained, Failure> {
    let Training { edge_features, relations, remat, dtype, .. } = how;
    let counts = TypeCounts { nodes: if how.typed { NODE_TYPES } else { 1 }, relations };
    let shape = Shape {
        features: FEATURES,
        positional: 0,
        classes: CLASSES,
        edge_features,
        types: counts,
        target: Target::Nodes,
    };
    // Nodes of a type are anywhere.
    let of_rows: Vec<u32> = nodes.iter().map(|id| (id % 7 % NODE_TYPES as u64) as u32).collect();
    let types = (counts.nodes > 1).then(|| RowTypes::new(device, &of_rows, NODE_TYPES)).transpose()?.map(Rc::new);
    let network = config.build(device, shape, dtype, 7)?;
    let parameters = network.parameters();
    let mut optimizer = Optimizer::new(Rule::adam_w(1e-3), &parameters)?;
    let labels: Rc<[i64]> = nodes.iter().map(|id| (id * id % 7 % CLASSES as u64) as i64).collect();
    let learned = (0..nodes.len() as u32).filter(|k| nodes[*k as usize] < 36);
    let rows = LossRows::new(learned.collect::<Vec<_>>())?;
    let features = Features::Dense(operand(device, 3, N, FEATURES, Some(nodes), dtype));
    let rates = Rates { input: 0.5, hidden: 0.5, attention: 0.5 };
    let mut losses = Vec::new();
    for epoch in 0..EPOCHS {
        let (ops, features) = (Rc::clone(ops), features.clone());
        let context = Context {
            ops,
            features,
            positional: None,
            graphs: None,
            types: types.clone(),
            mode: Mode::Train,
            seed: 11,
            epoch,
            rates,
            remat,
            dtype,
        };
        let mut tape = Tape::new(device);
        let logits = network.forward(&mut tape, &context)?.expect("a model has layers");
        let loss = softmax_cross_entropy(&mut tape, &logits, &labels, &rows, 0.1, 36.0)?;
        let mut sum = device.convert("loss", loss.value(), DType::F64)?;
        context.ops.reduce(Total::Loss, 0).sum(&mut sum)?;
        losses.push(sum.to_vec::<f64>()?[0]);
        let one = device.convert("loss", &device.upload(1, 1, &[1.0f64], Tag::Workspace)?, loss.value().dtype())?;
        tape.backward(vec![(loss, one)], &[], |_| Ok(()))?;
        sum_gradients(&*context.ops, device, &parameters)?;
        optimizer.step(0.01, 1.0)?;
    }
    Ok((losses, parameters.iter().map(|p| (p.name().to_string(), f64s(&p.value()))).collect()))
}

/// Sums the gradients of all ranks, in one message as trainers do: most of the time of these tests is that of messages.
fn sum_gradients(ops: &dyn GraphOps, device: &Device, parameters: &[Rc<Parameter>]) -> Result<(), Failure> {
    let found: Vec<_> = parameters.iter().filter_map(|p| Some((p, p.take_grad()?))).collect();
    let Some(dtype) = found.first().map(|(_, gradient)| gradient.dtype()) else { return Ok(()) };
    let upload = |rows, cols, x: &[f64]| device.convert("test", &device.upload(rows, cols, x, Tag::Gradients)?, dtype);
    let all: Vec<f64> = found.iter().flat_map(|(_, gradient)| f64s(gradient)).collect();
    let mut sum = upload(1, all.len(), &all)?;
    ops.reduce(Total::Gradients, 0).sum(&mut sum)?;
    let (all, mut at) = (f64s(&sum), 0);
    for (parameter, gradient) in found {
        let (rows, cols) = gradient.shape();
        parameter.set_grad(Some(upload(rows, cols, &all[at..][..rows * cols])?));
        at += rows * cols;
    }
    Ok(())
}

/// Some rows of a matrix.
fn rows_of(m: &Matrix, rows: &[u64]) -> Matrix {
    let (all, cols) = (f64s(m), m.cols());
    let some: Vec<f64> = rows.iter().flat_map(|row| all[*row as usize * cols..][..cols].to_vec()).collect();
    let some = m.device().upload(rows.len(), cols, &some, Tag::Graph).unwrap();
    m.device().convert("test", &some, m.dtype()).unwrap()
}

/// What every strategy comes to on `ranks` ranks, the same on all of them.
fn on_ranks(
    at: DeviceName,
    model: &str,
    ranks: usize,
    strategies: &[Strategy],
    remat: Remat,
    dtype: DType,
) -> Vec<Trained> {
    let config: ModelConfig = toml::from_str(model).unwrap();
    let options = threads::Options { ranks, threads: 1, deadline: Duration::from_secs(60) };
    let body = |comm: Rc<dyn Communicator>| -> Result<Vec<Trained>, Failure> {
        let prepared = prepared(&config, model);
        let layout = Layout::new(&prepared.csr, &partition(ranks), ranks, comm.rank())?;
        let layout = layout.with_relations(prepared.relations().map(|all| &**all));
        let mut found = Vec::new();
        let device = open(at)?;
        for strategy in strategies {
            let link = Link::new(Rc::clone(&comm), &device);
            let features = prepared.features(&device, dtype)?.map(|all| rows_of(&all, layout.edges()));
            let ops = spread(strategy, &layout, &link, features)?;
            let nodes = &layout.originals()[layout.own()];
            let how = Training {
                edge_features: prepared.columns,
                relations: prepared.num_relations,
                typed: typed(model),
                remat,
                dtype,
            };
            let trained = train(&config, &ops, &device, nodes, how);
            found.push(trained.map_err(|e| Failure(format!("{strategy}: {}", e.0)))?);
        }
        Ok(found)
    };
    let mut found = threads::run(options, body).unwrap_or_else(|e| panic!("{model} on {ranks} ranks: {}", e.0));
    let first = found.swap_remove(0);
    assert!(found.iter().all(|other| *other == first), "{model} on {ranks} ranks: ranks have come apart");
    first
}

fn check(at: DeviceName, model: &str, ranks: usize, remat: Remat, dtype: DType) {
    let (config, device): (ModelConfig, _) = (toml::from_str(model).unwrap(), Device::cpu());
    let prepared = prepared(&config, model);
    let features = prepared.features(&device, dtype).unwrap();
    let (edge_features, relations) = (prepared.columns, prepared.num_relations);
    let of_edges = prepared.relations().cloned();
    let local = Local::new(&device, prepared.csr, features).unwrap().with_relations(of_edges);
    let local: Rc<dyn GraphOps> = Rc::new(local);
    let nodes: Vec<u64> = (0..N as u64).collect();
    let wanted = train(
        &config,
        &local,
        &device,
        &nodes,
        Training { edge_features, relations, typed: typed(model), remat: Remat::None, dtype },
    )
    .unwrap();
    assert!(wanted.0[19] < wanted.0[0], "{model} learns: {:?}", wanted.0);
    let all = strategies(ranks);
    let [found, again] = [(); 2].map(|()| on_ranks(at, model, ranks, &all, remat, dtype));
    for (k, strategy) in all.iter().enumerate() {
        let what = format!("{model}\n{strategy} on {ranks} ranks, {dtype}");
        assert!(found[k] == again[k], "{what}: not the same bits twice");
        let tolerance = if dtype == DType::F64 { 1e-9 } else { 1e-4 };
        near(&found[k].0, &wanted.0, tolerance, &format!("{what}: losses"));
        if dtype == DType::F64 {
            for ((name, found), (_, wanted)) in found[k].1.iter().zip(&wanted.1) {
                near(found, wanted, tolerance, &format!("{what}: {name}"));
            }
        }
    }
}

fn on(at: DeviceName, ranks: usize, model: &str) {
    for dtype in [DType::F64, DType::F32] {
        check(at, model, ranks, Remat::None, dtype);
    }
}

/// A test of each number of ranks, and of what is computed again.
macro_rules! in_full {
    ($name:ident, $model:expr) => {
        mod $name {
            use super::*;

            at!(DeviceName::Cpu, [], {
                on_few_ranks => |at| [1, 2, 3].into_iter().for_each(|ranks| on(at, ranks, $model)),
                on_4_ranks => |at| on(at, 4, $model),
                on_8_ranks => |at| on(at, 8, $model),
                computed_again => |at| again(at, $model),
            });

            #[cfg(feature = "cuda")]
            mod on_a_gpu {
                use super::*;

                at!(DeviceName::Cuda(0), [ignore = "needs a GPU"], {
                    on_ranks => |at| [2, 4, 8].into_iter().for_each(|ranks| on(at, ranks, $model)),
                    computed_again => |at| again(at, $model),
                });
            }
        }
    };
}

fn again(at: DeviceName, model: &str) {
    check(at, model, 3, Remat::Attention, DType::F64);
    check(at, model, 2, Remat::Layer, DType::F64);
    check(at, model, 2, Remat::Both, DType::F64);
}

in_full!(gt, GT);
in_full!(gt_with_edges, GT_WITH_EDGES);
in_full!(gat, GAT);
in_full!(gat_with_edges, GAT_WITH_EDGES);
in_full!(gatv2_with_edges, GATV2_WITH_EDGES);
in_full!(gin_with_edges, GIN_WITH_EDGES);
in_full!(sage, SAGE);
in_full!(rgcn, RGCN);
in_full!(hgt, HGT);
in_full!(simple_hgn, SIMPLE_HGN);

fn others(at: DeviceName) {
    for model in OTHERS {
        check(at, model, 3, Remat::None, DType::F64);
    }
}

at!(DeviceName::Cpu, [], { every_other_model_on_3_ranks => others, });
#[cfg(feature = "cuda")]
at!(DeviceName::Cuda(0), [ignore = "needs a GPU"], { every_other_model_on_a_gpu => others, });
