//! A session: one run, or one per seed, and how to go on with it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use graphweft_base::Error as Bad;
use graphweft_base::progress::Progress;
use graphweft_graph::dataset::Split;
use graphweft_model::Models;
use graphweft_parallel::Strategy;
use graphweft_plan::Profile;
use graphweft_tensor::DeviceName;
use serde::Serialize;

use crate::config::{Choice, Config, Draft, RunConfig};
use crate::data::Data;
use crate::data::fingerprint::Fingerprint;
use crate::epochs::pieces;
use crate::error::{Error, Result};
use crate::planning::plan::Plan;
use crate::planning::planner::{self, Listener, PreparedData, Role};
use crate::ranks::once_per_rank::OncePerRank;
use crate::ranks::world::World;
use crate::run::checkpoint::{Checkpoint, Checkpoints, WholeCheckpoint};
use crate::run::decision::Decision;
use crate::run::resume::{check_data, check_own};
use crate::run::run_dir::RunDir;
use crate::run::run_dir::launch::Launch;
use crate::run::stop::Stop;
use crate::run::trainer::{AllSeeds, Observer, Outcome, Run, Trainer};
use crate::task::check_labels;
use crate::task::metrics::{Metric, MetricName};

/// Where a run starts.
#[derive(Clone, Debug, PartialEq)]
pub enum Start {
    /// In a new directory.
    New,
    /// At the newest whole checkpoint of the directory, if one was ever made.
    Newest,
    /// At this checkpoint.
    At(PathBuf),
}

/// Mean and standard deviation (n − 1 in the denominator) over seeds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct OverSeeds {
    pub mean: f64,
    pub std: f64,
}

impl OverSeeds {
    /// Of these numbers.
    pub fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
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
    pub metric: &'static Metric,
    /// At the best validation.
    pub valid: OverSeeds,
    /// At the best validation.
    pub test: OverSeeds,
    /// How the work was spread.
    pub plan: Plan,
    /// One per seed.
    pub runs: Vec<Run>,
}

/// What several seeds leave in the directory above them.
#[derive(Serialize)]
struct Together<'a> {
    metric: &'static Metric,
    valid: OverSeeds,
    test: OverSeeds,
    seeds: Vec<&'a Outcome>,
}

/// Fills in what depends on the data: the metric and the split, and the path without the folder it is relative to.
pub(crate) fn resolve(mut config: Config, data: &Data) -> Result<Config> {
    data.labels()?;
    let metric = data.task.metric(config.train.metric, data.classes)?;
    // A metric of a task from outside has no name that a configuration knows: it stays unset.
    config.train.metric = MetricName::named(metric.name);
    data.task.check(&config.train, &data.name)?;
    config.data.split = Some(data.split_name(config.data.split.as_deref())?);
    if let Some(path) = &config.data.path {
        config.data.path = Some(absolute(path));
    }
    Ok(config)
}

/// A path that means the same from any folder.
fn absolute(path: &str) -> String {
    std::path::absolute(path).map_or_else(|_| path.to_string(), |p| p.display().to_string())
}

/// Where a run is, what it goes on from, and how that was spread, if it can stay so.
struct Before {
    folder: PathBuf,
    from: Option<WholeCheckpoint>,
    plan: Option<Plan>,
}

/// What all runs of a session share.
pub struct Session<'a> {
    /// The ranks.
    pub world: &'a World,
    /// The nodes.
    pub data: Arc<Data>,
    /// Where runs start.
    pub start: Start,
    /// The program that runs them.
    pub launch: Launch,
    /// Who watches.
    pub observer: Arc<dyn Observer>,
    /// Who may stop it.
    pub stop: Stop,
}

impl Session<'_> {
    /// Runs all seeds in `dir`.
    ///
    /// # Errors
    /// As `Trainer::run`; [`Error::Graph`] if `dir` is taken, or a checkpoint is damaged; [`Error::RankLost`].
    pub fn train(&self, config: Config, dir: &Path) -> Result<Summary> {
        let mut config = resolve(config, &self.data)?;
        let metric = self.data.task.metric(config.train.metric, self.data.classes)?;
        config.parallel.ranks = Some(self.world.ranks() as u64);
        pieces::size(&mut config, &self.data)?;
        self.describe(&config)?;
        let outer = if self.world.leads() { Some(self.open(dir)) } else { None };
        if config.run.seeds == 1 {
            let (run, plan) = self.one(&config, outer, None)?;
            return Ok(summary(vec![run], plan, metric));
        }
        // A refusal is said where the first seed would begin: the others are on their way there too.
        let (outer, mut refusal) = match outer {
            Some(Err(e)) => (None, Some(e)),
            Some(Ok(outer)) => (Some(Arc::new(outer)), None),
            None => (None, None),
        };
        if let Start::At(path) = &self.start {
            let what = format!("{} is of one seed, but run.seeds is {}", path.display(), config.run.seeds);
            return Err(Bad::request(what, "resume without naming a checkpoint").into());
        }
        let mut runs = Vec::new();
        for seed in config.run.seed..config.run.seed + config.run.seeds {
            let mut own = config.clone();
            (own.run.seed, own.run.seeds) = (seed, 1);
            let split = self.data.split(config.data.split.as_deref().unwrap_or_default(), seed)?;
            own.data.split = Some(split.name.clone());
            let open = || outer.as_ref().map(|outer| self.open(&RunDir::of_seed(outer.path(), seed)));
            let above = || outer.as_ref().map(|outer| AllSeeds { dir: Arc::clone(outer), config: config.clone() });
            let inner = refusal.take().map_or_else(open, |e| Some(Err(e)));
            runs.push(self.one(&own, inner, above())?);
        }
        let Some((_, plan)) = runs.first().cloned() else { return Err(Error::Refused) };
        let all = summary(runs.into_iter().map(|(run, _)| run).collect(), plan, metric);
        if let Some(outer) = outer {
            let seeds = all.runs.iter().map(|r| &r.outcome).collect();
            outer.finish(&Together { metric: all.metric, valid: all.valid, test: all.test, seeds })?;
        }
        Ok(all)
    }

    /// Says what is learned from, where that could be something else.
    fn describe(&self, config: &Config) -> Result<()> {
        let (data, name) = (&self.data, config.data.split.as_deref().unwrap_or_default());
        let split = data.split(name, config.run.seed)?;
        let (what, wide) = match (data.graphs.is_some(), data.links.is_empty()) {
            (true, _) => ("graphs", 1),
            (false, true) => ("nodes", 1),
            (false, false) => ("links", data.link_width()),
        };
        let [train, valid, test] = split.parts().map(|(_, ids)| ids.len() / wide);
        let others: Vec<String> = data.split_names().into_iter().filter(|other| other != name).collect();
        let others =
            if others.is_empty() { String::new() } else { format!("; --split takes {} too", others.join(", ")) };
        self.observer.note(&format!("split {name}: {train} {what} train, {valid} valid, {test} test{others}"));
        if data.is_directed && config.model.sees_edges() {
            let model = config.model_name();
            self.observer.note(&format!(
                "some edges of {} go one way only; {model} is usually trained with every edge both ways:\n  \
                 data.symmetrise=true does that",
                data.name
            ));
        }
        Ok(())
    }

    fn open(&self, path: &Path) -> Result<RunDir> {
        if self.start == Start::New { RunDir::create(path) } else { RunDir::open(path) }
    }

    /// One seed on all ranks; `dir`, and the one above it where there are several seeds, are for the process that
    /// leads.
    fn one(&self, config: &Config, dir: Option<Result<RunDir>>, above: Option<AllSeeds>) -> Result<(Run, Plan)> {
        let split = self.data.split(config.data.split.as_deref().unwrap_or_default(), config.run.seed)?;
        self.say_what_is_not_used(config, &split)?;
        let (dir, fingerprint, before) = match dir {
            None => (None, None, None),
            Some(Ok(dir)) => {
                let fingerprint = Fingerprint::of(&self.data, &split);
                let before = self.before(config, &dir, &fingerprint);
                (Some(dir), Some(fingerprint), Some(before))
            }
            Some(Err(e)) => (None, None, Some(Err(e))),
        };
        let graph = self.data.graph_for(&config.model, config.run.seed)?;
        let progress: Arc<dyn Progress> = Arc::clone(&self.observer) as Arc<dyn Progress>;
        let undecided = matches!(before, Some(Ok(Before { plan: None, .. })));
        let role = if undecided { Role::Asks } else { Role::TakesPart };
        let tell = |line: &str| self.observer.note(line);
        let listener = Listener { progress: &progress, tell: &tell };
        let nodes = PreparedData { data: &self.data, graph: &graph };
        let profile = planner::profile_for(config, self.world, role, nodes, listener);
        let decision = match before {
            None => profile.map(|_| None)?,
            Some(before) => Some(before.and_then(|before| self.decide(config, before, nodes, profile))),
        };
        let Decision { folder, plan, from } = self.world.share(decision)?;
        let plan = planner::decide_by_measuring(plan, config, self.world, nodes, &tell)?;
        let is_local = |strategy| matches!(strategy, Strategy::Local(_));
        match config.parallel.strategy {
            Choice::Named(asked) if is_local(plan.strategy) && !is_local(asked) => {
                self.observer.note(&format!("there is one rank, which does all by itself: {asked} is not used"));
            }
            _ => {}
        }
        let mut config = config.clone();
        config.compute.remat = plan.remat;
        let (settings, data) = (config.clone(), Arc::clone(&self.data));
        let chunks = plan.chunks(&self.data.graph)?;
        let (from_path, from) = from.map(|from| (from.folder, from.checkpoint)).unzip();
        let trainer = Trainer {
            config,
            plan,
            data: Arc::clone(&self.data),
            graph: OncePerRank::new(graph, self.world.ranks_inside()),
            chunks,
            from,
            fingerprint,
            launch: self.launch.clone(),
            folder: folder.clone(),
            dir,
            above,
            observer: Arc::clone(&self.observer),
            stop: self.stop.clone(),
        };
        self.world.run(move |rank| trainer.run(rank)).map_err(|e| match (e, from_path) {
            // Before the first epoch of its own, a run has saved nothing beside what it was to go on from.
            (Error::Stopped { epoch, checkpoint }, Some(from)) if !checkpoint.exists() => {
                Error::Stopped { epoch, checkpoint: from }
            }
            (e, _) => planner::instead(lost(e, &folder), &settings, self.world, &data),
        })
    }

    /// Says what of the settings and the data has no effect.
    fn say_what_is_not_used(&self, config: &Config, split: &Split) -> Result<()> {
        if config.compute.record == Some(true) && self.world.place() == DeviceName::Cpu {
            self.observer.note("compute.record is not used: only GPUs record steps");
        }
        let model = &config.model;
        let columns = self.data.edges.as_ref().map(|edges| edges.columns).unwrap_or_default();
        let (features, types) = (model.uses_edge_features(), self.data.types_for(model).is_some());
        for (file, is_there, is_used) in [
            ("edge_feat.npy", columns.dense() > 0, features),
            ("edge_cat.npy", !columns.categories().is_empty(), features),
            ("edge_type.npy", self.data.types.edges.is_some(), types),
        ] {
            if is_there && !is_used {
                let name = model.name();
                self.observer.note(&format!("{file} is not used: {name} looks at no such features of edges here"));
            }
        }
        if !check_labels(split, &self.data)? {
            self.observer.note(&format!("no label is known in test of split {:?}: there is no test score", split.name));
        }
        Ok(())
    }

    /// The plan of before, or one that is made now with `profile`.
    fn decide(
        &self,
        config: &Config,
        before: Before,
        nodes: PreparedData<'_>,
        profile: Result<Option<Profile>>,
    ) -> Result<Decision> {
        let Before { folder, from, plan } = before;
        let plan = match plan {
            Some(plan) => {
                plan.check_chunks(config, &self.data.graph, &*self.observer)?;
                plan
            }
            None => {
                let profile = profile?;
                self.go_on(&folder, from.as_ref())?;
                planner::decide(config, self.world.ranks(), nodes, profile.as_ref(), &*self.observer)?
            }
        };
        self.go_on(&folder, from.as_ref())?;
        Ok(Decision { folder, plan, from })
    }

    /// What to go on from.
    fn before(&self, config: &Config, dir: &RunDir, data: &Fingerprint) -> Result<Before> {
        let from = self.checkpoint(dir, config)?;
        if let Some(line) = from.as_ref().map_or(Ok(None), |from| check_data(config, from, data))? {
            self.observer.note(&line);
        }
        let plan = from.as_ref().and_then(|WholeCheckpoint { folder, checkpoint: saved }| {
            let before = Draft::parse(&saved.config, folder).ok()?.with_models(&Models::from(&config.model));
            let before = before.finish().ok()?;
            let again = Plan::again(&saved.plan, saved.partition.clone(), &before.parallel, &config.parallel);
            again.filter(|plan| config.wire.is_for(&plan.strategy))
        });
        let folder = dir.path().to_path_buf();
        self.go_on(&folder, from.as_ref())?;
        Ok(Before { folder, from, plan })
    }

    /// Fails if somebody asked to stop before a run begins or goes on. The process that leads asks for all.
    fn go_on(&self, folder: &Path, from: Option<&WholeCheckpoint>) -> Result<()> {
        match self.stop.is_requested() {
            true => Err(from.map_or_else(
                || Error::Stopped { epoch: 0, checkpoint: folder.to_path_buf() },
                |from| Error::Stopped { epoch: from.checkpoint.state.epoch, checkpoint: from.folder.clone() },
            )),
            false => Ok(()),
        }
    }

    /// What a run goes on from.
    fn checkpoint(&self, dir: &RunDir, config: &Config) -> Result<Option<WholeCheckpoint>> {
        match &self.start {
            Start::New => Ok(None),
            Start::At(path) => {
                let saved = Checkpoint::read(path)?;
                check_own(dir.path(), path, &saved, &Models::from(&config.model))?;
                Ok(Some(WholeCheckpoint { folder: path.clone(), checkpoint: saved }))
            }
            Start::Newest => {
                let newest = dir.checkpoints(&config.run).newest()?;
                for passed_over in &newest.damaged {
                    let (path, why) = (passed_over.path.display(), passed_over.reason());
                    self.observer.note(&format!("{path} is left aside: {why}"));
                }
                let found = newest.whole()?;
                self.observer.note(&match &found {
                    Some(from) => {
                        let (path, epoch) = (from.folder.display(), from.checkpoint.state.epoch);
                        format!("going on from {path} after epoch {epoch}")
                    }
                    None => {
                        dir.check_unfinished()?;
                        format!("nothing to go on from in {}: starting anew", dir.path().display())
                    }
                });
                Ok(found)
            }
        }
    }
}

/// Adds where to go on from to the loss of a rank.
fn lost(error: Error, folder: &Path) -> Error {
    match error.of_ranks() {
        Some(lost @ graphweft_comm::Error::RankLost { .. }) => {
            let newest = Checkpoints::of(folder, &RunConfig::default()).newest();
            let checkpoint = newest.ok().and_then(|newest| newest.found).map(|found| found.folder);
            Error::RankLost { lost: lost.clone(), checkpoint }
        }
        _ => error,
    }
}

fn summary(runs: Vec<Run>, plan: Plan, metric: &'static Metric) -> Summary {
    let best = |part: fn(&Outcome) -> f64| OverSeeds::of(runs.iter().map(move |r| part(&r.outcome)));
    Summary { metric, valid: best(|o| o.best.valid), test: best(|o| o.best.test), plan, runs }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_and_deviations() {
        assert_eq!(OverSeeds::of([1.0, 2.0, 6.0].into_iter()), OverSeeds { mean: 3.0, std: 7f64.sqrt() });
        assert_eq!(OverSeeds::of([4.0].into_iter()), OverSeeds { mean: 4.0, std: 0.0 });
    }
}
