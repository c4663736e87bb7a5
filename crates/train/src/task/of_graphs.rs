//! Tasks of whole graphs: those of nodes, with a row per graph.
//!
//! A split names graphs, labels are those of graphs, and a model gives a row for each. All else is as for nodes.

/// A task of graphs that is what another one is of nodes.
macro_rules! of_graphs {
    ($(#[$about:meta])* $task:ident, $name:literal, $dataset:ident, as $rows:ident) => {
        use graphweft_graph::dataset::{Labels as Stored, Task as DatasetTask};

        use super::{LabelView, Labels, LossDevice, $rows, Targets, Task};
        use crate::config::TrainConfig;
        use crate::error::Result;
        use crate::task::metrics::{Metric, ScoredRows};
        use crate::task::predictions::{What, Written};

        $(#[$about])*
        #[derive(Debug)]
        pub(crate) struct $task;

        impl Task for $task {
            fn name(&self) -> &'static str {
                $name
            }

            fn dataset(&self) -> DatasetTask {
                DatasetTask::$dataset
            }

            fn labels(&self, stored: &Stored) -> Option<Labels> {
                $rows.labels(stored)
            }

            fn unread(&self, rows: usize) -> Labels {
                $rows.unread(rows)
            }

            fn outputs(&self, classes: usize) -> usize {
                $rows.outputs(classes)
            }

            fn noun(&self) -> &'static str {
                $rows.noun()
            }

            fn known(&self, labels: LabelView<'_>, row: usize, columns: usize) -> usize {
                $rows.known(labels, row, columns)
            }

            fn classes<'a>(&self, labels: LabelView<'a>) -> std::result::Result<&'a [i64], &'static str> {
                $rows.classes(labels)
            }

            fn check(&self, train: &TrainConfig, data: &str) -> Result<()> {
                $rows.check(train, data)
            }

            fn targets(&self, labels: Labels, on: &LossDevice<'_>, train: &TrainConfig) -> Result<Box<dyn Targets>> {
                $rows.targets(labels, on, train)
            }

            fn losses(&self, rows: &ScoredRows<'_>) -> [f64; 2] {
                $rows.losses(rows)
            }

            fn metrics(&self) -> &'static [Metric] {
                $rows.metrics()
            }

            fn check_metric(&self, metric: &Metric, classes: usize) -> Result<()> {
                $rows.check_metric(metric, classes)
            }

            fn forms(&self) -> [What; 2] {
                $rows.forms()
            }

            fn written(&self, what: What, columns: usize) -> Option<Written> {
                $rows.written(what, columns)
            }

            fn finish(&self, rows: &mut [f32], columns: usize) {
                $rows.finish(rows, columns);
            }

            fn decide(&self, outputs: &[f64], to: &mut Vec<u32>) {
                $rows.decide(outputs, to);
            }
        }
    };
}
pub(super) use of_graphs;
