//! Training as a whole, one file per subject.
//!
//! One program: each test program would link everything again.

mod gathered;
mod graphs;
mod inference;
mod isolated;
mod learnt_rows;
mod links;
mod own_model;
mod pipeline;
mod planning;
mod ranks;
mod regression;
mod resume;
mod run;
mod scores;
mod smoothing;
mod whole;
mod wire;
