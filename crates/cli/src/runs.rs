//! `graphweft runs`: which runs there are, and what became of them.

use std::cmp::Ordering;
use std::path::PathBuf;

use clap::ValueEnum;
use graphweft::{ListedRun, Page};
use serde_json::json;

use crate::ui::{self, Ui};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where to look for run directories
    #[arg(value_name = "DIR", default_value = "runs")]
    folder: PathBuf,

    /// What to sort by; the best scores first (errors from low to high, after the others), times from low to high
    #[arg(long, value_name = "COLUMN", default_value = "folder")]
    sort: Column,
}

#[derive(Clone, Copy, ValueEnum)]
enum Column {
    Folder,
    Dataset,
    Model,
    Test,
    Valid,
    Time,
    Strategy,
    State,
}

impl Column {
    fn order(self, a: &ListedRun, b: &ListedRun) -> Ordering {
        // Runs without a number come last, whichever way is up.
        let by = |x: Option<f64>, y: Option<f64>, order: fn(&f64, &f64) -> Ordering| match (x, y) {
            (Some(x), Some(y)) => order(&x, &y),
            (x, y) => y.is_some().cmp(&x.is_some()),
        };
        // Scores that are compared the other way say nothing beside these: they come by themselves.
        let best = |x: Option<f64>, y: Option<f64>| {
            let is_error = |run: &ListedRun| run.better == "lower";
            let order: fn(&f64, &f64) -> Ordering =
                if is_error(a) { f64::total_cmp } else { |x: &f64, y: &f64| y.total_cmp(x) };
            let kinds = if x.is_some() && y.is_some() { is_error(a).cmp(&is_error(b)) } else { Ordering::Equal };
            kinds.then_with(|| by(x, y, order))
        };
        match self {
            Self::Folder => a.folder.cmp(&b.folder),
            Self::Dataset => a.dataset.cmp(&b.dataset),
            Self::Model => a.model.cmp(&b.model),
            Self::Test => best(a.test, b.test),
            Self::Valid => best(a.valid, b.valid),
            Self::Time => by(a.epoch_ms, b.epoch_ms, f64::total_cmp),
            Self::Strategy => (&a.strategy, a.ranks).cmp(&(&b.strategy, b.ranks)),
            Self::State => a.state.cmp(b.state),
        }
    }
}

pub(crate) fn run(args: &Args, ui: &Ui) -> anyhow::Result<()> {
    let mut all = Page::runs(&args.folder)?;
    all.sort_by(|a, b| args.sort.order(a, b));
    ui.result(&json!({"runs": all}), || {
        if all.is_empty() {
            return format!("no run in {}; graphweft train begins one", args.folder.display());
        }
        let number = |x: Option<f64>, digits: usize| x.map_or_else(|| "–".to_string(), |x| format!("{x:.digits$}"));
        let name = |run: &ListedRun| run.folder.strip_prefix(&args.folder).unwrap_or(&run.folder).display().to_string();
        let row = |run: &ListedRun| {
            let spread =
                if run.ranks > 1 { format!("{} × {}", run.strategy, run.ranks) } else { run.strategy.clone() };
            let ms = number(run.epoch_ms, 1);
            [name(run), run.dataset.clone(), run.model.clone(), number(run.test, 2), ms, spread, run.state.to_string()]
        };
        ui::table(["run", "dataset", "model", "test", "epoch, ms", "strategy", "state"], all.iter().map(row))
            .to_string()
    })
}
