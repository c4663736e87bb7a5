//! `graphweft smooth`: what a run says of nodes, spread over the graph.

use std::path::PathBuf;

use clap::ValueEnum;
use graphweft::{Evaluation, OverSeeds, Smooth, Smoothed};

use crate::eval::Trained;
use crate::ui::{self, Ui};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    trained: Trained,

    /// What is spread
    #[arg(long, value_name = "NAME", default_value = "correct-and-smooth")]
    method: Method,

    /// How much of its neighbours' errors a node takes over in a step [default: 0.87]
    #[arg(long, value_name = "ALPHA")]
    correct: Option<f64>,

    /// How much of its neighbours' predictions a node takes over in a step [default: 0.81]
    #[arg(long, value_name = "ALPHA")]
    smooth: Option<f64>,

    /// Steps [default: 50]
    #[arg(long, value_name = "K")]
    steps: Option<u32>,

    /// What edges count
    #[arg(long, value_name = "NAME", default_value = "symmetric")]
    weights: Weights,

    /// Whose labels are known; validation nodes are always scored as if theirs were not
    #[arg(long, value_name = "NODES", default_value = "train")]
    labels: Labels,

    /// Folder to write to [default: smooth inside the run]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Method {
    /// The model's errors on nodes with known labels, then its predictions
    CorrectAndSmooth,
    /// Known labels, whatever the model says
    LabelPropagation,
}

#[derive(Clone, Copy, ValueEnum)]
enum Weights {
    /// 1/√(d_i·d_j), with the degrees of both ends
    Symmetric,
    /// 1/d_i: the mean over neighbours
    Row,
    /// 1/d_j: a node divides what it has among its neighbours
    Column,
}

#[derive(Clone, Copy, ValueEnum)]
enum Labels {
    /// Those of training nodes
    Train,
    /// Those of training and validation nodes
    #[value(name = "train+valid")]
    TrainAndValid,
}

impl Args {
    /// What is to be done.
    fn how(&self) -> Smooth {
        let mut how = match self.method {
            Method::CorrectAndSmooth => Smooth::correct_and_smooth(),
            Method::LabelPropagation => Smooth::label_propagation(),
        };
        how = match self.weights {
            Weights::Symmetric => how.symmetric(),
            Weights::Row => how.by_row(),
            Weights::Column => how.by_column(),
        };
        how = self.correct.map_or(how.clone(), |alpha| how.correct(alpha));
        how = self.smooth.map_or(how.clone(), |alpha| how.smooth(alpha));
        how = self.steps.map_or(how.clone(), |steps| how.steps(steps));
        how = self.output.as_ref().map_or(how.clone(), |folder| how.output(folder));
        match self.labels {
            Labels::Train => how,
            Labels::TrainAndValid => how.with_validation_labels(),
        }
    }
}

pub(crate) fn run(args: &Args, ui: &Ui) -> anyhow::Result<()> {
    let found = args.trained.open(ui)?.smooth(&args.how())?;
    if !found.after.leads {
        return Ok(());
    }
    ui.result(&found.to_json(), || text(&found))
}

fn text(found: &Smoothed) -> String {
    let Smoothed { before, after, folder, .. } = found;
    let metric = after.metric;
    let seeds = after.models.len();
    let row = |name: &str, of: &Evaluation| {
        let show = |s: OverSeeds| if seeds == 1 { metric.show(s.mean) } else { metric.show_over_seeds(s) };
        [name.to_string(), show(of.train), show(of.valid), show(of.test)]
    };
    let rows = [row("the model", before), row("spread over the graph", after)];
    let split = after.models.first().map_or("", |m| &m.split);
    let which = if seeds == 1 { format!("split {split}") } else { format!("{seeds} seeds") };
    let title = format!("{} on {}, {which}, {}{}", after.model, after.graph, metric.name(), metric.counted_in());
    let table = ui::table(["predictions", "train", "valid", "test"], rows);
    format!("{title}\n\n{table}\n\nwritten to {}", folder.display())
}
