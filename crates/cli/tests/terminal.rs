//! What people see: help, the width of lines, what is said when, and to whom.

#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests.

mod program;

use std::process::Command;

use program::Scratch;

/// What git says of this checkout; nothing where there is none.
fn git(args: &[&str]) -> Option<String> {
    let out = Command::new("git").args(args).current_dir(env!("CARGO_MANIFEST_DIR")).output().ok()?;
    out.status.success().then(|| String::from_utf8(out.stdout).unwrap().trim().to_string())
}

#[test]
fn the_version_has_the_commit() {
    let scratch = Scratch::new();
    let version = String::from_utf8(scratch.run(&["--version"]).stdout).unwrap();
    let plain = format!("graphweft {}", env!("CARGO_PKG_VERSION"));
    match git(&["rev-parse", "--short", "HEAD"]) {
        Some(commit) => {
            let expected = [format!("{plain} ({commit})"), format!("{plain} ({commit}-dirty)")];
            assert!(expected.iter().any(|text| text == version.trim()), "{version}");
        }
        None => assert_eq!(version.trim(), plain),
    }
    assert!(version.contains(scratch.json(&["doctor"])["build"].as_str().unwrap()));
}
