//! From what was said to a configuration.

use graphweft_model::ModelConfig;
use graphweft_parallel::Strategy;
use graphweft_train::config::{Choice, Config, Draft, Loops};
use graphweft_train::run::{RunDir, Start};

use super::Run;
use crate::error::{Error, Result};

/// What a run without any setting does: a graph on which features alone are not enough, and a small graph transformer.
const DEFAULTS: [&str; 12] = [
    "data.graph=sbm:10000:10:12:snr=1.2",
    "data.self_loops=add",
    "model.name=gt",
    "model.hidden=64",
    "model.layers=2",
    "model.heads=4",
    "train.epochs=80",
    "train.lr=3e-3",
    "train.schedule=cosine",
    "train.warmup=5",
    "train.weight_decay=0.01",
    "train.dropout=0.3",
];
/// The floor that it is shown beside: the same features without the graph.
const FLOOR: [&str; 2] = ["model.name=mlp", "model.hidden=64"];

impl Run {
    /// File, then what was set, then what was assigned.
    pub(crate) fn draft(&self) -> Result<Draft> {
        if let Some(problem) = &self.problem {
            return Err(problem.clone());
        }
        let mut draft = self.file.clone().and(&self.given)?;
        self.assigned.iter().try_for_each(|setting| draft.assign(setting))?;
        Ok(draft)
    }

    /// The configuration of a run that begins.
    pub(crate) fn finished(&self) -> Result<Config> {
        self.finish(self.with_defaults(&self.draft()?)?)
    }

    /// The configuration of a draft, with what no file can name.
    pub(crate) fn finish(&self, draft: Draft) -> Result<Config> {
        Ok(self.with_own(draft.finish()?))
    }

    /// The same with what no file can name.
    fn with_own(&self, mut config: Config) -> Config {
        config.data.task = self.task.or(config.data.task);
        if let Some(strategy) = self.own_strategy {
            config.parallel.strategy = Choice::Named(Strategy::own(strategy));
        }
        config
    }

    /// The configuration of a run that begins, or goes on.
    pub(super) fn begun_or_resumed(&self, given: &Draft) -> Result<Config> {
        let stored = match &self.output {
            Some(dir) => self.start.resumed(dir, given)?,
            None if self.start == Start::New => None,
            None => return Err(Error::request("nothing says which run is to go on", "name its folder as the output")),
        };
        Ok(match (stored, &self.output) {
            (Some(config), _) => self.with_own(config),
            // The same call may begin a run and go on with it, if it says what to train on. What is only a folder has
            // nothing.
            (None, Some(dir)) if self.start != Start::New && !self.names_data(given) => {
                return Err(RunDir::missing(dir).into());
            }
            (None, _) => self.finish(self.with_defaults(given)?)?,
        })
    }

    /// What was given and, unless that names a graph, the default graph with the settings that suit it; those of the
    /// default model only for that model.
    fn with_defaults(&self, given: &Draft) -> Result<Draft> {
        if self.names_data(given) {
            return Ok(given.clone());
        }
        let other = given.get("model", "name").is_some_and(|name| name.as_str() != Some(ModelConfig::default().name()));
        let suits = |setting: &&&str| !(other && setting.starts_with("model."));
        let defaults: Vec<&str> = DEFAULTS.iter().filter(suits).copied().collect();
        Ok(settings(&defaults)?.and(given)?)
    }

    /// Whether it says what to train on.
    fn names_data(&self, given: &Draft) -> bool {
        self.memory.is_some() || given.get("data", "path").or(given.get("data", "graph")).is_some()
    }

    /// Whether nobody said what to do with self-loops: neither a setting nor the default run, which says so itself.
    pub(super) fn leaves_self_loops_open(&self, given: &Draft) -> bool {
        let said = given.get("data", "self_loops").and_then(|value| value.as_str());
        self.names_data(given) && said.is_none_or(|said| said == "auto")
    }

    /// A note where self-loops are added that nobody asked for.
    pub(super) fn note_on_self_loops(&self, given: &Draft, config: &Config) {
        let added = config.data.self_loops == Loops::Add;
        if added && self.start == Start::New && self.leaves_self_loops_open(given) {
            self.observer.note(&format!(
                "self-loops are added, as {} is published; data.self_loops=keep leaves them out",
                config.model_name()
            ));
        }
    }

    /// Only pipelines have a guard.
    pub(super) fn check_guard(&self, config: &Config) -> Result<()> {
        let parallel = &config.parallel;
        let watched_over = match parallel.strategy {
            Choice::Auto => parallel.allow_approximate,
            Choice::Named(strategy) => matches!(strategy, Strategy::Pipeline { .. }),
        };
        if !self.guarded || watched_over {
            return Ok(());
        }
        let what = format!("--guard watches over pipelines, and the strategy is {}", parallel.strategy);
        Err(Error::request(what, "leave it out, or add --strategy pipeline or --allow-approximate"))
    }
}

fn settings(all: &[&str]) -> Result<Draft> {
    let mut draft = Draft::default();
    all.iter().try_for_each(|s| draft.assign(s))?;
    Ok(draft)
}

/// For the default run, one of the same graph with a model that does not see it.
pub(super) fn floor(config: &Config) -> Result<Option<Config>> {
    let default = settings(&DEFAULTS)?.finish()?;
    if (&config.data.graph, &config.model) != (&default.data.graph, &default.model) {
        return Ok(None);
    }
    Ok(Some(Config { model: settings(&FLOOR)?.finish()?.model, ..config.clone() }))
}

/// Where the floor goes on: a checkpoint that was named is of another model, so it looks for its own.
pub(super) fn of_floor(start: &Start) -> Start {
    match start {
        Start::New => Start::New,
        Start::Newest | Start::At(_) => Start::Newest,
    }
}
