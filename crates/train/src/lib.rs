//! Training for Graphweft.
//!
//! * [`config`]: one TOML file says everything about a run;
//! * [`data`]: the graph it names, changed as it says;
//! * [`task`]: what is learned, how it is scored and what is predicted;
//! * [`ranks`]: who works, and what each of them holds;
//! * `epochs`: what an epoch goes through, and the model that learns from it;
//! * [`planning`]: how the work is spread, and what that would take;
//! * [`run`]: from the first epoch to the last, with all that is written on the way, and what a trained model is used
//!   for.
//!
//! A run is a function of its configuration: same settings, same bytes, for any number of threads, whether or not it
//! was interrupted on the way.

pub mod config;
pub mod data;
pub(crate) mod epochs;
mod error;
mod hash;
pub mod planning;
pub mod ranks;
pub mod run;
pub mod task;

pub use error::{Error, Result};
pub use run::stop::Stop;

// What tests of whole runs share names this crate as those outside of it do.
#[cfg(test)]
extern crate self as graphweft_train;
#[cfg(test)]
#[path = "../tests/training/whole/mod.rs"]
mod whole;
