//! What a rank's rows should come to: the labels they are learned from, and which rows are for what.

use graphweft_graph::dataset::Split;
use graphweft_model::Total;
use graphweft_tensor::ops::loss::LossRows;
use graphweft_tensor::{Device, Matrix, Reduce, Tape, Var};

use super::{LabelView, Labels, LossDevice, Targets, Task};
use crate::config::TrainConfig;
use crate::data::Data;
use crate::epochs::batches::LoadedBatch;
use crate::epochs::learner::{Draw, Fixed, Objective};
use crate::error::{Error, Result};
use crate::ranks::rank::Rank;
use crate::ranks::shard::Shard;
use crate::run::checkpoint::Scores;
use crate::task::metrics::{Logits, Metric, Scoring, SplitPart};

/// The rows that are learned from, chosen by and reported on, as this rank sees them.
pub(crate) struct Supervision {
    task: &'static dyn Task,
    targets: Box<dyn Targets>,
    /// Train, valid, test.
    pub parts: [SplitPart; 3],
    rows: LossRows,
    /// What the loss is divided by, over all ranks.
    total: f64,
}

/// The rows of a piece that are learned from.
pub(crate) struct LearnedRows {
    pub(crate) rows: Vec<u32>,
    pub(crate) weights: Vec<f32>,
    /// Of all rows.
    pub(crate) labels: Labels,
}

impl Supervision {
    /// Prepares the labels of `data` and `split` for the rows of `shard`.
    pub(crate) fn new(shard: &Shard, data: &Data, split: &Split, train: &TrainConfig) -> Result<Self> {
        check_split(split)?;
        let ids = shard.ops.ids();
        let parts = data.task.parts(split, ids);
        let rows = LossRows::new(parts[0].rows.clone())?;
        let labels = data.labels()?.of_rows(ids, data.classes);
        Self::build(shard, data, labels, train, parts, rows)
    }

    /// The rows of a piece that are learned from, with their weights.
    pub(crate) fn of_piece(shard: &Shard, data: &Data, learned: LearnedRows, train: &TrainConfig) -> Result<Self> {
        let LearnedRows { rows, weights, labels } = learned;
        let equal = LossRows::new(rows.clone())?;
        let are_equal = weights.iter().all(|w| *w == 1.0);
        let weighted = if are_equal { equal.clone() } else { LossRows::weighted(rows, weights)? };
        let found = Self::build(shard, data, labels.clone(), train, no_parts(), weighted)?;
        // Where nothing at all is covered, on any rank, weights say nothing. Every rank sees the same total, so that
        // all of them add up again, those without weights or rows too.
        if found.total > 0.0 { Ok(found) } else { Self::build(shard, data, labels, train, no_parts(), equal) }
    }

    /// A rank's graphs of a batch, all of which are learned from. How many labels are known on all ranks is known to
    /// each.
    pub(crate) fn of_batch(shard: &Shard, data: &Data, batch: LoadedBatch, train: &TrainConfig) -> Result<Self> {
        let (task, graphs) = (data.task, shard.outputs());
        let LoadedBatch { known, labels, .. } = batch;
        let targets = task.targets(labels.unwrap_or_else(|| task.unread(graphs)), &loss_device(shard, data), train)?;
        let rows = LossRows::new((0..graphs as u32).collect::<Vec<u32>>())?;
        Ok(Self { task, targets, parts: no_parts(), rows, total: known })
    }

    fn build(
        shard: &Shard,
        data: &Data,
        labels: Labels,
        train: &TrainConfig,
        parts: [SplitPart; 3],
        rows: LossRows,
    ) -> Result<Self> {
        let weight = |k: usize| rows.weights().map_or(1.0, |w| f64::from(w[k]));
        let task = data.task;
        let known = |row: &u32| task.known(labels.view(), *row as usize, data.classes) as f64;
        let own = rows.rows().iter().enumerate().map(|(k, row)| weight(k) * known(row)).sum();
        let targets = task.targets(labels, &loss_device(shard, data), train)?;
        let total = shard.rank.sum(Total::Setup, &[own])?[0];
        Ok(Self { task, targets, parts, rows, total })
    }

    /// The same as a part of what counts `total` together.
    pub(crate) fn of(self, total: f64) -> Self {
        Self { total, ..self }
    }

    /// What the loss is divided by: how much this counts among several.
    pub(crate) fn total(&self) -> f64 {
        self.total
    }

    /// What stands for the labels of `shard` in a rehearsal, in which nobody looks at them: as many numbers, with a
    /// part `learned` of the rows to learn from.
    pub(crate) fn unread(shard: &Shard, data: &Data, learned: f64, train: &TrainConfig) -> Result<Self> {
        let (task, rows) = (data.task, shard.ops.rows());
        let targets = task.targets(task.unread(rows), &loss_device(shard, data), train)?;
        let counted = (rows as f64 * learned.clamp(0.0, 1.0)).round() as u32;
        let rows = LossRows::new((0..counted).collect::<Vec<u32>>())?;
        Ok(Self { task, targets, parts: no_parts(), rows, total: 1.0 })
    }

    /// The task.
    pub(crate) fn task(&self) -> &'static dyn Task {
        self.task
    }

    /// The labels of this rank's rows.
    pub(crate) fn labels(&self) -> LabelView<'_> {
        self.targets.view()
    }

    /// What scores these labels.
    pub(crate) fn scoring<'a>(
        &'a self,
        metric: &'static Metric,
        device: &'a Device,
        reduce: &'a dyn Reduce,
    ) -> Scoring<'a> {
        Scoring { task: self.task, metric, labels: self.labels(), device, reduce }
    }

    /// The scores of outputs of all rows of `rank`, after this epoch.
    pub(crate) fn scores(&self, metric: &'static Metric, rank: &Rank, outputs: &Matrix, epoch: u64) -> Result<Scores> {
        let reduce = rank.reduce(Total::Metrics);
        self.scoring(metric, rank.device(), &*reduce).scores(&Logits::of(outputs)?, &self.parts, epoch)
    }

    /// This rank's part of the loss: the sum over ranks is the mean over all known labels of rows learned from.
    pub(crate) fn loss(&self, tape: &mut Tape, outputs: &Var) -> Result<Var> {
        // Where no label is known on any rank, the loss is nothing, not nothing divided by nothing.
        let total = if self.total > 0.0 { self.total } else { 1.0 };
        self.targets.loss(tape, outputs, &self.rows, total)
    }
}

impl Objective for Supervision {
    fn loss(&self, tape: &mut Tape, outputs: &Var, _draw: Draw) -> Result<Var> {
        self.loss(tape, outputs)
    }

    fn fixed(&self) -> Option<Fixed<'_>> {
        Some(Fixed { rows: &self.rows, total: self.total })
    }
}

fn no_parts() -> [SplitPart; 3] {
    [(); 3].map(|()| SplitPart { rows: Vec::new(), places: Vec::new(), total: 0 })
}

fn loss_device<'a>(shard: &'a Shard, data: &Data) -> LossDevice<'a> {
    LossDevice { device: shard.device(), rows: shard.outputs(), labels: data.classes, dtype: shard.dtype.compute() }
}

/// Fails unless there is something to learn from and to choose by.
pub(crate) fn check_split(split: &Split) -> Result<()> {
    if let Some((name, _)) = split.parts().into_iter().take(2).find(|(_, ids)| ids.is_empty()) {
        let problem = format!("split {:?} has nothing in {name}", split.name);
        return Err(Error::setting("data.split", problem, "choose another one"));
    }
    Ok(())
}

/// An error about a part of a split: one of the data's, or one that was made for the run.
fn bad_part(split: &Split, part: &str, data: &Data, problem: String, remedy: &str) -> Error {
    let own = data.splits.iter().any(|s| s.name == split.name);
    let file = format!("split/{}/{part}.npy", split.name);
    let lacks = data.lacks(&file, part, &problem, remedy).filter(|_| own);
    lacks.unwrap_or_else(|| Error::setting("data.split", problem, remedy))
}

/// Fails unless some label to learn from and some to choose by is known, and says whether one to report on is.
pub(crate) fn check_labels(split: &Split, data: &Data) -> Result<bool> {
    if let Some((name, _)) = split.parts().into_iter().take(2).find(|(_, ids)| ids.is_empty()) {
        let what = if data.graphs.is_some() { "graph" } else { "node" };
        let problem = format!("split {:?} has no {what} in {name}", split.name);
        return Err(bad_part(split, name, data, problem, "choose another split"));
    }
    if !data.links.is_empty() {
        return Ok(!split.test.is_empty());
    }
    let labels = data.labels()?.view();
    let known = |ids: &[i64]| ids.iter().any(|id| data.task.known(labels, *id as usize, data.classes) > 0);
    let parts = split.parts();
    if let Some((name, _)) = parts.iter().take(2).find(|(_, ids)| !known(ids)) {
        let problem = format!("no label is known in {name} of split {:?} of {}", split.name, data.name);
        return Err(bad_part(split, name, data, problem, "choose another split, or complete label.npy"));
    }
    Ok(known(parts[2].1))
}
