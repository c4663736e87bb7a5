//! How graph operations are spread over ranks: one file per strategy.
//!
//! A [`Layout`] says who has which rows, a [`Link`] moves matrices between ranks, and [`spread`] makes the operations
//! of a [`Strategy`] out of both:
//!
//! * [`Local`]: one rank that has every row;
//! * [`Gather`]: all rows of the sources' operand on every rank;
//! * [`Halo`]: what cut edges need, pulled or pushed;
//! * [`Heads`]: all rows of a group of ranks on each of them, for some of the heads;
//! * [`Ring`]: one rank's rows at a time.
//!
//! [`Batch`] is for data of many graphs, of which each rank has some, whole.
//!
//! [`Pipeline`] is approximate and not one of these: chunk after chunk through some of the layers, of which every rank
//! has others.

mod batches;
mod blocks;
mod columns;
mod degrees;
mod gather;
mod gathered;
mod grid;
mod halo;
mod heads;
mod isolated;
mod layout;
mod link;
mod local;
mod member;
mod pairs;
mod pipeline;
mod ring;
mod sampled;
mod strategy;
mod tokens;
mod wire;

pub use batches::{Batch, BatchRows};
pub use gather::{Gather, all_rows};
pub use halo::Halo;
pub use heads::Heads;
pub use layout::Layout;
pub use link::{Expected, Flight, Link, Summing, ranks};
pub use local::Local;
pub use member::sums;
pub use pipeline::{Across, Pipeline, Sharing};
pub use ring::Ring;
pub use strategy::{Family, Fewer, Listed, Many, Own, Rows, Situation, Spread, Strategy, spread};
pub use wire::{Coding, Learning};

/// What stands behind the names of strategies, such as the depth of `ring:2`.
pub mod settings {
    pub use crate::batches::Settings as Batches;
    pub use crate::gather::Settings as Gather;
    pub use crate::grid::{Inside, Settings as Grid};
    pub use crate::halo::Cover;
    pub use crate::heads::Settings as Heads;
    pub use crate::isolated::Settings as Isolated;
    pub use crate::local::Settings as Local;
    pub use crate::pipeline::{Settings as Pipeline, Stages, Within};
    pub use crate::ring::Settings as Ring;
}
