//! How graph operations are spread over ranks: one file per strategy.
//!
//! * [`Local`]: one rank that has every row.

mod link;
mod local;

pub use link::{Flight, Link, Summing, ranks};
pub use local::Local;
