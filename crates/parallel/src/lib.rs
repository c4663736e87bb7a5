//! How graph operations are spread over ranks: one file per strategy.
//!
//! A [`Layout`] says who has which rows, a [`Link`] moves matrices between ranks, and [`spread`] makes the operations of a
//! [`Strategy`] out of both:
//!
//! * [`Local`]: one rank that has every row;
//! * [`Gather`]: all rows of the sources' operand on every rank;
//! * [`Heads`]: all rows of a group of ranks on each of them, for some of the heads.

mod at_hand;
mod columns;
mod degrees;
mod gather;
mod grid;
mod heads;
mod layout;
mod link;
mod local;
mod member;
mod strategy;
mod tokens;

<<<<<<< HEAD
pub use gather::Gather;
pub use heads::Heads;
pub use layout::Layout;
=======
>>>>>>> comm
pub use link::{Flight, Link, Summing, ranks};
pub use local::Local;
pub use strategy::{Cover, Inside, Strategy, spread};
