//! How graph operations are spread over ranks: one file per strategy.
//!
//! * [`Local`]: one rank that has every row.
//!
//! A [`Layout`] says who has which rows; a [`Link`] moves matrices between ranks.

mod layout;
mod link;
mod local;

pub use layout::Layout;
pub use link::{Flight, Link, ranks};
pub use local::Local;
