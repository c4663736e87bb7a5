//! Training for Graphweft.
//!
//! * [`config`]: one TOML file says everything about a run;
//! * [`schedule`]: how the learning rate changes;
//! * [`metrics`]: scores, one file each;
//! * [`checkpoint`]: what a run needs to go on, safe against power cuts and verified when read;
//! * [`run_dir`]: where a run writes, with TensorBoard events, a trace and the training curve.

pub mod checkpoint;
pub mod config;
mod durable;
mod error;
pub mod figure;
pub mod metrics;
pub mod run_dir;
pub mod schedule;

pub use error::{Error, Result};
