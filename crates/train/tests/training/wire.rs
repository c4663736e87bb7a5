//! Learning with rows that are coded on their way: what is saved, that scores are exact, and that it repeats.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests.

use std::fs;

use crate::whole::{config, fresh, goes_on};
use graphweft_train::config::{Config, Draft};

fn on(strategy: &str, ranks: u64, codec: &str, more: &[&str]) -> Config {
    let settings = [
        format!("parallel.ranks={ranks}"),
        format!("parallel.strategy={strategy}"),
        format!("wire.codec={codec}"),
        "parallel.profile=16-cpu-10g".into(),
    ];
    config(&settings.iter().map(String::as_str).chain(more.iter().copied()).collect::<Vec<_>>())
}

const STRATEGIES: [(&str, u64); 4] = [("halo", 3), ("halo:machines:2", 4), ("ring", 3), ("gather", 3)];

#[test]
fn fewer_bytes_are_sent_and_losses_stay_near() {
    let dir = tempfile::tempdir().unwrap();
    for (strategy, ranks) in STRATEGIES {
        let run = |codec: &str| {
            let path = dir.path().join(format!("{strategy}-{codec}"));
            let run = fresh(&on(strategy, ranks, codec, &["train.dropout=0"]), &path).runs.remove(0);
            let rows = |op: &str| op == "attend" || op == "aggregate";
            let sent = run.cost.usages.iter().flat_map(|usage| &usage.sent).filter(|sent| rows(&sent.op));
            (sent.map(|sent| sent.bytes).sum::<u64>(), run.losses)
        };
        let (exact, losses) = run("exact");
        for (codec, most) in [("bf16", 0.05), ("f8", 0.2), ("int8", 0.05), ("int1", f64::INFINITY)] {
            let (bytes, coded) = run(codec);
            assert!(bytes < exact, "{strategy}, {codec}: {bytes} of {exact}");
            assert_ne!(coded, losses, "{strategy}, {codec}");
            let far = coded.iter().zip(&losses).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(far < most, "{strategy}, {codec}: losses are off by {far}");
        }
    }
}

#[test]
fn a_run_with_a_codec_is_stopped_and_resumed_bit_for_bit() {
    let dir = tempfile::tempdir().unwrap();
    for (strategy, ranks) in STRATEGIES {
        goes_on(&on(strategy, ranks, "int2", &["train.epochs=8"]), dir.path(), &[1, 4], strategy);
    }
    let falling = on("halo", 3, "columns:4", &["train.epochs=8", "wire.schedule=falling"]);
    goes_on(&falling, dir.path(), &[1, 4], "falling");
}

/// Where nothing is learned, the model of a coded run is that of an exact one, and so must its predictions be.
#[test]
fn predictions_are_exact() {
    let dir = tempfile::tempdir().unwrap();
    for (strategy, ranks) in STRATEGIES {
        let still = ["train.lr=1e-30", "train.weight_decay=0", "train.epochs=1"];
        let written = |codec: &str| {
            let path = dir.path().join(format!("{strategy}-{codec}"));
            fresh(&on(strategy, ranks, codec, &still), &path);
            fs::read(path.join("predictions.npy")).unwrap()
        };
        assert!(written("exact") == written("int1"), "{strategy}");
    }
}

#[test]
fn what_sends_no_rows_refuses_a_codec() {
    for (strategy, ranks) in [("heads", "2"), ("isolated", "2"), ("pipeline", "2"), ("grid:2x2", "4")] {
        let mut draft = Draft::default();
        let settings = [format!("parallel.strategy={strategy}"), format!("parallel.ranks={ranks}")];
        settings.iter().for_each(|s| draft.assign(s).unwrap());
        draft.assign("wire.codec=int8").unwrap();
        let problem = draft.finish().unwrap_err().to_string();
        assert!(problem.contains("wire.codec") && problem.contains(strategy), "{problem}");
    }
}

#[test]
fn auto_chooses_among_strategies_that_send_rows() {
    let dir = tempfile::tempdir().unwrap();
    let run = fresh(&on("auto", 4, "int8", &["train.epochs=1"]), dir.path());
    let plan = fs::read_to_string(dir.path().join("plan.json")).unwrap();
    let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
    let strategy = plan["strategy"].as_str().unwrap();
    assert!(["halo", "ring", "gather"].iter().any(|family| strategy.starts_with(family)), "{strategy}");
    assert_eq!(run.runs.len(), 1);
}
