//! Rows that are learned of nodes without features: each rank has those of its nodes, learns what one rank learns, and
//! a checkpoint has all of them.

#![allow(clippy::unwrap_used)] // Helpers of tests.

use std::path::{Path, PathBuf};

use crate::whole::{fresh, resume, same, stopped};
use graphweft_graph::dataset::{Codes, DatasetWriter, Dense, Features, Labels, Meta, NodeType, SparseFeatures, Split};
use graphweft_graph::{AnyCsr, Csr};
use graphweft_tensor::Tag;
use graphweft_train::config::{Config, Draft};
use graphweft_train::run::Start;

/// Nodes with two numbers, nodes without features, nodes with words.
const NODES: [usize; 3] = [30, 24, 18];
const HIDDEN: usize = 12;

/// A folder of these, with two types of edges. Of `learnt` types alone where the others are left out.
fn folder(root: &Path) -> PathBuf {
    let n: usize = NODES.iter().sum();
    let far = |i: usize, step: usize| ((i * step + 5) % n) as u32;
    let mut edges: Vec<[u32; 2]> = (0..n).flat_map(|i| [[i as u32, far(i, 7)], [i as u32, far(i, 11)]]).collect();
    edges.sort_unstable();
    let ends = |k: usize| edges.iter().map(|edge| edge[k]).collect::<Vec<_>>();
    let graph = Csr::<u32>::from_edges(n, &ends(1), &ends(0)).unwrap();
    let path = root.join("typed");
    let out = DatasetWriter::create(&path).unwrap();
    out.graph(&AnyCsr::from(graph.clone())).unwrap();
    out.edge_types(&Codes::of((0..graph.num_edges()).map(|edge| (edge % 2) as u16).collect())).unwrap();
    let values: Vec<f32> = (0..2 * NODES[0]).map(|k| (k * 13 % 17) as f32 / 8.0 - 1.0).collect();
    out.features_of_type("a", &Features::Dense(Dense::F32 { values: values.into(), width: 2 })).unwrap();
    let indptr: Vec<u64> = (0..=NODES[2] as u64).map(|k| 2 * k).collect();
    let indices: Vec<u32> = (0..NODES[2] as u32).flat_map(|k| [k % 3, 3 + k % 4]).collect();
    let words = SparseFeatures { indptr: indptr.into(), indices: indices.into(), data: None, width: 7 };
    out.features_of_type("c", &Features::Sparse(words)).unwrap();
    let node_type = |name: &str, num_nodes, num_features| NodeType { name: name.into(), num_nodes, num_features };
    let node_types = vec![node_type("a", NODES[0], 2), node_type("b", NODES[1], 0), node_type("c", NODES[2], 7)];
    let classes: Vec<i64> = (0..n as i64).map(|i| i * 5 % 3).collect();
    out.labels(&Labels::Single(classes.into()), 3).unwrap();
    let part = |rest: i64| (0..n as i64).filter(|i| i % 3 == rest).collect::<Vec<_>>().into();
    let split = Split { name: "own".into(), train: part(0), valid: part(1), test: part(2) };
    out.split(&split).unwrap();
    let edge_types = ["one", "two"].map(String::from).to_vec();
    let meta = Meta { node_types, edge_types, num_classes: 3, ..Meta::of("typed", &graph, false) };
    out.finish(&meta).unwrap();
    path
}

fn config(folder: &Path, more: &[&str]) -> Config {
    let path = format!("data.path=\"{}\"", folder.display());
    let hidden = format!("model.hidden={HIDDEN}");
    let usual = [
        path.as_str(),
        hidden.as_str(),
        "model.layers=2",
        "train.epochs=8",
        "train.lr=0.02",
        "train.dropout=0.3",
        "train.weight_decay=0.01",
        "compute.dtype=f64",
        "run.checkpoint_every=4",
    ];
    let mut draft = Draft::default();
    usual.iter().chain(more).for_each(|s| draft.assign(s).unwrap());
    draft.finish().unwrap()
}

fn on(folder: &Path, strategy: &str, ranks: u64, more: &[&str]) -> Config {
    let settings = [format!("parallel.ranks={ranks}"), format!("parallel.strategy={strategy}")];
    let settings: Vec<&str> = settings.iter().map(String::as_str).chain(more.iter().copied()).collect();
    config(folder, &settings)
}

const MODELS: [&[&str]; 5] = [
    &["model.name=rgcn", "train.clip=0.5"],
    &["model.name=hgt", "model.heads=4"],
    &["model.name=gt", "model.heads=4", "train.clip=0.5"],
    // Two layers take the features.
    &["model.name=sgformer", "data.features=learned"],
    &["model.name=sage", "data.features=learned"],
];

const SPREAD: [(&str, u64); 9] = [
    ("gather", 2),
    ("halo", 2),
    ("halo:plain", 3),
    ("heads", 3),
    ("ring", 3),
    ("grid:2x2", 4),
    ("halo:machines:2", 4),
    ("halo", 8),
    ("ring", 8),
];

#[test]
fn ranks_with_rows_of_their_own_learn_as_one_does() {
    let dir = tempfile::tempdir().unwrap();
    let data = folder(dir.path());
    for (number, more) in MODELS.into_iter().enumerate() {
        let one = fresh(&config(&data, more), &dir.path().join(format!("{number}-alone"))).runs.remove(0);
        assert!(one.losses[7] < one.losses[0], "{more:?}: {:?}", one.losses);
        for (strategy, ranks) in SPREAD {
            let path = |again: u8| dir.path().join(format!("{number}-{strategy}-{ranks}-{again}"));
            let found = fresh(&on(&data, strategy, ranks, more), &path(0)).runs.remove(0);
            fresh(&on(&data, strategy, ranks, more), &path(1));
            same(&path(0), &path(1), strategy);
            for (a, b) in found.losses.iter().zip(&one.losses) {
                assert!((a - b).abs() <= 1e-9 * b.max(1.0), "{more:?} {strategy} on {ranks}: {a} {b}");
            }
            let [a, b] = [&found.outcome.best, &one.outcome.best].map(|s| [s.train, s.valid, s.test]);
            assert_eq!(a, b, "{more:?} {strategy} on {ranks}");
            assert_eq!(found.outcome.parameters, one.outcome.parameters, "{more:?} {strategy} on {ranks}");
        }
    }
}

/// What grows with the nodes without features is divided by the ranks.
#[test]
fn what_is_remembered_of_rows_is_divided() {
    let dir = tempfile::tempdir().unwrap();
    let data = folder(dir.path());
    let more = ["model.name=gcn", "model.stack=tuned", "model.input_linear=true", "data.features=learned"];
    let of = |config: &Config, name: &str| {
        let run = fresh(config, &dir.path().join(name)).runs.remove(0);
        run.cost.usages.iter().map(|usage| usage.peak.of(Tag::Optimizer)).collect::<Vec<_>>()
    };
    let n: usize = NODES.iter().sum();
    let one = of(&config(&data, &more), "one")[0];
    // Adam remembers two numbers of eight bytes for each.
    let others = one - 2 * 8 * (HIDDEN * n) as u64;
    let shared = of(&on(&data, "halo", 4, &more), "four");
    assert_eq!(shared.iter().sum::<u64>(), 4 * others + 2 * 8 * (HIDDEN * n) as u64);
    assert!(shared.iter().all(|bytes| *bytes < one / 2), "{shared:?} of {one}");
    // Dropout of features is drawn by their columns: every rank has all.
    let dropped = [&more[..], &["train.input_dropout=0.1"]].concat();
    assert_eq!(of(&on(&data, "halo", 2, &dropped), "dropped"), [one; 2]);
}

#[test]
fn a_checkpoint_has_the_rows_of_all_ranks_and_goes_on_with_others() {
    let dir = tempfile::tempdir().unwrap();
    let data = folder(dir.path());
    for (number, more) in MODELS[..3].iter().enumerate() {
        let [whole, cut, moved] = ["whole", "cut", "moved"].map(|name| dir.path().join(format!("{number}-{name}")));
        let losses = fresh(&on(&data, "halo", 3, more), &whole).runs.remove(0).losses;
        stopped(&on(&data, "halo", 3, more), &cut, &Start::New, 5);
        resume(&on(&data, "halo", 3, more), &cut);
        same(&whole, &cut, more[0]);
        stopped(&on(&data, "halo", 3, more), &moved, &Start::New, 3);
        stopped(&on(&data, "heads", 2, more), &moved, &Start::Newest, 5);
        stopped(&config(&data, more), &moved, &Start::Newest, 7);
        let found = resume(&on(&data, "ring", 4, more), &moved).runs.remove(0).losses;
        let furthest = losses.iter().zip(&found).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(furthest < 1e-9, "{more:?}: {furthest}");
    }
}
