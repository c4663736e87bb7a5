//! Says where real graphs are, and compiles what METIS needs in place of a part of its own.

#![allow(clippy::print_stdout)] // This is how a build script speaks to cargo.

#[path = "../../build/shared_data.rs"]
mod shared_data;

fn main() {
    shared_data::main();
    #[cfg(feature = "metis")]
    {
        println!("cargo::rerun-if-changed=src/partition/metis.c");
        cc::Build::new().file("src/partition/metis.c").compile("graphweft_metis");
    }
}
