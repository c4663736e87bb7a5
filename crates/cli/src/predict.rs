//! `graphweft predict`: what a trained model says of every node of a dataset, or of pairs of nodes.

use std::path::PathBuf;

use clap::ValueEnum;
use graphweft::PredictionFile;
use serde_json::json;

use crate::eval::Trained;
use crate::ui::{self, Ui};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    trained: Trained,

    /// File to write, a row per node in original order, or a line per pair [default: predictions.npy, or .csv]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// What to write of each node [default: logits; of several seeds probabilities; of regression values]
    #[arg(long)]
    what: Option<Wanted>,

    /// A NumPy array, or text with the original id of each node [default: by the name of the file]
    #[arg(long)]
    format: Option<Written>,

    /// links: score the pairs of this file, two ids in each line; written as CSV
    #[arg(long, value_name = "FILE", conflicts_with_all = ["top", "what", "format"])]
    pairs: Option<PathBuf>,

    /// links: the best K partners of each node, but those that it has; written as CSV
    #[arg(long, value_name = "K", conflicts_with_all = ["what", "format"])]
    top: Option<usize>,

    /// links: of the nodes in this file alone, an id in each line
    #[arg(long, value_name = "FILE", requires = "top")]
    of: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Wanted {
    /// As the model gives them
    Logits,
    /// Of classes, which sum to 1, or of each label by itself
    Probabilities,
    /// The most probable class, or 0 or 1 for each label
    Labels,
    /// The numbers that regression predicts
    Values,
}

#[derive(Clone, Copy, ValueEnum)]
enum Written {
    Npy,
    Csv,
}

impl Args {
    /// What is to be written.
    fn file(&self) -> PredictionFile {
        let usual = if matches!(self.format, Some(Written::Csv)) { "predictions.csv" } else { "predictions.npy" };
        let file = PredictionFile::new(self.output.clone().unwrap_or_else(|| usual.into()));
        let file = match self.what {
            None => file,
            Some(Wanted::Logits) => file.logits(),
            Some(Wanted::Probabilities) => file.probabilities(),
            Some(Wanted::Labels) => file.labels(),
            Some(Wanted::Values) => file.values(),
        };
        match self.format {
            None => file,
            Some(Written::Npy) => file.npy(),
            Some(Written::Csv) => file.csv(),
        }
    }
}

pub(crate) fn run(args: &Args, ui: &Ui) -> anyhow::Result<()> {
    if args.pairs.is_some() || args.top.is_some() {
        return pairs(args, ui);
    }
    let made = args.trained.open(ui)?.write_predictions(&args.file())?;
    ui.result(&made.to_json(), || {
        let (nodes, path, what, cols) = (ui::count(made.nodes as u64), made.path.display(), made.what, made.classes);
        let seeds = match made.seeds {
            1 => String::new(),
            seeds => format!(", from the mean {} of {seeds} seeds,", made.averaged),
        };
        format!("{what} of {nodes} nodes and {cols} {} of {}{seeds} written to {path}", made.noun, made.graph)
    })
}

/// Scores of pairs.
fn pairs(args: &Args, ui: &Ui) -> anyhow::Result<()> {
    let model = args.trained.open(ui)?;
    let path = args.output.clone().unwrap_or_else(|| "predictions.csv".into());
    let count = match (&args.pairs, args.top) {
        (Some(pairs), _) => model.write_pair_scores(pairs, &path)?,
        (None, top) => model.write_partners(top.unwrap_or(1), args.of.as_deref(), &path)?,
    };
    ui.result(&json!({ "pairs": count, "path": path }), || {
        format!("scores of {} pairs written to {}", ui::count(count as u64), path.display())
    })
}
