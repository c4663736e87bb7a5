//! `graphweft launch`: a verb on several processes that MPI connects.

use std::path::PathBuf;
use std::process::exit;

use graphweft::{Launch, Stop};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Processes to start
    #[arg(short = 'n', long, value_name = "P", value_parser = clap::value_parser!(u16).range(1..))]
    processes: u16,

    /// Start all again, with --resume, up to so many times if a process is lost; the run must have a folder (-o)
    #[arg(long, value_name = "N", default_value_t = 0)]
    restarts: u16,

    /// A file with the names of machines to start them on, one in a line
    #[arg(long, value_name = "FILE")]
    hostfile: Option<PathBuf>,

    /// The verb and its arguments
    #[arg(trailing_var_arg = true, required = true, allow_hyphen_values = true, value_name = "VERB")]
    command: Vec<String>,
}

pub(crate) fn run(args: &Args, stop: &Stop) -> anyhow::Result<()> {
    let has = |flags: &[&str]| {
        let given = |word: &String, flag: &&str| word == flag || word.starts_with(&format!("{flag}="));
        args.command.iter().any(|word| flags.iter().any(|flag| given(word, flag)))
    };
    if args.restarts > 0 && !has(&["-o", "--output", "run.output"]) {
        let remedy = "give it one, as in: graphweft launch -n 4 --restarts 2 train --data mine -o runs/mine";
        return Err(graphweft::Error::request("a run that is to be resumed needs a folder", remedy).into());
    }
    let mut command = args.command.clone();
    if !has(&["--comm", "parallel.comm"]) {
        command.extend(["--comm", "mpi"].map(String::from));
    }
    let mut launch = Launch::new(args.processes.into()).restarts(args.restarts.into());
    if let Some(file) = &args.hostfile {
        launch = launch.hostfile(file);
    }
    // What there is to say, the processes have said.
    let again: &[&str] = if has(&["--resume"]) { &[] } else { &["--resume"] };
    exit(launch.run(std::env::current_exe()?, &command, again, stop)?)
}
