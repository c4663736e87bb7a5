//! Runs on several ranks: the same results as on one, the same bytes every time, resumed anywhere, and what is left
//! when a rank is lost.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::whole::{SMALL, Watch, config, fresh, goes_on, on_world, resume, run, same, stopped};
use graphweft_base::progress::Silent;
use graphweft_comm::Fault;
use graphweft_graph::npy::NpyFile;
use graphweft_tensor::{DeviceName, Precision};
use graphweft_train::config::{Config, Draft};
use graphweft_train::data::Data;
#[cfg(feature = "cuda")]
use graphweft_train::ranks::RankUsage;
use graphweft_train::ranks::World;
use graphweft_train::run::Checkpoint;
use graphweft_train::run::Run;
use graphweft_train::run::Trained;
use graphweft_train::run::{Start, Summary};
use graphweft_train::{Error, Result};
use serde_json::Value;

/// With how many ranks each is used here.
const STRATEGIES: [(&str, u64); 8] = [
    ("gather", 3),
    ("halo", 2),
    ("halo:plain", 3),
    ("halo", 4),
    ("halo:machines:2", 4),
    ("heads", 2),
    ("ring", 3),
    ("grid:2x2", 4),
];

fn on(strategy: &str, ranks: u64, more: &[&str]) -> Config {
    // A profile that is shipped: choices in tests do not depend on the machine.
    let profile = "parallel.profile=16-cpu-10g".to_string();
    let settings = [format!("parallel.ranks={ranks}"), format!("parallel.strategy={strategy}"), profile];
    let settings: Vec<&str> = settings.iter().map(String::as_str).chain(more.iter().copied()).collect();
    config(&settings)
}

/// The largest difference between two lists, relative to the numbers.
fn difference(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs() / a.abs().max(1.0)).fold(0.0, f64::max)
}

fn predictions(dir: &Path) -> Vec<f64> {
    let file = NpyFile::open(dir.join("predictions.npy")).unwrap();
    file.elements::<f32>().unwrap().iter().map(|x| f64::from(*x)).collect()
}

fn plan(dir: &Path) -> Value {
    serde_json::from_slice(&fs::read(dir.join("plan.json")).unwrap()).unwrap()
}

/// Trains on ranks that all compute at one place.
fn fresh_at(at: DeviceName, config: &Config, dir: &Path) -> Summary {
    let data = Data::open(&config.data, &config.encoding, &Silent).unwrap();
    let world = World::threads(&config.parallel).at(at, Precision::default()).unwrap();
    on_world(&world, data, config, dir, &Start::New, Watch::default()).unwrap()
}

fn ranks_learn_the_same(at: DeviceName) {
    let dir = tempfile::tempdir().unwrap();
    for (dtype, tolerance) in [("f64", 1e-9), ("f32", 1e-4)] {
        let more = [&format!("compute.dtype={dtype}"), "model.norm=batch", "encoding.degree=true", "train.dropout=0.5"];
        let alone = dir.path().join(format!("{dtype}-alone"));
        let one = fresh_at(at, &config(&more), &alone);
        for (strategy, ranks) in STRATEGIES {
            let path = |again| dir.path().join(format!("{dtype}-{strategy}-{ranks}-{again}"));
            let [found, _] = ["a", "b"].map(|again| fresh_at(at, &on(strategy, ranks, &more), &path(again)));
            same(&path("a"), &path("b"), strategy);
            let apart = difference(&one.runs[0].losses, &found.runs[0].losses);
            assert!(apart < tolerance, "{dtype} {strategy} on {ranks}: {apart}");
            let apart = difference(&predictions(&alone), &predictions(&path("a")));
            // Predictions are stored as f32.
            assert!(apart < tolerance.max(1e-6) * 10.0, "{dtype} {strategy} on {ranks}: predictions {apart}");
            assert_eq!((&plan(&path("a"))["strategy"], &plan(&path("a"))["ranks"]), (&strategy.into(), &ranks.into()));
        }
    }
}

#[test]
fn ranks_learn_what_one_learns_with_the_same_bytes_every_time() {
    ranks_learn_the_same(DeviceName::Cpu);
}

#[test]
#[ignore = "needs a GPU"]
fn ranks_of_a_gpu_learn_what_one_learns_with_the_same_bytes_every_time() {
    ranks_learn_the_same(DeviceName::Cuda(0));
}

/// Trains on threads that copy from each other, and on the same with NCCL between their GPUs.
#[cfg(feature = "cuda")]
fn nccl_learns_the_same_bits(at: DeviceName, spread: &[(&str, u64)]) {
    let dir = tempfile::tempdir().unwrap();
    for (strategy, ranks) in spread {
        let config = on(strategy, *ranks, &["model.norm=batch", "train.dropout=0.5"]);
        let [copied, sent] = ["copied", "sent"].map(|how| dir.path().join(format!("{strategy}-{ranks}-{how}")));
        let expected = fresh_at(at, &config, &copied);
        let world = World::threads(&config.parallel).by_nccl().at(at, Precision::default()).unwrap();
        assert_eq!((world.comm_name().to_string(), world.ranks_inside()), ("nccl".into(), *ranks as usize));
        let data = Data::open(&config.data, &config.encoding, &Silent).unwrap();
        let found = on_world(&world, data, &config, &sent, &Start::New, Watch::default()).unwrap();
        same(&copied, &sent, strategy);
        let bytes =
            |summary: &Summary| summary.runs[0].cost.usages.iter().map(RankUsage::bytes_sent).collect::<Vec<_>>();
        assert_eq!(bytes(&found), bytes(&expected), "{strategy} on {ranks}");
    }
}

#[cfg(feature = "cuda")]
#[test]
fn threads_that_nccl_connects_learn_the_same_bits() {
    nccl_learns_the_same_bits(DeviceName::Cpu, &STRATEGIES);
}

/// Its name has no "gpu", by which benches/gpu/tests.sh finds what one of them can run.
#[cfg(feature = "cuda")]
#[test]
#[ignore = "needs NCCL and two GPUs, or NCCL 2.32 on one with NCCL_MULTI_RANK_GPU_ENABLE=1"]
fn threads_that_nccl_connects_elsewhere_learn_the_same_bits() {
    nccl_learns_the_same_bits(DeviceName::Cuda(0), &[("gather", 2), ("halo", 2), ("heads", 2), ("ring", 2)]);
}

#[test]
fn every_rank_tells_what_it_took() {
    let dir = tempfile::tempdir().unwrap();
    let usages = fresh(&on("gather", 3, &[]), dir.path()).runs.remove(0).cost.usages;
    assert_eq!(usages.len(), 3);
    for usage in &usages {
        assert!(usage.peak.total() > 10_000, "{usage:?}");
        let sent = |op: &str| usage.sent.iter().find(|s| s.op == op).unwrap_or_else(|| panic!("{op}: {usage:?}"));
        assert!(sent("attend").bytes > 0 && sent("gradients").bytes > 0 && sent("loss").bytes == 16, "{usage:?}");
        assert_eq!(usage.bytes_sent(), usage.sent.iter().map(|s| s.bytes).sum::<u64>());
    }
    let events: Vec<Value> = serde_json::from_slice(&fs::read(dir.path().join("trace.json")).unwrap()).unwrap();
    for (rank, usage) in usages.iter().enumerate() {
        let phases = events.iter().filter(|e| e["ph"] == "X" && e["tid"] == rank);
        let count = |name: &str| phases.clone().filter(|e| e["name"] == name).count();
        assert_eq!([count("forward"), count("backward"), count("update"), count("evaluate")], [12; 4], "rank {rank}");
        assert_eq!(count("checkpoint"), if rank == 0 { 3 } else { 0 });
        // What it exchanged with the others: as many bars begin as end, and their bytes are those that it says it sent.
        let of =
            |ph: &str| events.iter().filter(|e| e["cat"] == "exchange" && e["tid"] == rank && e["ph"] == ph).count();
        assert!(of("b") > 0 && of("b") == of("e"), "rank {rank}");
        let of_last = events.iter().filter(|e| e["cat"] == "exchange" && e["tid"] == rank && e["args"]["epoch"] == 12);
        for op in ["attend", "gradients"] {
            let exchanges = of_last.clone().filter(|e| e["name"] == op);
            // Evaluating attends as well; only learning is told of.
            let sent: u64 = exchanges.clone().map(|e| e["args"]["sent"].as_u64().unwrap()).sum();
            let told = usage.sent.iter().filter(|s| s.op == op).map(|s| s.bytes).sum::<u64>();
            assert!(told > 0 && if op == "attend" { sent > told } else { sent == told }, "{op}: {sent} {told}");
            assert!(exchanges.clone().all(|e| e["args"]["received"].as_u64() > Some(0)), "{op}");
        }
        let waits = events.iter().filter(|e| e["cat"] == "wait" && e["tid"] == rank && e["ph"] == "X");
        assert!(waits.clone().count() > 0 && waits.clone().all(|e| e["dur"].as_u64() > Some(0)));
    }
    let alone = fresh(&config(&[]), &dir.path().join("alone")).runs.remove(0).cost.usages;
    assert!(alone.len() == 1 && alone[0].sent.is_empty() && alone[0].peak.total() > usages[0].peak.total());
}

#[test]
fn a_run_that_is_over_keeps_what_its_plan_came_to() {
    let dir = tempfile::tempdir().unwrap();
    let config = on("auto", 2, &["train.epochs=3"]);
    fresh(&config, dir.path());
    let written = plan(dir.path());
    assert!(written["measured"]["epoch_ms"].as_f64().unwrap() > 0.0, "{written}");
    let again = resume(&config, dir.path());
    assert_eq!((plan(dir.path()), again.plan.measured), (written, None));
}

#[test]
fn features_that_are_aggregated_as_they_are_travel_once() {
    let dir = tempfile::tempdir().unwrap();
    let sage = |ranks: u64, input_dropout: &str| {
        let mut draft = Draft::default();
        let ranks = format!("parallel.ranks={ranks}");
        let more = ["model.name=sage", "compute.dtype=f64", "parallel.strategy=halo:plain", &ranks, input_dropout];
        let settings = SMALL.iter().filter(|s| !s.starts_with("model.heads")).chain(&more);
        settings.for_each(|s| draft.assign(s).unwrap());
        let config = draft.finish().unwrap();
        fresh(&config, &dir.path().join(format!("{ranks} {input_dropout}"))).runs.remove(0)
    };
    let [one, kept] = [1, 3].map(|ranks| sage(ranks, "train.input_dropout=0"));
    let dropped = sage(3, "train.input_dropout=0.1");
    let bytes = |run: &Run| {
        let sent = run.cost.usages.iter().flat_map(|usage| &usage.sent).filter(|sent| sent.op == "aggregate");
        sent.map(|sent| sent.bytes).sum::<u64>()
    };
    // The second layer's 3 columns and their gradients; and each time the first's 8 columns, if dropout makes them new.
    assert_eq!(bytes(&kept) * (2 * 3 + 8), bytes(&dropped) * (2 * 3));
    assert!(bytes(&kept) > 0 && difference(&one.losses, &kept.losses) < 1e-9);
}

#[test]
fn a_run_on_ranks_is_stopped_and_resumed_bit_for_bit() {
    let dir = tempfile::tempdir().unwrap();
    for (strategy, ranks) in [("auto", 3), ("heads", 2), ("ring:2", 3)] {
        let config = on(strategy, ranks, &["model.norm=batch", "train.patience=6", "train.epochs=30"]);
        goes_on(&config, dir.path(), &[1, 4, 5], strategy);
    }
}

#[test]
fn a_checkpoint_goes_on_with_other_ranks_and_another_strategy() {
    let dir = tempfile::tempdir().unwrap();
    let more = ["compute.dtype=f64", "model.norm=batch", "train.dropout=0.5"];
    let whole = fresh(&config(&more), &dir.path().join("whole")).runs.remove(0).losses;
    let path = dir.path().join("moves");
    stopped(&on("auto", 2, &more), &path, &Start::New, 3);
    stopped(&on("heads", 2, &more), &path, &Start::Newest, 5);
    stopped(&config(&more), &path, &Start::Newest, 7);
    stopped(&on("ring", 3, &more), &path, &Start::Newest, 9);
    let found = resume(&on("grid:2x2:gather", 4, &more), &path).runs.remove(0).losses;
    assert!(difference(&whole, &found) < 1e-9);
    assert_eq!(plan(&path)["ranks"], 4);
    // Only what is asked for changes: the settings of the run are those of the last time.
    let stored = Start::Newest.resumed(&path, &Draft::default()).unwrap().unwrap();
    assert_eq!((stored.parallel.ranks, stored.parallel.strategy.to_string()), (Some(4), "grid:2x2:gather".into()));
}

#[test]
fn a_checkpoint_keeps_its_partition_and_a_stored_one_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("data");
    let spec: graphweft_graph::generate::Spec = "sbm:200:3:6:f=8".parse().unwrap();
    spec.write(0, &folder, &Silent).unwrap();
    let data = graphweft_graph::Dataset::open(&folder).unwrap();
    let graphweft_graph::AnyCsr::Narrow(graph) = data.graph().unwrap() else { panic!("a small graph") };
    let store = |seed| {
        use graphweft_graph::partition::{About, Existing, Method, Options, folder, partition, save, statistics};
        let options = Options { seed, ..Options::new(Method::Random, 2) };
        let parts = partition(graph, &options, &Silent).unwrap();
        let about = About::new(&options, false, statistics(graph, &parts));
        save(&folder(&data, Method::Random, 2), &parts, &about, Existing::Replace).unwrap();
        parts
    };
    let first = store(1);
    let mut config = on("gather", 2, &["parallel.partition=random"]);
    (config.data.graph, config.data.path) = (None, Some(folder.to_str().unwrap().into()));
    let (whole, path) = (dir.path().join("whole"), dir.path().join("stopped"));
    fresh(&config, &whole);
    assert!(plan(&whole)["partition"]["stored"].as_str().unwrap().ends_with("part/random-2"));
    let checkpoint = stopped(&config, &path, &Start::New, 5);
    // The run goes on as it began, whatever is stored now.
    store(2);
    resume(&config, &path);
    same(&whole, &path, "another partition is stored");
    assert_eq!(*Checkpoint::read(&checkpoint.with_file_name("step-000012")).unwrap().partition.unwrap(), first);
}

#[test]
fn several_seeds_and_trained_models_work_on_ranks() {
    let dir = tempfile::tempdir().unwrap();
    let config = on("gather", 2, &["run.seeds=2", "model.norm=batch"]);
    let summary = fresh(&config, dir.path());
    assert_eq!((summary.runs.len(), summary.plan.ranks), (2, 2));
    let trained = Arc::new(Trained::open(&dir.path().join("seed-1"), None).unwrap());
    let data = Arc::new(Data::open(&config.data, &config.encoding, &Silent).unwrap());
    let best = summary.runs[1].outcome.best;
    for ranks in [1, 2, 3] {
        let world = World::threads(&on("gather", ranks, &[]).parallel);
        let (_, _, scores) = trained.evaluate(&world, &data, &Silent).unwrap();
        assert_eq!((scores.train, scores.valid, scores.test), (best.train, best.valid, best.test), "{ranks} ranks");
        let (rows, cols) = trained.predict(&world, &data, &Silent).unwrap().unwrap();
        let rows: Vec<f64> = rows.into_iter().map(f64::from).collect();
        assert_eq!(cols, 3);
        assert!(difference(&rows, &predictions(&dir.path().join("seed-1"))) < 1e-4);
    }
}

#[test]
fn what_makes_no_sense_on_ranks_is_refused_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for (k, (config, part)) in [
        (on("local", 2, &[]), "one rank"),
        (on("grid:2x2:gather", 3, &[]), "2 × 2"),
        (on("gather", 2, &["model.heads=3"]), "cannot be shared"),
        (on("gather", 2, &["model.heads=3", "run.seeds=2"]), "cannot be shared"),
        (config(&["model.heads=3", "run.seeds=2"]), "cannot be shared"),
    ]
    .into_iter()
    .enumerate()
    {
        let path = dir.path().join(k.to_string());
        let message = run(&config, &path, &Start::New, Watch::default()).unwrap_err().to_string();
        assert!(message.contains(part) && message.contains("remedy"), "{message}");
        assert!(!path.exists(), "{k}: nothing is left behind");
    }
    let mut draft = Draft::default();
    for (setting, part) in [
        ("parallel.strategy=halos", "there is no strategy"),
        ("parallel.comm=smoke", "threads"),
        ("parallel.ranks=-1", "parallel.ranks"),
    ] {
        let message = draft.assign(setting).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn all_ranks_stop_at_a_number_that_is_not_finite() {
    let dir = tempfile::tempdir().unwrap();
    let config = on("gather", 3, &["train.lr=1e30", "model.norm=none"]);
    let error = run(&config, dir.path(), &Start::New, Watch::default()).unwrap_err();
    let Error::NotFinite { epoch, place } = &error else { panic!("{error}") };
    assert!(*epoch > 1 && place.contains("layer"), "{error}");
}

/// Trains with faults, from the beginning.
fn faulty(world: World, config: &Config, dir: &Path, faults: &[Fault]) -> Result<Summary> {
    let data = Data::open(&config.data, &config.encoding, &Silent)?;
    on_world(&world.with_faults(faults), data, config, dir, &Start::New, Watch::default())
}

/// Each fault is blamed on this rank, and what was stored before is good.
fn whoever_is_lost_is_named(connect: impl Fn(World) -> World, faults: &[(Fault, usize)]) {
    let dir = tempfile::tempdir().unwrap();
    let config = on("gather", 3, &["parallel.deadline=1", "run.checkpoint_every=1", "train.epochs=9"]);
    let whole = dir.path().join("whole");
    fresh(&config, &whole);
    for (k, (fault, rank)) in faults.iter().enumerate() {
        let (path, world) = (dir.path().join(k.to_string()), connect(World::threads(&config.parallel)));
        let error = faulty(world, &config, &path, &[*fault]).unwrap_err();
        let Error::RankLost { lost, checkpoint } = &error else { panic!("{fault:?}: {error}") };
        let graphweft_comm::Error::RankLost { rank: named, step, .. } = lost else { panic!("{lost}") };
        assert!(named == rank && *step > 1, "{fault:?}: {error}");
        let checkpoint = checkpoint.as_ref().unwrap_or_else(|| panic!("{error}"));
        assert!(error.to_string().contains(checkpoint.to_str().unwrap()), "{error}");
        assert!(Checkpoint::read(checkpoint).unwrap().state.epoch + 1 >= *step);
        if !matches!(fault, Fault::Hang { .. }) {
            // A rank that hangs in this process still holds the directory.
            resume(&config, &path);
            same(&whole, &path, "a rank was lost");
        }
    }
}

const LOST: [(Fault, usize); 3] = [
    (Fault::Panic { rank: 0, at: 120 }, 0),
    (Fault::Panic { rank: 2, at: 121 }, 2),
    (Fault::Hang { rank: 1, at: 122, time: Duration::from_secs(3600) }, 1),
];

#[test]
fn a_lost_rank_is_named_and_the_last_checkpoint_loads() {
    let unheard = (Fault::Drop { from: 1, to: 2, at: 123 }, 1);
    whoever_is_lost_is_named(|world| world, &[&LOST[..], &[unheard]].concat());
}

#[cfg(feature = "cuda")]
#[test]
fn a_lost_rank_that_nccl_connects_is_named_and_the_last_checkpoint_loads() {
    whoever_is_lost_is_named(World::by_nccl, &LOST);
}
