//! Node regression, which is a task like any other: the same numbers on every exact strategy and any number of ranks,
//! bit for bit when it is repeated or resumed, from pieces, out of core and in a pipeline; lower errors are better;
//! values are written with original ids; what makes no sense is refused. And a task from outside.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::whole::{SMALL, apart, fresh, lines, numbers, resume, same, stopped, train_on};
use graphweft_base::progress::Silent;
use graphweft_graph::dataset::{DatasetWriter, Dense, Features, Labels, Meta, Split, Task as DatasetTask};
use graphweft_graph::generate::Spec;
use graphweft_graph::npy::{NpyFile, write_npy};
use graphweft_train::Result;
use graphweft_train::config::{Config, Draft, TrainConfig};
use graphweft_train::data::Data;
use graphweft_train::ranks::World;
use graphweft_train::run::Line;
use graphweft_train::run::Trained;
use graphweft_train::task::{self, LabelView, LossDevice, NodeRegression, Targets, Task};
use graphweft_train::task::{Format, Output, What, Written};
use graphweft_train::task::{Metric, ScoredRows};

const NODES: usize = 150;

/// A dataset folder: two numbers per node that its features and its neighbours' say something about. Some are unknown.
fn folder(root: &Path, columns: usize) -> PathBuf {
    let dir = root.join(format!("data-{columns}"));
    let spec: Spec = format!("sbm:{NODES}:3:6:f=8").parse().unwrap();
    let graph = spec.graph(0, &Silent).unwrap();
    let Some(Features::Dense(Dense::F32 { values, width })) = spec.features(0) else { panic!("dense features") };
    let of = |node: usize, column: usize| values[node * width + column];
    let value = |node: usize, column: usize| {
        let sources = graph.row(node);
        let around: f32 = sources.iter().map(|j| of(*j as usize, column)).sum::<f32>() / sources.len().max(1) as f32;
        let unknown = (node + 3 * column).is_multiple_of(7);
        if unknown { f32::NAN } else { 2.0 * of(node, column) - around + 0.5 }
    };
    let labels: Vec<f32> = (0..NODES * columns).map(|at| value(at / columns, at % columns)).collect();
    let writer = DatasetWriter::create(&dir).unwrap();
    let meta = Meta {
        num_features: width,
        num_classes: columns,
        task: DatasetTask::NodeRegression,
        ..Meta::of("numbers", &graph, true)
    };
    writer.graph(&graph.into()).unwrap();
    writer.features(&spec.features(0).unwrap()).unwrap();
    writer.labels(&Labels::Values(labels.into()), columns).unwrap();
    writer.split(&spec.split(0).unwrap()).unwrap();
    let ids: Vec<i64> = (0..NODES as i64).map(|node| 1000 - node).collect();
    write_npy(writer.path("node_id.npy"), &[], &ids).unwrap();
    writer.finish(&meta).unwrap();
    dir
}

/// The usual small run on such a folder, with heads for eight ranks.
fn config(data: &Path, more: &[&str]) -> Config {
    let mut draft = Draft::default();
    draft.set("data", "path", data.display().to_string()).unwrap();
    let usual = SMALL.iter().filter(|setting| !setting.starts_with("data.graph"));
    let wide = ["model.hidden=16", "model.heads=8", "parallel.profile=16-cpu-10g"];
    usual.chain(&wide).chain(more).for_each(|setting| draft.assign(setting).unwrap());
    draft.finish().unwrap()
}

fn on(data: &Path, strategy: &str, ranks: u64, more: &[&str]) -> Config {
    let spread = [format!("parallel.strategy={strategy}"), format!("parallel.ranks={ranks}")];
    config(data, &spread.iter().map(String::as_str).chain(more.iter().copied()).collect::<Vec<_>>())
}

fn values(dir: &Path) -> Vec<f32> {
    NpyFile::open(dir.join("predictions.npy")).unwrap().elements::<f32>().unwrap().to_vec()
}

#[test]
fn exact_strategies_on_any_ranks_learn_what_one_rank_learns() {
    let root = tempfile::tempdir().unwrap();
    let data = folder(root.path(), 2);
    let more = ["compute.dtype=f64", "model.norm=batch", "train.epochs=8"];
    let alone = root.path().join("alone");
    fresh(&config(&data, &more), &alone);
    let expected = numbers(&alone);
    let every = ["gather", "halo", "halo:plain", "ring", "heads"];
    let spread = [1, 2, 3, 4, 8].into_iter().flat_map(|ranks| every.map(|strategy| (strategy, ranks)));
    for (strategy, ranks) in spread.chain([("grid:2x2", 4), ("grid:2x4", 8), ("grid:4x2:gather", 8)]) {
        let path = root.path().join(format!("{strategy}-{ranks}"));
        fresh(&on(&data, strategy, ranks, &more), &path);
        let apart = apart(&expected, &numbers(&path));
        assert!(apart < 1e-9, "{strategy} on {ranks}: {apart}");
    }
}

#[test]
fn runs_are_repeated_and_resumed_bit_for_bit() {
    let root = tempfile::tempdir().unwrap();
    let data = folder(root.path(), 2);
    let spread = [("local", 1), ("halo", 3), ("ring", 2), ("isolated", 2), ("pipeline", 2)];
    for (strategy, ranks) in spread {
        let config = on(&data, strategy, ranks, &[]);
        let [whole, again, parts] =
            ["whole", "again", "parts"].map(|how| root.path().join(format!("{strategy}-{how}")));
        fresh(&config, &whole);
        fresh(&config, &again);
        same(&whole, &again, strategy);
        stopped(&config, &parts, &graphweft_train::run::Start::New, 5);
        resume(&config, &parts);
        assert!(numbers(&whole) == numbers(&parts) && values(&whole) == values(&parts), "{strategy}: resumed");
        let result = |dir: &Path| fs::read(dir.join("result.json")).unwrap();
        assert!(result(&whole) == result(&parts), "{strategy}: result.json");
    }
}

#[test]
fn pieces_and_stages_learn_and_are_scored_exactly() {
    let root = tempfile::tempdir().unwrap();
    let data = folder(root.path(), 2);
    let more = ["compute.dtype=f64"];
    let exact = root.path().join("exact");
    fresh(&config(&data, &more), &exact);
    for (name, strategy, ranks, settings) in [
        ("one piece", "isolated", 1, "parallel.parts=1"),
        ("one chunk", "pipeline", 2, "pipeline.chunks=1 pipeline.guard_every=4"),
    ] {
        let path = root.path().join(name);
        let more: Vec<&str> = more.into_iter().chain(settings.split(' ')).collect();
        fresh(&on(&data, strategy, ranks, &more), &path);
        let apart = apart(&numbers(&exact), &numbers(&path));
        assert!(apart < 1e-9, "{name}: {apart}");
        let changed = |line: &Line| line.guard.is_some_and(|guard| guard.changed != 0.0);
        assert!(!lines(&path).iter().any(changed), "numbers are never one thing or another");
    }
    for (name, strategy, ranks, settings) in [
        ("pieces", "isolated", 3, "parallel.parts=5 isolated.correction=depth-aware isolated.rotate_every=2"),
        ("out of core", "isolated", 1, "parallel.parts=4"),
        ("stages", "pipeline", 2, "pipeline.chunks=3 pipeline.guard_every=4"),
    ] {
        let path = root.path().join(name);
        let more: Vec<&str> = more.into_iter().chain(settings.split(' ')).collect();
        let outcome = fresh(&on(&data, strategy, ranks, &more), &path).runs.remove(0).outcome;
        let trained = Arc::new(Trained::open(&path, None).unwrap());
        let opened = Arc::new(Data::open(&trained.config.data, &trained.config.encoding, &Silent).unwrap());
        let (metric, _, scores) = trained.evaluate(&World::alone(), &opened, &Silent).unwrap();
        assert_eq!(metric.name(), "mae");
        for (found, expected) in [(scores.valid, outcome.best.valid), (scores.test, outcome.best.test)] {
            assert!((found - expected).abs() < 1e-9, "{name}: {found} {expected}");
        }
    }
}

#[test]
fn lower_errors_are_better_and_higher_shares_of_variance() {
    let root = tempfile::tempdir().unwrap();
    let data = folder(root.path(), 1);
    for (metric, sign) in [("mae", -1.0), ("rmse", -1.0), ("r2", 1.0)] {
        let asked = format!("train.metric={metric}");
        // A rate that overshoots: scores get worse now and then.
        let more = [&asked, "train.epochs=40", "train.lr=0.1", "train.dropout=0.5"];
        let path = root.path().join(metric);
        let best = fresh(&config(&data, &more), &path).runs.remove(0).outcome.best;
        let valid: Vec<f64> = lines(&path).iter().map(|line| sign * line.scores.unwrap().valid).collect();
        let highest = valid.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        assert_eq!(sign * best.valid, highest, "{metric}");
        assert_eq!(valid.iter().position(|x| *x == highest).unwrap() as u64 + 1, best.epoch, "{metric}");
        let mut waited = valid.iter().scan((f64::NEG_INFINITY, 0), |(best, since), x| {
            (*since, *best) = if x > best { (0, *x) } else { (*since + 1, *best) };
            Some(*since)
        });
        let stops = waited.position(|since| since == 3).unwrap() as u64 + 1;
        let more: Vec<&str> = more.into_iter().chain(["train.patience=3"]).collect();
        let run = fresh(&config(&data, &more), &root.path().join(format!("{metric}-patient"))).runs.remove(0);
        assert_eq!(run.outcome.epochs, stops, "{metric}");
    }
}

#[test]
fn numbers_can_be_learned_and_errors_are_in_their_unit() {
    let root = tempfile::tempdir().unwrap();
    let data = folder(root.path(), 1);
    let path = root.path().join("run");
    let more = ["train.metric=r2", "train.epochs=150", "train.dropout=0", "train.attention_dropout=0"];
    let best = fresh(&config(&data, &more), &path).runs.remove(0).outcome.best;
    assert!(best.test > 0.5 && best.test < 1.0, "a plain number, not per cent: {best:?}");
    // By hand, from what was written.
    let labels = NpyFile::open(data.join("label.npy")).unwrap().elements::<f32>().unwrap().to_vec();
    let test: Vec<i64> = {
        let opened = graphweft_graph::Dataset::open(&data).unwrap();
        let Split { test, .. } = opened.splits()[0].clone();
        test.to_vec()
    };
    let (values, known) = (values(&path), |node: &&i64| !labels[**node as usize].is_nan());
    let pair = |node: &i64| (f64::from(values[*node as usize]), f64::from(labels[*node as usize]));
    let pairs: Vec<(f64, f64)> = test.iter().filter(known).map(pair).collect();
    let mean = pairs.iter().map(|(_, y)| y).sum::<f64>() / pairs.len() as f64;
    let of = |f: &dyn Fn(f64, f64) -> f64| pairs.iter().map(|(x, y)| f(*x, *y)).sum::<f64>();
    let r2 = 1.0 - of(&|x, y| (x - y).powi(2)) / of(&|_, y| (y - mean).powi(2));
    assert!((r2 - best.test).abs() < 1e-5, "{r2} {}", best.test);
    let svg = fs::read_to_string(path.join("curve.svg")).unwrap();
    assert!(svg.contains("r2 at epoch") && !svg.contains("per cent"), "a plain number");
}

#[test]
fn values_are_written_with_original_ids() {
    let root = tempfile::tempdir().unwrap();
    let data = folder(root.path(), 2);
    let path = root.path().join("run");
    fresh(&config(&data, &["run.seeds=2", "train.epochs=3"]), &path);
    let all: Vec<Arc<Trained>> = Trained::open_all(&path, None).unwrap().into_iter().map(Arc::new).collect();
    let opened = Data::open(&all[0].config.data, &all[0].config.encoding, &Silent).unwrap();
    assert_eq!(all[0].task(&opened).unwrap().forms()[0], What::Values);
    // The model says itself what it predicts, where data have no labels.
    for data in [opened.clone(), Data { labels: None, classes: 0, task: &task::NodeClass, ..opened }] {
        let data = Arc::new(data);
        let write = |of: &[Arc<Trained>], what, format, name: &str| {
            let output = Output { path: root.path().join(name), what, format };
            Trained::write_together(of, &World::alone(), &data, &Silent, &output).map(|_| output.path)
        };
        let csv = fs::read_to_string(write(&all[..1], What::Values, Format::Csv, "p.csv").unwrap()).unwrap();
        let [first, second] = [0, 1].map(|seed| values(&path.join(format!("seed-{seed}"))));
        let mut expected = String::from("node,value_0,value_1\n");
        for node in 0..NODES {
            expected += &format!("{},{},{}\n", 1000 - node, first[2 * node], first[2 * node + 1]);
        }
        assert!(csv == expected, "{csv}");
        let mean = NpyFile::open(write(&all, What::Values, Format::Npy, "p.npy").unwrap()).unwrap();
        assert_eq!(mean.shape(), [NODES, 2]);
        for ((mean, a), b) in mean.elements::<f32>().unwrap().iter().zip(&first).zip(&second) {
            assert!((mean - (a + b) / 2.0).abs() < 1e-6);
        }
        for what in [What::Logits, What::Probabilities, What::Labels] {
            let message = write(&all[..1], what, Format::Csv, "refused").unwrap_err().to_string();
            assert!(message.contains(what.name()) && message.contains("--what values"), "{message}");
        }
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let data = folder(root.path(), 2);
    for (setting, parts) in [
        ("train.metric=accuracy", ["train.metric", "mae, rmse, r2"]),
        ("train.label_smoothing=0.1", ["train.label_smoothing", "no class"]),
        ("data.split=random:5-per-class", ["data.split", "no class"]),
    ] {
        let config = config(&data, &[setting]);
        let opened = Data::open(&config.data, &config.encoding, &Silent).unwrap();
        let message = train_on(opened, &config, &root.path().join("refused")).unwrap_err().to_string();
        assert!(parts.iter().all(|part| message.contains(part)), "{setting}: {message}");
        assert!(!root.path().join("refused").exists());
    }
    let config = config(&data, &[]);
    let mut opened = Data::open(&config.data, &config.encoding, &Silent).unwrap();
    opened.labels = Some(task::Labels::Numbers(vec![f32::NAN; 2 * NODES]));
    let message = train_on(opened, &config, &root.path().join("refused")).unwrap_err().to_string();
    assert!(message.contains("no label is known in train") && message.contains("label.npy"), "{message}");
}

/// Regression that somebody else has written: errors count twice.
#[derive(Debug)]
struct Own;

impl Task for Own {
    fn name(&self) -> &'static str {
        "own"
    }

    fn dataset(&self) -> DatasetTask {
        DatasetTask::NodeRegression
    }

    fn labels(&self, stored: &Labels) -> Option<task::Labels> {
        NodeRegression.labels(stored)
    }

    fn known(&self, labels: LabelView<'_>, row: usize, columns: usize) -> usize {
        NodeRegression.known(labels, row, columns)
    }

    fn targets(&self, labels: task::Labels, on: &LossDevice<'_>, train: &TrainConfig) -> Result<Box<dyn Targets>> {
        NodeRegression.targets(labels, on, train)
    }

    fn losses(&self, rows: &ScoredRows<'_>) -> [f64; 2] {
        let [sum, count] = NodeRegression.losses(rows);
        [2.0 * sum, count]
    }

    fn metrics(&self) -> &'static [Metric] {
        NodeRegression.metrics()
    }

    fn forms(&self) -> [What; 2] {
        NodeRegression.forms()
    }

    fn written(&self, what: What, columns: usize) -> Option<Written> {
        NodeRegression.written(what, columns)
    }
}

#[test]
fn a_task_from_outside_is_one_that_the_configuration_names() {
    let root = tempfile::tempdir().unwrap();
    let data = folder(root.path(), 1);
    let [usual, own] = ["usual", "own"].map(|name| root.path().join(name));
    let mut config = config(&data, &["train.epochs=2"]);
    fresh(&config, &usual);
    config.data.task = Some(&Own);
    fresh(&config, &own);
    let valid_loss = |dir: &Path| lines(dir)[1].scores.unwrap().valid_loss;
    assert_eq!(valid_loss(&own), 2.0 * valid_loss(&usual));
    let mut trained = Trained::open(&own, None).unwrap();
    let opened = Data::open(&config.data, &config.encoding, &Silent).unwrap();
    let message = trained.task(&opened).unwrap_err().to_string();
    assert!(message.contains("trained for own"), "{message}");
    trained.config.data.task = Some(&Own);
    assert_eq!(trained.task(&opened).unwrap().name(), "own");
    // Labels of classes are not for it.
    let classes = root.path().join("classes");
    let spec: Spec = "sbm:60:3:4:f=8".parse().unwrap();
    spec.write(0, &classes, &Silent).unwrap();
    config.data.path = Some(classes.display().to_string());
    let message = Data::open(&config.data, &config.encoding, &Silent).unwrap_err().to_string();
    assert!(message.contains("label.npy") && message.contains("no labels for own"), "{message}");
}
