//! Sets `GRAPHWEFT_VERSION` to the version and, where the source is a git checkout, the commit that is built:
//! `0.1.0 (1a2b3c4)`, or `0.1.0 (1a2b3c4-dirty)` where a tracked file was changed since. Elsewhere it is the version
//! alone.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What git answers in `folder`, if it does.
fn git(folder: &Path, args: &[&str]) -> Option<String> {
    // Without its locks: whoever works in the checkout meanwhile is not disturbed.
    let out = Command::new("git").arg("--no-optional-locks").args(args).current_dir(folder).output().ok()?;
    let text = String::from_utf8(out.stdout).ok()?.trim().to_string();
    out.status.success().then_some(text)
}

pub(crate) fn main() {
    let package = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
    let root = package.join("../..");
    // Whatever changes in here is built anew, and with it the mark of a changed checkout.
    for folder in std::fs::read_dir(root.join("crates")).into_iter().flatten().flatten() {
        let sources = folder.path().join("src");
        if sources.is_dir() {
            println!("cargo::rerun-if-changed={}", sources.display());
        }
    }
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let commit = commit(&root).map(|commit| format!(" ({commit})")).unwrap_or_default();
    println!("cargo::rustc-env=GRAPHWEFT_VERSION={version}{commit}");
}

fn commit(root: &Path) -> Option<String> {
    let top = PathBuf::from(git(root, &["rev-parse", "--show-toplevel"])?);
    // A source archive that was unpacked inside somebody's repository is not of that repository.
    if top.canonicalize().ok()? != root.canonicalize().ok()? {
        return None;
    }
    let branch = git(root, &["symbolic-ref", "--quiet", "HEAD"]);
    for name in ["HEAD", "logs/HEAD", "packed-refs"].into_iter().chain(branch.as_deref()) {
        let file = root.join(git(root, &["rev-parse", "--git-path", name])?);
        // Cargo takes a file that is not there for a changed one, each time.
        if file.is_file() {
            println!("cargo::rerun-if-changed={}", file.display());
        }
    }
    let hash = git(root, &["rev-parse", "--short", "HEAD"])?;
    let changed = git(root, &["status", "--porcelain", "--untracked-files=no"])?;
    Some(if changed.is_empty() { hash } else { format!("{hash}-dirty") })
}
