//! For the program: where its tests find data and Python, and which commit it is.

#![allow(clippy::print_stdout)] // This is how a build script speaks to cargo.

#[path = "commit.rs"]
mod commit;
#[path = "python.rs"]
mod python;
#[path = "shared_data.rs"]
mod shared_data;

fn main() {
    shared_data::main();
    python::main();
    commit::main();
}
