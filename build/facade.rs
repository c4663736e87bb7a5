//! For the library: which commit it is.

#![allow(clippy::print_stdout)] // This is how a build script speaks to cargo.

#[path = "commit.rs"]
mod commit;

fn main() {
    commit::main();
}
