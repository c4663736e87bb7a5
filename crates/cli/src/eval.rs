//! `graphweft eval`: how good a trained model is.

use std::path::PathBuf;
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

    /// Split [default: the one it was trained with]
    #[arg(long, value_name = "NAME")]
    split: Option<String>,

    #[command(flatten)]
    ranks: Ranks,

    #[command(flatten)]
    device: Choice,
}

pub(crate) fn run(args: &Args, ui: &Ui) -> anyhow::Result<()> {
    let mut trained = Trained::open(&args.model, args.config.as_deref())?;
    args.origin.apply(&mut trained.config);
    if args.split.is_some() {
        trained.config.data.split.clone_from(&args.split);
    }
    args.ranks.apply(&mut trained.config.parallel)?;
    let config = trained.config.parallel.clone();
    let place = (args.device.place_of(&config, ui), trained.config.compute.precision.into());
    ranks::enter(&config, None, place, ui, |world, ui| evaluate(trained, &world, ui))
}

fn evaluate(trained: Trained, world: &World, ui: &Ui) -> anyhow::Result<()> {
    let data = Arc::new(Data::open(&trained.config.data, &trained.config.encoding, ui)?);
    let trained = Arc::new(trained);
    let (metric, split, scores) = trained.evaluate(world, &data, ui)?;
    let name = trained.config.model_name();
    let json = json!({
        "metric": metric.name(), "split": split, "train": scores.train, "valid": scores.valid, "test": scores.test,
        "graph": data.name, "model": name, "ranks": world.ranks(), "source": trained.source,
    });
    ui.result(&json, || {
        let rows = [("train", scores.train), ("valid", scores.valid), ("test", scores.test)];
        let rows = rows.map(|(part, score)| [part.to_string(), ui::score(score)]);
        let title = format!("{name} on {}, split {split}, {} in per cent", data.name, metric.name());
        format!("{title}\n\n{}\n\nfrom {}", ui::table(["part", "score"], rows), trained.source.display())
    })
}
