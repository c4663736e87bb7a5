//! Who works, and what each of them holds.
//!
//! * `world`: who the ranks are: this thread, threads or processes; `rank`: one of them;
//! * `shard`: what one rank holds of the data, cut out of what it is given once (`once_per_rank`);
//! * `gradients`: their sums over ranks, while backward goes on.

pub(crate) mod gradients;
pub(crate) mod once_per_rank;
pub(crate) mod rank;
pub(crate) mod shard;
pub(crate) mod world;

pub use rank::RankUsage;
pub use world::World;
