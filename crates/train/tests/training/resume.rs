//! Going on with runs: from which checkpoint, on which data, and what is never overwritten.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::whole::{
    Watch, beside_whole, config, contents, copy_folder, fresh, notes, resume, run, same, same_contents, stopped,
    watched,
};
use graphweft_base::progress::Silent;
use graphweft_graph::dataset::{Dense, Features};
use graphweft_train::config::{Config, Draft};
use graphweft_train::data::Data;
use graphweft_train::run::Checkpoint;
use graphweft_train::run::{Start, Summary};
use graphweft_train::task::Labels;
use graphweft_train::{Error, Result};

fn open(config: &Config) -> Data {
    Data::open(&config.data, &config.encoding, &Silent).unwrap()
}

fn flip(file: &Path) {
    let mut bytes = fs::read(file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(file, bytes).unwrap();
}

/// Runs that must be refused as bad input, with these words, and change nothing.
fn refused(result: Result<Summary>, dir: &Path, before: &Contents, parts: &[&str]) {
    let message = result.unwrap_err().to_string();
    assert!(message.contains("remedy"), "{message}");
    for part in parts {
        assert!(message.contains(part), "{part} is missing: {message}");
    }
    same_contents(before, &contents(dir), &message);
}

type Contents = std::collections::BTreeMap<std::path::PathBuf, Vec<u8>>;

#[test]
fn going_on_says_from_where_and_what_was_left_aside() {
    let dir = tempfile::tempdir().unwrap();
    let (config, path) = (config(&[]), dir.path().join("run"));
    let resume = || {
        let watch = Arc::new(Watch::default());
        watched(open(&config), &config, &path, Start::Newest, &watch).map(|_| notes(&watch))
    };
    let said = resume().unwrap();
    assert!(said.contains(&format!("nothing to go on from in {}: starting anew", path.display())), "{said}");
    let said = resume().unwrap();
    assert!(said.contains("going on from") && said.contains("step-000012 after epoch 12"), "{said}");
    let file = path.join("checkpoints/step-000012/optimizer.safetensors");
    let longer = [&fs::read(&file).unwrap()[..], b"x"].concat();
    fs::write(&file, longer).unwrap();
    let said = resume().unwrap();
    assert!(said.contains(&format!("step-000012 is left aside: {}: length", file.display())), "{said}");
    assert!(said.contains("step-000008 after epoch 8"), "{said}");
    fs::remove_dir_all(&path).unwrap();
    fs::create_dir(&path).unwrap();
    fs::write(path.join("notes.txt"), "mine").unwrap();
    assert!(resume().unwrap_err().to_string().contains("neither config.toml nor checkpoints"));
}

#[test]
fn a_damaged_checkpoint_is_never_gone_on_from_but_an_older_one_is() {
    let dir = tempfile::tempdir().unwrap();
    let (config, whole, path) = beside_whole(dir.path(), "run");
    let checkpoint = stopped(&config, &path, &Start::New, 10);
    for name in ["optimizer.safetensors", "state.json", "manifest.sha256"] {
        let copy = dir.path().join(name);
        copy_folder(&path, &copy);
        let checkpoint = copy.join("checkpoints").join(checkpoint.file_name().unwrap());
        let file = checkpoint.join(name);
        flip(&file);
        let before = contents(&copy);
        let at = run(&config, &copy, &Start::At(checkpoint.clone()), Watch::default());
        refused(at, &copy, &before, &[file.to_str().unwrap()]);
        let watch = Arc::new(Watch::default());
        watched(open(&config), &config, &copy, Start::Newest, &watch).unwrap();
        let said = notes(&watch);
        assert!(said.contains(&format!("step-000010 is left aside: {}", file.display())), "{said}");
        assert!(said.contains("step-000008 after epoch 8"), "{said}");
        same(&whole, &copy, name);
    }
}

#[test]
fn where_no_checkpoint_is_whole_a_run_neither_begins_anew_nor_deletes_them() {
    let dir = tempfile::tempdir().unwrap();
    let (config, path) = (config(&[]), dir.path().join("run"));
    stopped(&config, &path, &Start::New, 10);
    let mut checkpoints: Vec<_> = fs::read_dir(path.join("checkpoints")).unwrap().map(|e| e.unwrap().path()).collect();
    checkpoints.sort();
    assert_eq!(checkpoints.len(), 3);
    // Damaged in different ways.
    fs::remove_file(checkpoints[0].join("manifest.sha256")).unwrap();
    fs::write(checkpoints[1].join("model.safetensors"), "short").unwrap();
    flip(&checkpoints[2].join("best.safetensors"));
    let before = contents(&path);
    let again = || run(&config, &path, &Start::Newest, Watch::default());
    refused(again(), &path, &before, &["step-000010", "best.safetensors", "2 older ones", "copy of one"]);
    let stored = Start::Newest.resumed(&path, &Draft::default());
    assert!(stored.unwrap_err().to_string().contains("best.safetensors"));
    // A copy from elsewhere is of this run, by its settings.
    let (copy, whole) = (dir.path().join("backup"), dir.path().join("whole"));
    fresh(&config, &whole);
    copy_folder(&whole.join("checkpoints/step-000008"), &copy);
    run(&config, &path, &Start::At(copy), Watch::default()).unwrap();
    assert_eq!(fs::read(whole.join("model.safetensors")).unwrap(), fs::read(path.join("model.safetensors")).unwrap());
}

#[test]
fn a_run_killed_before_its_first_checkpoint_begins_anew_one_that_is_over_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let (config, whole, path) = beside_whole(dir.path(), "run");
    fs::create_dir_all(path.join("checkpoints/.step-000004.partial")).unwrap();
    fs::copy(whole.join("config.toml"), path.join("config.toml")).unwrap();
    resume(&config, &path);
    same(&whole, &path, "killed");
    // Somebody has removed the checkpoints of a run that is over: its model stays.
    fs::remove_dir_all(path.join("checkpoints")).unwrap();
    let before = contents(&path);
    let again = run(&config, &path, &Start::Newest, Watch::default());
    refused(again, &path, &before, &["result.json", "no checkpoint to go on from"]);
}

#[test]
fn a_checkpoint_of_another_run_is_not_gone_on_from_in_the_folder_of_a_run() {
    let dir = tempfile::tempdir().unwrap();
    let (first, other) = (config(&[]), config(&["run.seed=7"]));
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    fresh(&first, &a);
    stopped(&other, &b, &Start::New, 10);
    let before = contents(&b);
    let foreign = Start::At(a.join("checkpoints/step-000008"));
    let message = ["of another run than the one in", b.to_str().unwrap(), "which would be overwritten", "-o"];
    refused(run(&first, &b, &foreign, Watch::default()), &b, &before, &message);
    // By itself: its own checkpoint, by another path.
    std::os::unix::fs::symlink(&b, dir.path().join("link")).unwrap();
    let own = Start::At(dir.path().join("link/checkpoints/../checkpoints/step-000008"));
    run(&other, &b, &own, Watch::default()).unwrap();
    // In a new folder, or one without a run: what is made there is what the first run became.
    let new = dir.path().join("new");
    run(&first, &new, &foreign, Watch::default()).unwrap();
    let model = |run: &Path| fs::read(run.join("model.safetensors")).unwrap();
    assert!(model(&new) == model(&a) && model(&b) != model(&a));
    // The same again goes on with what is there.
    run(&first, &new, &foreign, Watch::default()).unwrap();
    // A folder of several seeds is not the run of one of them.
    let (seeds, all) = (dir.path().join("seeds"), config(&["run.seeds=2"]));
    fresh(&all, &seeds);
    let before = contents(&seeds);
    let one = Start::At(seeds.join("seed-0/checkpoints/step-000008"));
    refused(run(&first, &seeds, &one, Watch::default()), &seeds, &before, &message[..1]);
}

#[test]
fn a_run_goes_on_with_the_data_that_it_began_with_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let (config, path) = (config(&[]), dir.path().join("run"));
    let checkpoint = stopped(&config, &path, &Start::New, 5);
    let data = open(&config);
    let mut features = data.clone();
    let Features::Dense(Dense::F32 { values, .. }) = &mut features.features else { panic!("dense features") };
    let mut changed = values.to_vec();
    changed[800] *= 1.5;
    *values = changed.into();
    let mut labels = data.clone();
    let Some(Labels::Integers(classes)) = &mut labels.labels else { panic!("classes") };
    classes.rotate_left(1);
    let mut split = data.clone();
    split.splits[0].valid = split.splits[0].test.clone();
    let mut graph = data.clone();
    graph.graph = graph.graph.symmetrise().with_self_loops(graphweft_graph::SelfLoops::Remove);
    let before = contents(&path);
    for (part, other) in [("features", features), ("labels", labels), ("split", split), ("graph", graph)] {
        for start in [Start::Newest, Start::At(checkpoint.clone())] {
            let watch = Arc::new(Watch::default());
            let again = watched(other.clone(), &config, &path, start, &watch);
            let error = again.as_ref().unwrap_err();
            assert!(matches!(error, Error::Graph(graphweft_base::Error::BadInput { .. })), "{error}");
            refused(again, &path, &before, &[&format!("sbm:200:3:6:f=8: {part}: not as they were"), "step-000005"]);
        }
    }
    assert!(Checkpoint::read(&checkpoint).unwrap().state.data.is_some());
    resume(&config, &path);
}

#[test]
fn a_checkpoint_that_does_not_say_on_which_data_it_was_trained_is_told_of() {
    let dir = tempfile::tempdir().unwrap();
    let (config, path) = (config(&[]), dir.path().join("run"));
    let checkpoint = stopped(&config, &path, &Start::New, 5);
    // As older versions wrote it.
    let file = checkpoint.join("state.json");
    let mut state: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert!(state.as_object_mut().unwrap().remove("data").is_some());
    let text = serde_json::to_string_pretty(&state).unwrap() + "\n";
    crate::whole::rewrite(&checkpoint, "state.json", text.as_bytes());
    let watch = Arc::new(Watch::default());
    watched(open(&config), &config, &path, Start::Newest, &watch).unwrap();
    assert!(notes(&watch).contains("does not say on which data"), "{}", notes(&watch));
    let newest = path.join("checkpoints/step-000012");
    assert!(Checkpoint::read(&newest).unwrap().state.data.is_some());
}

#[test]
fn a_folder_of_data_is_the_same_by_any_path() {
    let dir = tempfile::tempdir().unwrap();
    let (config, path) = (config(&[]), dir.path().join("run"));
    stopped(&config, &path, &Start::New, 5);
    // The run is told to be of a folder, as `train --data` has it.
    let (folder, link, other) = (dir.path().join("data"), dir.path().join("link"), dir.path().join("other"));
    fs::create_dir(&folder).unwrap();
    fs::create_dir(&other).unwrap();
    std::os::unix::fs::symlink(&folder, &link).unwrap();
    let checkpoint = path.join("checkpoints/step-000005");
    let text = fs::read_to_string(checkpoint.join("config.toml")).unwrap();
    let line = format!("path = {:?}", folder.to_str().unwrap());
    let text = text.replace("graph = \"sbm:200:3:6:f=8\"", &line);
    assert!(text.contains(&line), "{text}");
    crate::whole::rewrite(&checkpoint, "config.toml", text.as_bytes());
    let with = |path: &Path| {
        let mut given = Draft::default();
        given.set("data", "path", path.to_str().unwrap()).unwrap();
        Start::Newest.resumed(&dir.path().join("run"), &given)
    };
    for same in [folder.clone(), link, folder.join("../data/")] {
        let config = with(&same).unwrap().unwrap();
        assert_eq!(config.data.path.as_deref(), folder.to_str(), "as it was");
    }
    assert!(with(&other).unwrap_err().to_string().contains("data.path"));
}
