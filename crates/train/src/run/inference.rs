//! Using a model that was trained: scores on a split, or logits of all nodes.

mod fit;
mod pairs;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use graphweft_base::Error as Bad;
use graphweft_base::progress::Progress;
use graphweft_graph::dataset::Split;
use graphweft_model::Models;

use crate::config::{Config, Draft, OptimizerName};
use crate::data::Data;
use crate::epochs::learner::Learner;
use crate::epochs::source::{EpochInputs, EpochSource, Purpose};
use crate::epochs::watch::Watch;
use crate::error::{Error, Result};
use crate::planning::plan::Plan;
use crate::ranks::once_per_rank::OncePerRank;
use crate::ranks::world::World;
use crate::run::checkpoint::{Checkpoint, Checkpoints, Scores, Tensors};
use crate::run::run_dir::{RunDir, check_target};
use crate::task::metrics::Metric;
use crate::task::predictions::{NodeIds, Output, What, check_logits};
use crate::task::{self, Task};
use fit::Made;

/// A model with its settings.
#[derive(Clone, Debug)]
pub struct Trained {
    /// How it was trained, or as the given configuration says.
    pub config: Config,
    /// Its parameters.
    pub model: Tensors,
    /// The file or folder they came from.
    pub source: PathBuf,
    /// The file that has the parameters.
    file: PathBuf,
    /// What it was trained to tell, where that is known.
    task: Option<String>,
}

/// What was found of a model.
struct Found {
    source: PathBuf,
    /// Its settings, and where they are.
    text: String,
    config: PathBuf,
    /// Its parameters, and where they are.
    model: Tensors,
    file: PathBuf,
    task: Option<String>,
}

impl Found {
    /// A checkpoint: its own epoch.
    fn in_checkpoint(path: &Path, checkpoint: Checkpoint) -> Self {
        let (config, file) = (path.join("config.toml"), path.join("model.safetensors"));
        let (text, model) = (checkpoint.config, checkpoint.model);
        Self { source: path.to_path_buf(), text, config, model, file, task: None }
    }

    /// The best epoch so far.
    fn best_in(path: &Path, mut checkpoint: Checkpoint) -> Self {
        let best = std::mem::take(&mut checkpoint.best);
        let found = Self::in_checkpoint(path, checkpoint);
        if best.is_empty() { found } else { Self { model: best, file: path.join("best.safetensors"), ..found } }
    }
}

impl Trained {
    /// Opens a run directory (the best epoch), a checkpoint (its own epoch), or a safetensors file with a configuration
    /// beside it or given.
    ///
    /// # Errors
    /// If it is none of these, or damaged.
    pub fn open(path: &Path, config: Option<&Path>) -> Result<Self> {
        Self::open_with(path, config, &Models::default())
    }

    /// The same where the model may be one of somebody's own.
    ///
    /// # Errors
    /// As [`Trained::open`].
    pub fn open_with(path: &Path, config: Option<&Path>, models: &Models) -> Result<Self> {
        let found = if path.is_file() {
            Self::of_file(path, config)?
        } else if path.join("manifest.sha256").exists() {
            Found::in_checkpoint(path, Checkpoint::read(path)?)
        } else {
            Self::of_run(path, config)?
        };
        let draft = match config {
            Some(config) => Draft::read(config)?,
            None => Draft::parse(&found.text, &found.config)?,
        };
        found.model.check_finite(&found.file)?;
        let Found { source, model, file, task, .. } = found;
        Ok(Self { config: draft.with_models(models).finish()?, model, source, file, task })
    }

    /// The same for a run with several seeds: one for each, in their order; while the run lasts, for each that has
    /// begun.
    ///
    /// # Errors
    /// As [`Trained::open`], of any of them; if the run is over and one is missing.
    pub fn open_all(path: &Path, config: Option<&Path>) -> Result<Vec<Self>> {
        let own = ["model.safetensors", "checkpoints"].iter().any(|name| path.join(name).exists());
        let seeds = if own { Vec::new() } else { RunDir::seeds(path) };
        if seeds.is_empty() {
            return Ok(vec![Self::open(path, config)?]);
        }
        if let Some(text) = RunDir::config(path).filter(|_| RunDir::is_over(path)) {
            let run = Draft::parse(&text, &path.join("config.toml"))?.finish()?.run;
            let mut all = (run.seed..run.seed.saturating_add(run.seeds)).map(|seed| RunDir::of_seed(path, seed));
            if let Some(missing) = all.find(|folder| !folder.is_dir()) {
                let problem = format!("the run has {} seeds, and this one is missing", run.seeds);
                let remedy = "put its folder back, or name that of one seed";
                return Err(Bad::bad(missing, "seed", problem, remedy).into());
            }
        }
        seeds.iter().map(|seed| Self::open(seed, config)).collect()
    }

    /// A safetensors file, of a run or from elsewhere.
    fn of_file(path: &Path, config: Option<&Path>) -> Result<Found> {
        let beside = path.with_file_name("config.toml");
        let remedy = "name its configuration with --config";
        let from = config.unwrap_or(&beside);
        let text = std::fs::read_to_string(from).map_err(|e| Bad::bad(from, "config", e.to_string(), remedy))?;
        let bytes = std::fs::read(path).map_err(|e| Bad::unreadable(path, "file", &e))?;
        let folder = path.parent().filter(|_| path.ends_with("model.safetensors")).unwrap_or(Path::new(""));
        let ended = RunDir::config(folder).map_or(Ok(None), |_| RunDir::ended(folder))?;
        ended.as_ref().map_or(Ok(()), |ended| ended.verify(path, &bytes))?;
        Ok(Found {
            source: path.to_path_buf(),
            text,
            config: from.to_path_buf(),
            model: Tensors::decode(path, &bytes)?,
            file: path.to_path_buf(),
            task: ended.and_then(|ended| ended.task),
        })
    }

    /// The best epoch of a run that is over, or so far.
    fn of_run(path: &Path, given: Option<&Path>) -> Result<Found> {
        let (file, config) = (path.join("model.safetensors"), path.join("config.toml"));
        let whole = RunDir::config(path).is_some() || given.is_some();
        // A run that goes on has left behind the model with which it ended before.
        if !(file.exists() && whole && RunDir::is_over(path)) {
            let newest = Checkpoints::new(path.join("checkpoints"), 1, 1).newest()?.whole()?;
            if let Some(from) = newest {
                return Ok(Found::best_in(&from.folder, from.checkpoint));
            }
        }
        if file.exists() && whole {
            return Self::of_file(&file, given);
        }
        let neither = "this is neither a run directory, a checkpoint nor a safetensors file";
        Err(if !RunDir::seeds(path).is_empty() {
            let remedy = "name the folder of one of them, e.g. seed-0 inside it";
            Bad::bad(path, "model", "this run has several seeds, each with a model of its own", remedy).into()
        } else if RunDir::config(path).is_some() {
            let remedy = "wait for one; run.checkpoint_every says how often there is one";
            Bad::bad(path, "model", "this run has no checkpoint yet", remedy).into()
        } else if config.exists() {
            let remedy = "copy it again, or name the settings of the run with --config";
            Bad::bad(config, "config", "it is cut short", remedy).into()
        } else {
            Bad::bad(path, "model", neither, "check the path").into()
        })
    }

    /// Scores on the split that the configuration names, or the obvious one.
    pub fn evaluate(
        self: &Arc<Self>,
        world: &World,
        data: &Arc<Data>,
        progress: &dyn Progress,
    ) -> Result<(&'static Metric, String, Scores)> {
        let (metric, split) = self.scored_by(data)?;
        let name = split.name.clone();
        let scores = Watch::tell(progress, "scores", |watch| {
            self.on_ranks(world, data, progress, Some(split), move |source, learner| {
                source.watch(&watch);
                source.scores(learner, metric, 0)
            })
        })?;
        Ok((metric, name, scores))
    }

    /// What scores it, on which split.
    ///
    /// # Errors
    /// If there are no labels or no such split, or the model is not for these data.
    pub(super) fn scored_by(&self, data: &Arc<Data>) -> Result<(&'static Metric, Split)> {
        data.labels()?;
        self.fitted(data)?;
        let metric = data.task.metric(self.config.train.metric, data.classes)?;
        let name = data.split_name(self.config.data.split.as_deref())?;
        Ok((metric, data.split(&name, self.config.run.seed)?))
    }

    /// Logits of all nodes, row by row in original ids, and their columns; nothing in a process that does not lead.
    ///
    /// # Errors
    /// [`Error::NotPredicted`] if one is not finite.
    pub fn predict(
        self: &Arc<Self>,
        world: &World,
        data: &Arc<Data>,
        progress: &dyn Progress,
    ) -> Result<Option<(Vec<f32>, usize)>> {
        self.logits(world, &self.fitted(data)?, progress)
    }

    fn logits(
        self: &Arc<Self>,
        world: &World,
        data: &Arc<Data>,
        progress: &dyn Progress,
    ) -> Result<Option<(Vec<f32>, usize)>> {
        let found = self.on_ranks(world, data, progress, None, |source, learner| {
            let mut found = None;
            source.predict(learner, None, &mut |cols, lots| {
                found = Some((lots.collect::<Result<Vec<Vec<f32>>>>()?.concat(), cols));
                Ok(())
            })?;
            Ok(found)
        })?;
        found.as_ref().map_or(Ok(()), |(rows, cols)| check_logits(rows, *cols))?;
        Ok(found)
    }

    /// Writes what the model says of all nodes, and gives how many classes or labels there are; nothing in a process
    /// that does not lead.
    pub fn write_predictions(
        self: &Arc<Self>,
        world: &World,
        data: &Arc<Data>,
        progress: &dyn Progress,
        output: &Output,
    ) -> Result<Option<usize>> {
        let data = &self.fitted(data)?;
        let ids = self.prepared(world, data, output)?;
        let task = self.task(data)?;
        task.form(output.what, data.outputs())?;
        let output = output.clone();
        self.on_ranks(world, data, progress, None, move |source, learner| {
            let mut written = None;
            source.predict(learner, None, &mut |cols, lots| {
                written = Some(cols);
                output.write(cols, task, &ids, output.finished(cols, task, lots))
            })?;
            Ok(written)
        })
    }

    /// The same for several models, whose probabilities, or values, are averaged.
    ///
    /// # Errors
    /// Also if logits are asked for: those of different models are not on one scale.
    pub fn write_together(
        all: &[Arc<Self>],
        world: &World,
        data: &Arc<Data>,
        progress: &dyn Progress,
        output: &Output,
    ) -> Result<Option<usize>> {
        let first = match all {
            [] => return Ok(None),
            [only] => return only.write_predictions(world, data, progress, output),
            [first, ..] => first,
        };
        if output.what == What::Logits {
            let what = format!("logits of {} seeds are not on one scale, so there is no mean of them", all.len());
            let remedy = "ask for --what probabilities or labels, or name the folder of one seed";
            return Err(Bad::request(what, remedy).into());
        }
        let fitted = first.fitted(data)?;
        let ids = first.prepared(world, &fitted, output)?;
        let task = first.task(&fitted)?;
        task.form(output.what, fitted.outputs())?;
        let Some((mean, cols)) = Self::probabilities(all, world, data, progress)? else { return Ok(None) };
        output.write(cols, task, &ids, std::iter::once(Ok(mean)))?;
        Ok(Some(cols))
    }

    /// The probabilities of all nodes, or their values, row by row in original ids, and their columns: the mean of what
    /// these models say. Nothing in a process that does not lead.
    ///
    /// # Errors
    /// [`Error::NotPredicted`] if a logit is not finite.
    pub fn probabilities(
        all: &[Arc<Self>],
        world: &World,
        data: &Arc<Data>,
        progress: &dyn Progress,
    ) -> Result<Option<(Vec<f32>, usize)>> {
        let mut mean: Vec<f64> = Vec::new();
        let mut width = None;
        for trained in all {
            let task = trained.task(&*trained.fitted(data)?)?;
            let Some((mut rows, cols)) = trained.predict(world, data, progress)? else { continue };
            task.finish(&mut rows, cols);
            mean.resize(rows.len(), 0.0);
            mean.iter_mut().zip(&rows).for_each(|(sum, p)| *sum += f64::from(*p) / all.len() as f64);
            width = Some(cols);
        }
        Ok(width.map(|cols| (mean.into_iter().map(|p| p as f32).collect(), cols)))
    }

    /// Looks, before anything is computed, whether it can be written, and whose ids nodes have.
    fn prepared(&self, world: &World, data: &Data, output: &Output) -> Result<NodeIds> {
        let look = || {
            check_target(&output.path)?;
            self.ids(data)
        };
        Self::looked_at(world, look, || NodeIds::Places)
    }

    /// What ids nodes have, or graphs where there are many.
    fn ids(&self, data: &Data) -> Result<NodeIds> {
        match data.graphs {
            Some(_) => Ok(NodeIds::Graphs),
            None => NodeIds::of(self.config.data.path.as_ref().map(Path::new), data.graph.num_dst()),
        }
    }

    /// What the process that leads finds, and what stands for it in others: only that one sees the disk it will write
    /// to.
    fn looked_at<T>(world: &World, look: impl FnOnce() -> Result<T>, other: impl FnOnce() -> T) -> Result<T> {
        match if world.leads() { look() } else { Ok(other()) } {
            Ok(found) => Ok(found),
            Err(e) => Plan::share(world, Some(Err(e))).and(Err(Error::Refused)),
        }
    }

    /// What the model was trained to tell: as its run says, or the labels of the data; where there are none, as it was
    /// scored.
    ///
    /// # Errors
    /// If that is a task from outside which `data.task` of the configuration does not name.
    pub fn task(&self, data: &Data) -> Result<&'static dyn Task> {
        if let Some(given) = self.config.data.task {
            return Ok(given);
        }
        match &self.task {
            Some(name) => task::named(name).ok_or_else(|| {
                let problem = format!("the model was trained for {name}, which is no task that is known here");
                Bad::bad(&self.file, "task", problem, "use the program that trained it").into()
            }),
            None if data.labels.is_some() => Ok(data.task),
            None => Ok(task::scored_by(self.config.train.metric, data.classes)),
        }
    }

    /// The data as the model must see them: where they have no labels, the model knows how many classes there are.
    ///
    /// # Errors
    /// If the model is for other features or classes.
    fn fitted(&self, data: &Arc<Data>) -> Result<Arc<Data>> {
        let made = Made::of(&self.model, &self.config, data.encoding_width(), data.target())?;
        let differs = |what: &str, made: usize, found: usize| {
            let of = self.config.data.path.as_ref().or(self.config.data.graph.as_ref()).unwrap_or(&data.name);
            let problem = format!("the model is for {made}, {of} has {found}");
            let remedy = "name data like those it was trained on, or train another model on these";
            Err(Bad::bad(&self.file, what, problem, remedy).into())
        };
        if let Some(features) = made.features.filter(|made| *made != data.features.width()) {
            return differs("features per node", features, data.features.width());
        }
        // Half of what a variational model gives are deviations.
        let widths = if self.config.link.variational { 2 } else { 1 };
        match (made.classes, &data.labels) {
            (Some(outputs), Some(_)) if outputs != widths * data.outputs() => {
                differs(data.task.noun(), outputs / widths, data.outputs())
            }
            (Some(classes), None) => Ok(Arc::new(Data { classes, ..Data::clone(data) })),
            _ => Ok(Arc::clone(data)),
        }
    }

    /// Runs `body` with what every rank has of the data, and the model; with a split, also what it is scored by.
    fn on_ranks<T: Send + 'static>(
        self: &Arc<Self>,
        world: &World,
        data: &Arc<Data>,
        progress: &dyn Progress,
        split: Option<Split>,
        body: impl Fn(&mut dyn EpochSource, &Learner) -> Result<T> + Send + Sync + 'static,
    ) -> Result<T> {
        let plan = Plan::shared_unplanned(&self.config, world, data, progress)?;
        // Several ranks have all rows together.
        let chunks = if world.ranks() == 1 { plan.chunks(&data.graph)? } else { None };
        let graph = data.graph_for(&self.config.model, self.config.run.seed)?;
        let (trained, data, graph) =
            (Arc::clone(self), Arc::clone(data), OncePerRank::new(graph, world.ranks_inside()));
        world.run(move |rank| {
            let whole = graph.take()?;
            let inputs = EpochInputs {
                config: &trained.config,
                plan: &plan,
                data: &data,
                graph: &whole,
                chunks: chunks.as_ref(),
                purpose: split.as_ref().map_or(Purpose::Predict, Purpose::Evaluate),
                folder: &trained.scratch(),
            };
            let mut source = inputs.source(rank)?;
            drop(whole);
            let learner = trained.learner(&*source)?;
            body(&mut *source, &learner)
        })
    }

    /// Where temporary files go: beside the model. What is out of core is large, and the system's folder for temporary
    /// files may be memory; it is only for models where nobody may write.
    fn scratch(&self) -> PathBuf {
        let beside = self.file.parent().unwrap_or(Path::new("."));
        let beside = if beside.as_os_str().is_empty() { Path::new(".") } else { beside };
        if tempfile::tempfile_in(beside).is_ok() { beside.to_path_buf() } else { std::env::temp_dir() }
    }

    pub(super) fn learner(&self, source: &dyn EpochSource) -> Result<Learner> {
        let mut config = self.config.clone();
        // An optimizer that keeps nothing: it will not be used.
        (config.train.optimizer, config.train.momentum) = (OptimizerName::Sgd, 0.0);
        let learner = source.learner(&config)?;
        learner.load_model(&learner.own(&self.model)).map_err(|e| match e {
            Error::Graph(Bad::Request { what, remedy }) => Bad::bad(&self.file, "tensors", what, remedy).into(),
            other => other,
        })?;
        Ok(learner)
    }
}
