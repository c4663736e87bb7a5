//! `--strategy isolated`, `--memory` and `partition --chunks`, as users run them.

#![allow(clippy::unwrap_used)] // Helpers of tests.

mod program;

use std::fs;
use std::path::Path;

use program::Scratch;

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
fn what_makes_no_sense_is_refused() {
    let scratch = Scratch::new();
    for (args, part) in [
        (&["train", "--memory", "8GiB"][..], "isolated.memory"),
        (&["train", "isolated.shrinkage=2"], "isolated.shrinkage"),
        (&["partition", "--graph", "grid:4:4", "--parts", "2", "--chunks"], "dataset folder"),
    ] {
        let message = scratch.error(2, args);
        assert!(message.contains(part) && message.contains("remedy"), "{message}");
    }
    let little = ["partition", "--data", "x", "--parts", "2", "--chunks", "--memory", "1KiB"];
    assert!(scratch.error(2, &little).contains("at least 1MiB"));
}
