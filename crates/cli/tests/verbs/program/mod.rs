//! Running the program as a user would.

#![allow(clippy::unwrap_used)] // Only tests come here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// `train` with a small model on a small graph, and more arguments.
pub(crate) fn small<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let usual = [
        "train",
        "--graph",
        "sbm:300:4:6:f=8",
        "data.self_loops=add",
        "model.hidden=8",
        "model.layers=2",
        "model.heads=2",
        "train.lr=0.01",
        "train.dropout=0.2",
    ];
    [&usual[..], more].concat()
}

/// A folder that is no run but has a file of somebody's.
pub(crate) fn taken(scratch: &Scratch) -> String {
    let run = scratch.path("run");
    fs::create_dir_all(&run).unwrap();
    fs::write(scratch.path("run/mine.txt"), "x").unwrap();
    run
}

/// A scratch folder, and the program run with a cache of its own inside it.
pub(crate) struct Scratch(TempDir);

impl Scratch {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_string()
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        let mut program = Command::new(env!("CARGO_BIN_EXE_graphweft"));
        program.args(args).env("XDG_CACHE_HOME", self.path("cache")).output().unwrap()
    }

    /// What a run which must succeed prints.
    pub(crate) fn text(&self, args: &[&str]) -> String {
        let out = self.run(args);
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    }

    /// The JSON that a run which must succeed prints.
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let text = self.text(&[args, &["--json"]].concat());
        assert_eq!(text.lines().count(), 1, "{text}");
        serde_json::from_str(&text).unwrap()
    }

    /// The message of a run that must fail with this exit code.
    #[allow(dead_code)] // Not every test file needs it.
    pub(crate) fn error(&self, code: i32, args: &[&str]) -> String {
        let out = self.run(args);
        let message = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(code), "{args:?}: {message}");
        assert!(out.stdout.is_empty(), "{args:?}");
        message
    }
}

/// What is in a file of a run, but for the times that `plan.json` says: those are never the same.
#[allow(dead_code)] // Not every test file needs it.
pub(crate) fn without_times(path: &Path) -> Vec<u8> {
    let bytes = fs::read(path).unwrap();
    if path.file_name().is_none_or(|name| name != "plan.json") {
        return bytes;
    }
    let mut plan: Value = serde_json::from_slice(&bytes).unwrap();
    plan.as_object_mut().unwrap().retain(|key, _| key != "measured");
    plan.to_string().into_bytes()
}

/// The shared real data; tests that use it are ignored where it is not.
#[allow(dead_code)] // Not every test file needs it.
pub(crate) fn shared_data() -> PathBuf {
    env!("GRAPHWEFT_SHARED_DATA").into()
}
