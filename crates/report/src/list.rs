//! Runs below a folder: the way to find what to compare.

use std::fs;
use std::path::{Path, PathBuf};

use graphweft_base::Result;
use serde::Serialize;

use crate::run::{Better, Context, RunFiles};

/// How deep runs are looked for: `runs/<study>/<run>`.
const DEPTH: usize = 3;

/// One run of the list.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ListedRun {
    /// Where it is.
    pub folder: PathBuf,
    /// What was learned from.
    pub dataset: String,
    /// Which model.
    pub model: String,
    /// What was scored.
    pub metric: Option<String>,
    /// The score of the test nodes at the best validation, mean over seeds.
    pub test: Option<f64>,
    /// The same of the validation nodes.
    pub valid: Option<f64>,
    /// How many seeds there are.
    pub seeds: usize,
    /// Epochs of the first of them.
    pub epochs: u64,
    /// Median of what an epoch took, in milliseconds.
    pub epoch_ms: Option<f64>,
    /// How the work was spread.
    pub strategy: String,
    /// Over how many ranks.
    pub ranks: u64,
    /// `finished`, `running` or `stopped`.
    pub state: &'static str,
}

/// All runs in `folder` and below, by path. A folder inside of a run is not looked into.
///
/// # Errors
/// If `folder` cannot be read.
pub fn list(folder: &Path, context: &Context<'_>) -> Result<Vec<ListedRun>> {
    let mut found = Vec::new();
    // What is given must be there; what is below may vanish meanwhile.
    fs::read_dir(folder).map_err(|e| graphweft_base::Error::unreadable(folder, "runs", &e))?;
    look(folder, DEPTH, context, &mut found);
    found.sort_by(|a, b| a.folder.cmp(&b.folder));
    Ok(found)
}

fn look(folder: &Path, depth: usize, context: &Context<'_>, found: &mut Vec<ListedRun>) {
    if let Ok(run) = RunFiles::open(folder, context) {
        found.push(listed(&run));
        return;
    }
    let Some(depth) = depth.checked_sub(1) else { return };
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        look(&entry.path(), depth, context, found);
    }
}

fn listed(run: &RunFiles) -> ListedRun {
    let metric = run.metric();
    let better = Better::of(metric.as_deref());
    let mean = |key: &str| {
        let all: Vec<f64> = run.seeds.iter().filter_map(|seed| seed.best(better)[key].as_f64()).collect();
        (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
    };
    let plan = run.plan();
    ListedRun {
        folder: run.folder.clone(),
        dataset: run.dataset(),
        model: run.setting("model", "name").unwrap_or_else(|| "unknown".into()),
        test: mean("test"),
        valid: mean("valid"),
        seeds: run.seeds.len(),
        epochs: run.seeds.first().map_or(0, |seed| seed.metrics.len() as u64),
        epoch_ms: run.seeds.first().and_then(crate::run::Seed::epoch_ms),
        strategy: plan["strategy"].as_str().unwrap_or("unknown").into(),
        ranks: plan["ranks"].as_u64().unwrap_or(1),
        state: run.state.name(),
        metric,
    }
}
