//! Whole runs: what they leave behind, that they can be interrupted anywhere, and how they fail.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::whole::{
    SMALL, TIMES, Watch, beside_whole, config, contents, copy_folder, fresh, notes, resume, run, same, same_contents,
    stopped, train_on, watched,
};
use graphweft_base::progress::Silent;
use graphweft_graph::dataset::{Dense, Features};
use graphweft_graph::npy::NpyFile;
use graphweft_model::Models;
use graphweft_train::Error;
use graphweft_train::config::Draft;
use graphweft_train::data::Data;
use graphweft_train::ranks::World;
use graphweft_train::run::Start;
use graphweft_train::run::Trained;
use graphweft_train::task::{Labels, NodeLabels};

#[test]
fn a_run_learns_and_leaves_everything_behind() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    let summary = fresh(&config(&["train.epochs=40"]), &path);
    assert!(summary.test.mean > 55.0, "chance is 33 %: {}", summary.test.mean);
    let losses = &summary.runs[0].losses;
    assert!(losses.len() == 40 && losses[39] < 0.8 * losses[0], "{losses:?}");
    let names: Vec<String> = contents(&path).keys().map(|p| p.display().to_string()).collect();
    let expected = "config.toml plan.json metrics.jsonl result.json model.safetensors predictions.npy curve.svg";
    for name in expected.split(' ') {
        assert!(names.iter().any(|n| n == name), "{name} is missing: {names:?}");
    }
    assert!(TIMES.iter().all(|name| path.join(name).exists()));
    assert!(!names.iter().any(|n| n.contains("partial")), "{names:?}");

    // The configuration reproduces the run.
    let text = fs::read_to_string(path.join("config.toml")).unwrap();
    let again = Draft::parse(&text, Path::new("config.toml")).unwrap().finish().unwrap();
    fresh(&again, &dir.path().join("again"));
    same(&path, &dir.path().join("again"), "the same configuration");
}

#[test]
fn a_run_tells_how_it_learned_what_it_took_and_who_ran_it() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(&["train.evaluate_every=3", "train.schedule=cosine"]);
    stopped(&config, dir.path(), &Start::New, 7);
    resume(&config, dir.path());
    let lines = |name: &str| -> Vec<serde_json::Value> {
        let text = fs::read_to_string(dir.path().join(name)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let (metrics, times) = (lines("metrics.jsonl"), lines("times.jsonl"));
    assert_eq!((metrics.len(), times.len()), (12, 12));
    for (k, (line, time)) in metrics.iter().zip(&times).enumerate() {
        let evaluated = (k + 1) % 3 == 0;
        for key in ["loss", "lr", "gradient_norm"] {
            assert!(line[key].as_f64().unwrap() > 0.0, "{key}: {line}");
        }
        for (of, key) in [(line, "valid_loss"), (line, "valid"), (time, "evaluate_ms")] {
            assert_eq!(of[key].as_f64().is_some_and(|x| x > 0.0), evaluated, "{key}: {of}");
        }
        assert_eq!(time["epoch"], k + 1);
        assert!(time["learn_ms"].as_f64().unwrap() > 0.0, "{time}");
    }
    assert!(metrics[10]["lr"].as_f64() < metrics[0]["lr"].as_f64());
    let events = fs::read(dir.path().join("events.out.tfevents.0.graphweft")).unwrap();
    let tags = ["loss", "lr", "gradient_norm", "epoch_ms", "valid_loss", "evaluate_ms", "valid", "test", "train"];
    for tag in tags {
        // Field 1 of a value: a string of this length.
        let field = [&[10, tag.len() as u8], tag.as_bytes()].concat();
        assert!(events.windows(field.len()).any(|bytes| bytes == field), "{tag}");
    }
    let text = fs::read_to_string(dir.path().join("run.json")).unwrap();
    let starts: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((starts[0]["epoch"].as_u64(), starts[1]["epoch"].as_u64()), (Some(0), Some(7)));
    assert!(!starts[1]["host"].as_str().unwrap().is_empty());
}

#[test]
fn threads_do_not_change_a_byte() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(&["model.norm=batch"]);
    for threads in [1, 3] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let path = dir.path().join(threads.to_string());
        pool.install(|| fresh(&config, &path));
    }
    same(&dir.path().join("1"), &dir.path().join("3"), "threads");
}

fn stop_everywhere(more: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let config = config(more);
    let whole = dir.path().join("whole");
    let epochs = fresh(&config, &whole).runs[0].outcome.epochs;
    assert!(epochs > 5);
    for epoch in [1, 3, 4, 5, epochs - 1] {
        let path = dir.path().join(format!("stopped-{epoch}"));
        stopped(&config, &path, &Start::New, epoch);
        if epoch + 2 < epochs {
            stopped(&config, &path, &Start::Newest, epoch + 2);
        }
        resume(&config, &path);
        same(&whole, &path, &format!("{more:?} stopped after {epoch}"));
    }
    // A run that is over is only finished again.
    resume(&config, &whole);
    same(&whole, &dir.path().join("stopped-1"), "finished twice");
}

#[test]
fn a_run_that_was_stopped_ends_with_the_same_bytes() {
    stop_everywhere(&["model.norm=batch", "train.schedule=cosine", "train.warmup=3"]);
}

#[test]
fn a_plateau_and_momentum_are_remembered() {
    stop_everywhere(&[
        "train.schedule=plateau",
        "train.plateau_patience=1",
        "train.optimizer=sgd",
        "train.momentum=0.9",
    ]);
}

#[test]
fn early_stopping_is_remembered() {
    stop_everywhere(&["train.patience=4", "train.epochs=90", "train.clip=0.5", "train.evaluate_every=2"]);
}

#[test]
fn half_precision_and_computing_again_are_exact_too() {
    stop_everywhere(&[
        "compute.dtype=bf16",
        "compute.remat=layer",
        "train.label_smoothing=0.1",
        "train.optimizer=adam",
    ]);
}

#[test]
fn every_model_is_resumed_exactly() {
    for name in Models::default().names() {
        let dir = tempfile::tempdir().unwrap();
        let mut draft = Draft::default();
        let model = [&format!("model.name={name}"), "model.hidden=8"];
        let settings = SMALL.iter().filter(|s| !s.starts_with("model.")).copied().chain(model);
        settings.chain(["train.epochs=5"]).for_each(|s| draft.assign(s).unwrap());
        let config = draft.finish().unwrap();
        let (whole, path) = (dir.path().join("whole"), dir.path().join("stopped"));
        let losses = fresh(&config, &whole).runs.remove(0).losses;
        assert!(losses[4] < losses[0], "{name}: {losses:?}");
        stopped(&config, &path, &Start::New, 2);
        resume(&config, &path);
        same(&whole, &path, name);
        // What the model is for is known from its tensors, whatever it is.
        let data = Arc::new(unlabelled(Data::open(&config.data, &config.encoding, &Silent).unwrap()));
        let trained = Arc::new(Trained::open(&whole, None).unwrap());
        let (rows, cols) = trained.predict(&World::alone(), &data, &Silent).unwrap().unwrap();
        let stored = NpyFile::open(whole.join("predictions.npy")).unwrap();
        assert!(cols == 3 && stored.elements::<f32>().unwrap()[..] == rows, "{name}");
    }
}

/// The same as a folder without label.npy has it.
fn unlabelled(data: Data) -> Data {
    Data { labels: None, classes: 0, ..data }
}

#[test]
fn a_power_cut_that_truncates_any_file_is_survived() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(&["model.norm=batch"]);
    let (whole, path) = (dir.path().join("whole"), dir.path().join("cut"));
    fresh(&config, &whole);
    stopped(&config, &path, &Start::New, 10);
    let mut files: Vec<PathBuf> = contents(&path).into_keys().collect();
    files.extend(TIMES.map(PathBuf::from));
    assert!(files.len() > 23, "three checkpoints: {files:?}");
    for (k, file) in files.iter().enumerate() {
        let copy = dir.path().join(format!("cut-{k}"));
        copy_folder(&path, &copy);
        let target = fs::OpenOptions::new().write(true).open(copy.join(file)).unwrap();
        let length = target.metadata().unwrap().len();
        target.set_len([0, length / 2, length.saturating_sub(1)][k % 3]).unwrap();
        resume(&config, &copy);
        let (mut expected, mut found) = (contents(&whole), contents(&copy));
        if file.starts_with("checkpoints/step-000008") {
            // An older checkpoint that nobody goes on from is not made again: one that is older still stays in its
            // place.
            expected.retain(|name, _| !name.starts_with("checkpoints/step-000008"));
            found.retain(|name, _| !name.starts_with("checkpoints/step-000004"));
        }
        same_contents(&expected, &found, &file.display().to_string());
    }
    // Everything cut at once: there were checkpoints, so nothing is begun in their place.
    for file in &files {
        fs::OpenOptions::new().write(true).open(path.join(file)).unwrap().set_len(3).unwrap();
    }
    let message = run(&config, &path, &Start::Newest, Watch::default()).unwrap_err().to_string();
    assert!(message.contains("step-000010") && message.contains("nothing was changed"), "{message}");
    let found = files.iter().filter(|file| fs::metadata(path.join(file)).is_ok_and(|about| about.len() == 3));
    assert_eq!(found.count(), files.len());
}

#[test]
fn an_older_checkpoint_can_be_named() {
    let dir = tempfile::tempdir().unwrap();
    let (config, whole, path) = beside_whole(dir.path(), "back");
    stopped(&config, &path, &Start::New, 10);
    run(&config, &path, &Start::At(path.join("checkpoints/step-000004")), Watch::default()).unwrap();
    same(&whole, &path, "from epoch 4");
}

#[test]
fn several_seeds_have_a_folder_each_and_are_resumed() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(&["run.seed=5", "run.seeds=3"]);
    let (whole, path) = (dir.path().join("whole"), dir.path().join("stopped"));
    let summary = fresh(&config, &whole);
    let tests: Vec<f64> = summary.runs.iter().map(|r| r.outcome.best.test).collect();
    assert_eq!(summary.runs.iter().map(|r| r.outcome.seed).collect::<Vec<_>>(), [5, 6, 7]);
    assert!((summary.test.mean - tests.iter().sum::<f64>() / 3.0).abs() < 1e-9);
    assert_ne!(summary.runs[0].losses, summary.runs[1].losses);

    // The second seed is stopped when the first is over.
    stopped(&config, &path, &Start::New, 5);
    stopped(&config, &path, &Start::Newest, 7);
    resume(&config, &path);
    same(&whole, &path, "three seeds");

    // A seed of several is the run of that seed alone.
    let mut alone = config;
    (alone.run.seed, alone.run.seeds) = (6, 1);
    fresh(&alone, &dir.path().join("alone"));
    same(&whole.join("seed-6"), &dir.path().join("alone"), "one seed");
}

#[test]
fn only_some_settings_may_change_when_a_run_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    stopped(&config(&[]), dir.path(), &Start::New, 5);
    let with = |s: &[&str]| {
        let mut given = Draft::default();
        s.iter().for_each(|s| given.assign(s).unwrap());
        Start::Newest.resumed(dir.path(), &given)
    };
    let longer = with(&["train.epochs=15"]).unwrap().unwrap();
    assert_eq!((longer.train.epochs, longer.train.lr), (15, 0.01));
    let message = with(&["train.lr=0.5"]).unwrap_err().to_string();
    assert!(message.contains("train.lr") && message.contains("train.epochs"), "{message}");
    assert!(Start::Newest.resumed(&dir.path().join("none"), &Draft::default()).unwrap().is_none());
    assert_eq!(resume(&longer, dir.path()).runs[0].losses.len(), 15);
}

#[test]
fn a_number_that_is_not_finite_stops_the_run_before_the_update() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(&["train.lr=1e30", "model.norm=none", "run.checkpoint_every=1"]);
    let error = run(&config, dir.path(), &Start::New, Watch::default()).unwrap_err();
    let Error::NotFinite { epoch, place } = &error else { panic!("{error}") };
    assert!(*epoch > 1 && place.contains("layer"), "{error}");
    assert!(error.to_string().contains("train.lr"));
    // What is saved is from before.
    let metrics = fs::read_to_string(dir.path().join("metrics.jsonl")).unwrap();
    assert_eq!(metrics.lines().count() as u64, epoch - 1);
    assert!(!dir.path().join("result.json").exists());
}

#[test]
fn the_first_layer_that_is_not_finite_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let mut data = Data::open(&config(&[]).data, &config(&[]).encoding, &Silent).unwrap();
    let Features::Dense(Dense::F32 { values, .. }) = &mut data.features else { panic!("dense features") };
    let mut spoiled = values.to_vec();
    spoiled[17] = f32::NAN;
    *values = spoiled.into();
    let error = train_on(data, &config(&[]), dir.path()).unwrap_err();
    let Error::NotFinite { epoch: 1, place } = &error else { panic!("{error}") };
    assert!(place.contains("layer input"), "{error}");
}

#[test]
fn nothing_is_learned_without_labels_and_no_score_is_made_up() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(&["train.epochs=2"]);
    let data = Data::open(&config.data, &config.encoding, &Silent).unwrap();
    let split = data.splits[0].clone();
    let without = |ids: &[i64]| {
        let mut data = data.clone();
        if let Some(Labels::Integers(labels)) = &mut data.labels {
            ids.iter().for_each(|id| labels[*id as usize] = -1);
        }
        data
    };
    let all: Vec<i64> = (0..200).collect();
    for (name, ids) in [("train", &split.train[..]), ("valid", &split.valid[..]), ("train", &all)] {
        let message = train_on(without(ids), &config, &dir.path().join("refused")).unwrap_err().to_string();
        assert!(message.contains(&format!("no label is known in {name} of split \"default\"")), "{message}");
        assert!(message.contains("data.split") && message.contains("label.npy"), "{message}");
        assert!(!dir.path().join("refused").exists());
    }
    let (path, watch) = (dir.path().join("untested"), Arc::new(Watch::default()));
    let summary = watched(without(&split.test), &config, &path, Start::New, &watch).unwrap();
    assert!(summary.test.mean.is_nan() && summary.valid.mean > 0.0);
    assert!(notes(&watch).contains("no label is known in test"), "{}", notes(&watch));
    let curve = fs::read_to_string(path.join("curve.svg")).unwrap();
    assert!(curve.contains("no test score") && !curve.contains("NaN"), "{curve}");
    let result = fs::read_to_string(path.join("result.json")).unwrap();
    assert!(result.contains("\"test\": null"), "{result}");
}

#[test]
fn it_is_said_what_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    for useless in [false, true] {
        let config = config(&["train.epochs=2", &format!("compute.record={useless}")]);
        let data = Data::open(&config.data, &config.encoding, &Silent).unwrap();
        let (data, watch) = (Data { has_edge_features: useless, ..data }, Arc::new(Watch::default()));
        watched(data, &config, &dir.path().join(useless.to_string()), Start::New, &watch).unwrap();
        for what in ["edge_feat.npy", "compute.record"] {
            assert_eq!(notes(&watch).contains(&format!("{what} is not used")), useless, "{}", notes(&watch));
        }
    }
}

#[test]
fn a_run_that_is_asked_to_stop_before_it_begins_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let (config, path) = (config(&[]), dir.path().join("run"));
    let stopping = || {
        let watch = Watch::default();
        watch.stop.request();
        watch
    };
    let error = run(&config, &path, &Start::New, stopping()).unwrap_err();
    assert!(matches!(error, Error::Stopped { epoch: 0, .. }), "{error}");
    assert!(error.to_string().contains("before the first epoch") && !path.exists(), "{error}");
    let saved = stopped(&config, &path, &Start::New, 5);
    let before = contents(&path);
    let error = run(&config, &path, &Start::Newest, stopping()).unwrap_err();
    let Error::Stopped { epoch: 5, checkpoint } = &error else { panic!("{error}") };
    assert_eq!(*checkpoint, saved);
    same_contents(&before, &contents(&path), "stopped before it went on");
}

#[test]
fn labels_of_several_kinds_are_learned() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(&["train.epochs=40"]);
    let mut data = Data::open(&config.data, &config.encoding, &Silent).unwrap();
    // Three labels per node: its class, whether it is not the first, and one that nobody knows.
    let Some(Labels::Integers(labels)) = &data.labels else { panic!("classes") };
    let each = labels.iter().flat_map(|l| [f32::from(u8::from(*l == 1)), f32::from(u8::from(*l > 0)), f32::NAN]);
    (data.task, data.labels) = (&NodeLabels, Some(Labels::Numbers(each.collect())));
    for (metric, floor) in [("roc-auc", 65.0), ("average-precision", 60.0), ("accuracy", 60.0), ("macro-f1", 30.0)] {
        config.train.metric = Some(serde_json::from_value(metric.into()).unwrap());
        let summary = train_on(data.clone(), &config, &dir.path().join(metric)).unwrap();
        assert!(summary.test.mean > floor, "{metric}: {}", summary.test.mean);
    }
    config.train.metric = None;
    let mut smoothed = config.clone();
    smoothed.train.label_smoothing = 0.1;
    let message = train_on(data.clone(), &smoothed, &dir.path().join("smoothed")).unwrap_err().to_string();
    assert!(message.contains("train.label_smoothing"), "{message}");
    assert_eq!(train_on(data, &config, &dir.path().join("unset")).unwrap().metric.name(), "roc-auc");
}

#[test]
fn encodings_tell_nodes_apart() {
    let dir = tempfile::tempdir().unwrap();
    let all = ["encoding.laplacian=3", "encoding.random_walk=4", "encoding.degree=true", "train.epochs=3"];
    let with = fresh(&config(&all), &dir.path().join("with"));
    let without = fresh(&config(&["train.epochs=3"]), &dir.path().join("without"));
    // A linear layer of eight columns over eight encodings.
    assert_eq!(with.runs[0].outcome.parameters, without.runs[0].outcome.parameters + 8 * 8 + 8);
    assert_ne!(with.runs[0].losses, without.runs[0].losses);
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (k, (setting, part)) in [
        ("train.metric=roc-auc", "this dataset has 3"),
        ("data.split=none", "no split \"none\""),
        ("model.heads=3", "cannot be shared"),
        ("model.heads=3 encoding.degree=true", "model: "),
    ]
    .into_iter()
    .enumerate()
    {
        let path = dir.path().join(k.to_string());
        let settings: Vec<&str> = setting.split(' ').collect();
        let message = run(&config(&settings), &path, &Start::New, Watch::default()).unwrap_err().to_string();
        assert!(message.contains(part) && message.contains("remedy"), "{message}");
        assert!(!path.exists(), "nothing is left behind");
    }
    let mut draft = Draft::default();
    for setting in ["data.graph=sbm:200:3:6:f=8", "model.name=gcn", "encoding.random_walk=2"] {
        draft.assign(setting).unwrap();
    }
    let message = run(&draft.finish().unwrap(), &dir.path().join("gcn"), &Start::New, Watch::default()).unwrap_err();
    assert!(message.to_string().starts_with("encoding.random_walk: "), "{message}");
    assert!(message.to_string().contains("leave it out, or choose a model"), "{message}");
    let path = dir.path().join("twice");
    fresh(&config(&[]), &path);
    let message = run(&config(&[]), &path, &Start::New, Watch::default()).unwrap_err().to_string();
    assert!(message.contains("exists already") && message.contains("--resume"), "{message}");
}
