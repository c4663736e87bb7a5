//! `graphweft import arrays` as a newcomer runs it, and data that cannot be learned from: exit code 3, file, field,
//! remedy.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::path::Path;

use crate::program::Scratch;
use graphweft_graph::Dataset;
use graphweft_graph::dataset::{Dense, Features, Labels};
use graphweft_graph::npy::{NpyFile, write_npy};

const BAD_INPUT: i32 = 3;
const USAGE: i32 = 2;

/// Opens a folder anew: without its stamp, everything in it is validated.
fn open(dir: &str) -> Dataset {
    fs::remove_file(Path::new(dir).join(".validated")).unwrap();
    Dataset::open(dir).unwrap()
}

/// Writes a file into the scratch folder and gives its path.
fn file(scratch: &Scratch, name: &str, bytes: impl AsRef<[u8]>) -> String {
    let path = scratch.path(name);
    fs::write(&path, bytes).unwrap();
    path
}

/// An array of truth values, as NumPy saves it.
fn mask(values: &[u8], shape: &[usize]) -> Vec<u8> {
    let extents: String = shape.iter().map(|x| format!("{x},")).collect();
    let dict = format!("{{'descr': '|b1', 'fortran_order': False, 'shape': ({extents}), }}\n");
    [b"\x93NUMPY\x01\x00", &(dict.len() as u16).to_le_bytes()[..], dict.as_bytes(), values].concat()
}

/// The files of edges and of nodes.
fn tables(scratch: &Scratch, edges: &str, nodes: &str) -> [String; 2] {
    [file(scratch, "edges.csv", edges), file(scratch, "nodes.csv", nodes)]
}

#[test]
fn two_csv_files_are_a_dataset_that_can_be_trained_on() {
    let scratch = Scratch::new();
    let [edges, nodes] = tables(
        &scratch,
        "source,target,weight\n17,40,1\n40,8,2\n8,17,3\n99,8,4\n",
        "id,a,b,label,split\n40,1,0.5,tea,train\n8,0,2,coffee,valid\n17,1,1,tea,test\n99,0,0,coffee,train\n5,0,0,,\n",
    );
    let out = scratch.path("mine");
    let args =
        ["import", "arrays", "--edges", &edges, "--nodes", &nodes, "--edge-features", "--symmetrise", "-o", &out];
    let json = scratch.json(&args);
    assert_eq!((&json["nodes"], &json["edges"], &json["edges_read"]), (&5.into(), &8.into(), &4.into()));
    assert_eq!((&json["features"], &json["classes"], &json["symmetric"]), (&2.into(), &2.into(), &true.into()));
    assert_eq!(json["splits"], serde_json::json!(["given"]));
    let notes = json["notes"].to_string();
    for part in
        ["the id: id", "the label: label", "the split: split", "0 = coffee, 1 = tea", "1 of 5 nodes have no label"]
    {
        assert!(notes.contains(part), "{part:?} is not in {notes}");
    }

    let data = open(&out);
    assert_eq!(data.labels(), Some(&Labels::Single(vec![1, 0, 1, 0, -1].into())));
    let Some(Features::Dense(Dense::F32 { values, width: 2 })) = data.features() else { panic!("dense") };
    assert_eq!(&values[..4], [1.0, 0.5, 0.0, 2.0]);
    let Some(Dense::F32 { values, width: 1 }) = data.edge_features() else { panic!("weights") };
    // Rows 40: {8, 17}, 8: {40, 17, 99}, 17: {40, 8}, 99: {8}.
    assert_eq!(&values[..], [2.0, 1.0, 2.0, 3.0, 4.0, 1.0, 3.0, 4.0]);
    let ids = NpyFile::open(Path::new(&out).join("node_id.npy")).unwrap();
    assert_eq!(&ids.elements::<i64>().unwrap()[..], [40, 8, 17, 99, 5]);
    assert_eq!(fs::read_to_string(Path::new(&out).join("classes.txt")).unwrap(), "coffee\ntea\n");
    scratch.json(&["train", "--data", &out, "--model", "gcn", "train.epochs=3", "-o", &scratch.path("run")]);
}

#[test]
fn numbers_to_predict_are_imported_learned_scored_and_written_with_their_ids() {
    let scratch = Scratch::new();
    let rows = "id,a,b,y,split\n40,1,0.5,0.25,train\n8,0,2,-1.5,valid\n17,1,1,3,test\n99,0,0,,train\n5,0,0,0.5,train\n";
    let [edges, nodes] = tables(&scratch, "17,40\n40,8\n8,17\n99,8\n", rows);
    let [out, run, csv] = ["mine", "run", "p.csv"].map(|name| scratch.path(name));
    let given = ["import", "arrays", "--edges", &edges, "--nodes", &nodes, "--symmetrise", "-o", &out];
    let message = scratch.error(BAD_INPUT, &given);
    assert!(message.contains("expected a class"), "{message}");
    let json = scratch.json(&[&given[..], &["--task", "node-regression"]].concat());
    assert_eq!(json["classes"], 1);
    assert!(json["notes"].to_string().contains("1 of 5 numbers to predict are not known"), "{json}");
    assert!(matches!(open(&out).labels(), Some(Labels::Values(y)) if y[..3] == [0.25, -1.5, 3.0] && y[3].is_nan()));

    let json = scratch.json(&["train", "--data", &out, "--model", "gcn", "train.epochs=5", "-o", &run]);
    let (valid, test) = (json["valid"].as_f64().unwrap(), json["test"].as_f64().unwrap());
    assert_eq!(json["metric"], "mae");
    let scores = scratch.json(&["eval", &run]);
    assert_eq!((scores["valid"].as_f64().unwrap(), scores["test"].as_f64().unwrap()), (valid, test));
    let json = scratch.json(&["predict", &run, "-o", &csv]);
    assert_eq!(json["what"], "values");
    let text = fs::read_to_string(&csv).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 6);
    let value = |line: &str, id: &str| line.strip_prefix(id).unwrap().parse::<f64>().unwrap();
    assert_eq!(lines[0], "node,value");
    // The only node to choose by, and the only one to report on: plain numbers in the unit of the labels.
    assert!((valid - (value(lines[2], "8,") + 1.5).abs()).abs() < 1e-5, "{valid}: {text}");
    assert!((test - (value(lines[3], "17,") - 3.0).abs()).abs() < 1e-5, "{test}: {text}");
    let message = scratch.error(USAGE, &["predict", &run, "--what", "labels", "-o", &csv]);
    assert!(message.contains("predicts no labels") && message.contains("--what values"), "{message}");
}

#[test]
fn arrays_and_masks_are_a_dataset_too() {
    let scratch = Scratch::new();
    let path = |name: &str| scratch.path(name);
    write_npy(path("edges.npy"), &[2], &[0i64, 1, 1, 2, 2, 3]).unwrap();
    write_npy(path("x.npy"), &[3], &[0.5f32; 12]).unwrap();
    write_npy(path("y.npy"), &[], &[0i32, 1, 0, 1]).unwrap();
    let of = |bits: [u8; 8]| mask(&bits, &[4, 2]);
    let train = file(&scratch, "train.npy", of([1, 0, 0, 1, 0, 0, 0, 0]));
    let valid = file(&scratch, "valid.npy", of([0, 1, 1, 0, 0, 0, 0, 0]));
    let test = file(&scratch, "test.npy", of([0, 0, 0, 0, 1, 1, 1, 1]));
    let (edges, x, y, out) = (path("edges.npy"), path("x.npy"), path("y.npy"), path("d"));
    let masks = ["--train-mask", &train, "--val-mask", &valid, "--test-mask", &test];
    let args =
        [&["import", "arrays", "--edges", &edges, "--features", &x, "--labels", &y, "-o", &out], &masks[..]].concat();
    let json = scratch.json(&args);
    assert_eq!(json["splits"], serde_json::json!(["given-0", "given-1"]));
    assert!(json["notes"].to_string().contains("import with --symmetrise"), "{json}");
    assert_eq!(&open(&out).split("given-1").unwrap().train[..], [1]);
}

/// Nothing is left behind, and the message says what to do.
#[test]
fn what_does_not_go_together_is_refused() {
    let scratch = Scratch::new();
    let edges = file(&scratch, "edges.csv", "0,1\n1,2\n");
    let nodes = file(&scratch, "nodes.csv", "id,x,label\n0,1,0\n1,1,1\n2,1,1\n");
    let short = file(&scratch, "short.npy", mask(&[1, 0], &[2]));
    let out = scratch.path("out");
    let (train, overlap) = (file(&scratch, "train.txt", "0\n"), file(&scratch, "overlap.txt", "2\n0\n"));
    let refused = |code: i32, more: &[&str], words: &[&str]| {
        let args = [&["import", "arrays", "--edges", &edges, "--nodes", &nodes, "-o", &out], more].concat();
        let message = scratch.error(code, &args);
        for word in words.iter().chain(&["remedy: "]) {
            assert!(message.contains(word), "{more:?}: {word:?} is not in: {message}");
        }
        assert!(!Path::new(&out).exists());
    };
    refused(BAD_INPUT, &["--train", &short, "--valid", &train, "--test", &train], &["short.npy: train", "3 nodes"]);
    refused(
        BAD_INPUT,
        &["--train", &train, "--valid", &overlap, "--test", &train],
        &["overlap.txt", "already in train"],
    );
    refused(BAD_INPUT, &["--features", &scratch.path("no.npy")], &["no.npy", "check the path"]);
    refused(BAD_INPUT, &["--id-column", "key"], &["nodes.csv", "no column \"key\"", "id, x, label"]);
    refused(USAGE, &["--train", &train], &["--valid and --test"]);
    refused(USAGE, &["--features", &nodes], &["features in the table of nodes and in --features"]);
    let message = scratch.error(USAGE, &["import", "arrays", "-o", &out]);
    assert!(message.contains("--edges"), "{message}");
    let message = scratch.error(USAGE, &["import", "arrays", "--edges", &edges, "--skip-columns", "x", "-o", &out]);
    assert!(message.contains("--nodes"), "{message}");
}

/// A folder without features, labels or a split is bad input, whatever asks for them.
#[test]
fn data_that_cannot_be_learned_from_exit_with_3() {
    let scratch = Scratch::new();
    let edges = file(&scratch, "edges.csv", "0,1\n1,2\n2,0\n");
    let run = scratch.path("run");
    for (nodes, file_at_fault, words) in [
        ("label,split\n0,train\n1,valid\n1,test\n", "feat.npy", "no node features"),
        ("x,split\n0,train\n1,valid\n1,test\n", "label.npy", "no labels"),
        ("x,label\n0,0\n1,1\n1,1\n", "split", "no split"),
        ("x,label,split\n0,,train\n1,1,valid\n1,1,test\n", "split/given/train.npy", "no label is known in train"),
    ] {
        let nodes = file(&scratch, "nodes.csv", nodes);
        let out = scratch.path("d");
        scratch.json(&["import", "arrays", "--edges", &edges, "--nodes", &nodes, "-o", &out]);
        let message = scratch.error(BAD_INPUT, &["train", "--data", &out, "--model", "gcn", "-o", &run]);
        for word in [file_at_fault, words, "remedy: "] {
            assert!(message.contains(word), "{word:?} is not in: {message}");
        }
        fs::remove_dir_all(out).unwrap();
    }
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs the shared graphs")]
fn minesweeper_is_symmetrised_unless_told_otherwise() {
    let scratch = Scratch::new();
    let raw = crate::program::shared_data().join("raw/heterophilous/minesweeper.npz");
    let import = |more: &[&str]| {
        let out = scratch.path(&format!("out{}", more.join("")));
        scratch.json(&[&["import", "heterophilous", raw.to_str().unwrap(), "-o", &out], more].concat())
    };
    let json = import(&[]);
    assert_eq!((&json["edges"], &json["symmetric"]), (&78804.into(), &true.into()));
    assert!(json["notes"].to_string().contains("symmetrised, as for published scores"), "{json}");
    let json = import(&["--directed"]);
    assert_eq!((&json["edges"], &json["symmetric"]), (&39402.into(), &false.into()));
    assert!(!json["notes"].to_string().contains("symmetrised"), "{json}");
}
