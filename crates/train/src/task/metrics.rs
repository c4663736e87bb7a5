//! Scores: shares in per cent, errors as they are. Which there are, and what they are made of, a [`Task`] says.
//!
//! A rank scores its own rows; what ranks add up goes through one [`Reduce`]. Counting metrics add a few numbers.
//! Ranking metrics need every score: each rank puts its own at their places in a vector of zeros, and the sum is the
//! whole vector, exactly. Logits may come lot by lot, where all of them together would be too much.

mod average_precision;
mod by_column;
mod hits;
pub(crate) mod macro_f1;
mod roc_auc;

use std::borrow::Borrow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::LazyLock;

use graphweft_tensor::{DType, Device, Ids, Matrix, Reduce, Tag};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Error, Result};
use crate::run::checkpoint::Scores;
use crate::task::{LabelView, TASKS, Task};

pub(crate) use average_precision::average_precision;
pub(crate) use by_column::mean_by_column;
pub(crate) use hits::hits;
pub(crate) use roc_auc::roc_auc;

/// What can be scored: one of the metrics of a [`Task`].
#[derive(Debug)]
pub struct Metric {
    /// The name used in configurations and JSON.
    pub name: &'static str,
    /// Which of two scores is better.
    pub better: Better,
    /// What scores are counted in.
    pub scale: Scale,
    /// How they are found.
    pub measure: Measure,
}

/// Which of two scores is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// As of accuracy.
    Higher,
    /// As of an error.
    Lower,
}

impl Better {
    /// As `result.json` says it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Higher => "higher",
            Self::Lower => "lower",
        }
    }

    /// Whether `score` is better than `other`; NaN never is.
    pub fn is_better(self, score: f64, other: f64) -> bool {
        match self {
            Self::Higher => score > other,
            Self::Lower => score < other,
        }
    }
}

/// What scores are counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Shares are given in per cent.
    PerCent,
    /// Numbers are given as they are.
    Plain,
}

/// How a score is found.
#[derive(Clone, Copy, Debug)]
pub enum Measure {
    /// From a few sums over rows.
    Sums {
        /// What each row adds.
        count: fn(&ScoredRows<'_>) -> Vec<f64>,
        /// The score, from the sums of all ranks.
        score: fn(&[f64]) -> f64,
    },
    /// From all rows in the order of what was predicted.
    Ranking {
        /// How often rows are ranked, where they have so many outputs: the mean over these is the score.
        columns: fn(usize) -> usize,
        /// By what a row is ranked, and whether it is positive, if known.
        look: Look,
        /// The score of one ranking.
        score: Ranking,
    },
    /// Of links: from the rank of each end among all nodes.
    Ranks {
        /// What one rank counts; the score is the mean.
        score: fn(f64) -> f64,
    },
}

impl Metric {
    /// A share that is the better the higher it is.
    pub const fn share(name: &'static str, measure: Measure) -> Self {
        Self { name, better: Better::Higher, scale: Scale::PerCent, measure }
    }

    /// The name used in configurations and JSON.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// A score for people, without its unit; a dash where nothing could be scored.
    pub fn show(&self, score: f64) -> String {
        match self.scale {
            _ if score.is_nan() => "–".into(),
            Scale::PerCent => format!("{score:.2}"),
            Scale::Plain if score != 0.0 && !(1e-3..1e6).contains(&score.abs()) => format!("{score:.3e}"),
            Scale::Plain => format!("{score:.4}"),
        }
    }

    /// The unit of scores, with a space before it: nothing for plain numbers.
    pub fn unit(&self) -> &'static str {
        match self.scale {
            Scale::PerCent => " %",
            Scale::Plain => "",
        }
    }

    /// How scores are counted, in words.
    pub fn counted_in(&self) -> &'static str {
        match self.scale {
            Scale::PerCent => " in per cent",
            Scale::Plain => "",
        }
    }
}

impl PartialEq for Metric {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Serialize for Metric {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.serialize_str(self.name)
    }
}

/// The name of a metric of a registered task, as a configuration has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MetricName(&'static str);

/// The names of all metrics of all tasks.
static NAMES: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let mut names: Vec<&'static str> = Vec::new();
    // The first task's order, which other tasks' metrics follow.
    for metric in TASKS.iter().flat_map(|task| task.metrics()) {
        if !names.contains(&metric.name) {
            names.push(metric.name);
        }
    }
    names
});

impl MetricName {
    /// All that there are.
    pub fn all() -> &'static [&'static str] {
        &NAMES
    }

    /// The one that is called so.
    pub fn named(name: &str) -> Option<Self> {
        NAMES.iter().find(|known| **known == name).copied().map(Self)
    }

    /// The name.
    pub fn as_str(self) -> &'static str {
        self.0
    }
}

impl<'de> Deserialize<'de> for MetricName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        Self::named(&name).ok_or_else(|| serde::de::Error::unknown_variant(&name, Self::all()))
    }
}

/// Outputs of some rows beside what they should be.
pub struct ScoredRows<'a> {
    /// What the model gives.
    pub logits: &'a Logits,
    /// What is known.
    pub labels: LabelView<'a>,
    /// The rows.
    pub rows: &'a [u32],
}

impl ScoredRows<'_> {
    /// How many outputs a row has.
    pub fn columns(&self) -> usize {
        self.logits.cols()
    }

    /// Each row with its outputs.
    pub fn outputs(&self) -> impl Iterator<Item = (usize, &[f64])> {
        self.rows.iter().map(|row| (*row as usize, self.logits.row(*row as usize)))
    }

    /// The class of a row, if it is known.
    pub fn class(&self, row: usize) -> Option<usize> {
        usize::try_from(self.labels.integers()[row]).ok()
    }

    /// Each output with the number it should be, which may not be known.
    pub fn numbers(&self) -> impl Iterator<Item = (f64, f32)> {
        self.numbers_by_column().map(|(_, both)| both)
    }

    /// The same with the column of the output.
    pub fn numbers_by_column(&self) -> impl Iterator<Item = (usize, (f64, f32))> {
        let columns = self.columns();
        self.outputs().flat_map(move |(row, x)| {
            let y = &self.labels.numbers()[row * columns..][..columns];
            x.iter().copied().zip(y.iter().copied()).enumerate()
        })
    }
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

    /// Of no rows.
    pub(crate) fn none(cols: usize) -> Self {
        Self { values: Vec::new(), cols, rows: 0..0 }
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
}

/// The place of the largest, the first of equals as NumPy has it.
pub(crate) fn largest<T: PartialOrd>(row: &[T]) -> usize {
    (1..row.len()).fold(0, |best, k| if row[k] > row[best] { k } else { best })
}

/// The rows of one part of a split that this rank has, and where they stand in the whole part.
#[derive(Clone, Debug)]
pub struct SplitPart {
    /// Rows of this rank, ascending.
    pub rows: Vec<u32>,
    /// The place of each in the whole part.
    pub places: Vec<usize>,
    /// How many the whole part has.
    pub total: usize,
}

impl SplitPart {
    /// The nodes of a part that a rank has, in the order of its rows. Places are by original id, so that they do not
    /// depend on ranks.
    pub(crate) fn of_nodes(nodes: &[i64], ids: &Ids) -> Self {
        let mut nodes: Vec<u64> = nodes.iter().map(|id| *id as u64).collect();
        nodes.sort_unstable();
        let total = nodes.len();
        let mut own: Vec<(u32, usize)> = match ids {
            Ids::Same => nodes.iter().enumerate().map(|(place, id)| (*id as u32, place)).collect(),
            Ids::Listed(ids) => {
                let row: HashMap<u64, u32> = ids.iter().enumerate().map(|(row, id)| (*id, row as u32)).collect();
                nodes.iter().enumerate().filter_map(|(place, id)| Some((*row.get(id)?, place))).collect()
            }
        };
        own.sort_unstable();
        let (rows, places) = own.into_iter().unzip();
        Self { rows, places, total }
    }

    /// How many of its rows are before row `row`.
    fn before(&self, row: usize) -> usize {
        self.rows.partition_point(|own| (*own as usize) < row)
    }

    fn rows_among(&self, rows: &Range<usize>) -> &[u32] {
        &self.rows[self.before(rows.start)..self.before(rows.end)]
    }
}

/// What a metric wants to know of a part: a few sums or, one for each ranking, the scores and kinds of all rows.
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

/// By what a row is ranked in a column, and whether it is positive, if known.
pub(crate) type Look = fn(&Logits, LabelView<'_>, usize, usize) -> (f64, Option<bool>);

/// A score from the scores of nodes, and which of them are positive.
pub(crate) type Ranking = fn(&[(f64, bool)]) -> Option<f64>;

/// A share: the first of two sums is how many of the second.
pub(crate) fn ratio(sums: &[f64]) -> f64 {
    sums[0] / sums[1]
}

/// What scoring needs beside the numbers.
pub(crate) struct Scoring<'a> {
    /// What is predicted.
    pub(crate) task: &'static dyn Task,
    /// The metric.
    pub(crate) metric: &'static Metric,
    /// What should come out.
    pub(crate) labels: LabelView<'a>,
    /// Where sums over ranks are made.
    pub(crate) device: &'a Device,
    /// How.
    pub(crate) reduce: &'a dyn Reduce,
}

impl Scoring<'_> {
    #[cfg(test)]
    /// The score of a part; NaN where nothing can be scored.
    pub(crate) fn score(&self, logits: &Logits, part: &SplitPart) -> Result<f64> {
        let mut counts = Counts::default();
        self.count(&mut counts, logits, part);
        self.scored(&counts, part)
    }

    /// The scores of train, valid and test, after an epoch.
    ///
    /// # Errors
    /// [`Error::NotScored`], on all ranks, if logits of these nodes are not finite.
    pub(crate) fn scores(&self, logits: &Logits, parts: &[SplitPart; 3], epoch: u64) -> Result<Scores> {
        self.scores_of_lots(std::iter::once(Ok(logits)), parts, epoch)
    }

    /// The same for logits that come lot by lot: of most metrics a few counts are kept, not the logits.
    pub(crate) fn scores_of_lots<L: Borrow<Logits>>(
        &self,
        lots: impl Iterator<Item = Result<L>>,
        parts: &[SplitPart; 3],
        epoch: u64,
    ) -> Result<Scores> {
        // Of the loss its sum and how many it is of; then the nodes without a finite logit.
        let (mut counts, mut sums) = ([(); 3].map(|()| Counts::default()), vec![0.0; 3]);
        let [_, valid, _] = parts;
        for lot in lots {
            let lot = lot?;
            let logits = lot.borrow();
            counts.iter_mut().zip(parts).for_each(|(counts, part)| self.count(counts, logits, part));
            add(&mut sums, &self.task.losses(&self.compared(logits, valid.rows_among(&logits.rows))));
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

    #[cfg(test)]
    /// The mean loss of a part; NaN where no label is known.
    pub(crate) fn loss(&self, logits: &Logits, part: &SplitPart) -> Result<f64> {
        let sums = self.sum(&self.task.losses(&self.compared(logits, &part.rows)))?;
        Ok(sums[0] / sums[1])
    }

    /// Adds up over ranks.
    fn sum(&self, own: &[f64]) -> Result<Vec<f64>> {
        let mut m = self.device.upload(1, own.len(), own, Tag::Workspace)?;
        self.reduce.sum(&mut m)?;
        Ok(m.to_vec()?)
    }

    fn compared<'b>(&'b self, logits: &'b Logits, rows: &'b [u32]) -> ScoredRows<'b> {
        ScoredRows { logits, labels: self.labels, rows }
    }

    /// Adds what a metric wants to know of the rows of a part that are among these logits.
    fn count(&self, to: &mut Counts, logits: &Logits, part: &SplitPart) {
        let rows = part.rows_among(&logits.rows);
        match self.metric.measure {
            Measure::Sums { count, .. } => to.add(&count(&self.compared(logits, rows))),
            Measure::Ranks { .. } => {}
            Measure::Ranking { columns, look, .. } => {
                to.0.resize_with(columns(logits.cols()), || vec![0.0; 2 * part.total]);
                let places = &part.places[part.before(logits.rows.start)..];
                for (column, all) in to.0.iter_mut().enumerate() {
                    // Scores first, then kinds: 1 for negative, 2 for positive, 0 for unknown.
                    for (&row, &place) in rows.iter().zip(places) {
                        let (score, kind) = look(logits, self.labels, row as usize, column);
                        if let Some(positive) = kind {
                            (all[place], all[part.total + place]) = (score, if positive { 2.0 } else { 1.0 });
                        }
                    }
                }
            }
        }
    }

    /// The score from the counts of all ranks.
    fn scored(&self, counts: &Counts, part: &SplitPart) -> Result<f64> {
        let Counts(counts) = counts;
        let score = match self.metric.measure {
            Measure::Sums { score, .. } => score(&counts.first().map_or(Ok(vec![0.0; 2]), |own| self.sum(own))?),
            Measure::Ranking { score, .. } => self.mean_of_rankings(counts, part, score)?,
            Measure::Ranks { .. } => f64::NAN,
        };
        Ok(match self.metric.scale {
            Scale::PerCent => 100.0 * score,
            Scale::Plain => score,
        })
    }

    /// The mean of a ranking metric over the rankings that have both kinds of rows.
    fn mean_of_rankings(&self, rankings: &[Vec<f64>], part: &SplitPart, metric: Ranking) -> Result<f64> {
        let (mut sum, mut count) = (0.0, 0.0);
        for own in rankings {
            let all = self.sum(own)?;
            let (scores, kinds) = all.split_at(part.total);
            let known = scores.iter().zip(kinds).filter(|(_, kind)| **kind > 0.0);
            let pairs: Vec<(f64, bool)> = known.map(|(score, kind)| (*score, *kind > 1.5)).collect();
            let Some(score) = metric(&pairs) else { continue };
            (sum, count) = (sum + score, count + 1.0);
        }
        Ok(sum / count)
    }
}

/// Reads a score as JSON has it: null where nothing could be scored.
pub(crate) fn read_score<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
}

/// Scores in descending order, cut where they differ: for each distinct score, how many positive and how many negative
/// have it.
fn ties(pairs: &[(f64, bool)]) -> Vec<(f64, f64)> {
    let mut sorted = pairs.to_vec();
    sorted.sort_by(|a, b| b.0.total_cmp(&a.0));
    let count = |same: &[(f64, bool)], kind: bool| same.iter().filter(|(_, p)| *p == kind).count() as f64;
    // Not total_cmp: 0 and −0 are one score.
    sorted.chunk_by(|a, b| a.0 == b.0).map(|same| (count(same, true), count(same, false))).collect()
}

/// Positives and negatives, unless one of them is missing.
fn both(ties: &[(f64, f64)]) -> Option<(f64, f64)> {
    let (p, n) = ties.iter().fold((0.0, 0.0), |(p, n), t| (p + t.0, n + t.1));
    (p > 0.0 && n > 0.0).then_some((p, n))
}

#[cfg(test)]
mod tests;
