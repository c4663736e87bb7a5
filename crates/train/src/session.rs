//! A session: one run, or one per seed, and how to go on with it.

use std::path::{Path, PathBuf};

use graphweft_graph::Error as Bad;
use graphweft_tensor::Place;
use serde::Serialize;
use serde_json::json;

use crate::checkpoint::{Checkpoint, Checkpoints, Newest};
use crate::config::{Config, Draft};
use crate::data::{Data, Target};
use crate::error::{Error, Result};
use crate::metrics::Metric;
use crate::run_dir::RunDir;
use crate::stop::Stop;
use crate::trainer::{Observer, Outcome, Run, Trainer};

/// Settings that may change when a run goes on; all others would make it another run.
const CHANGEABLE: [&str; 3] = ["train.epochs", "run.checkpoint_every", "run.keep"];

/// Where a run starts.
#[derive(Clone, Debug, PartialEq)]
pub enum Start {
    /// In a new directory.
    New,
    /// At the newest complete checkpoint of the directory, if there is one.
    Newest,
    /// At this checkpoint.
    At(PathBuf),
}

/// Mean and standard deviation (n − 1 in the denominator) over seeds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Spread {
    pub mean: f64,
    pub std: f64,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        let n = values.clone().count() as f64;
        let mean = values.clone().sum::<f64>() / n;
        let squares: f64 = values.map(|x| (x - mean) * (x - mean)).sum();
        Self { mean, std: if n > 1.0 { (squares / (n - 1.0)).sqrt() } else { 0.0 } }
    }
}

/// All runs of a session.
#[derive(Clone, Debug)]
pub struct Summary {
    /// What was scored.
    pub metric: Metric,
    /// At the best validation.
    pub valid: Spread,
    /// At the best validation.
    pub test: Spread,
    /// One per seed.
    pub runs: Vec<Run>,
}

/// What several seeds leave in the directory above them.
#[derive(Serialize)]
struct Together<'a> {
    metric: Metric,
    valid: Spread,
    test: Spread,
    seeds: Vec<&'a Outcome>,
}

/// Fills in what depends on the data: the metric and the split, and the path without the folder it is relative to.
pub fn resolve(mut config: Config, data: &Data) -> Result<Config> {
    let target = data.target()?;
    let metric = config.train.metric.unwrap_or(target.default_metric());
    metric.check(&target.truth(), data.classes)?;
    config.train.metric = Some(metric);
    if config.train.label_smoothing > 0.0 && matches!(target, Target::Each(_)) {
        let problem = format!("the nodes of {} have several labels each, of which none is the target", data.name);
        return Err(Error::setting("train.label_smoothing", problem, "leave it out"));
    }
    config.data.split = Some(data.split_name(config.data.split.as_deref())?);
    if let Some(path) = &config.data.path {
        config.data.path = Some(absolute(path));
    }
    Ok(config)
}

/// A path that means the same from any folder.
pub fn absolute(path: &str) -> String {
    std::path::absolute(path).map_or_else(|_| path.to_string(), |p| p.display().to_string())
}

/// The configuration of the run in `dir`, changed by what was given now; `None` if there is no run yet.
///
/// # Errors
/// If a setting was given that would make it another run.
pub fn resumed(dir: &Path, start: &Start, given: &Draft) -> Result<Option<Config>> {
    let (stored, file) = match start {
        Start::New => return Ok(None),
        Start::At(path) => (Some(Checkpoint::read(path)?.config), path.join("config.toml")),
        Start::Newest => {
            // Which ones are complete does not depend on the settings.
            let newest = Checkpoints::new(dir.join("checkpoints"), 1, 1).newest()?.found;
            (newest.map(|(_, c)| c.config).or_else(|| RunDir::config(dir)), dir.join("config.toml"))
        }
    };
    let Some(stored) = stored else { return Ok(None) };
    let draft = Draft::parse(&stored, &file)?;
    let (before, after) = (draft.clone().finish()?, draft.and(given)?.finish()?);
    let changed = before.differences(&after)?.into_iter().find(|key| !CHANGEABLE.contains(&key.as_str()));
    match changed {
        Some(key) => {
            let problem = format!("the run in {} has another value", dir.display());
            let remedy = format!("leave it out; only {} may change when a run goes on", CHANGEABLE.join(", "));
            Err(Error::setting(key, problem, remedy))
        }
        None => Ok(Some(after)),
    }
}

/// How the work of one rank is spread: not at all.
pub fn local_plan() -> String {
    let plan = json!({ "strategy": "local", "ranks": 1, "why": "one rank has every row: nothing moves" });
    format!("{plan:#}\n")
}

/// Runs all seeds on the device at `place`.
///
/// # Errors
/// As [`Trainer::run`]; [`Error::Graph`] if `dir` is taken, or a checkpoint is damaged.
pub fn train(
    config: Config,
    data: &Data,
    dir: &Path,
    start: &Start,
    place: Place,
    observer: &dyn Observer,
    stop: &Stop,
) -> Result<Summary> {
    let config = resolve(config, data)?;
    let device = place.open(config.compute.precision.into())?;
    let open = |path: &Path| if *start == Start::New { RunDir::create(path) } else { RunDir::open(path) };
    let plan = local_plan();
    let one = |config: &Config, dir: &RunDir| -> Result<Run> {
        let from = checkpoint(dir, config, start, observer)?;
        Trainer { config, plan: &plan, data, dir, observer, stop }.run(&device, from)
    };
    let outer = open(dir)?;
    if config.run.seeds == 1 {
        return Ok(summary(vec![one(&config, &outer)?]));
    }
    if let Start::At(path) = start {
        let what = format!("{} is the checkpoint of one seed, but run.seeds is {}", path.display(), config.run.seeds);
        return Err(Bad::request(what, "resume without naming a checkpoint").into());
    }
    outer.reopen()?;
    outer.describe(&config.to_toml()?, &plan)?;
    let mut runs = Vec::new();
    for seed in config.run.seed..config.run.seed + config.run.seeds {
        let mut config = config.clone();
        (config.run.seed, config.run.seeds) = (seed, 1);
        let split = data.split(config.data.split.as_deref().unwrap_or_default(), seed)?;
        config.data.split = Some(split.name.clone());
        runs.push(one(&config, &open(&dir.join(format!("seed-{seed}")))?)?);
    }
    let all = summary(runs);
    let seeds = all.runs.iter().map(|r| &r.outcome).collect();
    outer.finish(&Together { metric: all.metric, valid: all.valid, test: all.test, seeds })?;
    Ok(all)
}

/// What a run goes on from.
fn checkpoint(dir: &RunDir, config: &Config, start: &Start, observer: &dyn Observer) -> Result<Option<Checkpoint>> {
    match start {
        Start::New => Ok(None),
        Start::At(path) => Ok(Some(Checkpoint::read(path)?)),
        Start::Newest => {
            let Newest { found, incomplete } = dir.checkpoints(&config.run).newest()?;
            for path in incomplete {
                observer.note(&format!("{} is incomplete and not used", path.display()));
            }
            Ok(found.map(|(path, checkpoint)| {
                observer.note(&format!("going on from {}", path.display()));
                checkpoint
            }))
        }
    }
}

fn summary(runs: Vec<Run>) -> Summary {
    let best = |part: fn(&Outcome) -> f64| Spread::of(runs.iter().map(move |r| part(&r.outcome)));
    let metric = runs.first().map_or(Metric::Accuracy, |r| r.outcome.metric);
    Summary { metric, valid: best(|o| o.best.valid), test: best(|o| o.best.test), runs }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_and_deviations() {
        assert_eq!(Spread::of([1.0, 2.0, 6.0].into_iter()), Spread { mean: 3.0, std: 7f64.sqrt() });
        assert_eq!(Spread::of([4.0].into_iter()), Spread { mean: 4.0, std: 0.0 });
    }
}
