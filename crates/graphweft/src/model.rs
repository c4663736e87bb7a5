//! Models that were trained: scores, and what they say of nodes.

mod predictions;
mod smoothing;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use graphweft_train::config::{CommName, Draft, ParallelConfig};
use graphweft_train::data::Data;
use graphweft_train::ranks::World;
use graphweft_train::run as session;
use graphweft_train::run::Trained;
use serde_json::{Value, json};

use crate::dataset::Dataset;
use crate::error::{Error, Result};
use crate::input::{self, Input};
use crate::observe::{Observer, Scores, Watched};
use crate::place::{Device, Ranks};
use crate::report::{Metric, OverSeeds};
use crate::setters::setters;

pub use predictions::{PredictionFile, Predictions, Written};
pub use smoothing::{Smooth, Smoothed};

/// A trained model, or those of all seeds of a run.
///
/// ```
/// use graphweft::{Model, Run};
/// # let dir = tempfile::tempdir().unwrap();
/// let report = Run::new("sbm:60:3:4:f=8").epochs(3).output(dir.path().join("run")).train()?;
/// let model = Model::open(&report.folder)?;
/// assert_eq!(model.evaluate()?.test.mean, report.test.mean);
/// // The same on other data like those that it was trained on.
/// let predictions = model.on("sbm:80:3:4:f=8").predict()?;
/// assert_eq!((predictions.nodes, predictions.columns), (80, 3));
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone)]
pub struct Model {
    all: Vec<Trained>,
    path: PathBuf,
    memory: Option<Dataset>,
    /// Settings of `[parallel]` in place of those that it was trained with.
    given: Draft,
    problem: Option<Error>,
    device: Device,
    observer: Arc<dyn Observer>,
}

/// How good models are on a split.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let report = graphweft::Run::new("sbm:60:3:4:f=8").epochs(2).output(dir.path().join("run")).train()?;
/// let found = graphweft::Model::open(&report.folder)?.split("random:50/25/25").evaluate()?;
/// assert_eq!((found.models.len(), found.metric.name()), (1, "accuracy"));
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Evaluation {
    /// What was scored.
    pub metric: Metric,
    /// What the graph is called.
    pub graph: String,
    /// What the model is called.
    pub model: String,
    /// How many ranks did it.
    pub ranks: usize,
    /// Of all models, on the nodes that were learned from.
    pub train: OverSeeds,
    /// Of all models, on the nodes that the best epoch is chosen by.
    pub valid: OverSeeds,
    /// Of all models, on the nodes that are reported on.
    pub test: OverSeeds,
    /// Each model, by seed.
    pub models: Vec<ModelScores>,
    /// Where they came from.
    pub source: PathBuf,
    /// Whether this process speaks for all; processes that a launcher started beside it do not.
    pub leads: bool,
}

/// How good one model is.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let report = graphweft::Run::new("sbm:60:3:4:f=8").epochs(2).output(dir.path().join("run")).train()?;
/// let found = graphweft::Model::open(&report.folder)?.evaluate()?;
/// assert_eq!(found.models[0].scores.valid, report.seeds[0].best.valid);
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ModelScores {
    /// The seed that it was trained with.
    pub seed: u64,
    /// The split.
    pub split: String,
    /// The scores.
    pub scores: Scores,
    /// The file or folder that it came from.
    pub source: PathBuf,
}

impl Model {
    /// Opens a run directory (the best epoch, of each seed if it has several), a checkpoint, or a safetensors file with
    /// its configuration beside it.
    ///
    /// # Errors
    /// If it is none of these, or damaged.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::with(path.as_ref(), None)
    }

    /// Opens a safetensors file whose configuration is elsewhere.
    ///
    /// # Errors
    /// As [`Model::open`].
    pub fn open_with(path: impl AsRef<Path>, config: impl AsRef<Path>) -> Result<Self> {
        Self::with(path.as_ref(), Some(config.as_ref()))
    }

    fn with(path: &Path, config: Option<&Path>) -> Result<Self> {
        Ok(Self {
            all: Trained::open_all(path, config)?,
            path: path.to_path_buf(),
            memory: None,
            given: Draft::default(),
            problem: None,
            device: Device::default(),
            observer: Arc::new(()),
        })
    }

    /// Uses it on these data, in place of those that it was trained on.
    #[must_use]
    pub fn on(mut self, data: impl Into<Input>) -> Self {
        let data = data.into();
        for trained in &mut self.all {
            self.memory = data.apply(&mut trained.config);
        }
        self
    }

    /// Scores it on this split, in place of the one that it was trained with.
    #[must_use]
    pub fn split(mut self, name: &str) -> Self {
        for trained in &mut self.all {
            trained.config.data.split = Some(name.into());
        }
        self
    }

    /// Scores it by this metric, in place of the one that it was trained by.
    ///
    /// # Errors
    /// If there is no such metric.
    pub fn metric(mut self, name: &str) -> Result<Self> {
        for trained in &mut self.all {
            let named = serde_json::from_value(Value::from(name));
            trained.config.train.metric = named.map_err(|e| Error::request(e.to_string(), "name one of these"))?;
        }
        Ok(self)
    }

    /// How many ranks share the work, in place of as many as it was trained on.
    #[must_use]
    pub fn ranks(self, ranks: u64) -> Self {
        self.set("ranks", crate::Setting::from(ranks))
    }

    /// How ranks share the work.
    #[must_use]
    pub fn strategy(self, name: &str) -> Self {
        self.set("strategy", name.into())
    }

    /// What ranks are: `threads`, `mpi` or `nccl`.
    #[must_use]
    pub fn comm(self, name: &str) -> Self {
        self.set("comm", name.into())
    }

    fn set(mut self, key: &str, value: crate::Setting) -> Self {
        if let Err(problem) = self.given.set("parallel", key, value.0) {
            self.problem.get_or_insert(problem.into());
        }
        self
    }

    setters! {
        /// Where to compute, in place of the best that there is.
        device: Device,

        /// Who watches.
        observer: Arc<dyn Observer>,
    }

    /// How many models there are: one for each seed.
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// Scores every model.
    ///
    /// # Errors
    /// If the data have no labels, or are not like those that the model is for.
    pub fn evaluate(&self) -> Result<Evaluation> {
        self.on_ranks(|all, data, world, watched| {
            let mut models = Vec::new();
            let mut scored = None;
            for trained in all {
                let (metric, split, scores) = trained.evaluate(world, data, watched)?;
                scored = Some(Metric(metric));
                let (seed, source) = (trained.config.run.seed, trained.source.clone());
                models.push(ModelScores { seed, split, scores: (&scores).into(), source });
            }
            let metric = scored.ok_or_else(|| Error::request("there is no model", "name a run"))?;
            Ok(self.evaluation(metric, models, data, world))
        })
    }

    /// What these scores of its models come to.
    fn evaluation(&self, metric: Metric, models: Vec<ModelScores>, data: &Data, world: &World) -> Evaluation {
        let of = |part: fn(&Scores) -> f64| session::OverSeeds::of(models.iter().map(move |m| part(&m.scores)));
        let [train, valid, test] = [of(|s| s.train), of(|s| s.valid), of(|s| s.test)].map(OverSeeds::from);
        Evaluation {
            metric,
            graph: data.name.clone(),
            model: self.all.first().map(|trained| trained.config.model_name().into()).unwrap_or_default(),
            ranks: world.ranks(),
            train,
            valid,
            test,
            models,
            source: self.path.clone(),
            leads: world.leads(),
        }
    }

    /// The logits of every node, or of every graph where there are many; of several seeds the mean of their
    /// probabilities.
    ///
    /// # Errors
    /// If the data are not like those that the model is for, or a logit is not finite. Under a launcher only the first
    /// process has them.
    pub fn predict(&self) -> Result<Predictions> {
        match self.all.len() {
            1 => self.predictions(|all, data, world, watched| Ok(all[0].predict(world, data, watched)?)),
            _ => self.predict_probabilities(),
        }
    }

    /// The probabilities of every node, or graph: of classes, which sum to 1, or of each label by itself; of regression
    /// the values. Of several seeds it is their mean.
    ///
    /// # Errors
    /// As [`Model::predict`].
    pub fn predict_probabilities(&self) -> Result<Predictions> {
        self.predictions(|all, data, world, watched| Ok(Trained::probabilities(all, world, data, watched)?))
    }

    fn predictions(
        &self,
        predict: impl FnOnce(&[Arc<Trained>], &Arc<Data>, &World, &Watched) -> Result<Option<(Vec<f32>, usize)>> + Send,
    ) -> Result<Predictions> {
        self.on_ranks(|all, data, world, watched| {
            let (values, columns) = predict(all, data, world, watched)?.ok_or_else(Error::follows)?;
            Ok(Predictions { nodes: data.items(), columns, values })
        })
    }

    /// Writes what it says of every node to a file, a row per node in original order. Where the graph does not fit into
    /// memory, rows are written some after others.
    ///
    /// # Errors
    /// As [`Model::predict`]; if the file cannot be written, which is looked at first. Under a launcher only the first
    /// process writes.
    pub fn write_predictions(&self, file: &PredictionFile) -> Result<Written> {
        self.on_ranks(|all, data, world, watched| {
            let task = all[0].task(data)?;
            let output = file.output(task, all.len());
            let classes = Trained::write_together(all, world, data, watched, &output)?.ok_or_else(Error::follows)?;
            let source = match all {
                [only] => only.source.clone(),
                _ => self.path.clone(),
            };
            Ok(Written {
                nodes: data.items(),
                classes,
                path: output.path,
                what: output.what.name(),
                averaged: task.forms()[1].name(),
                noun: task.noun(),
                graph: data.name.clone(),
                source,
                seeds: all.len(),
            })
        })
    }

    /// Writes the scores of the pairs of nodes in the file `pairs`, two ids in each line, by a model of links: CSV with
    /// `source,target,score`. Gives how many there are.
    ///
    /// ```no_run
    /// let links = graphweft::Model::open("runs/links")?;
    /// links.write_pair_scores("pairs.csv", "scores.csv")?;
    /// links.write_partners(10, None, "partners.csv")?;
    /// # Ok::<(), graphweft::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there are several seeds, the model is none of links, or a line does not name two nodes.
    pub fn write_pair_scores(&self, pairs: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<usize> {
        let (pairs, to) = (pairs.as_ref(), to.as_ref());
        self.of_pairs(move |model, data, world, watched| Ok(model.write_pair_scores(world, data, watched, pairs, to)?))
    }

    /// Writes the best `count` partners of every node, or of those that the file `of` names, by a model of links: CSV
    /// as [`Model::write_pair_scores`] has it. Nodes that an edge leads from are known and left out. Gives how many
    /// lines there are.
    ///
    /// # Errors
    /// If there are several seeds, the model is none of links, or a line does not name a node.
    pub fn write_partners(&self, count: usize, of: Option<&Path>, to: impl AsRef<Path>) -> Result<usize> {
        let to = to.as_ref();
        self.of_pairs(move |model, data, world, watched| Ok(model.write_partners(world, data, watched, count, of, to)?))
    }

    fn of_pairs(
        &self,
        write: impl FnOnce(&Arc<Trained>, &Arc<Data>, &World, &Watched) -> Result<Option<usize>> + Send,
    ) -> Result<usize> {
        self.on_ranks(|all, data, world, watched| match all {
            [only] => write(only, data, world, watched)?.ok_or_else(Error::follows),
            _ => {
                let what = format!("scores of {} seeds are not on one scale, so there is no mean of them", all.len());
                Err(Error::request(what, "name the folder of one seed, e.g. seed-0 inside it"))
            }
        })
    }

    /// Opens the data and does `work` with all models, on the ranks that are asked for.
    fn on_ranks<T: Send>(
        &self,
        work: impl FnOnce(&[Arc<Trained>], &Arc<Data>, &World, &Watched) -> Result<T> + Send,
    ) -> Result<T> {
        if let Some(problem) = &self.problem {
            return Err(problem.clone());
        }
        let mut all = self.all.clone();
        for trained in &mut all {
            self.spread(&mut trained.config.parallel)?;
        }
        let Some(first) = all.first() else { return Err(Error::request("there is no model", "name a run")) };
        let (config, watched) = (first.config.parallel.clone(), Watched::by(&self.observer));
        let place = self.device.place_of(&config, &watched);
        let precision = first.config.compute.precision;
        let memory = self.memory.as_ref();
        let ranks = Ranks { config: &config, wanted: None, place, precision, watched: &watched };
        ranks.enter(|world, watched| {
            let data = Arc::new(input::open(memory, &all[0].config, &watched)?);
            let all: Vec<Arc<Trained>> = all.into_iter().map(Arc::new).collect();
            work(&all, &data, &world, &watched)
        })
    }

    /// The ranks that it is used on: those given, or as many as it was trained on.
    fn spread(&self, stored: &mut ParallelConfig) -> Result<()> {
        let given = self.given.clone().finish()?.parallel;
        if given.ranks.is_some() || given.comm != CommName::Threads {
            // A strategy or parts for another number of ranks may not fit these.
            (stored.ranks, stored.strategy, stored.parts) = (given.ranks, given.strategy, None);
        }
        if self.given.get("parallel", "strategy").is_some() {
            stored.strategy = given.strategy;
        }
        stored.comm = given.comm;
        Ok(())
    }
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Model({}, {} seeds)", self.path.display(), self.all.len())
    }
}

impl Evaluation {
    /// As `graphweft eval --json` prints it.
    pub fn to_json(&self) -> Value {
        let of = |m: &ModelScores| {
            let Scores { train, valid, test, valid_loss, .. } = m.scores;
            json!({
                "split": m.split, "train": train, "valid": valid, "test": test, "valid_loss": valid_loss,
                "source": m.source,
            })
        };
        let about =
            json!({ "metric": self.metric.name(), "graph": self.graph, "model": self.model, "ranks": self.ranks });
        let mut all = match &self.models[..] {
            [only] => of(only),
            _ => {
                let seeds = self.models.iter().map(|m| add(of(m), json!({ "seed": m.seed })));
                let losses = session::OverSeeds::of(self.models.iter().map(|m| m.scores.valid_loss));
                json!({
                    "source": self.source, "train": self.train.mean, "valid": self.valid.mean, "test": self.test.mean,
                    "train_std": self.train.std, "valid_std": self.valid.std, "test_std": self.test.std,
                    "valid_loss": losses.mean, "seeds": seeds.collect::<Vec<_>>(),
                })
            }
        };
        all = add(all, about);
        all
    }
}

/// One object with the keys of both.
fn add(mut to: Value, more: Value) -> Value {
    if let (Value::Object(to), Value::Object(more)) = (&mut to, more) {
        to.extend(more);
    }
    to
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::Split;
    use crate::graph::Graph;
    use crate::run::Run;

    /// Six graphs of two nodes each.
    #[test]
    fn what_is_said_of_many_graphs_has_a_row_for_each() {
        let dir = tempfile::tempdir().unwrap();
        let graph = Graph::from_edges(12, &[0, 2, 4, 6, 8, 10], &[1, 3, 5, 7, 9, 11]).unwrap().symmetrise();
        let data = Dataset::builder("pairs", &graph)
            .features(1, (0..12u8).map(f32::from).collect())
            .graphs((0..=6).map(|graph| 2 * graph).collect())
            .labels(vec![0, 0, 0, 1, 1, 1])
            .split(Split::new("own", vec![0, 3], vec![1, 4], vec![2, 5]))
            .build()
            .unwrap();
        let run = Run::new(&data).model("gcn").epochs(2).output(dir.path().join("run")).train().unwrap();
        let model = Model::open(&run.folder).unwrap().on(&data);
        for said in [model.predict().unwrap(), model.predict_probabilities().unwrap()] {
            assert_eq!((said.nodes, said.columns, said.values.len(), said.classes().len()), (6, 2, 12, 6));
            assert_eq!(said.row(5).len(), 2);
        }
        let file = PredictionFile::new(dir.path().join("said.npy"));
        assert_eq!(model.write_predictions(&file).unwrap().nodes, 6);
    }
}
