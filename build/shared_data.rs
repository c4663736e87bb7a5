//! Sets `cfg(shared_data)` where the shared real graphs are (`$GRAPHWEFT_SHARED`, or `../shared` beside the checkout),
//! so that tests which need them are reported as ignored elsewhere, not as passed. Their folder is in
//! `GRAPHWEFT_SHARED_DATA`.

#![allow(clippy::print_stdout)] // This is how a build script speaks to cargo.

use std::env;
use std::path::{Path, PathBuf};

pub(crate) fn main() {
    println!("cargo::rustc-check-cfg=cfg(shared_data)");
    println!("cargo::rerun-if-env-changed=GRAPHWEFT_SHARED");
    let package = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
    let beside = package.join("../../../shared");
    let data = env::var_os("GRAPHWEFT_SHARED").map_or(beside, PathBuf::from).join("data");
    println!("cargo::rustc-env=GRAPHWEFT_SHARED_DATA={}", data.display());
    // Cargo takes a file that is not there for a changed one, each time, and would build everything anew.
    if Path::is_dir(&data) {
        println!("cargo::rerun-if-changed={}", data.join("cora/meta.toml").display());
        println!("cargo::rustc-cfg=shared_data");
    }
}
