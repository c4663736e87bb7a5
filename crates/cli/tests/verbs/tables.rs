//! `graphweft import table` and `graphweft export`: what is shown first, what is read, and that it comes back.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::path::Path;

use crate::program::Scratch;

const BAD_INPUT: i32 = 3;

fn file(scratch: &Scratch, name: &str, text: &str) -> String {
    fs::write(scratch.path(name), text).unwrap();
    scratch.path(name)
}

#[test]
fn a_guess_is_shown_and_can_be_kept_as_a_schema() {
    let scratch = Scratch::new();
    let people = file(&scratch, "people.csv", "id,age,town\nann,41,Rome\nbob,25,Oslo\n");
    let papers = file(&scratch, "papers.tsv", "id\tlabel\tsplit\np1\tx\ttrain\np2\ty\tvalid\np3\tx\ttest\n");
    let writes = file(&scratch, "writes.csv", "person,paper\nann,p1\nbob,p1\nbob,p2\nann,p3\n");
    let (people, papers) = (format!("person={people}"), format!("paper={papers}"));
    let writes = format!("person:writes:paper={writes}");
    let tables = ["import", "table", "--nodes", &people, "--nodes", &papers, "--edges", &writes];
    let shown = scratch.json(&[&tables[..], &["--dry-run", "--column", "age=skip"]].concat());
    let roles: Vec<&str> =
        shown["columns"].as_array().unwrap().iter().map(|c| c["used_as"].as_str().unwrap()).collect();
    assert_eq!(roles, ["id", "skip", "category", "id", "label", "split", "source", "destination"]);
    let schema = file(&scratch, "schema.toml", shown["toml"].as_str().unwrap());

    let [direct, by_schema] = ["direct", "by-schema"].map(|name| scratch.path(name));
    let one = scratch.json(&[&tables[..], &["--column", "people.age=skip", "--symmetrise", "-o", &direct]].concat());
    assert_eq!((&one["nodes"], &one["edges"], &one["classes"]), (&5.into(), &8.into(), &2.into()));
    scratch.json(&["import", "table", "--schema", &schema, "--symmetrise", "-o", &by_schema]);
    for name in ["indices.npy", "edge_type.npy", "feat-person_indices.npy", "nodes.txt", "categories.toml"] {
        let bytes = |folder: &str| fs::read(Path::new(folder).join(name)).unwrap();
        assert_eq!(bytes(&direct), bytes(&by_schema), "{name}");
    }
    let info = scratch.json(&["info", "--data", &direct]);
    assert_eq!(info["nodes"], 5);

    let broken = file(&scratch, "broken.csv", "person,paper\nann,p1\nbob,p9\n");
    let tables = ["import", "table", "--nodes", &people, "--nodes", &papers];
    let edges = format!("person:writes:paper={broken}");
    let message = scratch.error(BAD_INPUT, &[&tables[..], &["--edges", &edges, "-o", &scratch.path("no")]].concat());
    assert!(message.contains("broken.csv: line 3, column 2") && message.contains("no node p9"), "{message}");
    assert!(!Path::new(&scratch.path("no")).exists());
}

#[test]
fn what_is_exported_is_imported_again() {
    let scratch = Scratch::new();
    let [data, parquet, again] = ["data", "parquet", "again"].map(|name| scratch.path(name));
    scratch.json(&["generate", "sbm:80:3:5:f=6", "-o", &data]);
    let made = scratch.json(&["export", "--data", &data, "--to", "parquet", "-o", &parquet]);
    assert_eq!((&made["nodes"], &made["format"]), (&80.into(), &"parquet".into()));
    let schema = format!("{parquet}/schema.toml");
    scratch.json(&["import", "table", "--schema", &schema, "-o", &again]);
    for name in ["indptr.npy", "indices.npy", "feat.npy", "label.npy"] {
        assert_eq!(fs::read(format!("{data}/{name}")).unwrap(), fs::read(format!("{again}/{name}")).unwrap(), "{name}");
    }
    let train = |data: &str, run: &str| {
        scratch.json(&["train", "--data", data, "--model", "gcn", "train.epochs=3", "-o", &scratch.path(run)])
    };
    assert_eq!(train(&data, "one")["loss"], train(&again, "two")["loss"]);
}
