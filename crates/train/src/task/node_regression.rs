//! Node regression: one or several numbers each.
//!
//! Labels are numbers, NaN where one is not known. The loss is the mean of the squared errors of those that are. Scores
//! are means over targets, each of which counts its known numbers: MAE, RMSE (both better when lower) and R². They are
//! plain numbers in the unit of the labels, which are taken as they are: whoever wants them standardised stores them
//! so.

use graphweft_graph::dataset::{Labels as Stored, Task as DatasetTask};
use graphweft_tensor::ops::loss::mean_squared_error;

use super::{LabelView, Labels, LossDevice, Numbers, Targets, Task};
use crate::config::TrainConfig;
use crate::error::Result;
use crate::task::metrics::{Better, Measure, Metric, Scale, ScoredRows, mean_by_column};
use crate::task::predictions::{What, Written};

/// Node regression.
#[derive(Debug)]
pub struct NodeRegression;

const fn plain(name: &'static str, better: Better, count: fn(&ScoredRows<'_>) -> Vec<f64>, score: Score) -> Metric {
    Metric { name, better, scale: Scale::Plain, measure: Measure::Sums { count, score } }
}

type Score = fn(&[f64]) -> f64;

static METRICS: [Metric; 3] = [
    plain("mae", Better::Lower, |rows| by_target(rows, f64::abs), |sums| mean_by_column(sums, |sum, n| sum / n)),
    plain(
        "rmse",
        Better::Lower,
        |rows| by_target(rows, |e| e * e),
        |sums| mean_by_column(sums, |sum, n| (sum / n).sqrt()),
    ),
    plain("r2", Better::Higher, moments, r_squared),
];

impl Task for NodeRegression {
    fn name(&self) -> &'static str {
        "node-regression"
    }

    fn dataset(&self) -> DatasetTask {
        DatasetTask::NodeRegression
    }

    fn labels(&self, stored: &Stored) -> Option<Labels> {
        match stored {
            Stored::Values(y) => Some(Labels::Numbers(y.to_vec())),
            _ => None,
        }
    }

    fn noun(&self) -> &'static str {
        "targets"
    }

    fn known(&self, labels: LabelView<'_>, row: usize, columns: usize) -> usize {
        labels.numbers().iter().skip(row * columns).take(columns).filter(|y| !y.is_nan()).count()
    }

    fn classes<'a>(&self, _labels: LabelView<'a>) -> std::result::Result<&'a [i64], &'static str> {
        Err("have numbers to predict, and no class")
    }

    fn targets(&self, labels: Labels, on: &LossDevice<'_>, _train: &TrainConfig) -> Result<Box<dyn Targets>> {
        Numbers::targets(labels, on, mean_squared_error)
    }

    fn losses(&self, rows: &ScoredRows<'_>) -> [f64; 2] {
        let (mut sum, mut all) = (0.0, 0.0);
        for (x, y) in rows.numbers().filter(|(_, y)| !y.is_nan()) {
            sum += (x - f64::from(y)) * (x - f64::from(y));
            all += 1.0;
        }
        [sum, all]
    }

    fn metrics(&self) -> &'static [Metric] {
        &METRICS
    }

    fn forms(&self) -> [What; 2] {
        [What::Values; 2]
    }

    fn written(&self, what: What, columns: usize) -> Option<Written> {
        let mut written = Written::floats("value", columns);
        if columns == 1 {
            written.names = vec!["value".into()];
        }
        (what == What::Values).then_some(written)
    }
}

/// Known targets with their columns, and what was predicted.
fn known<'a>(rows: &'a ScoredRows<'_>) -> impl Iterator<Item = (usize, f64, f64)> + 'a {
    rows.numbers_by_column().filter(|(_, (_, y))| !y.is_nan()).map(|(column, (x, y))| (column, x, f64::from(y)))
}

/// For each target the sum over errors, and how many there are.
fn by_target(rows: &ScoredRows<'_>, of: fn(f64) -> f64) -> Vec<f64> {
    let mut sums = vec![0.0; 2 * rows.columns()];
    for (column, x, y) in known(rows) {
        sums[2 * column] += of(x - y);
        sums[2 * column + 1] += 1.0;
    }
    sums
}

/// For each target how many numbers are known, Σ y, Σ y² and Σ (x − y)². In f64, sums of squares of f32 lose less than
/// the labels themselves have lost.
fn moments(rows: &ScoredRows<'_>) -> Vec<f64> {
    let mut sums = vec![0.0; 4 * rows.columns()];
    for (column, x, y) in known(rows) {
        let of = [1.0, y, y * y, (x - y) * (x - y)];
        sums[4 * column..][..4].iter_mut().zip(of).for_each(|(sum, more)| *sum += more);
    }
    sums
}

/// 1 − Σ (x − y)² / Σ (y − mean)², a mean over targets. As scikit-learn has it, a target that does not vary scores 1 if
/// it is predicted exactly and 0 otherwise.
fn r_squared(sums: &[f64]) -> f64 {
    let (mut total, mut targets) = (0.0, 0.0);
    for target in sums.chunks_exact(4).filter(|target| target[0] > 0.0) {
        let [n, sum, squares, errors] = [target[0], target[1], target[2], target[3]];
        let variance = squares - sum * sum / n;
        // What is below this is rounding.
        total += match (variance > 1e-12 * squares, errors > 0.0) {
            (true, _) => 1.0 - errors / variance,
            (false, true) => 0.0,
            (false, false) => 1.0,
        };
        targets += 1.0;
    }
    total / targets
}
