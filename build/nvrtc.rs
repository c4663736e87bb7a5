//! Sets `cfg(nvrtc)` where `$GRAPHWEFT_NVRTC` names a folder with NVIDIA's run-time compiler (test.sh installs one), so
//! that tests which compile kernels are reported as ignored elsewhere, not as passed.

#![allow(clippy::print_stdout)] // This is how a build script speaks to cargo.

use std::env;
use std::path::Path;

fn main() {
    println!("cargo::rustc-check-cfg=cfg(nvrtc)");
    println!("cargo::rerun-if-env-changed=GRAPHWEFT_NVRTC");
    if env::var_os("GRAPHWEFT_NVRTC").is_some_and(|folder| Path::new(&folder).is_dir()) {
        println!("cargo::rustc-cfg=nvrtc");
    }
}
