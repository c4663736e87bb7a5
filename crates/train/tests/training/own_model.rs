//! A model from outside is named, trained, spread over ranks, stopped, resumed and opened like any other.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests.

#[path = "../../../model/tests/models/means.rs"]
mod means;

use graphweft_model::{ModelConfig, Models};
use graphweft_train::config::{Config, Draft, Loops};
use graphweft_train::run::Start;
use graphweft_train::run::Trained;

use crate::whole::{fresh, resume, same, stopped};
use means::Means;

fn models() -> Models {
    Models::default().with::<Means>()
}

fn draft(more: &[&str]) -> Draft {
    let mut draft = Draft::default().with_models(&models());
    let usual =
        ["data.graph=sbm:200:3:6:f=8", "model.name=means", "train.epochs=6", "train.lr=0.05", "run.checkpoint_every=4"];
    usual.iter().chain(more).for_each(|s| draft.assign(s).unwrap());
    draft
}

fn config(more: &[&str]) -> Config {
    draft(more).finish().unwrap()
}

#[test]
fn it_is_configured_as_others_are() {
    let named = config(&["model.rounds=3"]);
    assert_eq!(named.model, ModelConfig::new(Means { rounds: 3, ..Means::default() }));
    assert_eq!(named.data.self_loops, Loops::Add, "it says that it wants them");
    assert!(named.to_toml().unwrap().contains("[model]\nname = \"means\"\nhidden = 16\nrounds = 3\n"));
    let message = draft(&["model.round=3"]).finish().unwrap_err().to_string();
    assert!(message.contains("did you mean model.rounds?"), "{message}");
    let mut unknown = Draft::default();
    unknown.assign("model.name=means").unwrap();
    assert!(unknown.finish().unwrap_err().to_string().contains("there is no model"));
}

#[test]
fn every_strategy_trains_it_to_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let wanted = fresh(&config(&[]), &dir.path().join("alone")).runs.remove(0).losses;
    assert!(wanted[5] < wanted[0], "{wanted:?}");
    for strategy in ["gather", "halo", "heads", "ring"] {
        let name = format!("parallel.strategy={strategy}");
        let found = fresh(&config(&["parallel.ranks=2", &name]), &dir.path().join(strategy)).runs.remove(0).losses;
        let near = found.iter().zip(&wanted).all(|(a, b)| (a - b).abs() < 1e-4 * b);
        assert!(near && found.len() == wanted.len(), "{strategy}: {found:?}, on one rank {wanted:?}");
    }
}

#[test]
fn it_goes_on_where_it_was_stopped_and_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, path) = (dir.path().join("whole"), dir.path().join("stopped"));
    fresh(&config(&[]), &whole);
    stopped(&config(&[]), &path, &Start::New, 3);
    let given = Draft::default().with_models(&models());
    let stored = Start::Newest.resumed(&path, &given).unwrap().unwrap();
    assert_eq!(stored.model, config(&[]).model);
    resume(&stored, &path);
    same(&whole, &path, "means");
    assert!(Trained::open(&whole, None).is_err(), "nobody said what the name means");
    assert_eq!(Trained::open_with(&whole, None, &models()).unwrap().config.model.name(), "means");
}
