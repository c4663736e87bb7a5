//! `graphweft config`, `completions` and `man`: what is made from the code is whole, and the page that is kept is true.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::{env, fs};

use crate::program::Scratch;

/// `GRAPHWEFT_BLESS=1` writes it anew.
#[test]
#[cfg_attr(not(feature = "metis"), ignore = "the default partitioner is another one without METIS")]
fn the_page_of_settings_is_as_the_program_prints_it() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/config.md");
    let printed = Scratch::new().text(&["config", "--markdown"]);
    if env::var_os("GRAPHWEFT_BLESS").is_some() {
        fs::write(&page, &printed).unwrap();
    }
    let kept = fs::read_to_string(&page).unwrap();
    assert!(kept == printed, "docs/config.md: write it anew with `graphweft config --markdown > docs/config.md`");
}

#[test]
fn a_setting_is_found_by_name_and_by_section() {
    let scratch = Scratch::new();
    let lr = scratch.json(&["config", "train.lr"]);
    assert_eq!((&lr[0]["type"], &lr[0]["default"]), (&"a number".into(), &"0.001".into()));
    let run = scratch.json(&["config", "run"]);
    assert_eq!(run.as_array().unwrap().len(), 5);
    let hidden = scratch.json(&["config", "model.hidden"]);
    assert!(hidden.as_array().unwrap().iter().any(|key| key["models"].to_string().contains("gt")));
    let text = scratch.text(&["config", "train.epochs"]);
    assert!(text.starts_with("train.epochs\n  a whole number"), "{text}");
    let message = scratch.error(2, &["config", "train.learning"]);
    assert!(message.contains("no setting") && message.contains("remedy"), "{message}");
    assert!(scratch.error(2, &["config", "lr"]).contains("train.lr"));
}

#[test]
fn completions_know_every_verb() {
    let scratch = Scratch::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = scratch.text(&["completions", shell]);
        assert!(["train", "partition", "completions"].iter().all(|verb| script.contains(verb)), "{shell}");
    }
}

#[test]
fn every_verb_has_a_manual_page() {
    let scratch = Scratch::new();
    let made = scratch.json(&["man", &scratch.path("man")]);
    let pages: Vec<&str> = made["pages"].as_array().unwrap().iter().map(|page| page.as_str().unwrap()).collect();
    for page in ["graphweft.1", "graphweft-train.1", "graphweft-bench-gemm.1", "graphweft-import-arrays.1"] {
        assert!(pages.contains(&page), "{pages:?}");
        let text = fs::read_to_string(format!("{}/{page}", scratch.path("man"))).unwrap();
        assert!(text.contains(".TH"), "{page}");
    }
}
