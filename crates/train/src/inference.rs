//! Using a model that was trained: scores on a split, or logits of all nodes.

mod fit;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use graphweft_graph::Error as Bad;
use graphweft_graph::chunks::Chunks;
use graphweft_graph::progress::Progress;
use graphweft_model::Shape;

use crate::checkpoint::{Checkpoint, Checkpoints, Scores, Tensors};
use crate::config::{Config, Draft, OptimizerName};
use crate::data::Data;
use crate::error::{Error, Result};
use crate::handout::Handout;
use crate::layer_wise::LayerWise;
use crate::learner::Learner;
use crate::metrics::Metric;
use crate::plan::Plan;
use crate::rank::Rank;
use crate::run_dir::{RunDir, check_target, write_predictions};
use crate::shard::{Lesson, Shard};
use crate::world::World;
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
}

impl Trained {
    /// Opens a run directory (the best epoch), a checkpoint (its own epoch), or a safetensors file with a configuration beside
    /// it or given.
    ///
    /// # Errors
    /// If it is none of these, or damaged.
    pub fn open(path: &Path, config: Option<&Path>) -> Result<Self> {
        let (source, text, model) = if path.is_file() {
            let beside = path.with_file_name("config.toml");
            let remedy = "name its configuration with --config";
            let from = config.unwrap_or(&beside);
            let text = std::fs::read_to_string(from).map_err(|e| Bad::bad(from, "config", e.to_string(), remedy))?;
            (path.to_path_buf(), text, Tensors::read(path)?)
        } else if path.join("manifest.sha256").exists() {
            let checkpoint = Checkpoint::read(path)?;
            (path.to_path_buf(), checkpoint.config, checkpoint.model)
        } else {
            Self::of_run(path)?
        };
        let draft = match config {
            Some(config) => Draft::read(config)?,
            None => Draft::parse(&text, &source)?,
        };
        Ok(Self { config: draft.finish()?, model, source })
    }

    /// The best epoch of a run that is over, or so far.
    fn of_run(path: &Path) -> Result<(PathBuf, String, Tensors)> {
        let (file, config) = (path.join("model.safetensors"), RunDir::config(path));
        let ended = file.exists().then_some(config).flatten();
        // A run that goes on has left behind the model with which it ended before.
        let goes_on = ended.is_none() || !RunDir::is_over(path);
        let newest = || Ok::<_, Error>(Checkpoints::new(path.join("checkpoints"), 1, 1).newest()?.whole()?);
        if let Some((from, checkpoint)) = if goes_on { newest()? } else { None } {
            let best = if checkpoint.best.is_empty() { checkpoint.model } else { checkpoint.best };
            return Ok((from, checkpoint.config, best));
        }
        if let Some(config) = ended {
            let model = Tensors::read(&file)?;
            return Ok((file, config, model));
        }
        let (problem, remedy) = if path.join("result.json").exists() {
            (
                "this run has several seeds, each with a model of its own",
                "name the folder of one of them, e.g. seed-0 inside it",
            )
        } else if RunDir::config(path).is_some() {
            ("this run has no checkpoint yet", "wait for one; run.checkpoint_every says how often there is one")
        } else {
            ("this is neither a run directory, a checkpoint nor a safetensors file", "check the path")
        };
        Err(Bad::bad(path, "model", problem, remedy).into())
    }

    /// Scores on the split that the configuration names, or the obvious one.
    pub fn evaluate(
        self: &Arc<Self>,
        world: &World,
        data: &Arc<Data>,
        progress: &dyn Progress,
    ) -> Result<(Metric, String, Scores)> {
        let target = data.target()?;
        self.fitted(data)?;
        let metric = self.config.train.metric.unwrap_or(target.default_metric());
        metric.check(&target.truth(), data.classes)?;
        let name = data.split_name(self.config.data.split.as_deref())?;
        let (split, of) = (data.split(&name, self.config.run.seed)?.clone(), Arc::clone(data));
        let name = split.name.clone();
        if let Some(chunks) = self.in_chunks(world, data, progress)? {
            let scores = self.in_blocks(world, data, chunks, move |rows, learner| {
                rows.evaluate(learner, &rows.scored(&split)?, metric, 0)
            })?;
            return Ok((metric, name, scores));
        }
        let scores = self.on_ranks(world, data, progress, move |trained, shard| {
            trained.learner(&shard.rank, shard.shape)?.evaluate(
                shard,
                &Lesson::new(shard, of.target()?, &split)?,
                metric,
                0,
            )
        })?;
        Ok((metric, name, scores))
    }

    /// Logits of all nodes, row by row in original ids, and their columns; nothing in a process that does not lead.
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
        self.on_ranks(world, data, progress, |trained, shard| {
            let logits = trained.learner(&shard.rank, shard.shape)?.logits(shard)?;
            Ok(shard.collect(&logits)?.map(|rows| (rows, logits.cols())))
        })
    }

    /// Writes the logits of all nodes to `path`, a row each in original ids, and gives their columns; nothing in a process that
    /// does not lead.
    pub fn write_predictions(
        self: &Arc<Self>,
        world: &World,
        data: &Arc<Data>,
        progress: &dyn Progress,
        path: &Path,
    ) -> Result<Option<usize>> {
        let data = &self.fitted(data)?;
        // Before anything is computed; only the process that leads sees the disk it will write to.
        if let Err(e) = if world.leads() { check_target(path) } else { Ok(()) } {
            return Plan::share(world, Some(Err(e))).and(Err(Error::Refused));
        }
        if let Some(chunks) = self.in_chunks(world, data, progress)? {
            let path = path.to_path_buf();
            self.in_blocks(world, data, chunks, move |rows, learner| rows.predict(learner, None, &path))?;
            return Ok(Some(data.classes));
        }
        let Some((rows, cols)) = self.logits(world, data, progress)? else { return Ok(None) };
        write_predictions(path, &rows, cols)?;
        Ok(Some(cols))
    }

    /// The data as the model must see them: where they have no labels, the model knows how many classes there are.
    ///
    /// # Errors
    /// If the model is for other features or classes.
    fn fitted(&self, data: &Arc<Data>) -> Result<Arc<Data>> {
        let made = Made::of(&self.model, &self.config, data.encoding_width())?;
        let differs = |what: &str, made: usize, found: usize| {
            let of = self.config.data.path.as_ref().or(self.config.data.graph.as_ref()).unwrap_or(&data.name);
            let problem = format!("the model is for {made}, {of} has {found}");
            let remedy = "name data like those it was trained on, or train another model on these";
            Err(Bad::bad(&self.source, what, problem, remedy).into())
        };
        if let Some(features) = made.features.filter(|made| *made != data.features.width()) {
            return differs("features per node", features, data.features.width());
        }
        match (made.classes, &data.target) {
            (Some(classes), Some(_)) if classes != data.classes => differs("classes", classes, data.classes),
            (Some(classes), None) => Ok(Arc::new(Data { classes, ..Data::clone(data) })),
            _ => Ok(Arc::clone(data)),
        }
    }

    /// The graph in chunks, where one rank goes through them.
    fn in_chunks(&self, world: &World, data: &Data, progress: &dyn Progress) -> Result<Option<Chunks>> {
        if world.ranks() > 1 || !self.config.model.follows_edges() {
            return Ok(None);
        }
        let chunks = Plan::shared_unplanned(&self.config, world, &data.graph, progress)?.chunks(&data.graph)?;
        Ok(chunks.filter(|chunks| chunks.count() > 1))
    }

    /// Runs `body` with the rows of the data, some after others.
    fn in_blocks<T: Send + 'static>(
        self: &Arc<Self>,
        world: &World,
        data: &Arc<Data>,
        chunks: Chunks,
        body: impl Fn(&LayerWise, &Learner) -> Result<T> + Send + Sync + 'static,
    ) -> Result<T> {
        let (trained, data) = (Arc::clone(self), Arc::clone(data));
        world.run(move |rank| {
            let rows = LayerWise::new(rank, &data, &chunks, &trained.config, &std::env::temp_dir())?;
            body(&rows, &trained.learner(rank, rows.shape())?)
        })
    }

    /// Runs `body` on every rank's part of the data.
    fn on_ranks<T: Send + 'static>(
        self: &Arc<Self>,
        world: &World,
        data: &Arc<Data>,
        progress: &dyn Progress,
        body: impl Fn(&Self, &Shard) -> Result<T> + Send + Sync + 'static,
    ) -> Result<T> {
        let plan = Plan::shared_unplanned(&self.config, world, &data.graph, progress)?;
        let graph = self.config.model.prepare(data.graph.clone(), self.config.run.seed)?;
        let (trained, data, graph) = (Arc::clone(self), Arc::clone(data), Handout::new(graph, world.ranks_inside()));
        world.run(move |rank| body(&trained, &Shard::new(rank, &data, &*graph.take()?, &plan, &trained.config)?))
    }

    fn learner(&self, rank: &Rank, shape: Shape) -> Result<Learner> {
        let mut config = self.config.clone();
        // An optimizer that keeps nothing: it will not be used.
        (config.train.optimizer, config.train.momentum) = (OptimizerName::Sgd, 0.0);
        let learner = Learner::new(rank, shape, &config)?;
        learner.load_model(&self.model)?;
        Ok(learner)
    }
}
