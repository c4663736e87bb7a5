//! What a model says of every node, or of every graph where there are many: in memory, or as a file.

use std::path::{Path, PathBuf};

use graphweft_train::task::{Format, Output, Task, What};
use serde_json::{Value, json};

use crate::setters::setters;

/// What a model says of every node, or of every graph where there are many, row by row in original order.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let report = graphweft::Run::new("sbm:60:3:4:f=8").epochs(2).output(dir.path().join("run")).train()?;
/// let said = graphweft::Model::open(&report.folder)?.predict_probabilities()?;
/// assert!((said.row(7).iter().sum::<f32>() - 1.0).abs() < 1e-5);
/// assert_eq!(said.classes().len(), 60);
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Predictions {
    /// Rows: nodes, or graphs.
    pub nodes: usize,
    /// Classes, labels or numbers in a row.
    pub columns: usize,
    /// All rows, one after the other.
    pub values: Vec<f32>,
}

impl Predictions {
    /// The row of a node. `node` must be below the number of nodes.
    pub fn row(&self, node: usize) -> &[f32] {
        &self.values[node * self.columns..(node + 1) * self.columns]
    }

    /// The most probable class of every node.
    pub fn classes(&self) -> Vec<usize> {
        // Of equal ones the first.
        let most = |row: &[f32]| (0..row.len()).rev().max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap_or(0);
        self.values.chunks(self.columns.max(1)).map(most).collect()
    }
}

/// A file of predictions that was written.
///
/// ```
/// use graphweft::{Model, PredictionFile, Run};
/// # let dir = tempfile::tempdir().unwrap();
/// let report = Run::new("sbm:60:3:4:f=8").epochs(2).output(dir.path().join("run")).train()?;
/// let file = dir.path().join("labels.csv");
/// let written = Model::open(&report.folder)?.write_predictions(&PredictionFile::new(&file).labels())?;
/// assert_eq!((written.nodes, written.what, written.seeds), (60, "labels", 1));
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Written {
    /// Rows.
    pub nodes: usize,
    /// Classes, or labels per node.
    pub classes: usize,
    /// The file.
    pub path: PathBuf,
    /// What it has of each node: `logits`, `probabilities` or `labels`.
    pub what: &'static str,
    /// What was averaged over models, where there are several.
    pub averaged: &'static str,
    /// What classes are called: `classes`, `labels` or `targets`, as the task has it.
    pub noun: &'static str,
    /// What the graph is called.
    pub graph: String,
    /// Where the model came from.
    pub source: PathBuf,
    /// How many models there are.
    pub seeds: usize,
}

impl Written {
    /// As `graphweft predict --json` prints it.
    pub fn to_json(&self) -> Value {
        json!({
            "nodes": self.nodes, "classes": self.classes, "path": self.path, "what": self.what, "graph": self.graph,
            "source": self.source, "seeds": self.seeds,
        })
    }
}

/// A file of predictions to write: logits, of several seeds probabilities, and of regression values; as a NumPy array,
/// or as CSV if its name ends so.
///
/// ```
/// let file = graphweft::PredictionFile::new("labels.csv").labels();
/// assert_eq!(file.path(), std::path::Path::new("labels.csv"));
/// ```
#[derive(Clone, Debug)]
pub struct PredictionFile {
    path: PathBuf,
    what: Option<What>,
    format: Option<Format>,
}

impl PredictionFile {
    /// A file at this path.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), what: None, format: None }
    }

    /// Where it will be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    setters! {
        /// Writes logits, as the model gives them.
        logits => what = Some(What::Logits),

        /// Writes probabilities: of classes, which sum to 1, or of each label by itself.
        probabilities => what = Some(What::Probabilities),

        /// Writes the numbers that regression predicts.
        values => what = Some(What::Values),

        /// Writes the most probable class, or 0 or 1 for each label.
        labels => what = Some(What::Labels),

        /// As a NumPy array, a row per node.
        npy => format = Some(Format::Npy),

        /// As text, with the original id of each node.
        csv => format = Some(Format::Csv),
    }

    /// What is to be written of this many models for `task`.
    pub(super) fn output(&self, task: &dyn Task, models: usize) -> Output {
        let usual = task.forms()[usize::from(models > 1)];
        let is_csv = self.path.extension().is_some_and(|end| end.eq_ignore_ascii_case("csv"));
        let named = if is_csv { Format::Csv } else { Format::Npy };
        Output { path: self.path.clone(), what: self.what.unwrap_or(usual), format: self.format.unwrap_or(named) }
    }
}
