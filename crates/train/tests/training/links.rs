//! Links: learned and scored the same on any ranks, with the bytes of the formula, and resumed bit for bit.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::whole::{LINKED as NODES, fresh, link_folder as folder, resume, same, stopped};
use graphweft_base::progress::Silent;
use graphweft_graph::dataset::{Codes, Dataset, DatasetWriter, LinkSplit, Meta, Task};
use graphweft_graph::npy::NpyFile;
use graphweft_graph::{AnyCsr, Csr};
use graphweft_tensor::Tag;
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
        (&["link.decoder=distmult"], "link.decoder"),
        (&["link.reciprocal=true"], "link.reciprocal"),
        (&["link.decoder=mlp", "link.loss=one-of-all"], "link.loss"),
    ] {
        let config = config(&data, settings);
        let opened = Data::open(&config.data, &config.encoding, &Silent).unwrap();
        let message = crate::whole::train_on(opened, &config, &dir.path().join("run")).unwrap_err().to_string();
        assert!(message.contains(part), "{settings:?}: {message}");
    }
}

/// Triples of which a relation leads a fixed number of nodes on, as a folder.
fn triple_folder(root: &Path) -> PathBuf {
    let triple = |k: u64| {
        let (head, relation) = (k * 7 % NODES, k % 3);
        [head, relation, (head + [1, 7, 25][relation as usize] + u64::from(k.is_multiple_of(11))) % NODES]
            .map(|x| x as i64)
    };
    let part =
        |rest: &[u64]| -> Vec<i64> { (0..180).filter(|k| rest.contains(&(k / 3 % 5))).flat_map(triple).collect() };
    let train = part(&[0, 1, 2]);
    let mut edges: Vec<[i64; 3]> = train.chunks(3).map(|t| [t[2], t[0], t[1]]).collect();
    edges.sort_unstable();
    let ends = |k: usize| edges.iter().map(|edge| edge[k] as u32).collect::<Vec<_>>();
    let graph = Csr::from_edges(NODES as usize, &ends(1), &ends(0)).unwrap();
    let path = root.join("triples");
    let out = DatasetWriter::create(&path).unwrap();
    out.graph(&AnyCsr::from(graph.clone())).unwrap();
    out.edge_types(&Codes::U8 { values: edges.iter().map(|edge| edge[2] as u8).collect::<Vec<_>>().into(), width: 1 })
        .unwrap();
    let (valid, test) = (part(&[3]).into(), part(&[4]).into());
    let name = "own".into();
    out.links(&LinkSplit { name, width: 3, train: train.into(), valid, test, valid_neg: None, test_neg: None })
        .unwrap();
    let edge_types = ["on", "seven", "far"].map(String::from).to_vec();
    out.finish(&Meta { task: Task::Link, edge_types, ..Meta::of("triples", &graph, false) }).unwrap();
    path
}

const TABLE: [&str; 5] =
    ["link.table=true", "data.self_loops=keep", "compute.dtype=f64", "link.decoder=complex", "train.batch=40"];

#[test]
fn ranks_learn_and_rank_triples_as_one_does() {
    let dir = tempfile::tempdir().unwrap();
    let data = triple_folder(dir.path());
    let rgcn = ["model.name=rgcn", "data.self_loops=keep", "compute.dtype=f64", "data.symmetrise=true"];
    let table = |loss: &'static str| [&TABLE[..], &[loss]].concat();
    let cases = [
        (table("link.loss=one-of-all"), &[("gather", 2), ("halo", 3), ("halo", 8)][..]),
        (table("link.loss=some-of-all"), &[("halo", 4)]),
        ([&TABLE[..], &["link.loss=adversarial", "link.reciprocal=true"]].concat(), &[("halo", 2)]),
        (rgcn.to_vec(), &[("gather", 2), ("halo", 3), ("ring", 4), ("heads", 3)]),
        ([&rgcn[..], &["link.decoder=rotate", "link.margin=2"]].concat(), &[("halo", 2)]),
    ];
    for (number, (more, spread)) in cases.into_iter().enumerate() {
        let one = fresh(&config(&data, &more), &dir.path().join(format!("{number}-alone"))).runs.remove(0);
        assert!(one.losses[7] < one.losses[0], "{more:?}: {:?}", one.losses);
        assert_eq!(one.outcome.metric.name(), "mrr");
        for (strategy, ranks) in spread {
            let path = |again: u8| dir.path().join(format!("{number}-{strategy}-{ranks}-{again}"));
            let found = fresh(&on(&data, strategy, *ranks, &more), &path(0)).runs.remove(0);
            fresh(&on(&data, strategy, *ranks, &more), &path(1));
            same(&path(0), &path(1), strategy);
            for (a, b) in found.losses.iter().zip(&one.losses) {
                assert!((a - b).abs() <= 1e-9 * b.max(1.0), "{more:?} {strategy} on {ranks}: {a} {b}");
            }
            assert_eq!(all(&found.outcome.best), all(&one.outcome.best), "{more:?} {strategy} on {ranks}");
            assert_eq!(found.outcome.parameters, one.outcome.parameters);
        }
    }
}

/// A rank keeps its own rows, with what the optimizer remembers of them; a checkpoint has all.
#[test]
fn a_table_is_shared_and_a_run_that_was_stopped_ends_with_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let data = triple_folder(dir.path());
    let more = [&TABLE[..], &["link.loss=one-of-all"]].concat();
    for ranks in [1, 4] {
        let config = on(&data, if ranks == 1 { "auto" } else { "halo" }, ranks, &more);
        let [whole, cut] = ["whole", "cut"].map(|name| dir.path().join(format!("{name}-{ranks}")));
        let run = fresh(&config, &whole).runs.remove(0);
        // Of Adam two numbers for each of its share of 60 rows of 6, and of three relations.
        let optimizer = run.cost.usages[0].peak.of(Tag::Optimizer);
        assert_eq!(optimizer, 2 * 8 * 6 * (60 / ranks + 3));
        stopped(&config, &cut, &Start::New, 5);
        resume(&config, &cut);
        same(&whole, &cut, "table");
    }
    // The model of four ranks is that of one, and is scored by any.
    let trained = Arc::new(Trained::open(&dir.path().join("whole-4"), None).unwrap());
    let opened = Arc::new(Data::open(&trained.config.data, &trained.config.encoding, &Silent).unwrap());
    let (metric, _, scores) = trained.evaluate(&World::alone(), &opened, &Silent).unwrap();
    let best = fresh(&on(&data, "halo", 4, &more), &dir.path().join("again")).runs.remove(0).outcome.best;
    assert_eq!((metric.name(), scores.test), ("mrr", best.test));
}

#[test]
fn what_cannot_be_learned_of_triples_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let data = triple_folder(dir.path());
    for (settings, part) in [
        (&["link.table=true", "link.decoder=complex", "data.embedding=5"][..], "even"),
        (&["link.table=true", "link.loss=all-pairs"], "some-of-all"),
        (&["link.table=true", "link.decoder=transe", "link.loss=one-of-all"], "link.loss"),
        (&["link.table=true", "train.metric=roc-auc"], "mrr"),
    ] {
        let config = config(&data, settings);
        let opened = Data::open(&config.data, &config.encoding, &Silent).unwrap();
        let message = crate::whole::train_on(opened, &config, &dir.path().join("run")).unwrap_err().to_string();
        assert!(message.contains(part), "{settings:?}: {message}");
    }
}
