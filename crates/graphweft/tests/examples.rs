//! Every program of `examples/` runs.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where cargo puts examples: beside the folder of this test.
fn built(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.parent().unwrap().parent().unwrap().join("examples").join(name)
}

fn run(name: &str) -> String {
    let cache = tempfile::tempdir().unwrap();
    let out = Command::new(built(name)).env("GRAPHWEFT_CACHE", cache.path()).output().unwrap();
    assert!(out.status.success(), "{name}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

#[test]
fn every_example_runs_and_says_something() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let sources = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut names: Vec<String> = sources
        .filter(|path| path.extension().is_some_and(|end| end == "rs"))
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_string())
        .collect();
    names.sort();
    assert!(names.len() >= 8, "{names:?}");
    for name in names {
        assert!(!run(&name).is_empty(), "{name} says nothing");
    }
}

#[test]
fn exact_strategies_of_the_examples_agree() {
    let said = run("own_strategy");
    let losses: Vec<f64> =
        said.split(';').map(|part| part.trim().rsplit(' ').next().unwrap().parse().unwrap()).collect();
    assert!((losses[0] - losses[1]).abs() < 1e-4, "{said}");
}

/// What a caller holds may go to another thread.
#[test]
fn handles_are_sent_to_other_threads() {
    fn is_send<T: Send>() {}
    is_send::<graphweft::Run>();
    is_send::<graphweft::Dataset>();
    is_send::<graphweft::Graph>();
    is_send::<graphweft::Plan>();
    is_send::<graphweft::Report>();
    is_send::<graphweft::Model>();
    is_send::<graphweft::Error>();

    let dir = tempfile::tempdir().unwrap();
    let run = graphweft::Run::new("sbm:60:3:4:f=8").model("gcn").epochs(2).output(dir.path().join("run"));
    let (plan, report) = std::thread::spawn(move || (run.plan().unwrap(), run.train().unwrap())).join().unwrap();
    let model = graphweft::Model::open(&report.folder).unwrap();
    let scores = std::thread::spawn(move || model.evaluate().unwrap()).join().unwrap();
    assert_eq!((plan.ranks, scores.test.mean.to_bits()), (report.plan.ranks, report.test.mean.to_bits()));
}
