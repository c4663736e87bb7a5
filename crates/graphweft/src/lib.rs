//! Trains graph transformers and graph neural networks on graphs too large for one device.
//!
//! # A first run
//!
//! A [`Run`] is what to train on, which model, and any setting. [`Run::train`] gives a [`Report`]:
//!
//! ```
//! use graphweft::Run;
//! # let dir = tempfile::tempdir().unwrap();
//! # let folder = dir.path().join("run");
//! let report = Run::new("sbm:200:4:8:f=16").model("gt").epochs(10).set("train.lr", 1e-2).output(&folder).train()?;
//! println!("{} {} on {}", report.metric.name(), report.metric.show(report.test.mean), report.graph);
//! # Ok::<(), graphweft::Error>(())
//! ```
//!
//! # The tour
//!
//! * **Data** are a [`Dataset`]: a folder, [arrays in memory](Dataset::builder), or generated. A [`Graph`] is one
//!   without features.
//! * **Several ranks** share the work: [`Run::ranks`]. [`Run::plan`] says what every way to share it would take, as a
//!   [`Plan`]; a run takes the best.
//! * **A model** that was trained is a [`Model`]: it is scored, and says what it thinks of every node.
//! * **Long work** is watched by an [`Observer`] and ended by a [`Stop`], both from any thread.
//! * **Failures** are an [`Error`], which knows [what it means](ErrorKind), the file, the field, the position and a
//!   remedy.
//! * **To look at** a run, several of them or a plan, make a [`Page`]; [`Page::runs`] finds runs.
//! * **A loop of one's own** goes by [`Steps`]; models, tasks and strategies of one's own by [`extend`].
//! * **Arrays of one's own** go through the [`kernels`] as they are.
//! * **Settings** are listed by [`Key`].
//! * **Several processes** of MPI are started by [`Launch`].
//! * **This machine** is described by [`Doctor`]; [`Bench`] times what it does.
//!
//! What is here may be sent to other threads. Results have a method `to_json`, which gives what the program prints with
//! `--json`.

mod amount;
mod bench;
mod dataset;
mod doctor;
mod error;
pub mod extend;
mod graph;
mod import;
mod info;
mod input;
pub mod kernels;
mod launch;
mod machine;
mod memory;
mod model;
mod observe;
mod page;
mod partition;
mod place;
mod plan;
mod report;
mod run;
mod setters;
mod setting;
mod settings;
mod steps;
mod stop;
mod stored;

pub use amount::Amount;
pub use bench::{Bench, Timed, Timing};
pub use dataset::{Dataset, DatasetBuilder, DatasetTask, SparseRows, Split, TypeCount};
pub use doctor::{Doctor, Gpu, Library};
pub use error::{Error, ErrorKind, Position, Result};
pub use graph::{Graph, SelfLoops};
/// What [`Page::runs`] gives.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// graphweft::Run::new("sbm:60:3:4:f=8").model("gcn").epochs(2).output(dir.path().join("a")).train()?;
/// let run: &graphweft::ListedRun = &graphweft::Page::runs(dir.path())?[0];
/// assert_eq!((run.model.as_str(), run.seeds), ("gcn", 1));
/// # Ok::<(), graphweft::Error>(())
/// ```
pub use graphweft_report::ListedRun;
pub use import::{ArrayFiles, Format, Import};
pub use info::{Info, Trial};
pub use input::Input;
pub use launch::Launch;
pub use memory::Memory;
pub use model::{Evaluation, Model, ModelScores, PredictionFile, Predictions, Smooth, Smoothed, Written};
pub use observe::{Begin, Epoch, Observer, Phase, Scores, Unit};
pub use page::Page;
pub use partition::{Balance, Method, Order, Partition, PartitionStats, Partitioned};
pub use place::Device;
pub use plan::{Calibration, Candidate, Description, Plan, Prediction};
pub use report::{Choice, EpochCost, Metric, OverSeeds, RankUsage, Report, SeedReport, Sent};
pub use run::Run;
pub use setting::Setting;
pub use settings::Key;
pub use steps::{Pass, Steps};
pub use stop::Stop;
pub use stored::Stored;

/// The version and, if it was built in a git checkout, the commit.
///
/// ```
/// assert!(graphweft::VERSION.starts_with("0."));
/// ```
pub const VERSION: &str = env!("GRAPHWEFT_VERSION");
