//! `graphweft predict`: what a trained model says of every node of a dataset.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ValueEnum;
use graphweft_train::data::Data;
use graphweft_train::inference::Trained;
use graphweft_train::predictions::{Format, Output, What};
use graphweft_train::world::World;
use serde_json::json;

use crate::device::Choice;
use crate::ranks::{self, Ranks};
use crate::train::Origin;
use crate::ui::{self, Ui};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// A run directory (the best epoch; of several seeds the mean of their probabilities), a checkpoint, or a safetensors file
    model: PathBuf,

    /// Configuration, for a safetensors file without config.toml beside it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    #[command(flatten)]
    origin: Origin,

    /// File to write, a row per node in original order [default: predictions.npy, or .csv]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// What to write of each node [default: logits; of several seeds probabilities]
    #[arg(long)]
    what: Option<Wanted>,

    /// A NumPy array, or text with the original id of each node [default: by the name of the file]
    #[arg(long)]
    format: Option<Written>,

    #[command(flatten)]
    ranks: Ranks,

    #[command(flatten)]
    device: Choice,
}

#[derive(Clone, Copy, ValueEnum)]
enum Wanted {
    /// As the model gives them
    Logits,
    /// Of classes, which sum to 1, or of each label by itself
    Probabilities,
    /// The most probable class, or 0 or 1 for each label
    Labels,
}

#[derive(Clone, Copy, ValueEnum)]
enum Written {
    Npy,
    Csv,
}

impl Args {
    /// What is to be written of this many models.
    fn output(&self, models: usize) -> Output {
        let what = match self.what {
            Some(Wanted::Logits) => What::Logits,
            Some(Wanted::Probabilities) => What::Probabilities,
            Some(Wanted::Labels) => What::Labels,
            None if models > 1 => What::Probabilities,
            None => What::Logits,
        };
        let is_csv = |path: &PathBuf| path.extension().is_some_and(|end| end.eq_ignore_ascii_case("csv"));
        let format = match self.format {
            Some(Written::Npy) => Format::Npy,
            Some(Written::Csv) => Format::Csv,
            None if self.output.as_ref().is_some_and(is_csv) => Format::Csv,
            None => Format::Npy,
        };
        let usual = if format == Format::Csv { "predictions.csv" } else { "predictions.npy" };
        Output { path: self.output.clone().unwrap_or_else(|| usual.into()), what, format }
    }
}

pub(crate) fn run(args: &Args, ui: &Ui) -> anyhow::Result<()> {
    let mut all = Trained::open_all(&args.model, args.config.as_deref())?;
    for trained in &mut all {
        args.origin.apply(&mut trained.config);
        args.ranks.apply(&mut trained.config.parallel)?;
    }
    let Some(first) = all.first() else { return Ok(()) };
    let config = first.config.parallel.clone();
    let place = (args.device.place_of(&config, ui), first.config.compute.precision.into());
    let output = args.output(all.len());
    ranks::enter(&config, None, place, ui, |world, ui| {
        let all: Vec<Arc<Trained>> = all.into_iter().map(Arc::new).collect();
        predict(&all, &args.model, &output, &world, ui)
    })
}

fn predict(all: &[Arc<Trained>], from: &Path, output: &Output, world: &World, ui: &Ui) -> anyhow::Result<()> {
    let Some(first) = all.first() else { return Ok(()) };
    let data = Arc::new(Data::open(&first.config.data, &first.config.encoding, ui)?);
    let Some(cols) = Trained::write_together(all, world, &data, ui, output)? else { return Ok(()) };
    let nodes = data.graph.num_dst();
    let source = if all.len() > 1 { from } else { &first.source };
    let json = json!({
        "nodes": nodes, "classes": cols, "path": output.path, "what": output.what.name(), "graph": data.name,
        "source": source, "seeds": all.len(),
    });
    ui.result(&json, || {
        let (nodes, path, what) = (ui::count(nodes as u64), output.path.display(), output.what.name());
        let seeds = if all.len() > 1 {
            format!(", from the mean probabilities of {} seeds,", all.len())
        } else {
            String::new()
        };
        format!("{what} of {nodes} nodes and {cols} classes of {}{seeds} written to {path}", data.name)
    })
}
