//! Ten training steps of every model against PyTorch Geometric: losses and parameters in f64, losses in f32.
//! `golden/make.py` made the numbers, and names the parameters: they are read by PyTorch's names and shapes. Those of
//! models of whole graphs are `golden/make_graphs.py`'s, in which the same nodes are five graphs; those of models with
//! features of edges `golden/make_edges.py`'s, but for the graph transformer; those of models of typed graphs
//! `golden/make_typed.py`'s.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests.

#[path = "golden/decoders.rs"]
mod decoders;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use graphweft_graph::npy::NpyFile;
use graphweft_graph::{Csr, SelfLoops, TypedCsr};
use graphweft_model::{
    Context, Features, GraphOps, Mode, ModelConfig, Network, Prepared, Rates, Remat, Shape, Target, TypeCounts,
};
use graphweft_parallel::Local;
use graphweft_tensor::ops::edge_values::EdgeColumns;
use graphweft_tensor::ops::grouped::RowTypes;
use graphweft_tensor::ops::loss::{LossRows, softmax_cross_entropy};
use graphweft_tensor::ops::segments::Segments;
use graphweft_tensor::optim::{Optimizer, Rule};
use graphweft_tensor::{DType, Device, DeviceName, Ids, Matrix, Precision, Tag, Tape};
use safetensors::SafeTensors;

const STEPS: u64 = 10;
const LR: f64 = 0.01;
/// Where the five graphs begin and end, and their classes.
const PTR: [u64; 6] = [0, 9, 10, 23, 31, 40];
const GRAPH_CLASSES: [i64; 5] = [0, 2, 1, 1, 2];
/// Of edges, where a model tells them apart.
const TYPES: usize = 4;

/// Of nodes, where a model tells types apart: eleven that follow one another are of one.
fn node_type(node: usize) -> u32 {
    (node / 11) as u32
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn array<T: graphweft_graph::npy::Element>(file: PathBuf) -> (Vec<usize>, Vec<T>) {
    let file = NpyFile::open(file).unwrap();
    (file.shape().to_vec(), file.elements::<T>().unwrap().to_vec())
}

fn graph(loops: SelfLoops) -> Csr<u32> {
    let csr = Csr::new(
        array::<u64>(folder("graph/indptr.npy")).1,
        array::<u32>(folder("graph/indices.npy")).1,
        array::<u64>(folder("graph/indptr.npy")).1.len() - 1,
    )
    .unwrap();
    csr.with_self_loops(loops)
}

/// Name → shape and elements.
type State = BTreeMap<String, (Vec<usize>, Vec<f64>)>;

fn state(file: PathBuf) -> State {
    let bytes = std::fs::read(file).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let numbers = |data: &[u8]| data.chunks(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect();
    tensors.iter().map(|(name, t)| (name.to_string(), (t.shape().to_vec(), numbers(t.data())))).collect()
}

/// Every parameter and buffer gets the numbers of its name and shape, and no name is left over.
fn load(network: &Network, device: &Device, dtype: DType, mut from: State) {
    for p in network.parameters() {
        let (shape, values) = from.remove(p.name()).unwrap_or_else(|| panic!("PyTorch has no {}", p.name()));
        assert_eq!(p.dims(), shape, "{}", p.name());
        let (rows, cols) = p.value().shape();
        let m = device.upload(rows, cols, &values, Tag::Parameters).unwrap();
        let m = device.convert("golden", &m, dtype).unwrap();
        p.update(|value| {
            *value = m;
            Ok(())
        })
        .unwrap();
    }
    for b in network.buffers() {
        b.set(from.remove(b.name()).unwrap_or_else(|| panic!("PyTorch has no {}", b.name())).1).unwrap();
    }
    assert!(from.is_empty(), "not ours: {:?}", from.keys().collect::<Vec<_>>());
}

fn f64s(m: &Matrix) -> Vec<f64> {
    m.device().convert("golden", m, DType::F64).unwrap().to_vec::<f64>().unwrap()
}

struct Case {
    config: ModelConfig,
    name: &'static str,
    loops: SelfLoops,
}

/// What a case learns.
struct Supervised {
    labels: Rc<[i64]>,
    rows: Vec<u32>,
    graphs: Option<Rc<Segments>>,
}

impl Case {
    fn new(name: &'static str, loops: SelfLoops) -> Self {
        let text = std::fs::read_to_string(folder(name).join("model.toml")).unwrap();
        Self { config: toml::from_str(&text).unwrap(), name, loops }
    }

    fn prepared(&self) -> Prepared {
        let graph = graph(self.loops);
        if !self.config.reads_types() {
            let prepared = self.config.prepare(graph, 0).unwrap();
            if !self.config.uses_edge_features() || !self.name.ends_with("edges") {
                return prepared;
            }
            let values = array::<f64>(folder("graph/edge_feat.npy")).1.iter().map(|x| *x as f32).collect();
            return prepared.with_features(EdgeColumns::new(3, &[4, 2]).unwrap(), values).unwrap();
        }
        let edges = (0..graph.num_dst()).flat_map(|i| graph.row(i).iter().map(move |j| (*j as usize, i)));
        if self.types().is_none() {
            let types: Vec<u16> = edges.map(|(j, i)| ((j + 2 * i) % TYPES) as u16).collect();
            return self.config.prepare_typed(&TypedCsr::new(&graph, &types), TYPES, 0).unwrap();
        }
        // A relation is a pair of types that edges lead between.
        let ends: Vec<(u32, u32)> = edges.map(|(j, i)| (node_type(j), node_type(i))).collect();
        let relations: Vec<(u32, u32)> = ends.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
        let types: Vec<u16> = ends.iter().map(|pair| relations.binary_search(pair).unwrap() as u16).collect();
        self.config.prepare_typed(&TypedCsr::new(&graph, &types), relations.len(), 0).unwrap()
    }

    /// The types of nodes, where they have some.
    fn types(&self) -> Option<Vec<u32>> {
        let nodes = graph(self.loops).num_dst();
        let has = self.name.starts_with("hgt") || self.name.ends_with("types");
        has.then(|| (0..nodes).map(node_type).collect())
    }

    /// Trains ten steps and returns the losses and the model.
    fn train(&self, device: &Device, dtype: DType) -> (Vec<f64>, Network) {
        let (dims, feat) = array::<f64>(folder("graph/feat.npy"));
        let Supervised { labels, rows, graphs } = self.supervised(device);
        let target = if graphs.is_some() { Target::Graphs } else { Target::Nodes };
        let classes = *labels.iter().max().unwrap() as usize + 1;
        let prepared = self.prepared();
        let edge_features = prepared.features(device, dtype).unwrap();
        let types = self.types();
        let counts = TypeCounts { nodes: types.as_ref().map_or(1, |_| TYPES), relations: prepared.num_relations };
        let (features, edge_features_of) = (dims[1], prepared.columns);
        let shape = Shape { features, positional: 0, classes, edge_features: edge_features_of, types: counts, target };
        let network = self.config.build(device, shape, dtype, 1).unwrap();
        load(&network, device, dtype, state(folder(self.name).join("initial.safetensors")));
        let types = types.map(|of| Rc::new(RowTypes::new(device, &of, TYPES).unwrap()));
        let relations = prepared.relations().cloned();
        let ops = Local::new(device, prepared.csr, edge_features).unwrap().with_relations(relations);
        let ops: Rc<dyn GraphOps> = Rc::new(ops);
        let x = device.upload(dims[0], dims[1], &feat, Tag::Activations).unwrap();
        let x = device.convert("golden", &x, dtype).unwrap();
        let parameters = network.parameters();
        let mut optimizer = Optimizer::new(Rule::adam(5e-4), &parameters).unwrap();
        let rows = LossRows::new(rows).unwrap();
        let mut losses = Vec::new();
        for epoch in 0..STEPS {
            let cx = Context {
                ops: Rc::clone(&ops),
                features: Features::Dense(x.clone()),
                positional: None,
                graphs: graphs.clone(),
                types: types.clone(),
                mode: Mode::Train,
                seed: 1,
                epoch,
                rates: Rates::default(),
                remat: Remat::None,
                dtype,
            };
            let mut tape = Tape::new(device);
            let logits = network.forward(&mut tape, &cx).unwrap().unwrap();
            let total = rows.total(&labels);
            let loss = softmax_cross_entropy(&mut tape, &logits, &labels, &rows, 0.0, total).unwrap();
            losses.push(f64s(loss.value())[0]);
            let one = device.upload(1, 1, &[1.0], Tag::Activations).unwrap();
            let one = device.convert("golden", &one, loss.value().dtype()).unwrap();
            tape.backward(vec![(loss, one)], &[], |_| Ok(())).unwrap();
            optimizer.step(LR, 1.0).unwrap();
        }
        (losses, network)
    }

    /// Some of the nodes, or all of the graphs.
    fn supervised(&self, device: &Device) -> Supervised {
        if self.name.starts_with("graphs-") {
            let graphs = Segments::new(device, &PTR, Ids::Same, Ids::Same).unwrap();
            return Supervised { labels: GRAPH_CLASSES.into(), rows: (0..5).collect(), graphs: Some(Rc::new(graphs)) };
        }
        let labels = array::<i64>(folder("graph/label.npy")).1.into();
        let rows = array::<i64>(folder("graph/train.npy")).1.iter().map(|i| *i as u32).collect();
        Supervised { labels, rows, graphs: None }
    }

    fn check(&self, device: &Device) {
        let expected = array::<f64>(folder(self.name).join("losses.npy")).1;
        let (losses, network) = self.train(device, DType::F64);
        for (k, (found, expected)) in losses.iter().zip(&expected).enumerate() {
            assert!((found - expected).abs() <= 1e-9 * expected.max(1.0), "{} cx {k}: {found} {expected}", self.name);
        }
        let last = state(folder(self.name).join("final.safetensors"));
        for p in network.parameters() {
            near(&format!("{} {}", self.name, p.name()), &f64s(&p.value()), &last[p.name()].1);
        }
        for b in network.buffers() {
            near(&format!("{} {}", self.name, b.name()), &b.values().unwrap(), &last[b.name()].1);
        }
        let (losses, _) = self.train(device, DType::F32);
        for (k, (found, expected)) in losses.iter().zip(&expected).enumerate() {
            assert!(
                (found - expected).abs() <= 1e-5 * expected.max(1.0),
                "{} f32 cx {k}: {found} {expected}",
                self.name
            );
        }
    }
}

/// In f64, to 1e-9 of the largest element.
fn near(what: &str, found: &[f64], expected: &[f64]) {
    let scale = expected.iter().fold(1.0, |m: f64, x| m.max(x.abs()));
    let worst = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(worst <= 1e-9 * scale, "{what}: {worst} of {scale}");
}

fn gpu() -> Device {
    DeviceName::Cuda(0).open(Precision::Full).unwrap()
}

macro_rules! cases {
    ($($test:ident: $name:literal, $loops:ident;)*) => {
        $(
            #[test]
            fn $test() {
                Case::new($name, SelfLoops::$loops).check(&Device::cpu());
            }
        )*

        mod on_a_gpu {
            use super::{Case, SelfLoops, gpu};

            $(
                #[test]
                #[ignore = "needs a GPU"]
                fn $test() {
                    Case::new($name, SelfLoops::$loops).check(&gpu());
                }
            )*
        }
    };
}

cases! {
    gcn: "gcn", Add;
    gcn_with_batch_norm: "gcn-narrow", Add;
    gcn_with_layer_norm: "gcn-layer", Add;
    sage: "sage", Keep;
    sage_with_maximum: "sage-max", Keep;
    gat: "gat", Add;
    gatv2: "gatv2", Add;
    gin: "gin", Keep;
    gin_with_batch_norm: "gin-batch", Keep;
    tuned_gcn: "tuned-gcn", Add;
    tuned_sage: "tuned-sage", Keep;
    tuned_gat: "tuned-gat", Add;
    gat_with_edge_features: "gat-edges", Keep;
    gatv2_with_edge_features: "gatv2-edges", Keep;
    gps_over_gat_with_edge_features: "gps-gat-edges", Keep;
    gine: "gin-edges", Keep;
    gine_with_batch_norm: "gin-narrow-edges", Keep;
    gps_over_gine: "gps-gin-edges", Keep;
    gt: "gt", Keep;
    gt_with_edge_features: "gt-edges", Keep;
    gt_with_batch_norm: "gt-batch", Keep;
    gcnii: "gcnii", Add;
    appnp: "appnp", Add;
    sign: "sign", Keep;
    sgformer: "sgformer-1", Add;
    sgformer_with_heads: "sgformer-2", Add;
    polynormer_in_its_local_phase: "polynormer-local", Add;
    polynormer: "polynormer", Add;
    polynormer_over_gat: "polynormer-gat", Add;
    gps: "gps", Add;
    gps_over_gat: "gps-gat", Add;
    exphormer: "exphormer", Keep;
    exphormer_with_edge_features: "exphormer-edges", Keep;
    graphs_by_gin_and_their_sum: "graphs-gin", Keep;
    graphs_by_sage_and_their_mean: "graphs-sage", Keep;
    graphs_by_gcn_and_their_maximum: "graphs-gcn", Keep;
    graphs_by_sage_and_attention: "graphs-attention", Keep;
    graphs_by_every_layer_of_gin: "graphs-every", Keep;
    graphs_by_means_of_every_layer: "graphs-every-mean", Keep;
    graphs_with_a_virtual_node: "graphs-virtual", Keep;
    graphs_normalised_and_read_out_as_sets: "graphs-norm", Keep;
    graphs_by_gps: "graphs-gps", Add;
    graphs_by_gps_over_gat_as_sets: "graphs-gps-set", Add;
    rgcn: "rgcn", Keep;
    rgcn_with_bases: "rgcn-bases", Keep;
    rgcn_tuned: "rgcn-tuned", Keep;
    rgcn_with_blocks: "rgcn-blocks", Keep;
    hgt: "hgt", Keep;
    hgt_with_layer_norm: "hgt-norm", Keep;
    gt_with_types: "gt-types", Keep;
    compgcn: "compgcn", Keep;
    compgcn_of_three_layers: "compgcn-deep", Keep;
    simple_hgn: "simple-hgn", Keep;
    simple_hgn_of_three_layers: "simple-hgn-3", Keep;
}
