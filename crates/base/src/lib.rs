//! What every crate of Graphweft needs, and what none of them is about.
//!
//! * [`Error`]: a failure as the user reads it and a program asks it: the file, the field, the position, the problem,
//!   the remedy and, as an [`ErrorKind`], what it means;
//! * [`durable`]: files and folders that are there in full or not at all;
//! * [`plain`]: files of others, read without waiting for ever;
//! * [`cache_folder`]: where things are kept that are dear to make;
//! * [`DType`]: the type of stored numbers;
//! * [`progress`]: how long work reports where it is;
//! * [`random`]: randomness as a function of a key and a counter;
//! * [`room`]: memory and disk, asked for before they are taken.
//!
//! Nothing here knows of graphs, tensors or ranks.

mod cache;
mod dtype;
pub mod durable;
mod error;
pub mod plain;
pub mod progress;
pub mod random;
pub mod room;

pub use cache::cache_folder;
pub use dtype::DType;
pub use error::{Error, ErrorKind, Position, Problem, Result};
