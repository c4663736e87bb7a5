//! `graphweft report`: one page that shows a run, or several beside each other.

use std::path::PathBuf;

use graphweft::Page;
use serde_json::json;

use crate::ui::Ui;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run directories, finished or still going; several stand beside each other
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<PathBuf>,

    /// The page to write
    #[arg(short, long, value_name = "FILE.html", default_value = "report.html")]
    output: PathBuf,
}

pub(crate) fn run(args: &Args, ui: &Ui) -> anyhow::Result<()> {
    Page::of_runs(&args.runs)?.write(&args.output)?;
    let count = args.runs.len();
    ui.result(&json!({"path": args.output, "runs": count}), || {
        format!("{} shows {count} {}", args.output.display(), if count == 1 { "run" } else { "runs" })
    })
}
