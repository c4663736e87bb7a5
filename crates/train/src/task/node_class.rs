//! Node classification: one of several classes each.
//!
//! Labels are classes, −1 where none is known. The loss is the cross-entropy of the softmax; scores are accuracy and
//! macro-F1 and, of two classes, those of a ranking by the difference of the logits.

use std::rc::Rc;

use graphweft_graph::dataset::Labels as Stored;
use graphweft_tensor::ops::loss::{LossRows, softmax_cross_entropy};
use graphweft_tensor::{Tape, Var};

use super::{LabelView, Labels, LossDevice, Targets, Task};
use crate::config::TrainConfig;
use crate::error::{Error, Result};
use crate::task::metrics::macro_f1::{Absent, Tally};
use crate::task::metrics::{Logits, Measure, Metric, ScoredRows, average_precision, largest, ratio, roc_auc};
use crate::task::predictions::{Cells, What, Written};

/// Node classification with one label.
#[derive(Debug)]
pub struct NodeClass;

static METRICS: [Metric; 4] = [
    Metric::share("accuracy", Measure::Sums { count: accuracy, score: ratio }),
    Metric::share("macro-f1", Measure::Sums { count: tally, score: |sums| Tally::score(sums, Absent::LeftOut) }),
    Metric::share("roc-auc", Measure::Ranking { columns: |_| 1, look, score: roc_auc }),
    Metric::share("average-precision", Measure::Ranking { columns: |_| 1, look, score: average_precision }),
];

impl Task for NodeClass {
    fn name(&self) -> &'static str {
        "class"
    }

    fn labels(&self, stored: &Stored) -> Option<Labels> {
        match stored {
            Stored::Single(y) => Some(Labels::Integers(y.to_vec())),
            _ => None,
        }
    }

    fn unread(&self, rows: usize) -> Labels {
        Labels::Integers(vec![0; rows])
    }

    fn known(&self, labels: LabelView<'_>, row: usize, _columns: usize) -> usize {
        usize::from(labels.integers().get(row).is_some_and(|label| *label >= 0))
    }

    fn classes<'a>(&self, labels: LabelView<'a>) -> std::result::Result<&'a [i64], &'static str> {
        Ok(labels.integers())
    }

    fn check(&self, _train: &TrainConfig, _data: &str) -> Result<()> {
        Ok(())
    }

    fn targets(&self, labels: Labels, _on: &LossDevice<'_>, train: &TrainConfig) -> Result<Box<dyn Targets>> {
        let labels: Rc<[i64]> = match labels {
            Labels::Integers(labels) => labels.into(),
            Labels::Numbers(_) => Rc::default(),
        };
        Ok(Box::new(Classes { labels, smoothing: train.label_smoothing }))
    }

    fn losses(&self, rows: &ScoredRows<'_>) -> [f64; 2] {
        let (mut sum, mut all) = (0.0, 0.0);
        for (row, x) in rows.outputs() {
            if let Some(at) = rows.class(row).and_then(|label| x.get(label)) {
                let most = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                sum += most + x.iter().map(|x| (x - most).exp()).sum::<f64>().ln() - at;
                all += 1.0;
            }
        }
        [sum, all]
    }

    fn metrics(&self) -> &'static [Metric] {
        &METRICS
    }

    fn check_metric(&self, metric: &Metric, classes: usize) -> Result<()> {
        if matches!(metric.measure, Measure::Ranking { .. }) && classes != 2 {
            let problem = format!("{} ranks nodes of two classes, this dataset has {classes}", metric.name);
            return Err(Error::setting("train.metric", problem, "choose accuracy or macro-f1"));
        }
        Ok(())
    }

    fn forms(&self) -> [What; 2] {
        [What::Logits, What::Probabilities]
    }

    fn written(&self, what: What, columns: usize) -> Option<Written> {
        let label = || Written { names: vec!["label".into()], cells: Cells::Integer(|row| largest(row) as i64) };
        Written::of_choices(what, columns, label)
    }

    /// Probabilities, which sum to 1.
    fn finish(&self, rows: &mut [f32], columns: usize) {
        for row in rows.chunks_mut(columns.max(1)) {
            let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let parts: Vec<f64> = row.iter().map(|x| f64::from(x - most).exp()).collect();
            let sum: f64 = parts.iter().sum();
            row.iter_mut().zip(parts).for_each(|(x, part)| *x = (part / sum) as f32);
        }
    }

    fn decide(&self, outputs: &[f64], to: &mut Vec<u32>) {
        to.push(largest(outputs) as u32);
    }
}

/// Classes, which losses read as they are.
struct Classes {
    labels: Rc<[i64]>,
    smoothing: f64,
}

impl Targets for Classes {
    fn view(&self) -> LabelView<'_> {
        LabelView::Integers(&self.labels)
    }

    fn loss(&self, tape: &mut Tape, outputs: &Var, rows: &LossRows, total: f64) -> Result<Var> {
        Ok(softmax_cross_entropy(tape, outputs, &self.labels, rows, self.smoothing, total)?)
    }
}

/// Right ones and all.
fn accuracy(rows: &ScoredRows<'_>) -> Vec<f64> {
    let (mut right, mut all) = (0u64, 0u64);
    for (row, x) in rows.outputs() {
        if let Some(label) = rows.class(row) {
            all += 1;
            right += u64::from(largest(x) == label);
        }
    }
    vec![right as f64, all as f64]
}

fn tally(rows: &ScoredRows<'_>) -> Vec<f64> {
    let mut tally = Tally::new(rows.columns());
    for (row, x) in rows.outputs() {
        if let Some(label) = rows.class(row) {
            let predicted = largest(x);
            if predicted == label {
                tally.true_positive(label);
            } else {
                tally.false_positive(predicted);
                tally.false_negative(label);
            }
        }
    }
    tally.sums
}

/// How sure the model is of the second class, and whether it is that.
fn look(logits: &Logits, labels: LabelView<'_>, row: usize, _column: usize) -> (f64, Option<bool>) {
    let (x, label) = (logits.row(row), labels.integers()[row]);
    (x.last().copied().unwrap_or(0.0) - x[0], (label >= 0).then_some(label == 1))
}
