//! Predictions that are spread over the graph after a run: correct and smooth, and label propagation.
//!
//! Nothing is learned. S is one linear operator over edges, in the [weights](Weights) that are asked for, and G ←
//! clamp((1 − α)·G⁰ + α·SG) is done a fixed number of times: never until it changes little, which would depend on the
//! order of sums. With Z the shares that a model gives to the classes and Y those that are known:
//!
//! * *correct*: E⁰ = Y − Z where a label is known, 0 elsewhere, spread within [−1, 1]. Rows of what it becomes are
//!   brought to the mean length of the known errors, and added to Z. (A factor beyond 1000, or of a row of zeros, is
//!   1.)
//! * *smooth*: G⁰ = Y where a label is known, Z elsewhere, spread within [0, 1].
//! * *label propagation*: the second of these with 0 in place of Z.
//!
//! It is Huang, He, Singh, Lim and Benson's ("Combining label propagation and simple models out-performs graph neural
//! networks"), with PyTorch Geometric's `CorrectAndSmooth` and `LabelPropagation`.
//!
//! Labels that are known are those of the training nodes and, where that is asked for, of the validation nodes; these
//! are then scored as if theirs were not. Labels of test nodes are only scored by. All is done in f64: a step sends
//! what one aggregation of as many columns as there are classes sends; the mean length is one sum over ranks.

use std::sync::Arc;

use graphweft_base::Error as Bad;
use graphweft_base::progress::Progress;
use graphweft_model::{Aggregation, EdgeWeight, GraphOps, Total};
use graphweft_tensor::cpu::{host, host_mut};
use graphweft_tensor::ops::custom::{Kernel, custom};
use graphweft_tensor::{DType, Matrix, Tag, Tape};
use rayon::prelude::*;

use crate::data::Data;
use crate::epochs::source::{EpochInputs, Purpose};
use crate::epochs::whole_graph::WholeGraph;
use crate::error::{Error, Result};
use crate::planning::plan::Plan;
use crate::ranks::once_per_rank::OncePerRank;
use crate::ranks::rank::Rank;
use crate::ranks::shard::{Shard, graph_ops};
use crate::ranks::world::World;
use crate::run::checkpoint::Scores;
use crate::run::inference::Trained;
use crate::task::Supervision;
use crate::task::metrics::Metric;

/// What is spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// What a model says, after its errors.
    CorrectAndSmooth,
    /// Known labels alone.
    LabelPropagation,
}

/// What an edge j → i counts in S; d are in-degrees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weights {
    /// 1/√(d_i·d_j).
    Symmetric,
    /// 1/d_i: a mean over neighbours.
    Row,
    /// 1/d_j: a node divides what it has among its neighbours.
    Column,
}

/// Whose labels are taken as known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Those of training nodes.
    Train,
    /// Those of validation nodes too.
    TrainAndValid,
}

/// How predictions are spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Smoothing {
    /// What is spread.
    pub method: Method,
    /// α of errors.
    pub correct: f64,
    /// α of shares.
    pub smooth: f64,
    /// How often.
    pub steps: u32,
    /// What edges count.
    pub weights: Weights,
    /// Whose labels are known.
    pub known: Known,
}

impl Default for Smoothing {
    fn default() -> Self {
        Self {
            method: Method::CorrectAndSmooth,
            correct: 0.87,
            smooth: 0.81,
            steps: 50,
            weights: Weights::Symmetric,
            known: Known::Train,
        }
    }
}

impl Smoothing {
    fn check(&self) -> Result<()> {
        for (name, share) in [("--correct", self.correct), ("--smooth", self.smooth)] {
            if !(0.0..=1.0).contains(&share) {
                return Err(Error::setting(name, format!("{share} is no share"), "set 0 to 1"));
            }
        }
        match self.steps {
            0 => Err(Error::setting("--steps", "without a step nothing is spread", "set 1 or more")),
            _ => Ok(()),
        }
    }
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Smoothed {
    /// What was scored.
    pub metric: &'static Metric,
    /// The split.
    pub split: String,
    /// The scores of the model.
    pub before: Scores,
    /// Those of what its predictions have become.
    pub after: Scores,
    /// The share of every class, row by row in original ids, and how many there are; nothing in a process that does not
    /// lead.
    pub shares: Option<(Vec<f64>, usize)>,
}

impl Trained {
    /// Spreads what the model says of all nodes over the graph.
    ///
    /// # Errors
    /// If the data have no classes, or the model is not for them.
    pub fn smooth(
        self: &Arc<Self>,
        world: &World,
        data: &Arc<Data>,
        progress: &dyn Progress,
        how: Smoothing,
    ) -> Result<Smoothed> {
        how.check()?;
        if data.graphs.is_some() {
            let what = format!("{} has many graphs, of which nothing spreads from one to another", data.name);
            return Err(Bad::request(what, "smooth a model of nodes").into());
        }
        let (metric, split) = self.scored_by(data)?;
        data.task.classes(data.labels()?.view()).map_err(|why| {
            let remedy = "spread what was learned from one class per node";
            Error::from(Bad::request(format!("nodes of {} {why}", data.name), remedy))
        })?;
        let plan = Plan::shared_unplanned(&self.config, world, data, progress)?;
        let graph = data.graph_for(&self.config.model, self.config.run.seed)?;
        let (trained, data, name) = (Arc::clone(self), Arc::clone(data), split.name.clone());
        let graph = OncePerRank::new(graph, world.ranks_inside());
        let (before, after, shares) = world.run(move |rank| {
            let whole = graph.take()?;
            let source = {
                let (config, plan, data, graph) = (&trained.config, &plan, &data, &whole);
                let (purpose, folder) = (Purpose::Evaluate(&split), &std::env::temp_dir());
                WholeGraph::new(rank, &EpochInputs { config, plan, data, graph, chunks: None, purpose, folder })?
            };
            drop(whole);
            let learner = trained.learner(&source)?;
            let logits = learner.logits(source.shard())?;
            drop(learner);
            let ops = graph_ops(rank, &data, &plan)?;
            let rows =
                OwnRows { rank, shard: source.shard(), supervision: source.supervision()?, ops: &*ops, data: &data };
            rows.scored(metric, &logits, how)
        })?;
        Ok(Smoothed { metric, split: name, before, after, shares })
    }
}

/// What a rank has.
struct OwnRows<'a> {
    rank: &'a Rank,
    shard: &'a Shard,
    supervision: &'a Supervision,
    /// Over the edges of the data alone.
    ops: &'a dyn GraphOps,
    data: &'a Data,
}

/// The scores before and after, and all shares where the rank leads.
type Scored = (Scores, Scores, Option<(Vec<f64>, usize)>);

impl OwnRows<'_> {
    fn scored(&self, metric: &'static Metric, logits: &Matrix, how: Smoothing) -> Result<Scored> {
        let before = self.supervision.scores(metric, self.rank, logits, 0)?;
        let cols = logits.cols();
        let shares = softmax(self.rank.device().convert("smooth", logits, DType::F64)?.to_vec()?, cols);
        let classes = self.supervision.labels();
        let classes = self.data.task.classes(classes).unwrap_or_default();
        let [train, valid, _] = &self.supervision.parts;
        let labelled = |rows: &[u32]| -> Vec<(usize, usize)> {
            let class = |row: &u32| Some((*row as usize, usize::try_from(*classes.get(*row as usize)?).ok()?));
            rows.iter().filter_map(class).collect()
        };
        let of_train = labelled(&train.rows);
        let alone = self.spread(&shares, cols, &of_train, how)?;
        let mut after = self.score(metric, &alone, cols)?;
        let shares = match how.known {
            Known::Train => alone,
            Known::TrainAndValid => {
                let both = self.spread(&shares, cols, &[of_train, labelled(&valid.rows)].concat(), how)?;
                let with = self.score(metric, &both, cols)?;
                after = Scores { train: with.train, test: with.test, ..after };
                both
            }
        };
        let own = self.rank.device().upload(shares.len() / cols.max(1), cols, &shares, Tag::Activations)?;
        Ok((before, after, self.shard.collect_as(&own)?.map(|all| (all, cols))))
    }

    /// The scores of shares, by way of their logarithms.
    fn score(&self, metric: &'static Metric, shares: &[f64], cols: usize) -> Result<Scores> {
        let logits: Vec<f64> = shares.iter().map(|share| share.max(LEAST).ln()).collect();
        let m = self.rank.device().upload(shares.len() / cols.max(1), cols, &logits, Tag::Activations)?;
        self.supervision.scores(metric, self.rank, &m, 0)
    }

    /// What shares become where these rows are known to have these classes: rows that sum to 1.
    fn spread(&self, shares: &[f64], cols: usize, known: &[(usize, usize)], how: Smoothing) -> Result<Vec<f64>> {
        let mut start = match how.method {
            Method::CorrectAndSmooth => self.corrected(shares, cols, known, how)?,
            Method::LabelPropagation => vec![0.0; shares.len()],
        };
        for (row, class) in known {
            let row = &mut start[row * cols..][..cols];
            row.fill(0.0);
            row[*class] = 1.0;
        }
        let mut found = self.propagated(&start, cols, &Blend { alpha: how.smooth, least: 0.0, most: 1.0 }, how)?;
        for row in found.chunks_mut(cols.max(1)) {
            let sum: f64 = row.iter().sum();
            // What nothing has reached may be any class.
            let even = 1.0 / row.len() as f64;
            row.iter_mut().for_each(|share| *share = if sum > 0.0 { *share / sum } else { even });
        }
        Ok(found)
    }

    /// Shares without the errors that the neighbourhood has.
    fn corrected(&self, shares: &[f64], cols: usize, known: &[(usize, usize)], how: Smoothing) -> Result<Vec<f64>> {
        let mut errors = vec![0.0; shares.len()];
        for (row, class) in known {
            let places = row * cols..(row + 1) * cols;
            errors[places.clone()].iter_mut().zip(&shares[places]).for_each(|(error, share)| *error = -share);
            errors[row * cols + class] += 1.0;
        }
        let length = |row: &[f64]| row.iter().map(|x| x.abs()).sum::<f64>();
        let own: f64 = known.iter().map(|(row, _)| length(&errors[row * cols..][..cols])).sum();
        let sums = self.rank.sum(Total::Metrics, &[own, known.len() as f64])?;
        let mean = sums[0] / sums[1].max(1.0);
        let errors = self.propagated(&errors, cols, &Blend { alpha: how.correct, least: -1.0, most: 1.0 }, how)?;
        let mut corrected = shares.to_vec();
        for (row, errors) in corrected.chunks_mut(cols.max(1)).zip(errors.chunks(cols.max(1))) {
            let factor = mean / length(errors);
            let factor = if factor <= MOST { factor } else { 1.0 };
            row.iter_mut().zip(errors).for_each(|(share, error)| *share += factor * error);
        }
        Ok(corrected)
    }

    /// What rows become after all steps.
    fn propagated(&self, start: &[f64], cols: usize, blend: &Blend, how: Smoothing) -> Result<Vec<f64>> {
        let (device, rows) = (self.rank.device(), self.ops.rows());
        let upload = |x: &[f64], cols| device.upload(rows, cols, x, Tag::Activations);
        let (how_summed, weight) = match how.weights {
            Weights::Symmetric => (Aggregation::Sum, EdgeWeight::Symmetric),
            Weights::Row => (Aggregation::Mean, EdgeWeight::None),
            Weights::Column => (Aggregation::Sum, EdgeWeight::None),
        };
        let aggregate = |x: Matrix, how, weight| -> Result<Matrix> {
            let mut tape = Tape::without_gradients(device);
            let x = tape.constant(x);
            Ok(self.ops.aggregate(&mut tape, 0, &x, how, weight)?.value().clone())
        };
        let degrees = match how.weights {
            Weights::Column => Some(aggregate(upload(&vec![1.0; rows], 1)?, Aggregation::Sum, EdgeWeight::None)?),
            _ => None,
        };
        let start = upload(start, cols)?;
        let mut now = start.clone();
        for _ in 0..how.steps {
            let sources = match &degrees {
                Some(degrees) => custom(&DivideRows, &[&now, degrees], rows, cols)?,
                None => now,
            };
            let sums = aggregate(sources, how_summed, weight)?;
            now = custom(blend, &[&start, &sums], rows, cols)?;
        }
        Ok(now.to_vec()?)
    }
}

const OP: &str = "smooth";
/// Errors are not stretched by more.
const MOST: f64 = 1000.0;
/// Shares count as this much at least where their logarithm is taken.
const LEAST: f64 = 1e-12;

fn softmax(mut logits: Vec<f64>, cols: usize) -> Vec<f64> {
    for row in logits.chunks_mut(cols.max(1)) {
        let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        row.iter_mut().for_each(|x| *x = (*x - most).exp());
        let sum: f64 = row.iter().sum();
        row.iter_mut().for_each(|x| *x /= sum);
    }
    logits
}

/// clamp((1 − α)·start + α·sums).
struct Blend {
    alpha: f64,
    least: f64,
    most: f64,
}

impl Kernel for Blend {
    fn name(&self) -> &'static str {
        OP
    }

    fn compute(&self, from: &[&Matrix], to: &mut Matrix) -> graphweft_tensor::Result<()> {
        let (start, sums) = (host::<f64>(OP, "start", from[0])?, host::<f64>(OP, "sums", from[1])?);
        host_mut::<f64>(OP, "shares", to)?.par_iter_mut().zip(start).zip(sums).for_each(|((to, start), sum)| {
            *to = ((1.0 - self.alpha) * start + self.alpha * sum).clamp(self.least, self.most);
        });
        Ok(())
    }
}

/// Rows over what is in the only column of another matrix; nothing where that is 0.
struct DivideRows;

impl Kernel for DivideRows {
    fn name(&self) -> &'static str {
        "smooth: divide rows"
    }

    fn compute(&self, from: &[&Matrix], to: &mut Matrix) -> graphweft_tensor::Result<()> {
        let (rows, by) = (host::<f64>(OP, "rows", from[0])?, host::<f64>(OP, "degrees", from[1])?);
        let cols = to.cols().max(1);
        let all = host_mut::<f64>(OP, "shares", to)?.par_chunks_mut(cols).zip(rows.par_chunks(cols)).zip(by);
        all.for_each(|((to, row), by)| {
            let factor = if *by > 0.0 { 1.0 / by } else { 0.0 };
            to.iter_mut().zip(row).for_each(|(to, x)| *to = factor * x);
        });
        Ok(())
    }
}
