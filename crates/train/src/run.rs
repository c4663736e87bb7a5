//! A run: from the first epoch to the last, and what is left of it.
//!
//! * `session`: one run per seed, or going on with one (`resume`, `decision`); `trainer`: a single run;
//! * `steps`: steps one by one, for a loop of somebody's own; `schedule`: learning rates; `stop`: ending early;
//! * `checkpoint`: what a run needs to go on, safe against power cuts and verified when read;
//! * `run_dir`: where a run writes, with TensorBoard events, a trace and the training curve; `run_writer`:
//!   who writes;
//! * `inference`: using what was trained; `smoothing`: spreading what it says over the graph.

pub(crate) mod checkpoint;
pub(crate) mod decision;
pub(crate) mod inference;
pub(crate) mod resume;
pub(crate) mod run_dir;
pub(crate) mod run_writer;
pub(crate) mod schedule;
pub(crate) mod session;
pub(crate) mod smoothing;
pub(crate) mod steps;
pub(crate) mod stop;
pub(crate) mod trainer;

pub use checkpoint::{Checkpoint, Scores};
pub use inference::Trained;
pub use run_dir::launch::Launch;
pub use run_dir::{Line, RunDir};
pub use session::{OverSeeds, Session, Start, Summary};
pub use smoothing::{Known, Method as SmoothMethod, Smoothed, Smoothing, Weights as SmoothWeights};
pub use steps::{Pass, Steps};
pub use trainer::{Observer, Run};
