//! `graphweft eval`: how good a trained model is, or those of all seeds of a run.

use std::path::PathBuf;
use std::sync::Arc;

use graphweft::{Evaluation, Model, ModelScores};

use crate::asked::Origin;
use crate::device::Choice;
use crate::ranks::Ranks;
use crate::ui::{self, Ui};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    trained: Trained,

    /// Split [default: the one it was trained with]
    #[arg(long, value_name = "NAME")]
    split: Option<String>,

    /// What is scored, e.g. mrr [default: what it was trained by]
    #[arg(long, value_name = "NAME")]
    metric: Option<String>,
}

/// A model that was trained, on which data, and where it is used: the same for `predict`.
#[derive(clap::Args)]
pub(crate) struct Trained {
    /// A run directory (the best epoch; of several seeds each), a checkpoint, or a safetensors file
    model: PathBuf,

    /// Configuration, for a safetensors file without config.toml beside it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    #[command(flatten)]
    origin: Origin,

    #[command(flatten)]
    ranks: Ranks,

    #[command(flatten)]
    device: Choice,
}

impl Trained {
    /// The model, watched by `ui`.
    pub(crate) fn open(&self, ui: &Ui) -> anyhow::Result<Model> {
        let mut model = match &self.config {
            Some(config) => Model::open_with(&self.model, config)?,
            None => Model::open(&self.model)?,
        };
        if let Some(input) = self.origin.input() {
            model = model.on(input);
        }
        Ok(self.ranks.apply(model).device(self.device.device()).observer(Arc::new(ui.clone())))
    }
}

pub(crate) fn run(args: &Args, ui: &Ui) -> anyhow::Result<()> {
    let mut model = args.trained.open(ui)?;
    if let Some(split) = &args.split {
        model = model.split(split);
    }
    if let Some(metric) = &args.metric {
        model = model.metric(metric)?;
    }
    let found = model.evaluate()?;
    if !found.leads {
        return Ok(());
    }
    ui.result(&found.to_json(), || match &found.models[..] {
        [only] => one(&found, only),
        _ => several(&found),
    })
}

fn one(found: &Evaluation, only: &ModelScores) -> String {
    let (scores, metric) = (only.scores, found.metric);
    let rows = [("train", scores.train), ("valid", scores.valid), ("test", scores.test)];
    let rows = rows.map(|(part, score)| [part.to_string(), metric.show(score)]);
    let scored = format!("{}{}", metric.name(), metric.counted_in());
    let title = format!("{} on {}, split {}, {scored}", found.model, found.graph, only.split);
    format!("{title}\n\n{}\n\nfrom {}", ui::table(["part", "score"], rows), only.source.display())
}

/// Mean and deviation, and each seed.
fn several(found: &Evaluation) -> String {
    let metric = found.metric;
    let row = |m: &ModelScores| {
        let [train, valid, test] = [m.scores.train, m.scores.valid, m.scores.test].map(|score| metric.show(score));
        [m.seed.to_string(), m.split.clone(), train, valid, test]
    };
    let [train, valid, test] = [found.train, found.valid, found.test].map(|s| metric.show_over_seeds(s));
    let rows = found.models.iter().map(row).chain([["mean".to_string(), String::new(), train, valid, test]]);
    let seeds = found.models.len();
    let scored = format!("{}{}", metric.name(), metric.counted_in());
    let title = format!("{} on {}, {scored}, {seeds} seeds", found.model, found.graph);
    let table = ui::table(["seed", "split", "train", "valid", "test"], rows);
    format!("{title}\n\n{table}\n\nfrom {}", found.source.display())
}
