//! `graphweft export`: a dataset folder in a format of other programs.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use graphweft::Dataset;
use serde_json::json;

use crate::ui::Ui;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The dataset folder
    #[arg(long, value_name = "DIR")]
    data: PathBuf,

    /// csv, tsv and parquet: a folder of tables with a schema.toml, which import table reads back. npz: a file of
    /// arrays, named as in PyTorch Geometric. metis: a file with the graph alone
    #[arg(long, value_name = "FORMAT", value_parser = PossibleValuesParser::new(["csv", "tsv", "parquet", "npz", "metis"]))]
    to: String,

    /// The split to export [default: the first]
    #[arg(long, value_name = "NAME")]
    split: Option<String>,

    /// The file or folder to create
    #[arg(short, long, value_name = "PATH")]
    output: PathBuf,
}

pub(crate) fn run(args: &Args, ui: &Ui) -> anyhow::Result<()> {
    let data = Dataset::open(&args.data)?;
    let notes = data.export(&args.to, &args.output, args.split.as_deref())?;
    for note in &notes {
        ui.note(&format!("note: {note}"));
    }
    let json = json!({
        "format": args.to, "path": args.output, "nodes": data.num_nodes(), "edges": data.num_edges(), "notes": notes,
    });
    ui.result(&json, || format!("{} written to {}", data.name(), args.output.display()))
}
