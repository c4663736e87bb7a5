//! Links: which pairs of nodes are linked.
//!
//! A model gives every node a row of `data.embedding` numbers; a pair scores the product of its rows. What is learned
//! from and scored are pairs, not rows: [`links`](crate::epochs::links) has the loss and asks the metrics here for
//! scores of rankings. What is predicted of a node is its row.

use graphweft_graph::dataset::Task as DatasetTask;

use super::{LabelView, Labels, LossDevice, Targets, Task, no_smoothing};
use crate::config::TrainConfig;
use crate::error::{Error, Result};
use crate::task::metrics::{Logits, Measure, Metric, ScoredRows, average_precision, hits, roc_auc};
use crate::task::predictions::{What, Written};

/// Numbers that a model gives for a node where nobody says.
const EMBEDDING: usize = 64;

/// Links between nodes.
#[derive(Debug)]
pub(crate) struct Link;

const fn ranking(name: &'static str, score: crate::task::metrics::Ranking) -> Metric {
    Metric::share(name, Measure::Ranking { columns: |_| 1, look, score })
}

static METRICS: [Metric; 5] = [
    ranking("roc-auc", roc_auc),
    ranking("average-precision", average_precision),
    ranking("hits@20", hits::<20>),
    ranking("hits@50", hits::<50>),
    ranking("hits@100", hits::<100>),
];

impl Task for Link {
    fn name(&self) -> &'static str {
        "link"
    }

    fn dataset(&self) -> DatasetTask {
        DatasetTask::Link
    }

    /// Pairs stand for labels, which rows have none of.
    fn unlabelled(&self) -> Option<Labels> {
        Some(Labels::Numbers(Vec::new()))
    }

    fn classes_of(&self, _stored: usize, embedding: Option<u64>) -> usize {
        embedding.map_or(EMBEDDING, |width| width as usize)
    }

    fn noun(&self) -> &'static str {
        "numbers per node"
    }

    /// Rows have no labels.
    fn known(&self, _labels: LabelView<'_>, _row: usize, _columns: usize) -> usize {
        0
    }

    fn check(&self, train: &TrainConfig, _data: &str) -> Result<()> {
        no_smoothing(train, || "links have no class".into())
    }

    fn targets(&self, _labels: Labels, _on: &LossDevice<'_>, _train: &TrainConfig) -> Result<Box<dyn Targets>> {
        Err(Error::setting("parallel.strategy", "links are learned from the whole graph", "choose an exact one"))
    }

    fn losses(&self, _rows: &ScoredRows<'_>) -> [f64; 2] {
        [0.0, 0.0]
    }

    fn metrics(&self) -> &'static [Metric] {
        &METRICS
    }

    fn forms(&self) -> [What; 2] {
        [What::Logits, What::Logits]
    }

    fn written(&self, what: What, columns: usize) -> Option<Written> {
        (what == What::Logits).then(|| Written::floats("embedding", columns))
    }
}

/// Rows by themselves are not ranked.
fn look(_logits: &Logits, _labels: LabelView<'_>, _row: usize, _column: usize) -> (f64, Option<bool>) {
    (0.0, None)
}
