//! `graphweft completions`: what a shell needs to complete flags and verbs.

use std::io::{self, Write as _};

use clap::CommandFactory;
use clap_complete::Shell;

use crate::Cli;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "graphweft", &mut script);
    Ok(io::stdout().write_all(&script)?)
}
