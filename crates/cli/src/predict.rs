//! `graphweft predict`: the logits of a trained model for every node of a dataset.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use graphweft_train::data::Data;
use graphweft_train::inference::Trained;
use graphweft_train::world::World;
use serde_json::json;

use crate::device::Choice;
use crate::ranks::{self, Ranks};
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

    /// File to write: float32, a row of logits per node in original ids
    #[arg(short, long, value_name = "FILE.npy", default_value = "predictions.npy")]
    output: PathBuf,

    #[command(flatten)]
    ranks: Ranks,

    #[command(flatten)]
    device: Choice,
}

pub(crate) fn run(args: &Args, ui: &Ui) -> anyhow::Result<()> {
    let mut trained = Trained::open(&args.model, args.config.as_deref())?;
    args.origin.apply(&mut trained.config);
    args.ranks.apply(&mut trained.config.parallel)?;
    let config = trained.config.parallel.clone();
    let place = (args.device.place_of(&config, ui), trained.config.compute.precision.into());
    ranks::enter(&config, None, place, ui, |world, ui| predict(trained, &args.output, &world, ui))
}

fn predict(trained: Trained, output: &Path, world: &World, ui: &Ui) -> anyhow::Result<()> {
    let data = Arc::new(Data::open(&trained.config.data, &trained.config.encoding, ui)?);
    let trained = Arc::new(trained);
    let Some(cols) = trained.write_predictions(world, &data, ui, output)? else { return Ok(()) };
    let nodes = data.graph.num_dst();
    let json = json!({
        "nodes": nodes, "classes": cols, "path": output, "graph": data.name, "source": trained.source,
    });
    ui.result(&json, || {
        let (nodes, path) = (ui::count(nodes as u64), output.display());
        format!("logits of {nodes} nodes and {cols} classes of {} written to {path}", data.name)
    })
}
