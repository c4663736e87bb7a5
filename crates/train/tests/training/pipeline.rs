//! Runs in a pipeline: exact with one chunk, the same bytes every time, resumed anywhere, metered, and watched by the
//! guard.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests.

use std::fs;
use std::path::Path;

use crate::whole::{Watch, fresh, resume, run, same, stopped};
use graphweft_train::Error;
use graphweft_train::config::{Config, Draft};
use graphweft_train::run::Line;
use graphweft_train::run::Run;
use graphweft_train::run::Start;
use serde_json::Value;

const N: u64 = 200;
const HIDDEN: u64 = 8;
/// A directed look at a graph is enough here: it is symmetric, with self-loops.
const COMMON: [&str; 9] = [
    "data.graph=sbm:200:3:6:f=8",
    "data.self_loops=add",
    "model.hidden=8",
    "train.epochs=12",
    "train.lr=0.01",
    "train.dropout=0.2",
    "train.input_dropout=0.1",
    "run.checkpoint_every=4",
    "compute.dtype=f64",
];
const MODELS: [&[&str]; 6] = [
    &["model.name=gcn", "model.layers=3"],
    &["model.name=gcnii", "model.layers=4"],
    &["model.name=sage", "model.layers=3"],
    &["model.name=gt", "model.layers=2", "model.heads=2", "train.attention_dropout=0.3"],
    &["model.name=gat", "model.layers=3", "model.heads=2"],
    &["model.name=exphormer", "model.layers=2", "model.heads=2", "model.virtual_nodes=0"],
];

fn config(model: &[&str], more: &[&str]) -> Config {
    let mut draft = Draft::default();
    COMMON.iter().chain(model).chain(more).for_each(|s| draft.assign(s).unwrap());
    draft.finish().unwrap()
}

fn stages(model: &[&str], ranks: u64, more: &[&str]) -> Config {
    let ranks = format!("parallel.ranks={ranks}");
    let all: Vec<&str> = [&ranks, "parallel.strategy=pipeline"].into_iter().chain(more.iter().copied()).collect();
    config(model, &all)
}

fn lines(dir: &Path) -> Vec<Line> {
    let text = fs::read_to_string(dir.join("metrics.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The largest difference of losses and scores, by their size.
fn apart(a: &[Line], b: &[Line]) -> f64 {
    assert_eq!(a.len(), b.len());
    let pairs = a.iter().zip(b).flat_map(|(a, b)| {
        let (s, t) = (a.scores.unwrap(), b.scores.unwrap());
        [(a.loss, b.loss), (a.gradient_norm, b.gradient_norm), (s.train, t.train), (s.valid, t.valid), (s.test, t.test)]
    });
    pairs.map(|(a, b)| (a - b).abs() / a.abs().max(1.0)).fold(0.0, f64::max)
}

/// The numbers of a file, whose header is 128 bytes long.
fn npy(path: &Path) -> Vec<f32> {
    let bytes = fs::read(path).unwrap();
    bytes[128..].chunks_exact(4).map(|x| f32::from_le_bytes(x.try_into().unwrap())).collect()
}

fn sent(run: &Run, op: &str) -> u64 {
    run.cost.usages.iter().flat_map(|usage| &usage.sent).filter(|sent| sent.op == op).map(|sent| sent.bytes).sum()
}

#[test]
fn one_chunk_is_exact_training() {
    let dir = tempfile::tempdir().unwrap();
    for (k, model) in MODELS.iter().enumerate() {
        let exact = dir.path().join(format!("{k}-exact"));
        let expected = fresh(&config(model, &["train.clip=0.5"]), &exact).runs.remove(0).outcome;
        for ranks in 1..=3 {
            let path = dir.path().join(format!("{k}-{ranks}"));
            let remat = ["compute.remat=none", "compute.remat=layer", "compute.remat=both"][ranks as usize - 1];
            let more = ["pipeline.chunks=1", "pipeline.guard_every=5", "train.clip=0.5", remat];
            let found = fresh(&stages(model, ranks, &more), &path).runs.remove(0);
            let (a, b) = (lines(&exact), lines(&path));
            assert!(apart(&a, &b) < 1e-9, "{model:?} in {ranks} stages: {}", apart(&a, &b));
            assert_eq!(found.outcome.parameters, expected.parameters);
            for guard in b.iter().filter_map(|line| line.guard) {
                assert!((guard.loss - guard.exact_loss).abs() < 1e-9 && guard.changed == 0.0, "{guard:?}");
            }
            assert_eq!(b.iter().filter(|line| line.guard.is_some()).count(), 2);
        }
    }
}

#[test]
fn what_is_computed_again_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let [_, gcnii, _, gt, ..] = MODELS;
    for (k, model) in [gcnii, gt].into_iter().enumerate() {
        let run = |remat: &str| {
            let path = dir.path().join(format!("{k}-{remat}"));
            fresh(
                &stages(model, 2, &["pipeline.chunks=5", "train.epochs=6", &format!("compute.remat={remat}")]),
                &path,
            );
            lines(&path)
        };
        let expected = run("none");
        for remat in ["layer", "both"] {
            assert_eq!(apart(&expected, &run(remat)), 0.0, "{model:?} {remat}");
        }
    }
}

#[test]
fn ranks_that_share_a_stage_do_what_one_would() {
    let dir = tempfile::tempdir().unwrap();
    let [gcn, gcnii, _, gt, gat, _] = MODELS;
    // With one chunk that is exact training.
    for (k, (model, chunks, shapes)) in [
        (gcn, 1, &["2x2:gather"][..]),
        (gt, 1, &["2x2"]),
        (gcnii, 5, &["2x2", "1x3:gather"]),
        (gt, 5, &["1x2:heads", "1x3:ring"]),
        (gat, 5, &["2x2"]),
    ]
    .into_iter()
    .enumerate()
    {
        // Parts of ranges are ranges, so that ways have parts of the chunks that one rank has.
        let chunks_of = format!("pipeline.chunks={chunks}");
        let more =
            ["parallel.partition=contiguous", &chunks_of, "pipeline.guard_every=2", "train.epochs=4", "train.clip=0.5"];
        let alone = dir.path().join(format!("{k}"));
        let one = if chunks == 1 { config(model, &more) } else { stages(model, 1, &more) };
        let expected = fresh(&one, &alone).runs.remove(0).outcome;
        for shape in shapes {
            let ranks = shape[..1].parse::<u64>().unwrap() * shape[2..3].parse::<u64>().unwrap();
            let (strategy, path) =
                (format!("parallel.strategy=pipeline:{shape}"), dir.path().join(format!("{k}-{shape}")));
            let more: Vec<&str> = more.iter().copied().chain([&*strategy]).collect();
            let found = fresh(&stages(model, ranks, &more), &path).runs.remove(0);
            let (a, b) = (lines(&alone), lines(&path));
            assert!(apart(&a, &b) < 1e-9, "{model:?}, {chunks} chunks in {shape}: {}", apart(&a, &b));
            assert_eq!(found.outcome.parameters, expected.parameters);
            let guards = |lines: &[Line]| lines.iter().filter_map(|l| l.guard).collect::<Vec<_>>();
            assert_eq!(guards(&b).len(), 2);
            for (a, b) in guards(&a).iter().zip(guards(&b)) {
                let apart = (a.exact_loss - b.exact_loss).abs().max((a.loss - b.loss).abs());
                assert!(apart < 1e-9 && a.changed == b.changed, "{a:?} {b:?}");
            }
            let logits = |path: &Path| npy(&path.join("predictions.npy"));
            let apart = logits(&alone).iter().zip(logits(&path)).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(apart < 1e-5, "{apart}");
        }
    }
}

#[test]
fn what_moves_is_the_state_of_every_row_and_its_gradient() {
    let dir = tempfile::tempdir().unwrap();
    for (model, matrices) in [(MODELS[0], 1), (MODELS[1], 2), (MODELS[3], 1)] {
        for ranks in 1..=3 {
            let path = dir.path().join(format!("{}-{ranks}", model[0]));
            let run = fresh(&stages(model, ranks, &["pipeline.guard_every=0", "train.epochs=3"]), &path).runs.remove(0);
            assert_eq!(sent(&run, "stage"), 2 * (ranks - 1) * N * HIDDEN * matrices * 8, "{model:?} on {ranks}");
            assert_eq!((sent(&run, "gradients"), sent(&run, "exact")), (0, 0));
        }
        let more = ["parallel.strategy=pipeline:2x2", "pipeline.guard_every=0", "train.epochs=3"];
        let run = fresh(&stages(model, 4, &more), &dir.path().join(model[0])).runs.remove(0);
        assert_eq!(sent(&run, "stage"), 2 * N * HIDDEN * matrices * 8, "{model:?} on 2 stages of 2");
        assert!(sent(&run, "gradients") > 0);
    }
}

#[test]
fn the_same_bytes_for_any_number_of_stages_and_every_time() {
    let dir = tempfile::tempdir().unwrap();
    for dtype in ["f32", "bf16"] {
        let dtype = format!("compute.dtype={dtype}");
        let more =
            [&dtype, "pipeline.chunks=7", "pipeline.refresh_every=3", "pipeline.guard_every=4", "train.epochs=7"];
        let run = |ranks: u64, name: &str| {
            let path = dir.path().join(format!("{dtype}-{name}"));
            fresh(&stages(MODELS[3], ranks, &more), &path);
            path
        };
        let [one, two, again] = [(1, "one"), (2, "two"), (2, "again")].map(|(ranks, name)| run(ranks, name));
        same(&two, &again, &dtype);
        // The length of all gradients is summed in another order; without clipping nothing depends on it.
        let losses = |path: &Path| lines(path).iter().map(|line| (line.loss, line.guard)).collect::<Vec<_>>();
        assert_eq!(losses(&one), losses(&two));
        assert_eq!(fs::read(one.join("model.safetensors")).unwrap(), fs::read(two.join("model.safetensors")).unwrap());
        assert_eq!(fs::read(one.join("predictions.npy")).unwrap(), fs::read(two.join("predictions.npy")).unwrap());
    }
}

#[test]
fn a_run_is_stopped_and_resumed_bit_for_bit() {
    let dir = tempfile::tempdir().unwrap();
    for (ranks, model, strategy) in
        [(2, MODELS[1], "pipeline"), (3, MODELS[3], "pipeline"), (4, MODELS[0], "pipeline:2x2")]
    {
        let strategy = format!("parallel.strategy={strategy}");
        let config = stages(model, ranks, &[&strategy, "pipeline.refresh_every=5", "train.epochs=14"]);
        let (whole, path) = (dir.path().join(format!("{ranks}-whole")), dir.path().join(format!("{ranks}")));
        fresh(&config, &whole);
        for epoch in [3, 6, 7] {
            stopped(&config, &path, if epoch == 3 { &Start::New } else { &Start::Newest }, epoch);
        }
        resume(&config, &path);
        same(&whole, &path, &format!("{ranks} stages"));
    }
}

#[test]
fn a_checkpoint_goes_on_exactly_and_in_other_stages() {
    let dir = tempfile::tempdir().unwrap();
    let model = MODELS[1];
    let path = dir.path().join("moves");
    stopped(&stages(model, 3, &["pipeline.chunks=1"]), &path, &Start::New, 3);
    stopped(&config(model, &["pipeline.chunks=1"]), &path, &Start::Newest, 6);
    resume(&stages(model, 2, &["pipeline.chunks=1"]), &path);
    let exact = dir.path().join("exact");
    fresh(&config(model, &[]), &exact);
    assert!(apart(&lines(&exact), &lines(&path)) < 1e-9);
}

#[test]
fn each_technique_changes_what_is_learned() {
    let dir = tempfile::tempdir().unwrap();
    let all = ["shuffle=true", "shuffle=false", "scale=false", "refresh_every=1", "chunks=3"];
    let losses = all.map(|setting| {
        let setting = format!("pipeline.{setting}");
        let run = fresh(&stages(MODELS[1], 2, &[&setting]), &dir.path().join(&setting)).runs.remove(0);
        assert!(run.losses.iter().all(|loss| loss.is_finite()) && run.losses[11] < run.losses[0], "{setting}");
        run.losses
    });
    for k in 1..losses.len() {
        assert_ne!(losses[0], losses[k], "{}", all[k]);
    }
    // History of this epoch is exact forward, but for dropout: what is left is the gradient along edges that are not
    // fresh.
    let still = ["train.dropout=0", "train.input_dropout=0", "pipeline.refresh_every=1"];
    let exact = fresh(&config(MODELS[1], &still), &dir.path().join("exact")).runs.remove(0).losses;
    let losses = fresh(&stages(MODELS[1], 2, &still), &dir.path().join("still")).runs.remove(0).losses;
    assert!((losses[0] - exact[0]).abs() < 1e-9 && (losses[1] - exact[1]).abs() > 1e-9);
}

#[test]
fn the_guard_speaks_up_and_stops() {
    let dir = tempfile::tempdir().unwrap();
    // Steps so long that rows of some epochs ago are no use.
    let wild = ["train.lr=0.5", "pipeline.refresh_every=12", "pipeline.guard_every=3", "pipeline.chunks=20"];
    let warned = dir.path().join("warned");
    let config = stages(MODELS[0], 2, &wild);
    fresh(&config, &warned);
    #[allow(clippy::redundant_closure_for_method_calls)] // The type of what is seen has no public name.
    let much = |path: &Path| lines(path).iter().filter_map(|l| l.guard).filter(|seen| seen.is_much()).count();
    assert!(much(&warned) > 0, "{:?}", lines(&warned).iter().filter_map(|l| l.guard).collect::<Vec<_>>());
    let stop: Vec<&str> = wild.iter().copied().chain(["pipeline.guard=stop"]).collect();
    let path = dir.path().join("stopped");
    let e = run(&stages(MODELS[0], 2, &stop), &path, &Start::New, Watch::default()).unwrap_err();
    let Error::Diverged { epoch, .. } = e else { panic!("{e}") };
    assert!(epoch.is_multiple_of(3) && epoch <= 12);
    assert!(e.to_string().contains("remedy") && e.to_string().contains("predictions"), "{e}");
    assert_eq!(lines(&path).len() as u64, epoch - 1);
}

#[test]
fn every_stage_has_its_row_of_chunks_in_the_trace() {
    let dir = tempfile::tempdir().unwrap();
    fresh(&stages(MODELS[1], 3, &["pipeline.chunks=5"]), dir.path());
    let events: Vec<Value> = serde_json::from_slice(&fs::read(dir.path().join("trace.json")).unwrap()).unwrap();
    for rank in 0..3 {
        let count =
            |name: &str| events.iter().filter(|e| e["ph"] == "X" && e["tid"] == rank && e["name"] == name).count();
        assert_eq!([count("forward"), count("backward"), count("update"), count("exact")], [60, 60, 12, 4]);
    }
}

#[test]
fn what_cannot_be_a_pipeline_is_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let gt = |more: &'static str| -> Vec<&str> {
        ["model.name=gt", "model.layers=2", "model.heads=2"].into_iter().chain([more]).collect()
    };
    let refused = |config: &Config, parts: &[&str]| {
        let path = dir.path().join("refused");
        let e = run(config, &path, &Start::New, Watch::default()).unwrap_err().to_string();
        assert!(parts.iter().chain(&["remedy"]).all(|part| e.contains(part)), "{e}");
        assert!(!path.join("config.toml").exists());
        let _ = fs::remove_dir_all(path);
    };
    refused(&stages(&gt("model.norm=batch"), 2, &[]), &["parallel.strategy", "batch normalisation"]);
    refused(&stages(&["model.name=sgformer"], 2, &[]), &["all of them at once"]);
    refused(&stages(&["model.name=exphormer", "model.heads=2"], 2, &[]), &["virtual nodes"]);
    refused(&stages(MODELS[0], 4, &[]), &["parallel.ranks", "4 stages for the 3 layers"]);
    refused(&config(MODELS[0], &["parallel.ranks=4", "parallel.strategy=pipeline:2x3"]), &["2 stages of 3"]);
    refused(&config(MODELS[0], &["parallel.ranks=2", "parallel.strategy=pipeline:3x1"]), &["3 stages"]);
}
