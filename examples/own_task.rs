//! A task of one's own: regression that is scored by how often it comes near enough.

#![allow(clippy::print_stdout)]

use graphweft::extend::{
    Better, LabelView, Labels, Learned, LossDevice, Measure, Metric, NodeRegression, Scale, ScoredRows, Targets, Task,
    TrainConfig, What, Written,
};
use graphweft::{Dataset, DatasetTask, Graph, Run, Split};

#[derive(Debug)]
struct Near;

/// In per cent of the nodes that are scored.
static METRICS: [Metric; 1] = [Metric {
    name: "near",
    better: Better::Higher,
    scale: Scale::PerCent,
    measure: Measure::Sums { count: near, score: |sums| sums[0] / sums[1] },
}];

fn near(rows: &ScoredRows<'_>) -> Vec<f64> {
    let known = rows.outputs().map(|(row, outputs)| (outputs[0] - f64::from(rows.labels.numbers()[row])).abs());
    known.fold(vec![0.0, 0.0], |sums, error| vec![sums[0] + f64::from(u8::from(error < 0.5)), sums[1] + 1.0])
}

/// What is not said here is as in [`NodeRegression`].
impl Task for Near {
    fn name(&self) -> &'static str {
        "near"
    }

    fn dataset(&self) -> DatasetTask {
        DatasetTask::NodeRegression
    }

    fn labels(&self, stored: &graphweft::extend::StoredLabels) -> Option<Labels> {
        NodeRegression.labels(stored)
    }

    fn known(&self, labels: LabelView<'_>, row: usize, columns: usize) -> usize {
        NodeRegression.known(labels, row, columns)
    }

    fn targets(&self, labels: Labels, on: &LossDevice<'_>, train: &TrainConfig) -> Learned<Box<dyn Targets>> {
        NodeRegression.targets(labels, on, train)
    }

    fn losses(&self, rows: &ScoredRows<'_>) -> [f64; 2] {
        NodeRegression.losses(rows)
    }

    fn metrics(&self) -> &'static [Metric] {
        &METRICS
    }

    fn forms(&self) -> [What; 2] {
        NodeRegression.forms()
    }

    fn written(&self, what: What, columns: usize) -> Option<Written> {
        NodeRegression.written(what, columns)
    }
}

fn main() -> graphweft::Result<()> {
    let dir = tempfile::tempdir()?;
    let graph = Graph::generate("grid:12:12", 0)?;
    let third = |k: i64| (0..144).filter(|node| node % 3 == k).collect::<Vec<i64>>();
    let data = Dataset::builder("grid", &graph)
        .features(2, (0..144).flat_map(|node| [(node / 12) as f32 / 12.0, (node % 12) as f32 / 12.0]).collect())
        .values(1, (0..144).map(|node| (node / 12 + node % 12) as f32 / 6.0).collect())
        .split(Split::new("thirds", third(0), third(1), third(2)))
        .build()?;
    let run = Run::new(&data).own_task(&Near).model("sage").set("train.lr", 0.02).epochs(60);
    let report = run.output(dir.path().join("run")).train()?;
    println!("{}: {} %", report.metric.name(), report.metric.show(report.test.mean));
    Ok(())
}
