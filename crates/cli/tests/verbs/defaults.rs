//! What `graphweft train` does to a graph, and learns from, when nobody says: it is said.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests.

use std::fs;
use std::path::Path;

use crate::program::Scratch;

const SHORT: [&str; 3] = ["model.hidden=8", "model.layers=2", "train.epochs=2"];

/// What a run that must succeed says beside its result.
fn notes(scratch: &Scratch, args: &[&str]) -> String {
    let out = scratch.run(&[args, &SHORT[..]].concat());
    let notes = String::from_utf8(out.stderr).unwrap();
    assert!(out.status.success(), "{args:?}: {notes}");
    notes
}

/// Ids in a file of int64.
fn ids(path: &str) -> Vec<i64> {
    let bytes = fs::read(path).unwrap();
    let header = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    bytes[header..].chunks_exact(8).map(|id| i64::from_le_bytes(id.try_into().unwrap())).collect()
}

#[test]
fn a_split_can_be_drawn_and_is_kept_with_the_run() {
    let scratch = Scratch::new();
    let graph = ["train", "--graph", "sbm:300:4:6:f=8", "--split", "random:50/30/20"];
    let part = |run: &str, part: &str| ids(&format!("{}/split/{part}.npy", scratch.path(run)));
    for (run, seed) in [("a", "0"), ("b", "0"), ("c", "1")] {
        let said = notes(&scratch, &[&graph[..], &["--seed", seed, "-o", &scratch.path(run)]].concat());
        assert!(said.contains("split random:50/30/20: 150 nodes train, 90 valid, 60 test"), "{said}");
        assert!(said.contains("--split takes default too"), "{said}");
    }
    assert_eq!((part("a", "train").len(), part("a", "valid").len(), part("a", "test").len()), (150, 90, 60));
    assert_eq!(part("a", "train"), part("b", "train"));
    assert_ne!(part("a", "train"), part("c", "train"));
    // What was learned from is what it is scored on, by another verb too.
    let result: serde_json::Value =
        serde_json::from_slice(&fs::read(Path::new(&scratch.path("a")).join("result.json")).unwrap()).unwrap();
    let eval = scratch.json(&["eval", &scratch.path("a")]);
    assert_eq!(eval["test"], result["best"]["test"], "{eval} {result}");

    let several = scratch.path("several");
    notes(&scratch, &[&graph[..], &["--seeds", "2", "-o", &several]].concat());
    assert_ne!(ids(&format!("{several}/seed-0/split/train.npy")), ids(&format!("{several}/seed-1/split/train.npy")));
    let per_class = ["train", "--graph", "sbm:300:4:6:f=8", "--split", "random:10-per-class", "-o", &scratch.path("p")];
    assert!(notes(&scratch, &per_class).contains("split random:10-per-class: 40 nodes train, 60 valid, 200 test"));
    let message = scratch.error(2, &["train", "--graph", "sbm:300:4:6:f=8", "--split", "random:60/60/20"]);
    assert!(message.contains("add up to 140") && message.contains("remedy"), "{message}");
}

#[test]
fn self_loops_are_added_for_models_that_are_published_with_them() {
    let scratch = Scratch::new();
    for (model, setting, added) in [
        ("gcn", "data.self_loops=auto", true),
        ("gat", "data.self_loops=auto", true),
        ("sage", "data.self_loops=auto", false),
        ("gcn", "data.self_loops=keep", false),
    ] {
        let run = scratch.path(&format!("{model}-{added}"));
        let said = notes(&scratch, &["train", "--graph", "sbm:200:4:6:f=8", "--model", model, setting, "-o", &run]);
        assert_eq!(said.contains(&format!("self-loops are added, as {model} is published")), added, "{said}");
        let config = fs::read_to_string(format!("{run}/config.toml")).unwrap();
        let kept = if added { "self_loops = \"add\"" } else { "self_loops = \"keep\"" };
        assert!(config.contains(kept), "{model} {setting}: {config}");
    }
}

#[test]
fn edges_that_go_one_way_are_said_once() {
    let scratch = Scratch::new();
    let (edges, data) = (scratch.path("edges.txt"), scratch.path("data"));
    fs::write(&edges, (0..60).map(|i| format!("{i} {}\n", (i * 7 + 1) % 60)).collect::<String>()).unwrap();
    let out = scratch.run(&["generate", "sbm:60:3:4:f=8", "-o", &data]);
    assert!(out.status.success());
    let imported = scratch.path("imported");
    assert!(scratch.run(&["import", "edge-list", &edges, "-o", &imported]).status.success());
    // The features and labels of one, the edges of the other.
    for name in ["indptr.npy", "indices.npy"] {
        fs::copy(format!("{imported}/{name}"), format!("{data}/{name}")).unwrap();
    }
    let meta = fs::read_to_string(format!("{data}/meta.toml")).unwrap();
    let changed: String = meta
        .lines()
        .map(|line| match line {
            _ if line.starts_with("num_edges") => "num_edges = 60\n".into(),
            _ if line.starts_with("symmetric") => "symmetric = false\n".into(),
            _ => format!("{line}\n"),
        })
        .collect();
    fs::write(format!("{data}/meta.toml"), changed).unwrap();
    let train = |model: &str, more: &[&str]| {
        let run = scratch.path(&format!("run-{model}-{}", more.len()));
        notes(&scratch, &[&["train", "--data", &data, "--model", model, "--seeds", "2", "-o", &run], more].concat())
    };
    let said = train("gcn", &[]);
    assert_eq!(said.matches("data.symmetrise=true").count(), 1, "{said}");
    assert!(!train("gcn", &["data.symmetrise=true"]).contains("one way"), "it is done already");
    assert!(!train("mlp", &[]).contains("one way"), "it looks at no edge");
}
