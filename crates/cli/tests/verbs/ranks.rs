//! Verbs on several ranks: what they say, and what other programs read of it.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::program::{Scratch, small};

fn train<'a>(more: &[&'a str]) -> Vec<&'a str> {
    // Choices in tests do not depend on the machine.
    small(&[&["train.epochs=6", "parallel.profile=16-cpu-10g"], more].concat())
}

fn numbers(json: &serde_json::Value) -> Vec<f64> {
    json.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

#[test]
fn ranks_report_what_each_took_and_find_what_one_finds() {
    let scratch = Scratch::new();
    let one = scratch.json(&train(&["-o", &scratch.path("one")]));
    for strategy in ["auto", "gather", "halo:plain", "heads", "ring"] {
        let run = scratch.path(strategy);
        let json = scratch.json(&train(&["--ranks", "3", "--strategy", strategy, "-o", &run]));
        let name = if strategy == "auto" { json["strategy"].as_str().unwrap() } else { strategy };
        assert_eq!((&json["strategy"], &json["ranks"]), (&name.into(), &3.into()));
        assert_eq!(json["predicted"]["peak_bytes"].is_number(), strategy == "auto");
        let (losses, expected) = (numbers(&json["loss"]), numbers(&one["loss"]));
        assert!(losses.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-4 * b), "{losses:?} {expected:?}");
        assert!(numbers(&json["peak_bytes"]).len() == 3 && numbers(&json["peak_bytes"]).iter().all(|b| *b > 1e3));
        let sent = numbers(&json["bytes_sent_per_epoch"]);
        assert!(sent.len() == 3 && sent.iter().all(|b| *b > 0.0), "{sent:?}");
        let by_operation = json["sent"].as_array().unwrap();
        assert_eq!(by_operation.iter().map(|s| s["bytes"].as_f64().unwrap()).sum::<f64>(), sent.iter().sum::<f64>());
        assert!(by_operation.iter().any(|s| s["op"] == "attend" && s["traffic"] == "rows"));
        assert_eq!(json["peak_by_rank"].as_array().unwrap().len(), 3);
        let plan: serde_json::Value = serde_json::from_slice(&fs::read(format!("{run}/plan.json")).unwrap()).unwrap();
        assert_eq!((&plan["strategy"], &plan["partition"]["parts"]), (&name.into(), &3.into()));
        assert!(plan["why"].as_str().unwrap().len() > 10);
    }
}

#[test]
fn people_see_the_ranks() {
    let scratch = Scratch::new();
    let out = scratch.run(&train(&["--ranks", "2", "--strategy", "halo", "-o", &scratch.path("run")]));
    let text = String::from_utf8(out.stdout).unwrap();
    for part in ["halo on 2 ranks", "sent per epoch", "attend", "gradients", "exchange", "largest rank", "2 ranks with"]
    {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
}

#[test]
fn a_run_moves_to_other_ranks_and_is_used_on_any() {
    let scratch = Scratch::new();
    let run = scratch.path("run");
    let first = scratch.json(&train(&["--ranks", "2", "--strategy", "ring", "-o", &run]));
    let more = ["train", "-o", &run, "--resume", "--ranks", "3", "--strategy", "gather", "train.epochs=9"];
    let json = scratch.json(&more);
    assert_eq!((&json["ranks"], &json["strategy"]), (&3.into(), &"gather".into()));
    assert_eq!(numbers(&json["loss"])[..6], numbers(&first["loss"])[..]);
    // As it was trained, or as it is asked for.
    let predictions = scratch.path("p.npy");
    for (more, ranks) in [(&[][..], 3), (&["--ranks", "2"], 2), (&["--ranks", "1"], 1)] {
        let found = scratch.json(&[&["eval", run.as_str()], more].concat());
        assert_eq!((&found["test"], &found["ranks"]), (&json["test"], &ranks.into()));
        scratch.json(&[&["predict", &run, "-o", &predictions], more].concat());
        assert_eq!(
            fs::metadata(&predictions).unwrap().len(),
            fs::metadata(format!("{run}/predictions.npy")).unwrap().len()
        );
    }
}

#[test]
fn an_epoch_on_ranks_is_timed() {
    let scratch = Scratch::new();
    let bench = ["bench", "train", "--graph", "rmat:9:8", "--hidden", "16", "--layers", "2", "--runs", "2"];
    let json = scratch.json(&[&bench[..], &["--ranks", "2", "--strategy", "ring"]].concat());
    assert_eq!((&json["ranks"], &json["strategy"]), (&2.into(), &"ring".into()));
    assert!(json["step_ms"].as_f64().unwrap() > 0.0 && json["bytes_sent"].as_f64().unwrap() > 0.0);
    assert_eq!(numbers(&json["bytes_sent_by_rank"]).len(), 2);
    assert_eq!(scratch.json(&bench)["bytes_sent"], 0);
}

#[test]
fn requests_about_ranks_that_make_no_sense_are_refused() {
    let scratch = Scratch::new();
    let run = scratch.path("run");
    for (more, part) in [
        (&["--strategy", "halos"][..], "there is no strategy"),
        (&["--ranks", "0"], "parallel.ranks"),
        (&["--ranks", "3", "--strategy", "grid:2x2"], "2 × 2"),
        (&["--ranks", "2", "--strategy", "local"], "one rank"),
        (&["--comm", "smoke"], "parallel.comm"),
        (&["--comm", "nccl"], "parallel.comm"),
        (&["--ranks", "4", "parallel.parts=2"], "parallel.parts"),
        (&["--ranks", "2", "--seeds", "2", "model.heads=3"], "cannot be shared"),
    ] {
        let message = scratch.error(2, &train(&[more, &["-o", &run]].concat()));
        assert!(message.contains(part) && message.contains("remedy"), "{more:?}: {message}");
        assert!(!Path::new(&run).exists(), "{more:?}");
    }
}

#[test]
fn processes_that_nothing_connects_are_refused() {
    let scratch = Scratch::new();
    for variables in [
        &[("OMPI_COMM_WORLD_SIZE", "3"), ("OMPI_COMM_WORLD_RANK", "1")][..],
        &[("PMI_SIZE", "3"), ("PMI_RANK", "0")],
        &[("WORLD_SIZE", "3"), ("RANK", "2"), ("LOCAL_RANK", "2")],
        &[("SLURM_STEP_NUM_TASKS", "3"), ("SLURM_PROCID", "0")],
    ] {
        let run = scratch.path("run");
        let mut program = Command::new(env!("CARGO_BIN_EXE_graphweft"));
        let out = program.args(train(&["-o", &run])).envs(variables.iter().copied()).output().unwrap();
        let message = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(2), "{variables:?}: {message}");
        assert!(message.contains("3 processes") && message.contains("--comm mpi"), "{message}");
        assert!(!Path::new(&run).exists());
    }
}
