//! `graphweft partition`, run as users run it.

#![allow(missing_docs, clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Output};

use graphweft_graph::Csr;
use graphweft_graph::dataset::{Dataset, DatasetWriter, Meta};
use graphweft_graph::partition::load;
use serde_json::Value;

/// Two rings of ten nodes, joined by one edge.
fn rings(dir: &Path) {
    let mut rows: Vec<Vec<u32>> =
        (0..20u32).map(|i| vec![i / 10 * 10 + (i + 1) % 10, i / 10 * 10 + (i + 9) % 10]).collect();
    rows[0].push(10);
    rows[10].push(0);
    let mut indptr = vec![0u64];
    for row in &mut rows {
        row.sort_unstable();
        indptr.push(indptr[indptr.len() - 1] + row.len() as u64);
    }
    let graph = Csr::<u32>::new(indptr, rows.concat(), 20).unwrap();
    let meta = Meta::of("rings", &graph, true);
    let out = DatasetWriter::create(dir).unwrap();
    out.graph(&graph.into()).unwrap();
    out.finish(&meta).unwrap();
}

fn graphweft(data: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_graphweft"));
    command.arg("partition").arg("--data").arg(data).args(args).output().unwrap()
}

#[test]
fn a_partition_is_made_described_and_stored() {
    let root = tempfile::tempdir().unwrap();
    let data = root.path().join("rings");
    rings(&data);
    for method in ["contiguous", "random", "metis", "streaming"] {
        let out = graphweft(&data, &["--parts", "2", "--method", method, "--json"]);
        assert!(out.status.success(), "{out:?}");
        let json: Value = serde_json::from_slice(&out.stdout).unwrap();
        assert_eq!((&json["method"], &json["parts"]), (&method.into(), &2.into()));
        assert_eq!(json["rows"], serde_json::json!([10, 10]));
        for key in ["alpha", "cut", "seconds"] {
            assert!(json[key].is_f64(), "{key} in {json}");
        }
        for of in ["nodes", "edges"] {
            assert!(json["imbalance"][of].as_f64().unwrap() <= 1.05, "{json}");
        }
        if method != "random" {
            assert_eq!((&json["alpha"], &json["halo"]), (&0.1.into(), &serde_json::json!([[0, 1], [1, 0]])), "{json}");
        }
        let dir = data.join("part").join(format!("{method}-2"));
        assert_eq!(load(&dir, 20).unwrap().about.stats.alpha, json["alpha"].as_f64().unwrap());
    }
    assert!(Dataset::open(&data).is_ok(), "a dataset with partitions is still a dataset");
    let text = graphweft(&data, &["--parts", "3", "--balance", "edges"]);
    let text = String::from_utf8(text.stdout).unwrap();
    for word in ["halo rows", "largest peer", "alpha", "imbalance", "streaming-3"] {
        assert!(text.contains(word), "{text}");
    }
}

#[test]
fn what_is_stored_is_replaced_only_when_asked() {
    let root = tempfile::tempdir().unwrap();
    let data = root.path().join("rings");
    rings(&data);
    let two = ["--parts", "2", "--method", "random"];
    assert!(graphweft(&data, &two).status.success());
    let again = graphweft(&data, &two);
    assert_eq!(again.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&again.stderr).contains("--replace"));
    assert!(graphweft(&data, &[&two[..], &["--replace"]].concat()).status.success());
    let elsewhere = root.path().join("elsewhere");
    assert!(graphweft(&data, &[&two[..], &["-o", elsewhere.to_str().unwrap()]].concat()).status.success());
    assert!(load(&elsewhere, 20).is_ok());
}

#[test]
fn requests_that_make_no_sense_exit_with_2() {
    let root = tempfile::tempdir().unwrap();
    let data = root.path().join("rings");
    rings(&data);
    let ignored = ["--parts", "2", "--replace", "--memory", "10MiB"];
    for args in [&["--parts", "0"][..], &["--parts", "21"], &["--parts", "2", "--method", "spectral"], &ignored] {
        let out = graphweft(&data, args);
        assert_eq!(out.status.code(), Some(2), "{out:?}");
        assert!(!data.join("part").exists());
    }
}
