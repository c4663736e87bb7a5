//! `graphweft smooth`: predictions of a run that are spread over the graph.

use graphweft_graph::npy::NpyFile;

use crate::program::Scratch;

const GRAPH: &str = "sbm:300:3:8:f=4";

#[test]
fn an_mlp_becomes_better_and_what_it_says_is_beside_the_run() {
    let scratch = Scratch::new();
    let run = scratch.path("run");
    let small = ["model.name=mlp", "model.hidden=8", "train.epochs=20", "train.lr=0.01"];
    scratch.json(&[&["train", "--graph", GRAPH, "--seeds", "2", "-o", &run], &small[..]].concat());
    let found = scratch.json(&["smooth", &run, "--steps", "20"]);
    let test = |part: &str| found[part]["test"].as_f64().unwrap();
    assert!(test("after") > test("before") && found["test"] == found["after"]["test"], "{found}");
    assert_eq!((found["metric"].as_str(), found["seeds"].as_array().unwrap().len()), (Some("accuracy"), 2));
    let folder = std::path::Path::new(&run).join("smooth");
    let stored = NpyFile::open(folder.join("predictions.npy")).unwrap();
    assert_eq!(stored.shape(), [300, 3]);
    let rows = stored.elements::<f32>().unwrap();
    assert!(rows.chunks(3).all(|row| (row.iter().sum::<f32>() - 1.0).abs() < 1e-5), "shares of a node sum to 1");
    let told: serde_json::Value = serde_json::from_slice(&std::fs::read(folder.join("result.json")).unwrap()).unwrap();
    assert_eq!(told, found);

    let on_ranks = scratch.json(&["smooth", &run, "--steps", "20", "--ranks", "3", "-o", &scratch.path("elsewhere")]);
    assert_eq!(on_ranks["after"], found["after"]);
    let alone = scratch.json(&["smooth", &run, "--method", "label-propagation", "-o", &scratch.path("labels")]);
    assert_ne!(alone["after"]["test"], found["after"]["test"]);
    let with = ["smooth", &run, "--labels", "train+valid", "--weights", "row", "-o", &scratch.path("with")];
    assert_eq!(scratch.json(&with)["before"], found["before"]);
}

#[test]
fn what_cannot_be_spread_is_refused() {
    let scratch = Scratch::new();
    let run = scratch.path("run");
    scratch.json(&["train", "--graph", GRAPH, "-o", &run, "model.name=mlp", "train.epochs=1"]);
    for (flags, part) in [(["--correct", "2"], "--correct"), (["--steps", "0"], "--steps")] {
        let message = scratch.error(3, &[&["smooth", &run][..], &flags[..]].concat());
        assert!(message.contains(part), "{message}");
    }
    assert!(scratch.error(2, &["smooth", &run, "--weights", "odd"]).contains("symmetric"));
}
