//! `--strategy isolated`, `--memory` and `partition --chunks`, as users run them.

#![allow(clippy::unwrap_used)] // Helpers of tests.

use std::fs;
use std::path::Path;

use crate::program::Scratch;

#[test]
fn a_graph_on_disk_is_chunked_trained_on_scored_and_predicted() {
    let scratch = Scratch::new();
    let (data, run, out) = (scratch.path("data"), scratch.path("run"), scratch.path("out.npy"));
    scratch.json(&["generate", "rmat:9:8:f=8:c=3", "-o", &data]);
    let stored = scratch.json(&[
        "partition",
        "--data",
        &data,
        "--parts",
        "4",
        "--method",
        "random",
        "--self-loops",
        "add",
        "--chunks",
        "--memory",
        "1MiB",
    ]);
    assert_eq!((&stored["chunks"], &stored["nodes"]), (&4.into(), &512.into()));
    assert!(Path::new(stored["stored"].as_str().unwrap()).join("feat.npy").exists());
    let train = [
        "train",
        "--data",
        &data,
        "--model",
        "sage",
        "model.hidden=8",
        "model.layers=2",
        "data.self_loops=add",
        "parallel.partition=random",
        "parallel.parts=4",
        "train.epochs=6",
        "--strategy",
        "isolated",
        "--memory",
        "64MiB",
        "-o",
        &run,
    ];
    let trained = scratch.json(&train);
    assert_eq!((&trained["strategy"], &trained["ranks"]), (&"isolated".into(), &1.into()));
    let plan = fs::read_to_string(trained["plan"].as_str().unwrap()).unwrap();
    assert!(plan.contains("chunks/random-4"), "{plan}");
    let scores = scratch.json(&["eval", &run]);
    assert_eq!((&scores["valid"], &scores["test"]), (&trained["valid"], &trained["test"]));
    scratch.json(&["predict", &run, "-o", &out]);
    assert!(fs::read(&out).unwrap() == fs::read(Path::new(&run).join("predictions.npy")).unwrap());
    // The same model, all rows at once.
    let whole = scratch.json(&["eval", &run, "--strategy", "local"]);
    assert_eq!(whole["test"], trained["test"]);
}

#[test]
fn memory_is_planned_with_as_it_is_trained_with() {
    let scratch = Scratch::new();
    let pieces = ["--graph", "sbm:4000:4:8:f=32", "--strategy", "isolated", "--memory", "8MiB"];
    let model = ["model.hidden=64", "model.layers=2", "parallel.partition=contiguous", "train.epochs=1"];
    let plan = scratch.json(&[&["plan", "--profile", "16-cpu-10g"][..], &pieces, &model].concat());
    let chunks = plan["chunks"].as_u64().unwrap();
    assert!(chunks > 1 && plan["choice"]["peak_bytes"].as_u64().unwrap() < 8 << 20, "{plan}");
    let trained = scratch.json(&[&["train", "-o", &scratch.path("run")][..], &pieces, &model].concat());
    let written = fs::read_to_string(trained["plan"].as_str().unwrap()).unwrap();
    assert!(written.contains(&format!("\"parts\": {chunks}")), "{written}");
}

#[test]
fn epochs_of_pieces_are_not_timed_by_bench() {
    let scratch = Scratch::new();
    let bench = ["bench", "train", "--graph", "rmat:12:16", "--ranks", "8", "--device", "cpu", "--hidden", "64"];
    let model = ["--layers", "2", "--features", "64", "--classes", "10", "--runs", "1", "model.heads=8"];
    let message = scratch.error(2, &[&bench[..], &model, &["isolated.memory=100000000"]].concat());
    assert!(message.contains("isolated.memory") && message.contains("remedy"), "{message}");
    let message = scratch.error(2, &[&bench[..], &model, &["--strategy", "isolated"]].concat());
    assert!(message.contains("--strategy isolated") && message.contains("remedy"), "{message}");
    // Links so slow that pieces are chosen, where they may be.
    let file = scratch.path("slow.toml");
    let shipped = include_str!("../../../../profiles/16-cpu-10g.toml");
    let slow = shipped.replace("latency = 30e-6, bandwidth = 1.18e9", "latency = 50e-6, bandwidth = 0.118e9");
    assert_ne!(slow, shipped);
    fs::write(&file, slow).unwrap();
    let profile = format!("parallel.profile={file}");
    let allowed = ["--allow-approximate", "isolated.halo=0.2", &profile];
    let message = scratch.error(2, &[&bench[..], &model, &allowed].concat());
    assert!(message.contains("--allow-approximate") && message.contains("isolated"), "{message}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let scratch = Scratch::new();
    let described = "nodes=1e6,edges=1e7,features=8,classes=2";
    for (args, part) in [
        (&["train", "--memory", "8GiB"][..], "isolated.memory"),
        (&["plan", "--graph", "sbm:90:3:4", "--profile", "16-cpu-10g", "--memory", "8GiB"], "isolated.memory"),
        (&["plan", "--simulate", described, "--profile", "16-cpu-10g", "isolated.memory=9999999"], "isolated.memory"),
        (&["train", "isolated.shrinkage=2"], "isolated.shrinkage"),
        (&["partition", "--graph", "grid:4:4", "--parts", "2", "--chunks"], "dataset folder"),
    ] {
        let message = scratch.error(2, args);
        assert!(message.contains(part) && message.contains("remedy"), "{message}");
    }
    let little = ["partition", "--data", "x", "--parts", "2", "--chunks", "--memory", "1KiB"];
    assert!(scratch.error(2, &little).contains("at least 1MiB"));
}
