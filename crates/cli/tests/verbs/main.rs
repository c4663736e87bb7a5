//! The program as its users call it, one file per verb or subject.
//!
//! One program: each test program would link everything again.

mod bench;
mod config;
mod defaults;
mod device;
mod examples;
mod generate;
mod import;
mod inductive;
mod info;
mod isolated;
mod links;
mod mpi;
mod nccl;
mod own_data;
mod partition;
mod plan;
mod program;
mod ranks;
mod report;
mod safety;
mod smooth;
mod tables;
mod terminal;
mod train;
