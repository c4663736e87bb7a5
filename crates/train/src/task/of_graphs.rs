//! Tasks of whole graphs: those of nodes, with a row per graph.
//!
//! A split names graphs, labels are those of graphs, and a model gives a row for each. All else is as for nodes: one of
//! several classes, several labels, or numbers, of which some may not be known.

use graphweft_graph::dataset::{Labels as Stored, Task as DatasetTask};

use super::{LabelView, Labels, LossDevice, NodeClass, NodeLabels, NodeRegression, Targets, Task};
use crate::config::TrainConfig;
use crate::error::Result;
use crate::task::metrics::{Metric, ScoredRows};
use crate::task::predictions::{What, Written};

/// A task of nodes, of graphs.
#[derive(Debug)]
pub struct OfGraphs {
    name: &'static str,
    dataset: DatasetTask,
    rows: &'static dyn Task,
}

/// One of several classes.
pub static GRAPH_CLASS: OfGraphs =
    OfGraphs { name: "graph-class", dataset: DatasetTask::GraphClassification, rows: &NodeClass };

/// Several labels.
pub static GRAPH_LABELS: OfGraphs =
    OfGraphs { name: "graph-each", dataset: DatasetTask::GraphClassification, rows: &NodeLabels };

/// One or several numbers.
pub static GRAPH_REGRESSION: OfGraphs =
    OfGraphs { name: "graph-regression", dataset: DatasetTask::GraphRegression, rows: &NodeRegression };

impl Task for OfGraphs {
    fn name(&self) -> &'static str {
        self.name
    }

    fn dataset(&self) -> DatasetTask {
        self.dataset
    }

    fn labels(&self, stored: &Stored) -> Option<Labels> {
        self.rows.labels(stored)
    }

    fn unread(&self, rows: usize) -> Labels {
        self.rows.unread(rows)
    }

    fn outputs(&self, classes: usize) -> usize {
        self.rows.outputs(classes)
    }

    fn noun(&self) -> &'static str {
        self.rows.noun()
    }

    fn known(&self, labels: LabelView<'_>, row: usize, columns: usize) -> usize {
        self.rows.known(labels, row, columns)
    }

    fn classes<'a>(&self, labels: LabelView<'a>) -> std::result::Result<&'a [i64], &'static str> {
        self.rows.classes(labels)
    }

    fn check(&self, train: &TrainConfig, data: &str) -> Result<()> {
        self.rows.check(train, data)
    }

    fn targets(&self, labels: Labels, on: &LossDevice<'_>, train: &TrainConfig) -> Result<Box<dyn Targets>> {
        self.rows.targets(labels, on, train)
    }

    fn losses(&self, rows: &ScoredRows<'_>) -> [f64; 2] {
        self.rows.losses(rows)
    }

    fn metrics(&self) -> &'static [Metric] {
        self.rows.metrics()
    }

    fn check_metric(&self, metric: &Metric, classes: usize) -> Result<()> {
        self.rows.check_metric(metric, classes)
    }

    fn forms(&self) -> [What; 2] {
        self.rows.forms()
    }

    fn written(&self, what: What, columns: usize) -> Option<Written> {
        self.rows.written(what, columns)
    }

    fn finish(&self, rows: &mut [f32], columns: usize) {
        self.rows.finish(rows, columns);
    }

    fn decide(&self, outputs: &[f64], to: &mut Vec<u32>) {
        self.rows.decide(outputs, to);
    }
}
