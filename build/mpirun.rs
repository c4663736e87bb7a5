//! Finds launchers of MPI processes for tests, which are reported as ignored where there is none, not as passed:
//!
//! | launcher | where | `cfg` | its path |
//! |---|---|---|---|
//! | Open MPI's | `PATH` | `open_mpi` | `GRAPHWEFT_TEST_OPEN_MPI` |
//! | MPICH's | `PATH` | `mpich` | `GRAPHWEFT_TEST_MPICH` |
//! | of the Python package `mpich` | `GRAPHWEFT_MPICH`, or `target/venv`, which test.sh makes | `mpich_wheel` | `GRAPHWEFT_TEST_MPICH_WHEEL` |

#![allow(clippy::print_stdout)] // This is how a build script speaks to cargo.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) fn main() {
    println!("cargo::rerun-if-env-changed=PATH");
    println!("cargo::rerun-if-env-changed=GRAPHWEFT_MPICH");
    // The folder, not the programs in it: cargo takes a file that is not there for a changed one, each time.
    println!("cargo::rerun-if-changed=/usr/bin");
    let package = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
    let venv = env::var_os("GRAPHWEFT_MPICH").map_or(package.join("../../target/venv"), PathBuf::from);
    let folder = Path::new(&venv).join("bin");
    if folder.join("mpiexec").is_file() {
        println!("cargo::rerun-if-changed={}", folder.join("mpiexec").display());
    }
    tell("open_mpi", find(&path(), &["mpirun.openmpi", "mpirun"], is_open_mpi));
    tell("mpich", find(&path(), &["mpiexec.mpich", "mpiexec.hydra", "mpiexec"], is_mpich));
    tell("mpich_wheel", find(&[folder], &["mpiexec"], is_mpich));
}

fn tell(name: &str, program: Option<PathBuf>) {
    println!("cargo::rustc-check-cfg=cfg({name})");
    if program.is_some() {
        println!("cargo::rustc-cfg={name}");
    }
    let program = program.unwrap_or_default();
    println!("cargo::rustc-env=GRAPHWEFT_TEST_{}={}", name.to_uppercase(), program.display());
}

fn path() -> Vec<PathBuf> {
    env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect()
}

fn find(folders: &[PathBuf], names: &[&str], fits: fn(&str) -> bool) -> Option<PathBuf> {
    let files = names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    files.filter(|file| file.is_file()).find(|file| {
        let told = Command::new(file).arg("--version").output();
        told.is_ok_and(|out| fits(&String::from_utf8_lossy(&out.stdout)))
    })
}

fn is_open_mpi(version: &str) -> bool {
    version.contains("Open MPI") || version.contains("Open-MPI") || version.contains("OpenRTE")
}

fn is_mpich(version: &str) -> bool {
    version.contains("HYDRA")
}
