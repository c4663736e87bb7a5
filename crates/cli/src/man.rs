//! `graphweft man`: manual pages, made of the help texts.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use graphweft::Error;
use serde_json::json;

use crate::Cli;
use crate::ui::{Ui, counted};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folder to write to, which is created if it is not there
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

pub(crate) fn run(args: &Args, ui: &Ui) -> anyhow::Result<()> {
    fs::create_dir_all(&args.dir).map_err(|e| Error::not_written("create", &args.dir, e))?;
    let mut root = Cli::command();
    root.build();
    let mut pages = Vec::new();
    write(&root, &args.dir, &mut pages)?;
    ui.result(&json!({ "folder": args.dir, "pages": pages }), || {
        format!("{} written to {}", counted(pages.len(), "manual page"), args.dir.display())
    })
}

/// Writes the page of a command, and those of its verbs.
fn write(command: &Command, dir: &Path, pages: &mut Vec<String>) -> anyhow::Result<()> {
    let man = Man::new(command.clone());
    let (file, mut page) = (man.get_filename(), Vec::new());
    man.render(&mut page)?;
    let path = dir.join(&file);
    fs::write(&path, page).map_err(|e| Error::not_written("write", &path, e))?;
    pages.push(file);
    let mut verbs = command.get_subcommands().filter(|verb| verb.get_name() != "help");
    verbs.try_for_each(|verb| write(verb, dir, pages))
}
