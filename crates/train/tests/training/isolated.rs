//! Learning from pieces: what is exact about it, what travels, and that it goes on bit for bit.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::whole::{SMALL, Watch, fresh, goes_on, run, stopped};
use graphweft_base::progress::Silent;
use graphweft_graph::Dataset;
use graphweft_graph::chunks::{self, Recipe};
use graphweft_graph::generate::Spec;
use graphweft_graph::npy::NpyFile;
use graphweft_graph::partition::{Method, Options};
use graphweft_model::Models;
use graphweft_train::config::{Config, Draft, Loops};
use graphweft_train::data::Data;
use graphweft_train::ranks::World;
use graphweft_train::run::Start;
use graphweft_train::run::Trained;

/// The usual small run with these settings; keys that a model does not have are left out.
fn config(more: &[&str]) -> Config {
    let model = more.iter().rev().find_map(|s| s.strip_prefix("model.name=")).unwrap_or("gt");
    let headless = ["gcn", "sage", "gin", "rgcn", "compgcn", "gcnii", "appnp", "sign", "mlp"].contains(&model);
    let mut draft = Draft::default();
    let kept = SMALL.iter().filter(|s| !(headless && s.starts_with("model.heads")));
    kept.chain(more).for_each(|s| draft.assign(s).unwrap());
    draft.finish().unwrap()
}

fn isolated(ranks: u64, parts: u64, more: &[&str]) -> Config {
    let settings = [format!("parallel.ranks={ranks}"), format!("parallel.parts={parts}")];
    let usual = [
        "parallel.strategy=isolated",
        "parallel.partition=random",
        "isolated.rotate_every=3",
        "isolated.correction=depth-aware",
    ];
    let settings = settings.iter().map(String::as_str).chain(usual).chain(more.iter().copied());
    config(&settings.collect::<Vec<_>>())
}

fn predictions(dir: &Path) -> Vec<f32> {
    NpyFile::open(dir.join("predictions.npy")).unwrap().elements::<f32>().unwrap().to_vec()
}

#[test]
fn one_rank_with_one_chunk_is_exact_training() {
    let dir = tempfile::tempdir().unwrap();
    for (k, more) in [
        &["model.norm=batch", "encoding.degree=true"][..],
        &["model.name=gcn"],
        &["model.name=sage", "compute.dtype=bf16"],
        &["model.name=exphormer"],
        &["model.name=sgformer"],
    ]
    .into_iter()
    .enumerate()
    {
        let (exact, pieces) = (dir.path().join(format!("{k}-exact")), dir.path().join(format!("{k}-pieces")));
        fresh(&config(more), &exact);
        fresh(&isolated(1, 1, more), &pieces);
        for file in ["metrics.jsonl", "model.safetensors", "predictions.npy", "result.json"] {
            assert!(fs::read(exact.join(file)).unwrap() == fs::read(pieces.join(file)).unwrap(), "{more:?}: {file}");
        }
    }
}

#[test]
fn only_gradients_are_on_the_wire() {
    let dir = tempfile::tempdir().unwrap();
    let usages = fresh(&isolated(3, 3, &[]), dir.path()).runs.remove(0).cost.usages;
    assert_eq!(usages.len(), 3);
    for usage in &usages {
        let bytes = |op: &str| usage.sent.iter().filter(|s| s.op == op).map(|s| s.bytes).sum::<u64>();
        assert!(bytes("gradients") > 0 && bytes("loss") == 16, "{usage:?}");
        assert_eq!(usage.bytes_sent(), bytes("gradients") + bytes("loss"), "{usage:?}");
    }
}

#[test]
fn every_model_learns_from_pieces() {
    let dir = tempfile::tempdir().unwrap();
    for (k, model) in Models::default().names().into_iter().enumerate() {
        let name = format!("model.name={model}");
        for (ranks, parts, halo) in [(3, 3, None), (2, 5, Some("isolated.halo=0.4"))] {
            let more: Vec<&str> = [name.as_str(), "train.epochs=5"].into_iter().chain(halo).collect();
            let path = dir.path().join(format!("{k}-{ranks}"));
            let found = run(&isolated(ranks, parts, &more), &path, &Start::New, Watch::default());
            // What edges of a type do is not drawn; nothing is learned without saying so.
            if halo.is_some() && ["rgcn", "hgt", "compgcn"].contains(&model) {
                let Err(refused) = found else { panic!("{model} learned from what was drawn") };
                assert!(refused.to_string().contains("whose sources were drawn"), "{refused}");
                continue;
            }
            let losses = found.unwrap_or_else(|e| panic!("{model}: {e}")).runs.remove(0).losses;
            assert!(losses.iter().all(|loss| loss.is_finite()) && losses.len() == 5, "{model}: {losses:?}");
        }
    }
}

#[test]
fn ranks_agree_where_nothing_is_covered() {
    let dir = tempfile::tempdir().unwrap();
    // Chunks of two nodes, an odd number of them: where one rank has none, the other's neighbours are often all
    // elsewhere.
    for (seed, degree) in [(0, 2), (1, 4)] {
        let [graph, seed] = [format!("data.graph=sbm:75:3:{degree}:f=8"), format!("run.seed={seed}")];
        let more = [&graph, "model.name=gcn", "model.layers=2", "isolated.rotate_every=0", "train.epochs=4", &seed];
        let losses = fresh(&isolated(2, 37, &more), &dir.path().join(&seed)).runs.remove(0).losses;
        assert!(losses.iter().all(|loss| loss.is_finite()), "{losses:?}");
    }
}

#[test]
fn a_run_goes_on_in_the_middle_of_a_round() {
    let dir = tempfile::tempdir().unwrap();
    for (k, config) in [
        isolated(3, 3, &["model.norm=batch"]),
        isolated(2, 5, &["isolated.halo=0.5", "isolated.shrinkage=0.3"]),
        isolated(1, 4, &["isolated.correction=batch-scalar", "parallel.partition=contiguous"]),
    ]
    .iter()
    .enumerate()
    {
        goes_on(config, dir.path(), &[1, 4, 5], &k.to_string());
    }
}

#[test]
fn layer_by_layer_is_what_all_at_once_is() {
    let dir = tempfile::tempdir().unwrap();
    for (k, more) in [
        &["model.norm=batch", "encoding.degree=true"][..],
        &["model.name=gcnii"],
        &["model.name=appnp", "model.steps=3"],
        &["model.name=gat", "compute.dtype=f64"],
    ]
    .into_iter()
    .enumerate()
    {
        let path = dir.path().join(k.to_string());
        let config = isolated(1, 5, more);
        let best = fresh(&config, &path).runs.remove(0).outcome.best;
        let data = Arc::new(Data::open(&config.data, &config.encoding, &Silent).unwrap());
        let trained = Arc::new(Trained::open(&path, None).unwrap());
        let mut exact = (*trained).clone();
        exact.config.parallel = self::config(&[]).parallel;
        let (_, _, scores) = Arc::new(exact.clone()).evaluate(&World::alone(), &data, &Silent).unwrap();
        assert_eq!((scores.train, scores.valid, scores.test), (best.train, best.valid, best.test));
        let (rows, _) = Arc::new(exact).predict(&World::alone(), &data, &Silent).unwrap().unwrap();
        let apart = rows.iter().zip(predictions(&path)).map(|(a, b)| (a - b).abs() / a.abs().max(1.0));
        let apart = apart.fold(0.0, f32::max);
        assert!(apart < 1e-5, "{more:?}: {apart}");
    }
}

#[test]
fn ranks_are_scored_exactly() {
    let dir = tempfile::tempdir().unwrap();
    let config = isolated(3, 6, &["model.norm=batch"]);
    let best = fresh(&config, dir.path()).runs.remove(0).outcome.best;
    let data = Arc::new(Data::open(&config.data, &config.encoding, &Silent).unwrap());
    let mut trained = Trained::open(dir.path(), None).unwrap();
    trained.config.parallel = self::config(&[]).parallel;
    let (_, _, scores) = Arc::new(trained).evaluate(&World::alone(), &data, &Silent).unwrap();
    assert_eq!((scores.train, scores.valid, scores.test), (best.train, best.valid, best.test));
}

#[test]
fn stored_chunks_give_what_chunks_in_memory_give() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("data");
    "sbm:200:3:6:f=8".parse::<Spec>().unwrap().write(0, &folder, &Silent).unwrap();
    let mut config = isolated(1, 4, &["data.self_loops=add"]);
    (config.data.graph, config.data.path) = (None, Some(folder.to_str().unwrap().into()));
    let (memory, stored) = (dir.path().join("memory"), dir.path().join("stored"));
    fresh(&config, &memory);
    let Options { method, parts, balance, order, seed } = Options::new(Method::Random, 4);
    let self_loops = config.data.self_loops.into();
    let recipe = Recipe { method, chunks: parts, balance, order, seed, symmetrise: false, self_loops };
    let target = chunks::folder(&folder, method, parts);
    chunks::prepare(&Dataset::open(&folder).unwrap(), &recipe, &target, 1 << 20, &Silent).unwrap();
    fresh(&config, &stored);
    for file in ["metrics.jsonl", "predictions.npy"] {
        assert!(fs::read(memory.join(file)).unwrap() == fs::read(stored.join(file)).unwrap(), "{file}");
    }
    assert!(fs::read_to_string(stored.join("plan.json")).unwrap().contains("chunks/random-4"));
    config.data.self_loops = Loops::Keep;
    let message = run(&config, &dir.path().join("other"), &Start::New, Watch::default()).unwrap_err().to_string();
    assert!(message.contains("random-4") && message.contains("remedy"), "{message}");
}

#[test]
fn stored_chunks_of_other_features_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("data");
    "sbm:200:3:6:f=8".parse::<Spec>().unwrap().write(0, &folder, &Silent).unwrap();
    let mut config = isolated(1, 4, &[]);
    (config.data.graph, config.data.path) = (None, Some(folder.to_str().unwrap().into()));
    let Options { method, parts, balance, order, seed } = Options::new(Method::Random, 4);
    let self_loops = config.data.self_loops.into();
    let recipe = Recipe { method, chunks: parts, balance, order, seed, symmetrise: false, self_loops };
    let target = chunks::folder(&folder, method, parts);
    chunks::prepare(&Dataset::open(&folder).unwrap(), &recipe, &target, 1 << 20, &Silent).unwrap();
    let (whole, half) = (dir.path().join("whole"), dir.path().join("half"));
    fresh(&config, &whole);
    stopped(&config, &half, &Start::New, 4);
    // The same graph and labels, other features.
    let other = dir.path().join("other");
    "sbm:200:3:6:f=8".parse::<Spec>().unwrap().write(9, &other, &Silent).unwrap();
    fs::rename(other.join("feat.npy"), folder.join("feat.npy")).unwrap();
    let refused = |message: String| {
        assert!(message.contains("random-4/feat.npy") && message.contains("row "), "{message}");
        assert!(message.contains("partition --chunks"), "{message}");
    };
    let error = |path: &str, start: &Start| run(&config, &dir.path().join(path), start, Watch::default()).unwrap_err();
    refused(error("new", &Start::New).to_string());
    // A run that goes on is told that its data are others, before anybody looks at chunks.
    let message = error("half", &Start::Newest).to_string();
    assert!(message.contains("data: features: not as they were"), "{message}");
    let data = Arc::new(Data::open(&config.data, &config.encoding, &Silent).unwrap());
    let trained = Arc::new(Trained::open(&whole, None).unwrap());
    refused(trained.evaluate(&World::alone(), &data, &Silent).unwrap_err().to_string());
    fs::remove_dir_all(&target).unwrap();
    fresh(&config, &dir.path().join("again"));
}

#[test]
fn memory_decides_the_chunks_and_is_kept_to() {
    let dir = tempfile::tempdir().unwrap();
    let data = ["data.graph=sbm:20000:4:8:f=32", "model.name=sage", "model.layers=3", "train.epochs=2"];
    let of = |memory: &str, more: &[&str]| {
        let memory = format!("isolated.memory={memory}");
        let plain = ["parallel.strategy=isolated", "parallel.partition=contiguous", &memory];
        config(&data.into_iter().chain(plain).chain(more.iter().copied()).collect::<Vec<_>>())
    };
    let whole = fresh(&config(&data), &dir.path().join("whole")).runs.remove(0).cost.usages[0].peak.total();
    let limit = whole / 3;
    let summary = fresh(&of(&limit.to_string(), &[]), &dir.path().join("limited"));
    assert!(summary.plan.partition.as_ref().unwrap().parts >= 4, "{:?}", summary.plan);
    let peak = summary.runs[0].cost.usages[0].peak.total();
    assert!(peak <= limit, "{peak} of {limit}, {whole} for the whole graph");
    let enough = fresh(&of(&(4 * whole).to_string(), &[]), &dir.path().join("enough"));
    assert_eq!(enough.plan.partition.unwrap().parts, 1);
    for (k, (config, part)) in
        [(of("1000", &[]), "memory"), (of("10000000", &["model.name=sgformer"]), "all nodes at once")]
            .iter()
            .enumerate()
    {
        let path = dir.path().join(format!("refused-{k}"));
        let message = run(config, &path, &Start::New, Watch::default()).unwrap_err().to_string();
        assert!(message.contains(part) && message.contains("remedy"), "{message}");
        assert!(!path.exists());
    }
}
