//! What a run says of nodes, spread over the graph.

use std::path::{Path, PathBuf};

use graphweft_base::durable;
use graphweft_train::run::{self as session, Known, SmoothMethod, SmoothWeights, Smoothing};
use graphweft_train::task::Output;
use serde_json::{Value, json};

use super::{Evaluation, Model, ModelScores};
use crate::error::{Error, Result};
use crate::observe::Scores;
use crate::report::Metric;

/// How predictions are spread over the graph: correct and smooth, or label propagation. Labels that are known are those
/// of the training nodes.
///
/// ```
/// use graphweft::{Model, Run, Smooth};
/// # let dir = tempfile::tempdir().unwrap();
/// let run = dir.path().join("run");
/// Run::new("sbm:200:3:8:f=4").model("mlp").epochs(10).output(&run).train()?;
/// let found = Model::open(&run)?.smooth(&Smooth::correct_and_smooth().steps(10))?;
/// assert!(found.after.test.mean > found.before.test.mean);
/// assert!(run.join("smooth/predictions.npy").exists());
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Smooth {
    how: Smoothing,
    output: Option<PathBuf>,
}

impl Smooth {
    /// A model's errors on nodes with known labels are spread and taken away, then its predictions are spread.
    pub fn correct_and_smooth() -> Self {
        Self { how: Smoothing::default(), output: None }
    }

    /// Known labels are spread, whatever the model says.
    pub fn label_propagation() -> Self {
        let how = Smoothing { method: SmoothMethod::LabelPropagation, ..Smoothing::default() };
        Self { how, output: None }
    }

    fn with(self, change: impl FnOnce(&mut Smoothing)) -> Self {
        let mut how = self.how;
        change(&mut how);
        Self { how, ..self }
    }

    /// How much of its neighbours' errors a node takes over in a step, 0 to 1, in place of 0.87.
    #[must_use]
    pub fn correct(self, alpha: f64) -> Self {
        self.with(|how| how.correct = alpha)
    }

    /// How much of its neighbours' predictions a node takes over in a step, 0 to 1, in place of 0.81.
    #[must_use]
    pub fn smooth(self, alpha: f64) -> Self {
        self.with(|how| how.smooth = alpha)
    }

    /// How many steps there are, in place of 50.
    #[must_use]
    pub fn steps(self, steps: u32) -> Self {
        self.with(|how| how.steps = steps)
    }

    /// Edges count 1/√(d_i·d_j) with the degrees of both ends, which is usual.
    #[must_use]
    pub fn symmetric(self) -> Self {
        self.with(|how| how.weights = SmoothWeights::Symmetric)
    }

    /// A node takes the mean of its neighbours.
    #[must_use]
    pub fn by_row(self) -> Self {
        self.with(|how| how.weights = SmoothWeights::Row)
    }

    /// A node divides what it has among its neighbours.
    #[must_use]
    pub fn by_column(self) -> Self {
        self.with(|how| how.weights = SmoothWeights::Column)
    }

    /// Labels of validation nodes are known too; these nodes are scored as if theirs were not.
    #[must_use]
    pub fn with_validation_labels(self) -> Self {
        self.with(|how| how.known = Known::TrainAndValid)
    }

    /// The folder to write to, in place of `smooth` beside the model.
    #[must_use]
    pub fn output(self, folder: impl Into<PathBuf>) -> Self {
        Self { output: Some(folder.into()), ..self }
    }

    fn folder(&self, model: &Path) -> PathBuf {
        let beside = || if model.is_dir() { model.to_path_buf() } else { model.with_file_name("") };
        self.output.clone().unwrap_or_else(|| beside().join("smooth"))
    }
}

/// What came of it.
///
/// ```
/// # use graphweft::{Model, Run, Smooth};
/// # let dir = tempfile::tempdir().unwrap();
/// # let run = dir.path().join("run");
/// # Run::new("sbm:100:3:8:f=4").model("mlp").epochs(3).seeds(2).output(&run).train()?;
/// let found = Model::open(&run)?.smooth(&Smooth::label_propagation().by_row())?;
/// assert_eq!((found.after.models.len(), found.folder), (2, run.join("smooth")));
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Smoothed {
    /// The scores of the models.
    pub before: Evaluation,
    /// Those of what their predictions have become.
    pub after: Evaluation,
    /// Where the results are: `result.json`, and `predictions.npy` with the share of each class, a row per node in
    /// original order; of several seeds their mean.
    pub folder: PathBuf,
}

impl Smoothed {
    /// As `graphweft smooth --json` prints it.
    pub fn to_json(&self) -> Value {
        let scores = |of: &Evaluation| json!({ "train": of.train.mean, "valid": of.valid.mean, "test": of.test.mean, "test_std": of.test.std });
        let pairs = self.before.models.iter().zip(&self.after.models);
        let of = |s: &Scores| json!({ "train": s.train, "valid": s.valid, "test": s.test });
        let seeds: Vec<Value> = pairs
            .map(|(b, a)| json!({ "seed": a.seed, "split": a.split, "before": of(&b.scores), "after": of(&a.scores) }))
            .collect();
        json!({
            "metric": self.after.metric.name(), "graph": self.after.graph, "model": self.after.model,
            "ranks": self.after.ranks, "valid": self.after.valid.mean, "test": self.after.test.mean,
            "before": scores(&self.before), "after": scores(&self.after), "seeds": seeds, "folder": self.folder,
        })
    }
}

/// The mean of rows of several models.
struct Mean {
    sums: Vec<f64>,
    columns: usize,
}

impl Model {
    /// Spreads what it says of nodes over the graph, scores what comes of that, and writes it to a folder.
    ///
    /// # Errors
    /// If the data have no classes, or are not like those that the model is for; if the folder cannot be written. Under
    /// a launcher only the first process writes.
    pub fn smooth(&self, how: &Smooth) -> Result<Smoothed> {
        let folder = how.folder(&self.path);
        let found = self.on_ranks(|all, data, world, watched| {
            let (mut before, mut after) = (Vec::new(), Vec::new());
            let mut mean: Option<Mean> = None;
            let mut metric = None;
            for trained in all {
                let found = trained.smooth(world, data, watched, how.how)?;
                let scores = |scores: &session::Scores| ModelScores {
                    seed: trained.config.run.seed,
                    split: found.split.clone(),
                    scores: scores.into(),
                    source: trained.source.clone(),
                };
                before.push(scores(&found.before));
                after.push(scores(&found.after));
                metric = Some(Metric(found.metric));
                if let Some((rows, columns)) = found.shares {
                    let mean = mean.get_or_insert_with(|| Mean { sums: vec![0.0; rows.len()], columns });
                    let share = 1.0 / all.len() as f64;
                    mean.sums.iter_mut().zip(rows).for_each(|(sum, x)| *sum += share * x);
                }
            }
            let metric = metric.ok_or_else(|| Error::request("there is no model", "name a run"))?;
            let evaluation = |models| self.evaluation(metric, models, data, world);
            let found = Smoothed { before: evaluation(before), after: evaluation(after), folder: folder.clone() };
            Ok((found, mean))
        })?;
        let (found, mean) = found;
        if let Some(Mean { sums, columns }) = mean {
            if !folder.is_dir() {
                durable::create_folder(&folder)?;
            }
            let rows = sums.into_iter().map(|x| x as f32).collect();
            Output::write_rows(&folder.join("predictions.npy"), columns, rows)?;
            durable::replace(&folder.join("result.json"), found.to_json().to_string().as_bytes())?;
        }
        Ok(found)
    }
}
