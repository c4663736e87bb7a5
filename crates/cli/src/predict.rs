//! `graphweft predict`: the logits of a trained model for every node of a dataset.

use std::path::PathBuf;

use graphweft_train::data::Data;
use graphweft_train::inference::Trained;
use graphweft_train::run_dir::write_predictions;
use serde_json::json;

use crate::device::Choice;
use crate::train::Origin;
use crate::ui::{self, Ui};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// A run directory (its best epoch), a checkpoint, or a safetensors file
    model: PathBuf,

    /// Configuration, for a safetensors file without config.toml beside it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    #[command(flatten)]
    origin: Origin,

    #[command(flatten)]
    device: Choice,

    /// File to write: float32, a row of logits per node in original ids
    #[arg(short, long, value_name = "FILE.npy", default_value = "predictions.npy")]
    output: PathBuf,
}

pub(crate) fn run(args: &Args, ui: &Ui) -> anyhow::Result<()> {
    let mut trained = Trained::open(&args.model, args.config.as_deref())?;
    args.origin.apply(&mut trained.config);
    let data = Data::open(&trained.config.data, &trained.config.encoding, ui)?;
    let (rows, cols) = trained.predict(&data, args.device.place(ui))?;
    write_predictions(&args.output, &rows, cols)?;
    let nodes = data.graph.num_dst();
    let json = json!({
        "nodes": nodes, "classes": cols, "path": args.output, "graph": data.name, "source": trained.source,
    });
    ui.result(&json, || {
        let (nodes, path) = (ui::count(nodes as u64), args.output.display());
        format!("logits of {nodes} nodes and {cols} classes of {} written to {path}", data.name)
    })
}
