//! Models on graphs that they were not trained on: a known one with more nodes, another one, several as one.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;

use crate::program::Scratch;

/// A path of nodes with every tenth id, of two classes; node 10·`least` is its first. Rows depend on ids alone.
fn csv(scratch: &Scratch, name: &str, nodes: std::ops::Range<u64>, more: &[(u64, u64)]) -> String {
    let uniform = |k: u64| (k.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f64 / (1u64 << 24) as f64;
    let ids: Vec<u64> = nodes.map(|k| 10 * k).chain(more.iter().map(|(new, _)| *new)).collect();
    let path = ids.windows(2).filter(|pair| pair[1] == pair[0] + 10).map(|pair| (pair[0], pair[1]));
    let edges: String = path.chain(more.iter().copied()).map(|(a, b)| format!("{a},{b}\n")).collect();
    let row = |id: &u64| {
        let class = u64::from(uniform(*id) < 0.5);
        let x: Vec<f64> = (0..3).map(|k| uniform(1000 * id + k) + class as f64).collect();
        let part = ["train", "valid", "test"][(id / 10 % 3) as usize];
        format!("{id},{},{},{},{class},{part}\n", x[0], x[1], x[2])
    };
    let [edge_file, node_file, out] = ["edges.csv", "nodes.csv", ""].map(|end| scratch.path(&format!("{name}{end}")));
    fs::write(&edge_file, format!("source,target\n{edges}")).unwrap();
    fs::write(&node_file, format!("id,a,b,c,label,split\n{}", ids.iter().map(row).collect::<String>())).unwrap();
    scratch.json(&["import", "arrays", "--edges", &edge_file, "--nodes", &node_file, "--symmetrise", "-o", &out]);
    out
}

/// What is said of every node, by its id.
fn said(scratch: &Scratch, run: &str, data: &str) -> BTreeMap<u64, Vec<f64>> {
    let out = scratch.path("said.csv");
    scratch.json(&["predict", run, "--data", data, "--what", "logits", "-o", &out]);
    let line = |line: &str| {
        let words: Vec<f64> = line.split(',').map(|word| word.parse().unwrap()).collect();
        (words[0] as u64, words[1..].to_vec())
    };
    fs::read_to_string(&out).unwrap().lines().skip(1).map(line).collect()
}

#[test]
fn a_model_speaks_of_nodes_that_were_added_and_of_other_graphs() {
    let scratch = Scratch::new();
    let (known, run) = (csv(&scratch, "known", 0..60, &[]), scratch.path("run"));
    let settings = ["model.hidden=8", "model.layers=2", "train.epochs=20", "train.lr=0.02"];
    scratch.json(&[&["train", "--data", &known, "--model", "sage", "-o", &run], &settings[..]].concat());
    let before = said(&scratch, &run, &known);
    assert_eq!(before.len(), 60);
    // Two new nodes beside node 200, with ids between those that were there: others are numbered anew.
    let grown = csv(&scratch, "grown", 0..60, &[(203, 200), (207, 203)]);
    let after = said(&scratch, &run, &grown);
    assert_eq!((after.len(), after.contains_key(&203), after.contains_key(&207)), (62, true, true));
    let moved = |id: &u64| before[id].iter().zip(&after[id]).any(|(a, b)| (a - b).abs() > 1e-5);
    let changed: Vec<u64> = before.keys().copied().filter(moved).collect();
    // Two layers see two hops.
    assert!(changed.contains(&200) && changed.iter().all(|id| (180..=220).contains(id)), "{changed:?}");
    // Another graph, with other nodes and another number of them.
    let other = csv(&scratch, "other", 100..130, &[]);
    assert_eq!(said(&scratch, &run, &other).len(), 30);
    let scores = scratch.json(&["eval", &run, "--data", &other]);
    assert!(scores["test"].as_f64().unwrap() > 50.0, "{scores}");
}

#[test]
fn several_folders_are_one_and_a_model_of_them_is_one_of_each() {
    let scratch = Scratch::new();
    let (a, b, both) = (csv(&scratch, "a", 0..40, &[]), csv(&scratch, "b", 60..90, &[]), scratch.path("both"));
    let made = scratch.json(&["import", "union", &a, &b, "-o", &both]);
    assert_eq!((&made["nodes"], &made["edges"], &made["features"]), (&70.into(), &136.into(), &3.into()));
    assert_eq!((&made["splits"], &made["classes"]), (&serde_json::json!(["given"]), &2.into()));
    let run = scratch.path("run");
    let trained = scratch.json(&["train", "--data", &both, "--model", "sage", "train.epochs=20", "-o", &run]);
    // No edge leads from one to the other: what is said of a folder does not depend on the other.
    let (of_all, of_a, of_b) = (said(&scratch, &run, &both), said(&scratch, &run, &a), said(&scratch, &run, &b));
    let alone: Vec<&Vec<f64>> = of_a.values().chain(of_b.values()).collect();
    let close = |(x, y): (&Vec<f64>, &&Vec<f64>)| x.iter().zip(y.iter()).all(|(x, y)| (x - y).abs() < 1e-5);
    assert!(of_all.values().zip(&alone).all(close) && of_all.len() == alone.len(), "{trained}");

    let wide = csv(&scratch, "wide", 0..10, &[]);
    fs::remove_file(format!("{wide}/feat.npy")).unwrap();
    let values = [0.5f32; 40];
    graphweft_graph::npy::write_npy(format!("{wide}/feat.npy"), &[4], &values).unwrap();
    let meta = fs::read_to_string(format!("{wide}/meta.toml")).unwrap();
    fs::write(format!("{wide}/meta.toml"), meta.replace("num_features = 3", "num_features = 4")).unwrap();
    let message = scratch.error(3, &["import", "union", &a, &wide, "-o", &scratch.path("none")]);
    assert!(message.contains("wide") && message.contains("4 columns") && message.contains("3 columns"), "{message}");
}
