//! Runs below a folder: the way to find what to compare.

use std::fs;
use std::path::{Path, PathBuf};

use graphweft_base::Result;
use serde::Serialize;

use crate::run::{RunFiles, Seed};

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
    /// Which scores of it are better: `higher` or `lower`.
    pub better: &'static str,
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

/// All runs in `folder` and below, by path. Of each only settings, plan, result, metrics and times are read:
/// a trace may be megabytes, and there may be hundreds of runs. A folder inside of a run is not looked into.
///
/// # Errors
/// If `folder` cannot be read.
pub fn list(folder: &Path) -> Result<Vec<ListedRun>> {
    let mut found = Vec::new();
    // What is given must be there; what is below may vanish meanwhile.
    fs::read_dir(folder).map_err(|e| graphweft_base::Error::unreadable(folder, "runs", &e))?;
    look(folder, DEPTH, &mut found);
    found.sort_by(|a, b| a.folder.cmp(&b.folder));
    Ok(found)
}

fn look(folder: &Path, depth: usize, found: &mut Vec<ListedRun>) {
    if let Ok(run) = RunFiles::open(folder) {
        found.push(listed(&run));
        return;
    }
    let Some(depth) = depth.checked_sub(1) else { return };
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        look(&entry.path(), depth, found);
    }
}

fn listed(run: &RunFiles) -> ListedRun {
    let scale = run.scale();
    let mean = |key: &str| {
        let all: Vec<f64> = run.seeds.iter().filter_map(|seed| seed.best(scale)[key].as_f64()).collect();
        (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
    };
    let plan = run.plan();
    ListedRun {
        folder: run.folder.clone(),
        dataset: run.dataset(),
        model: run.setting("model", "name").unwrap_or_else(|| "unknown".into()),
        better: scale.better(),
        test: mean("test"),
        valid: mean("valid"),
        seeds: run.seeds.len(),
        epochs: run.seeds.first().map_or(0, |seed| seed.metrics.len() as u64),
        epoch_ms: run.seeds.first().and_then(Seed::epoch_ms),
        strategy: plan["strategy"].as_str().unwrap_or("unknown").into(),
        ranks: plan["ranks"].as_u64().unwrap_or(1),
        state: run.state.name(),
        metric: run.metric(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run with this result; its trace cannot be read.
    fn run(folder: &Path, result: &str) {
        fs::create_dir_all(folder.join("trace.json")).unwrap();
        fs::write(folder.join("config.toml"), "[data]\ngraph = \"sbm\"\n[model]\nname = \"gt\"\n").unwrap();
        fs::write(folder.join("plan.json"), r#"{"strategy":"halo","ranks":2}"#).unwrap();
        fs::write(folder.join("times.jsonl"), "{\"epoch\":1,\"learn_ms\":3.5}\n").unwrap();
        let lines = "{\"epoch\":1,\"valid\":2.0,\"test\":5.0}\n{\"epoch\":2,\"valid\":1.0,\"test\":4.0}\n";
        fs::write(folder.join("metrics.jsonl"), lines).unwrap();
        fs::write(folder.join("result.json"), result).unwrap();
    }

    #[test]
    fn a_list_says_which_score_is_best_by_what_the_result_says_or_by_the_name_of_the_metric() {
        let dir = tempfile::tempdir().unwrap();
        run(&dir.path().join("deep/a"), r#"{"metric":"new","better":"lower","unit":""}"#);
        run(&dir.path().join("b"), r#"{"metric":"mae"}"#);
        run(&dir.path().join("c"), r#"{"metric":"accuracy"}"#);
        let all = list(dir.path()).unwrap();
        let names: Vec<_> = all.iter().map(|one| one.folder.strip_prefix(dir.path()).unwrap().to_path_buf()).collect();
        assert_eq!(names, ["b", "c", "deep/a"].map(PathBuf::from));
        assert_eq!(all.iter().map(|one| one.test).collect::<Vec<_>>(), [Some(4.0), Some(5.0), Some(4.0)]);
        assert_eq!(all.iter().map(|one| one.better).collect::<Vec<_>>(), ["lower", "higher", "lower"]);
        let one = &all[0];
        assert_eq!((one.epochs, one.epoch_ms, one.ranks, one.state), (2, Some(3.5), 2, "finished"));
        assert_eq!((one.strategy.as_str(), one.metric.as_deref()), ("halo", Some("mae")));
    }
}
