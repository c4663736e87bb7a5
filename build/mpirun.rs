//! Sets `cfg(mpirun)` where ranks can be started as processes, so that tests which do so are reported as ignored
//! elsewhere, not as passed.

#![allow(clippy::print_stdout)] // This is how a build script speaks to cargo.

use std::env;

fn main() {
    println!("cargo::rustc-check-cfg=cfg(mpirun)");
    println!("cargo::rerun-if-env-changed=PATH");
    println!("cargo::rerun-if-changed=/usr/bin/mpirun");
    let path = env::var_os("PATH").unwrap_or_default();
    if env::split_paths(&path).any(|folder| folder.join("mpirun").is_file()) {
        println!("cargo::rustc-cfg=mpirun");
    }
}
