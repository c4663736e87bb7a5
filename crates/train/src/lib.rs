//! Training for Graphweft.
//!
//! * [`config`]: one TOML file says everything about a run;
//! * [`data`]: the graph it names, changed as it says;
//! * [`world`]: who the ranks are, [`rank`]: one of them, [`plan`]: how the work is spread over them, [`planner`]: who decides that;
//! * [`shard`]: what one rank holds of it, cut out of what [`handout`] gives it, and [`learner`]: a model that learns from it, epoch by epoch;
//! * [`course`]: what an epoch goes through, all rows, pieces or chunks of them;
//! * [`trainer`]: a run, from the first epoch to the last, and [`session`]: one run per seed, or going on with one;
//! * `isolated`: learning from pieces of the graph, and `layer_wise`: exact logits of one that does not fit;
//! * [`rehearsal`]: what a run would take, without computing; [`emulation`]: how long it would take elsewhere;
//! * [`inference`]: using what was trained, [`predictions`]: what it says of every node, as a file;
//! * [`schedule`], [`metrics`]: learning rates and scores;
//! * [`checkpoint`]: what a run needs to go on, safe against power cuts and verified when read; [`fingerprint`]: which data it is for;
//! * [`run_dir`]: where a run writes, with TensorBoard events, a trace and the training curve.
//!
//! A run is a function of its configuration: same settings, same bytes, for any number of threads, whether or not it was
//! interrupted on the way.

pub mod checkpoint;
pub mod config;
pub mod course;
pub mod data;
mod decision;
pub mod emulation;
mod error;
pub mod figure;
pub mod fingerprint;
mod gradients;
pub mod handout;
mod hash;
pub mod inference;
mod isolated;
mod layer_wise;
pub mod learner;
pub mod metrics;
pub mod pipeline;
pub mod plan;
pub mod planner;
pub mod predictions;
mod random_split;
pub mod rank;
mod record;
mod recorded;
pub mod rehearsal;
mod resume;
mod rows;
pub mod run_dir;
pub mod schedule;
pub mod session;
pub mod shard;
mod stop;
pub mod trainer;
pub mod world;

pub use error::{Error, Result};
pub use stop::Stop;
