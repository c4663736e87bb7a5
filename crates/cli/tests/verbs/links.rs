//! Links as a user has them: a folder of OGB without features, scores of pairs and best partners under original ids.

#![allow(clippy::unwrap_used)]

use std::fs;

use graphweft_graph::dataset::Dataset;
use graphweft_graph::npy::write_npy;

use crate::program::Scratch;

/// Two groups of ten nodes; in each, pairs whose ids sum to a multiple of 7 are left out of training.
fn import(scratch: &Scratch) -> String {
    let pairs = |least: i64| (least..least + 10).flat_map(move |i| (i + 1..least + 10).map(move |j| [i, j]));
    let (held, train): (Vec<[i64; 2]>, Vec<[i64; 2]>) = pairs(0).chain(pairs(10)).partition(|[i, j]| (i + j) % 7 == 0);
    let (folder, out) = (scratch.path("ogb"), scratch.path("data"));
    let split = format!("{folder}/split/target");
    fs::create_dir_all(format!("{folder}/raw")).unwrap();
    fs::create_dir_all(&split).unwrap();
    let edges: String = train.iter().map(|[i, j]| format!("{i},{j}\n")).collect();
    fs::write(format!("{folder}/raw/edge.csv.gz"), edges).unwrap();
    fs::write(format!("{folder}/raw/num-node-list.csv.gz"), "20\n").unwrap();
    fs::write(format!("{folder}/raw/num-edge-list.csv.gz"), format!("{}\n", train.len())).unwrap();
    let across: Vec<i64> = (0..10).flat_map(|i| [i, 19 - i]).collect();
    for (part, list) in [("valid", &held[..held.len() / 2]), ("test", &held[held.len() / 2..])] {
        write_npy(format!("{split}/{part}_edge.npy"), &[2], list.as_flattened()).unwrap();
        write_npy(format!("{split}/{part}_edge_neg.npy"), &[2], &across).unwrap();
    }
    let json = scratch.json(&["import", "ogb", &folder, "--symmetrise", "-o", &out]);
    assert_eq!((json["features"].as_u64(), json["edges"].as_u64()), (Some(0), Some(2 * train.len() as u64)));
    // Ids of the source: 100, 101, …
    write_npy(format!("{out}/node_id.npy"), &[], &(100..120).collect::<Vec<i64>>()).unwrap();
    out
}

fn table(path: &str) -> Vec<(u64, u64, f64)> {
    let text = fs::read_to_string(path).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("source,target,score"));
    let parse = |line: &str| {
        let words: Vec<&str> = line.split(',').collect();
        (words[0].parse().unwrap(), words[1].parse().unwrap(), words[2].parse().unwrap())
    };
    lines.map(parse).collect()
}

#[test]
fn rows_are_learned_and_pairs_are_scored_under_their_ids() {
    let scratch = Scratch::new();
    let (data, run) = (import(&scratch), scratch.path("run"));
    let settings = ["data.embedding=8", "model.hidden=8", "model.layers=2", "train.lr=0.02", "train.epochs=80"];
    let trained = scratch.json(&[&["train", "--data", &data, "--model", "gcn", "-o", &run], &settings[..]].concat());
    assert!(trained["test"].as_f64().unwrap() > 90.0, "{trained}");

    let (pairs, out) = (scratch.path("pairs.csv"), scratch.path("scores.csv"));
    fs::write(&pairs, "source,target\n100,107\n100,119\n").unwrap();
    let json = scratch.json(&["predict", &run, "--pairs", &pairs, "-o", &out]);
    assert_eq!(json["pairs"], 2);
    let found = table(&out);
    assert_eq!([(found[0].0, found[0].1), (found[1].0, found[1].1)], [(100, 107), (100, 119)]);
    assert!(found[0].2 > found[1].2, "{found:?}");

    let (of, best) = (scratch.path("of.csv"), scratch.path("best.csv"));
    fs::write(&of, "100\n113\n").unwrap();
    scratch.json(&["predict", &run, "--top", "3", "--of", &of, "-o", &best]);
    let found = table(&best);
    assert_eq!(found.iter().map(|line| line.0).collect::<Vec<_>>(), [100, 100, 100, 113, 113, 113]);
    // Not itself, not what it is linked to, the best first.
    let graph = Dataset::open(&data).unwrap();
    let graphweft_graph::AnyCsr::Narrow(graph) = graph.graph().unwrap().clone() else { unreachable!() };
    let known = |a: u64, b: u64| graph.row(a as usize - 100).contains(&(b as u32 - 100));
    assert!(found.iter().all(|(a, b, _)| a != b && !known(*a, *b)), "{found:?}");
    assert!(found[0].2 >= found[1].2 && found[1].2 >= found[2].2 && found[0].1 == 107, "{found:?}");
    // The same on three ranks.
    let other = scratch.path("other.csv");
    scratch.json(&["predict", &run, "--top", "3", "--of", &of, "--ranks", "3", "-o", &other]);
    let close = |a: &(u64, u64, f64), b: &(u64, u64, f64)| (a.0, a.1) == (b.0, b.1) && (a.2 - b.2).abs() < 1e-4;
    assert!(found.iter().zip(&table(&other)).all(|(a, b)| close(a, b)), "{found:?}");
    // All nodes: five others at least are no partners of theirs.
    assert_eq!(scratch.json(&["predict", &run, "--top", "2", "-o", &scratch.path("all.csv")])["pairs"], 40);
}

#[test]
fn what_cannot_be_asked_is_refused() {
    let scratch = Scratch::new();
    let (data, run, out) = (import(&scratch), scratch.path("run"), scratch.path("out.csv"));
    let pairs = scratch.path("pairs.csv");
    fs::write(&pairs, "100,101\n100,7\n").unwrap();
    scratch.json(&["train", "--data", &data, "--model", "gcn", "train.epochs=1", "-o", &run]);
    let message = scratch.error(3, &["predict", &run, "--pairs", &pairs, "-o", &out]);
    assert!(message.contains("line 2") && message.contains("\"7\""), "{message}");
    assert!(scratch.error(2, &["predict", &run, "--pairs", &pairs, "--top", "2"]).contains("--top"));
    let nodes = scratch.path("nodes");
    scratch.json(&["train", "--graph", "sbm:60:3:4:f=8", "--model", "gcn", "train.epochs=1", "-o", &nodes]);
    assert!(scratch.error(2, &["predict", &nodes, "--top", "2", "-o", &out]).contains("links"));
    assert!(!std::path::Path::new(&out).exists());
}

/// Learned rows are also for classes, and for graphs that have nothing else.
#[test]
fn rows_are_learned_where_that_is_asked_for() {
    let scratch = Scratch::new();
    let settings =
        ["--graph", "sbm:120:3:8:f=4", "data.features=learned", "model.hidden=8", "model.layers=2", "train.epochs=2"];
    let run = scratch.path("run");
    let found = scratch.json(&[&["train", "--model", "gcn", "-o", &run], &settings[..]].concat());
    // (120 + 1) · 8 of the first layer, (8 + 1) · 3 of the second.
    assert_eq!(found["seeds"][0]["parameters"].as_u64().or(found["parameters"].as_u64()), Some(995));
    let other = scratch.error(3, &["predict", &run, "--graph", "sbm:60:3:8:f=4", "-o", &scratch.path("p.npy")]);
    assert!(other.contains("120") && other.contains("60"), "{other}");
}
