//! Links: learned and scored the same on any ranks, with the bytes of the formula, and resumed bit for bit.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests.

use std::path::Path;
use std::sync::Arc;

use crate::whole::{LINKED as NODES, fresh, link_folder as folder, resume, same, stopped};
use graphweft_base::progress::Silent;
use graphweft_graph::dataset::Dataset;
use graphweft_graph::npy::NpyFile;
use graphweft_train::config::{Config, Draft};
use graphweft_train::data::Data;
use graphweft_train::ranks::World;
use graphweft_train::run::{Scores, Start, Trained};

fn config(folder: &Path, more: &[&str]) -> Config {
    let path = format!("data.path=\"{}\"", folder.display());
    let usual = [
        path.as_str(),
        "data.embedding=6",
        "data.self_loops=add",
        "model.name=gcn",
        "model.hidden=12",
        "model.layers=2",
        "train.epochs=8",
        "train.lr=0.02",
        "train.dropout=0.3",
        "train.negatives=2",
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

fn all(scores: &Scores) -> [f64; 3] {
    [scores.train, scores.valid, scores.test]
}

const SPREAD: [(&str, u64); 8] = [
    ("gather", 2),
    ("halo", 2),
    ("heads", 3),
    ("ring", 3),
    ("halo:plain", 4),
    ("grid:2x2", 4),
    ("halo", 8),
    ("ring", 8),
];

#[test]
fn ranks_learn_and_score_what_one_does() {
    let dir = tempfile::tempdir().unwrap();
    let data = folder(dir.path(), Some(40));
    for metric in ["roc-auc", "hits@20"] {
        let more = ["compute.dtype=f64", &format!("train.metric=\"{metric}\"")];
        let one = fresh(&config(&data, &more), &dir.path().join(format!("{metric}-alone"))).runs.remove(0);
        assert!(one.losses[7] < one.losses[0], "{:?}", one.losses);
        for (strategy, ranks) in SPREAD {
            let path = |again: u8| dir.path().join(format!("{metric}-{strategy}-{ranks}-{again}"));
            let found = fresh(&on(&data, strategy, ranks, &more), &path(0)).runs.remove(0);
            fresh(&on(&data, strategy, ranks, &more), &path(1));
            same(&path(0), &path(1), strategy);
            for (a, b) in found.losses.iter().zip(&one.losses) {
                assert!((a - b).abs() <= 1e-9 * b.max(1.0), "{strategy} on {ranks}: {a} {b}");
            }
            assert_eq!(all(&found.outcome.best), all(&one.outcome.best), "{strategy} on {ranks}");
        }
    }
}

/// Forward, every rank sends its rows to all others; backward, the gradients of theirs.
#[test]
fn bytes_are_those_of_the_formula() {
    let dir = tempfile::tempdir().unwrap();
    let data = folder(dir.path(), None);
    for ranks in [2u64, 3, 8] {
        let config = on(&data, "halo", ranks, &["parallel.partition=contiguous"]);
        let run = fresh(&config, &dir.path().join(ranks.to_string())).runs.remove(0);
        let sent = run.cost.usages.iter().flat_map(|usage| &usage.sent).filter(|sent| sent.op == "links");
        assert_eq!(sent.map(|sent| sent.bytes).sum::<u64>(), 2 * 4 * 6 * NODES * (ranks - 1), "{ranks} ranks");
    }
}

#[test]
fn a_run_that_was_stopped_ends_with_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let data = folder(dir.path(), Some(30));
    for (strategy, ranks) in [("auto", 1), ("halo", 3)] {
        let config = on(&data, strategy, ranks, &[]);
        let [whole, cut] = ["whole", "cut"].map(|name| dir.path().join(format!("{name}-{ranks}")));
        fresh(&config, &whole);
        stopped(&config, &cut, &Start::New, 5);
        resume(&config, &cut);
        same(&whole, &cut, strategy);
    }
}

/// By what a metric is, from the rows that the run has written.
#[test]
fn scores_are_those_of_a_reference() {
    let dir = tempfile::tempdir().unwrap();
    let data = folder(dir.path(), Some(40));
    let run = dir.path().join("run");
    let best = fresh(&config(&data, &["train.metric=\"hits@20\""]), &run).runs.remove(0).outcome.best;
    let file = NpyFile::open(run.join("predictions.npy")).unwrap();
    assert_eq!(file.shape(), [NODES as usize, 6]);
    let rows: Vec<f64> = file.elements::<f32>().unwrap().iter().map(|x| f64::from(*x)).collect();
    let score = |pair: &[i64]| {
        let row = |id: i64| &rows[id as usize * 6..][..6];
        row(pair[0]).iter().zip(row(pair[1])).map(|(a, b)| a * b).sum::<f64>()
    };
    let dataset = Dataset::open(&data).unwrap();
    let split = &dataset.links()[0];
    let scores = |pairs: &[i64]| pairs.chunks(2).map(score).collect::<Vec<f64>>();
    let mut against = scores(split.test_neg.as_ref().unwrap());
    against.sort_by(|a, b| b.partial_cmp(a).unwrap());
    let positive = scores(&split.test);
    let hits = positive.iter().filter(|score| **score > against[19]).count() as f64 / positive.len() as f64;
    assert!((best.test - 100.0 * hits).abs() < 1e-9, "{} {hits}", best.test);
    // The share of pairs of a link and another that are in order, ties half.
    let trained = Arc::new(Trained::open(&run, None).unwrap());
    let mut auc = Trained::clone(&trained);
    auc.config = config(&data, &["train.metric=\"roc-auc\""]);
    let opened = Arc::new(Data::open(&auc.config.data, &auc.config.encoding, &Silent).unwrap());
    let (_, _, found) = Arc::new(auc).evaluate(&World::alone(), &opened, &Silent).unwrap();
    let mut right = 0.0;
    for p in &positive {
        right += against.iter().map(|n| if p > n { 1.0 } else { f64::from(u8::from(p == n)) / 2.0 }).sum::<f64>();
    }
    let wanted = 100.0 * right / (positive.len() * against.len()) as f64;
    assert!((found.test - wanted).abs() < 1e-9, "{} {wanted}", found.test);
}

#[test]
fn what_cannot_be_learned_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let data = folder(dir.path(), None);
    for (settings, part) in [
        (&["data.split=random:60/20/20"][..], "data.split"),
        (&["train.metric=accuracy"], "roc-auc"),
        (&["parallel.strategy=isolated"], "parallel.strategy"),
        (&["train.label_smoothing=0.1"], "train.label_smoothing"),
    ] {
        let config = config(&data, settings);
        let opened = Data::open(&config.data, &config.encoding, &Silent).unwrap();
        let message = crate::whole::train_on(opened, &config, &dir.path().join("run")).unwrap_err().to_string();
        assert!(message.contains(part), "{settings:?}: {message}");
    }
}
