//! For the program: where its tests find data, Python and launchers of MPI, and which commit it is.

#![allow(clippy::print_stdout)] // This is how a build script speaks to cargo.

#[path = "commit.rs"]
mod commit;
#[path = "mpirun.rs"]
mod mpirun;
#[path = "python.rs"]
mod python;
#[path = "shared_data.rs"]
mod shared_data;

fn main() {
    shared_data::main();
    mpirun::main();
    python::main();
    commit::main();
}
