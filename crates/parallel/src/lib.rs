//! How graph operations are spread over ranks: one file per strategy.
//!
//! * [`Local`]: one rank that has every row.

mod local;

pub use local::Local;
