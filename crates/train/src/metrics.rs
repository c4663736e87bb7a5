//! Scores, in per cent.
//!
//! A rank scores its own rows; what ranks add up goes through one [`Reduce`]. Counting metrics add a few numbers. Ranking metrics
//! need every score: each rank puts its own at their places in a vector of zeros, and the sum is the whole vector, exactly. Logits
//! may come lot by lot, where all of them together would be too much.

mod accuracy;
mod average_precision;
mod loss;
mod macro_f1;
mod roc_auc;

use std::borrow::Borrow;
use std::ops::Range;

use graphweft_tensor::{DType, Device, Matrix, Reduce, Tag};
use serde::{Deserialize, Deserializer, Serialize};

use crate::checkpoint::Scores;
use crate::error::{Error, Result};

pub use average_precision::average_precision;
pub use roc_auc::roc_auc;

/// What can be scored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// The share of nodes (or of known labels) that are right.
    Accuracy,
    /// The mean over classes of the harmonic mean of precision and recall.
    MacroF1,
    /// The area under the ROC curve; for many labels the mean over those with both kinds, as OGB has it.
    RocAuc,
    /// The average precision; for many labels as above.
    AveragePrecision,
}

impl Metric {
    /// The name used in configurations and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Accuracy => "accuracy",
            Self::MacroF1 => "macro-f1",
            Self::RocAuc => "roc-auc",
            Self::AveragePrecision => "average-precision",
        }
    }

    /// Fails if labels of this kind cannot be scored so.
    pub fn check(self, truth: &Truth<'_>, classes: usize) -> Result<()> {
        let ranks = matches!(self, Self::RocAuc | Self::AveragePrecision);
        match truth {
            Truth::Class(_) if ranks && classes != 2 => {
                let problem = format!("{} ranks nodes of two classes, this dataset has {classes}", self.name());
                Err(Error::setting("train.metric", problem, "choose accuracy or macro-f1"))
            }
            _ => Ok(()),
        }
    }
}

/// What is known of nodes, row by row of the logits.
#[derive(Clone, Copy, Debug)]
pub enum Truth<'a> {
    /// A class each, negative if unknown.
    Class(&'a [i64]),
    /// Several labels each, as many as there are logits: 0 or 1, NaN or negative if unknown.
    Each(&'a [f32]),
}

/// Logits on the host: of all rows, or of a lot of them.
pub struct Logits {
    values: Vec<f64>,
    cols: usize,
    rows: Range<usize>,
}

impl Logits {
    /// Copies a matrix of any type, which has all rows.
    pub fn of(m: &Matrix) -> Result<Self> {
        Self::of_lot(m, 0)
    }

    /// The same for a matrix whose first row is row `first` of all.
    pub fn of_lot(m: &Matrix, first: usize) -> Result<Self> {
        let wide = m.device().convert("metrics", m, DType::F64)?;
        Ok(Self { values: wide.to_vec()?, cols: m.cols(), rows: first..first + m.rows() })
    }

    /// The row of a node, which must be among these.
    pub fn row(&self, row: usize) -> &[f64] {
        &self.values[(row - self.rows.start) * self.cols..][..self.cols]
    }

    /// Whether a row has only finite numbers.
    fn is_finite(&self, row: usize) -> bool {
        self.row(row).iter().all(|x| x.is_finite())
    }

    /// Columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The largest of a row, the first of equals as NumPy has it.
    pub fn class(&self, row: usize) -> usize {
        let row = self.row(row);
        (1..row.len()).fold(0, |best, k| if row[k] > row[best] { k } else { best })
    }
}

/// The rows of one part of a split that this rank has, and where they stand in the whole part.
#[derive(Clone, Debug)]
pub struct Part {
    /// Rows of this rank, ascending.
    pub rows: Vec<u32>,
    /// The place of each in the whole part.
    pub places: Vec<usize>,
    /// How many the whole part has.
    pub total: usize,
}

impl Part {
    /// How many of its rows are before row `row`.
    fn before(&self, row: usize) -> usize {
        self.rows.partition_point(|own| (*own as usize) < row)
    }

    fn rows_among(&self, rows: &Range<usize>) -> &[u32] {
        &self.rows[self.before(rows.start)..self.before(rows.end)]
    }
}

/// What a metric wants to know of a part: a few sums or, one for each task, the scores and kinds of all nodes.
#[derive(Default)]
struct Counts(Vec<Vec<f64>>);

impl Counts {
    fn add(&mut self, more: &[f64]) {
        match self.0.first_mut() {
            Some(sums) => add(sums, more),
            None => self.0.push(more.to_vec()),
        }
    }
}

fn add(to: &mut [f64], more: &[f64]) {
    to.iter_mut().zip(more).for_each(|(sum, x)| *sum += x);
}

/// A score from the scores of nodes, and which of them are positive.
type Ranking = fn(&[(f64, bool)]) -> Option<f64>;

/// What scoring needs beside the numbers.
pub struct Scoring<'a> {
    /// The metric.
    pub metric: Metric,
    /// What should come out.
    pub truth: Truth<'a>,
    /// Where sums over ranks are made.
    pub device: &'a Device,
    /// How.
    pub reduce: &'a dyn Reduce,
}

impl Scoring<'_> {
    /// The score of a part, in per cent; NaN where nothing can be scored.
    pub fn score(&self, logits: &Logits, part: &Part) -> Result<f64> {
        let mut counts = Counts::default();
        self.count(&mut counts, logits, part);
        self.scored(&counts, part)
    }

    /// The scores of train, valid and test, after an epoch.
    ///
    /// # Errors
    /// [`Error::NotScored`], on all ranks, if logits of these nodes are not finite.
    pub fn scores(&self, logits: &Logits, parts: &[Part; 3], epoch: u64) -> Result<Scores> {
        self.scores_of_lots(std::iter::once(Ok(logits)), parts, epoch)
    }

    /// The same for logits that come lot by lot: of most metrics a few counts are kept, not the logits.
    pub fn scores_of_lots<L: Borrow<Logits>>(
        &self,
        lots: impl Iterator<Item = Result<L>>,
        parts: &[Part; 3],
        epoch: u64,
    ) -> Result<Scores> {
        // Of the loss its sum and how many it is of; then the nodes without a finite logit.
        let (mut counts, mut sums) = ([(); 3].map(|()| Counts::default()), vec![0.0; 3]);
        let [_, valid, _] = parts;
        for lot in lots {
            let lot = lot?;
            let logits = lot.borrow();
            counts.iter_mut().zip(parts).for_each(|(counts, part)| self.count(counts, logits, part));
            add(&mut sums, &loss::count(logits, self.truth, valid.rows_among(&logits.rows)));
            let rows = parts.iter().flat_map(|part| part.rows_among(&logits.rows));
            sums[2] += rows.filter(|row| !logits.is_finite(**row as usize)).count() as f64;
        }
        let sums = self.sum(&sums)?;
        if sums[2] > 0.0 {
            return Err(Error::NotScored { nodes: sums[2] as u64 });
        }
        let [train, valid, test] = [0, 1, 2].map(|k| self.scored(&counts[k], &parts[k]));
        Ok(Scores { epoch, train: train?, valid: valid?, test: test?, valid_loss: sums[0] / sums[1] })
    }

    /// The mean loss of a part; NaN where no label is known.
    pub fn loss(&self, logits: &Logits, part: &Part) -> Result<f64> {
        let sums = self.sum(&loss::count(logits, self.truth, &part.rows))?;
        Ok(sums[0] / sums[1])
    }

    /// Adds up over ranks.
    fn sum(&self, own: &[f64]) -> Result<Vec<f64>> {
        let mut m = self.device.upload(1, own.len(), own, Tag::Workspace)?;
        self.reduce.sum(&mut m)?;
        Ok(m.to_vec()?)
    }

    /// Adds what a metric wants to know of the rows of a part that are among these logits.
    fn count(&self, to: &mut Counts, logits: &Logits, part: &Part) {
        let rows = part.rows_among(&logits.rows);
        match self.metric {
            Metric::Accuracy => to.add(&accuracy::count(logits, self.truth, rows)),
            Metric::MacroF1 => to.add(&macro_f1::count(logits, self.truth, rows)),
            Metric::RocAuc | Metric::AveragePrecision => {
                let tasks = if matches!(self.truth, Truth::Class(_)) { 1 } else { logits.cols() };
                to.0.resize_with(tasks, || vec![0.0; 2 * part.total]);
                let places = &part.places[part.before(logits.rows.start)..];
                for (task, all) in to.0.iter_mut().enumerate() {
                    // Scores first, then kinds: 1 for negative, 2 for positive, 0 for unknown.
                    for (&row, &place) in rows.iter().zip(places) {
                        let (score, kind) = self.look(logits, row as usize, task);
                        if let Some(positive) = kind {
                            (all[place], all[part.total + place]) = (score, if positive { 2.0 } else { 1.0 });
                        }
                    }
                }
            }
        }
    }

    /// The score, in per cent, from the counts of all ranks.
    fn scored(&self, counts: &Counts, part: &Part) -> Result<f64> {
        let Counts(counts) = counts;
        let one = || counts.first().map_or(Ok(vec![0.0; 2]), |own| self.sum(own));
        Ok(100.0
            * match self.metric {
                Metric::Accuracy => accuracy::score(&one()?),
                Metric::MacroF1 => macro_f1::score(&one()?, self.truth),
                Metric::RocAuc => self.mean_over_tasks(counts, part, roc_auc)?,
                Metric::AveragePrecision => self.mean_over_tasks(counts, part, average_precision)?,
            })
    }

    /// The mean of a ranking metric over the tasks that have both kinds of nodes.
    fn mean_over_tasks(&self, tasks: &[Vec<f64>], part: &Part, metric: Ranking) -> Result<f64> {
        let (mut sum, mut count) = (0.0, 0.0);
        for own in tasks {
            let all = self.sum(own)?;
            let (scores, kinds) = all.split_at(part.total);
            let known = scores.iter().zip(kinds).filter(|(_, kind)| **kind > 0.0);
            let pairs: Vec<(f64, bool)> = known.map(|(score, kind)| (*score, *kind > 1.5)).collect();
            if let Some(score) = metric(&pairs) {
                sum += score;
                count += 1.0;
            }
        }
        Ok(sum / count)
    }

    /// A node's score in a task, and whether it is positive, if known.
    fn look(&self, logits: &Logits, row: usize, task: usize) -> (f64, Option<bool>) {
        match self.truth {
            Truth::Class(labels) => {
                let x = logits.row(row);
                (x.last().copied().unwrap_or(0.0) - x[0], (labels[row] >= 0).then_some(labels[row] == 1))
            }
            Truth::Each(labels) => {
                let y = labels[row * logits.cols() + task];
                (logits.row(row)[task], (y >= 0.0).then_some(y > 0.5))
            }
        }
    }
}

/// Reads a score as JSON has it: null where nothing could be scored.
pub(crate) fn read_score<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
}

/// Scores in descending order, cut where they differ: for each distinct score, how many positive and how many negative have it.
fn ties(pairs: &[(f64, bool)]) -> Vec<(f64, f64)> {
    let mut sorted = pairs.to_vec();
    sorted.sort_by(|a, b| b.0.total_cmp(&a.0));
    let count = |same: &[(f64, bool)]| {
        let positive = same.iter().filter(|(_, p)| *p).count();
        (positive as f64, (same.len() - positive) as f64)
    };
    // Not total_cmp: 0 and −0 are one score.
    sorted.chunk_by(|a, b| a.0 == b.0).map(count).collect()
}

/// Positives and negatives, unless one of them is missing.
fn both(ties: &[(f64, f64)]) -> Option<(f64, f64)> {
    let (p, n) = ties.iter().fold((0.0, 0.0), |(p, n), t| (p + t.0, n + t.1));
    (p > 0.0 && n > 0.0).then_some((p, n))
}

#[cfg(test)]
mod tests;
