//! `graphweft`: graphs, their data, and the training of graph transformers on them.
//!
//! One file per verb. Results go to stdout (a table, or one line of JSON with `--json`), everything else to stderr.

mod asked;
mod bench;
mod completions;
mod config;
mod device;
mod doctor;
mod eval;
mod exit;
mod export;
mod generate;
mod help;
mod import;
mod info;
mod launch;
mod man;
mod partition;
mod plan;
mod predict;
mod ranks;
mod report;
mod runs;
mod shortcuts;
mod size;
mod smooth;
mod source;
mod train;
mod ui;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use graphweft::{Stop, VERSION};

use crate::ui::Ui;

/// More threads than a machine has cores, and than most systems let a process have.
const MOST_THREADS: i64 = 1024;

/// Trains graph transformers and graph neural networks on graphs too large for one device.
#[derive(Parser)]
#[command(name = "graphweft", version = VERSION, about, max_term_width = 80, after_help = help::PROGRAM)]
struct Cli {
    #[command(flatten)]
    output: ui::Output,

    /// Threads to compute with, at most 1024 [default: all cores]
    #[arg(long, global = true, value_name = "T", value_parser = clap::value_parser!(u16).range(1..=MOST_THREADS))]
    threads: Option<u16>,

    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Time one operation
    #[command(after_help = help::BENCH)]
    Bench(bench::Args),
    /// Print completions for a shell
    #[command(after_help = help::COMPLETIONS)]
    Completions(completions::Args),
    /// Say what settings there are, what they can be and what they mean
    #[command(after_help = help::CONFIG)]
    Config(config::Args),
    /// Say what this build and this machine can do
    #[command(after_help = help::DOCTOR)]
    Doctor(doctor::Args),
    /// Score a trained model
    #[command(after_help = help::EVAL)]
    Eval(eval::Args),
    /// Write a dataset folder in a format of other programs
    #[command(after_help = help::EXPORT)]
    Export(export::Args),
    /// Make a graph and write it as a dataset folder
    #[command(after_help = help::GENERATE)]
    Generate(generate::Args),
    /// Turn another format into a dataset folder
    #[command(after_help = help::IMPORT)]
    Import(import::Args),
    /// Describe a graph in numbers
    #[command(after_help = help::INFO)]
    Info(info::Args),
    /// Start a verb as several processes, which MPI connects
    #[command(after_help = help::LAUNCH)]
    Launch(launch::Args),
    /// Write manual pages, one for every verb
    #[command(after_help = help::MAN)]
    Man(man::Args),
    /// Divide a graph into parts and say what that costs
    #[command(after_help = help::PARTITION)]
    Partition(partition::Args),
    /// Predict the time and memory of every way to spread a training run, and choose
    #[command(after_help = help::PLAN)]
    Plan(plan::Args),
    /// Write a trained model's logits for every node
    #[command(after_help = help::PREDICT)]
    Predict(predict::Args),
    /// Make a page that shows a run, or several beside each other
    #[command(after_help = help::REPORT)]
    Report(report::Args),
    /// List runs: dataset, model, score, time, state
    #[command(after_help = help::RUNS)]
    Runs(runs::Args),
    /// Spread a run's predictions over the graph: correct and smooth
    #[command(after_help = help::SMOOTH)]
    Smooth(smooth::Args),
    /// Train a model; without arguments, a graph transformer on a generated graph
    #[command(after_help = help::TRAIN)]
    Train(train::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let arguments: Vec<_> = std::env::args_os().skip(1).map(|a| a.to_string_lossy().into_owned()).collect();
    let command = format!("graphweft {}: {}", VERSION, arguments.join(" "));
    let ui = match Ui::new(&cli.output, &command) {
        Ok(ui) => ui,
        Err((ui, error)) => return exit::report(&error, &ui),
    };
    match run(&cli, &ui) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::report(&error, &ui),
    }
}

fn run(cli: &Cli, ui: &Ui) -> anyhow::Result<()> {
    let stop = Stop::on_signals()?;
    if let Some(threads) = cli.threads {
        rayon::ThreadPoolBuilder::new().num_threads(threads.into()).build_global()?;
    }
    match &cli.verb {
        Verb::Bench(args) => bench::run(args, ui),
        Verb::Completions(args) => completions::run(args),
        Verb::Config(args) => config::run(args, ui),
        Verb::Doctor(args) => doctor::run(args, ui),
        Verb::Eval(args) => eval::run(args, ui),
        Verb::Export(args) => export::run(args, ui),
        Verb::Generate(args) => generate::run(args, ui),
        Verb::Import(args) => import::run(args, ui),
        Verb::Info(args) => info::run(args, ui),
        Verb::Launch(args) => launch::run(args, &stop),
        Verb::Man(args) => man::run(args, ui),
        Verb::Partition(args) => partition::run(args, ui),
        Verb::Plan(args) => plan::run(args, ui),
        Verb::Predict(args) => predict::run(args, ui),
        Verb::Report(args) => report::run(args, ui),
        Verb::Runs(args) => runs::run(args, ui),
        Verb::Smooth(args) => smooth::run(args, ui),
        Verb::Train(args) => train::run(args, &stop, ui),
    }
}
