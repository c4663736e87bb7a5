//! Node classification with several labels: each yes or no, with a logit of its own.
//!
//! Labels are 0 and 1, NaN where one is not known. The loss is the binary cross-entropy of each; accuracy is the mean
//! over the labels of which some are known, and scores that rank are means over the labels that have both kinds of
//! nodes, as OGB has it.

use graphweft_graph::dataset::Labels as Stored;
use graphweft_tensor::ops::loss::binary_cross_entropy;

use super::{LabelView, Labels, LossDevice, Numbers, Targets, Task, no_smoothing};
use crate::config::TrainConfig;
use crate::error::Result;
use crate::task::metrics::macro_f1::{Absent, Tally};
use crate::task::metrics::{Logits, Measure, Metric, ScoredRows, average_precision, mean_by_column, roc_auc};
use crate::task::predictions::{Cells, What, Written};

/// Node classification with several labels.
#[derive(Debug)]
pub struct NodeLabels;

static METRICS: [Metric; 4] = [
    Metric::share("roc-auc", Measure::Ranking { columns: |labels| labels, look, score: roc_auc }),
    Metric::share("average-precision", Measure::Ranking { columns: |labels| labels, look, score: average_precision }),
    Metric::share(
        "accuracy",
        Measure::Sums { count: accuracy, score: |sums| mean_by_column(sums, |right, all| right / all) },
    ),
    Metric::share("macro-f1", Measure::Sums { count: tally, score: |sums| Tally::score(sums, Absent::Zero) }),
];

impl Task for NodeLabels {
    fn name(&self) -> &'static str {
        "each"
    }

    fn labels(&self, stored: &Stored) -> Option<Labels> {
        match stored {
            Stored::MultiU8(y) => Some(Labels::Numbers(y.iter().map(|y| f32::from(*y)).collect())),
            Stored::MultiF32(y) => Some(Labels::Numbers(y.to_vec())),
            _ => None,
        }
    }

    fn known(&self, labels: LabelView<'_>, row: usize, columns: usize) -> usize {
        labels.numbers().iter().skip(row * columns).take(columns).filter(|y| **y >= 0.0).count()
    }

    fn classes<'a>(&self, _labels: LabelView<'a>) -> std::result::Result<&'a [i64], &'static str> {
        Err("have several labels each, and no class")
    }

    fn check(&self, train: &TrainConfig, data: &str) -> Result<()> {
        no_smoothing(train, || format!("the nodes of {data} have several labels each, of which none is the target"))
    }

    fn targets(&self, labels: Labels, on: &LossDevice<'_>, _train: &TrainConfig) -> Result<Box<dyn Targets>> {
        Numbers::targets(labels, on, binary_cross_entropy)
    }

    fn losses(&self, rows: &ScoredRows<'_>) -> [f64; 2] {
        let (mut sum, mut all) = (0.0, 0.0);
        for (x, y) in rows.numbers().filter(|(_, y)| *y >= 0.0) {
            sum += x.max(0.0) - x * f64::from(y) + (-x.abs()).exp().ln_1p();
            all += 1.0;
        }
        [sum, all]
    }

    fn metrics(&self) -> &'static [Metric] {
        &METRICS
    }

    fn forms(&self) -> [What; 2] {
        [What::Logits, What::Probabilities]
    }

    fn written(&self, what: What, columns: usize) -> Option<Written> {
        let labels = || Written { cells: Cells::Bytes(|p| u8::from(p > 0.5)), ..Written::floats("label", columns) };
        Written::of_choices(what, columns, labels)
    }

    /// Probabilities, each by itself.
    fn finish(&self, rows: &mut [f32], _columns: usize) {
        rows.iter_mut().for_each(|x| *x = (1.0 / (1.0 + (-f64::from(*x)).exp())) as f32);
    }

    fn decide(&self, outputs: &[f64], to: &mut Vec<u32>) {
        to.extend(outputs.iter().map(|x| u32::from(*x > 0.0)));
    }
}

/// Right ones and all of each label.
fn accuracy(rows: &ScoredRows<'_>) -> Vec<f64> {
    let mut sums = vec![0.0; 2 * rows.columns()];
    for (label, (x, y)) in rows.numbers_by_column().filter(|(_, (_, y))| *y >= 0.0) {
        sums[2 * label] += f64::from(u8::from((x > 0.0) == (y > 0.5)));
        sums[2 * label + 1] += 1.0;
    }
    sums
}

fn tally(rows: &ScoredRows<'_>) -> Vec<f64> {
    let mut tally = Tally::new(rows.columns());
    for (label, (x, y)) in rows.numbers_by_column().filter(|(_, (_, y))| *y >= 0.0) {
        match (x > 0.0, y > 0.5) {
            (true, true) => tally.true_positive(label),
            (true, false) => tally.false_positive(label),
            (false, true) => tally.false_negative(label),
            (false, false) => {}
        }
    }
    tally.sums
}

/// How sure the model is of a label, and whether it is set.
fn look(logits: &Logits, labels: LabelView<'_>, row: usize, column: usize) -> (f64, Option<bool>) {
    let y = labels.numbers()[row * logits.cols() + column];
    (logits.row(row)[column], (y >= 0.0).then_some(y > 0.5))
}
