//! Learning links from the whole graph: exact.
//!
//! A pair scores z_i·z_j, and the loss is Σ log(1 + e^−s) over the links of training plus the mean of log(1 + e^s) over
//! the k pairs that stand against each of them, all divided by the number of links. These are drawn anew in every
//! epoch, by (seed, epoch, number of the link, k): from all pairs of nodes, but for those that are links of training
//! and pairs of a node with itself ([`others`]). So they are the same on any ranks. Pairs have no direction.
//!
//! With several ranks each has all rows of z for the loss and takes an equal share of the pairs: pairs that are drawn
//! from everywhere name nearly every node on every rank. Forward moves N·(P − 1) rows in all, backward as many.
//!
//! Scores compare the links of a part with the pairs that the split gives against them or, where it gives none, with as
//! many that are drawn once; of the links of training as many are scored as there are to choose by. They are computed
//! in f64, every rank some of them, and put together in the order of the split: a metric sees the same list on any
//! ranks. Ranks get some columns of all rows after others, as many as [`LOT`] has room for: what a score takes beside
//! the pairs does not grow with N × columns.

mod others;

use std::ops::Range;
use std::rc::Rc;

use graphweft_base::Error as Bad;
use graphweft_graph::dataset::LinkSplit;
use graphweft_model::Total;
use graphweft_parallel::{Strategy, all_rows};
use graphweft_tensor::ops::combine::columns;
use graphweft_tensor::ops::head_dot::head_dot;
use graphweft_tensor::ops::loss::{LossRows, binary_cross_entropy};
use graphweft_tensor::ops::product::product;
use graphweft_tensor::ops::rows::{RowIndex, gather};
use graphweft_tensor::{DType, Error as Computation, Matrix, Tag, Tape, Var};
use rayon::prelude::*;

use crate::config::Config;
use crate::data::Data;
use crate::epochs::learner::{Draw, Fixed, Learner, Objective, Phases, Report};
use crate::epochs::source::{EpochInputs, EpochSource, Purpose, TakeOutputs};
use crate::error::{Error, Result};
use crate::ranks::rank::Rank;
use crate::ranks::shard::Shard;
use crate::run::checkpoint::Scores;
use crate::task::metrics::{Measure, Metric, Scale};
use others::{Key, Others};

/// Bytes of the columns that are looked at together while pairs are scored.
const LOT: usize = 1 << 26;

/// A rank's rows of the whole graph, with the links that all ranks learn from.
pub(crate) struct LinkGraph {
    shard: Shard,
    /// Not where outputs alone are asked for.
    pairs: Option<Pairs>,
}

/// The links of a split, as every rank has them.
struct Pairs {
    split: LinkSplit,
    /// Where the rows of nodes are among those of all ranks.
    places: Places,
    /// What pairs against links are drawn from.
    others: Others,
    /// Pairs against each link.
    negatives: u64,
    dtype: DType,
    rank: Rank,
    counts: Rc<[usize]>,
}

/// For every node the row that it has; nothing where that is its id.
struct Places(Option<Vec<u32>>);

impl Places {
    fn of(&self, id: u64) -> u32 {
        self.0.as_ref().map_or(id as u32, |places| places[id as usize])
    }
}

/// The part that is reported on, as pairs against it are drawn.
const TEST: u64 = 2;

impl Data {
    /// The links that a split reports on and the pairs that stand against them when they are scored, each with a pair
    /// after the other.
    ///
    /// # Errors
    /// If there is no such split of links, or no pair that is none.
    pub fn tested_pairs(&self, split: &str) -> Result<[Vec<i64>; 2]> {
        let split = self.link_split(split)?;
        let against = self.others(split)?.against(split.test_neg.as_deref(), split.test.len() / 2, TEST);
        Ok([split.test.to_vec(), against])
    }

    /// The pairs that are no links of training.
    fn others(&self, split: &LinkSplit) -> Result<Others> {
        let others = Others::new(self.graph.num_dst() as u64, &split.train);
        if others.count() == 0 {
            let what = format!("all pairs of nodes of {} are links of training", self.name);
            let remedy = "learn from a graph in which some pairs are no links";
            return Err(Bad::request(what, remedy).into());
        }
        Ok(others)
    }
}

impl LinkGraph {
    /// Those of `rank`.
    ///
    /// # Errors
    /// If the strategy is none for links, or no pairs are left to stand against them.
    pub(crate) fn new(rank: &Rank, inputs: &EpochInputs<'_>) -> Result<Self> {
        let EpochInputs { config, plan, data, graph, .. } = *inputs;
        if matches!(plan.strategy, Strategy::Pipeline(_) | Strategy::Isolated(_)) {
            let problem = format!("{} does not learn links", plan.strategy);
            return Err(Error::setting("parallel.strategy", problem, "choose an exact one, or auto"));
        }
        let shard = match inputs.purpose {
            Purpose::Rehearse(shared) => Shard::with_layout(rank, data, graph, &plan.strategy, shared.layout, config)?,
            _ => Shard::new(rank, data, graph, plan, config)?,
        };
        let split = match inputs.purpose {
            Purpose::Train(split) | Purpose::Evaluate(split) => Some(data.link_split(&split.name)?),
            Purpose::Rehearse(shared) => match shared.split {
                Some(split) => Some(data.link_split(&split.name)?),
                None => data.links.first(),
            },
            Purpose::Predict => None,
        };
        let pairs = split.map(|split| Pairs::new(&shard, data, split.clone(), config)).transpose()?;
        Ok(Self { shard, pairs })
    }

    fn pairs(&self) -> Result<&Pairs> {
        let problem = || Computation::Argument { op: "links", problem: "it is for outputs alone".into() };
        Ok(self.pairs.as_ref().ok_or_else(problem)?)
    }
}

impl EpochSource for LinkGraph {
    fn learner(&self, config: &Config) -> Result<Learner> {
        Learner::new(&self.shard.rank, self.shard.shape, config)
    }

    fn learn(&mut self, learner: &mut Learner, epoch: u64, lr: f64, phase: Phases<'_>) -> Result<Report> {
        learner.learn(&self.shard, self.pairs()?, epoch, lr, phase)
    }

    fn scores(&mut self, learner: &Learner, metric: &'static Metric, epoch: u64) -> Result<Scores> {
        self.pairs()?.scores(metric, &learner.logits(&self.shard)?, epoch)
    }

    fn predict(&self, learner: &Learner, _scored: Option<u64>, take: TakeOutputs<'_>) -> Result<()> {
        let rows = learner.logits(&self.shard)?;
        match self.shard.collect(&rows)? {
            Some(all) => take(rows.cols(), &mut std::iter::once(Ok(all))),
            None => Ok(()),
        }
    }

    fn rehearse_scores(&self, learner: &Learner) -> Result<()> {
        let rows = learner.logits(&self.shard)?;
        self.pairs()?.by_columns(&rows, |_| Ok(()))
    }
}

impl Pairs {
    fn new(shard: &Shard, data: &Data, split: LinkSplit, config: &Config) -> Result<Self> {
        let others = data.others(&split)?;
        let places = shard.originals().map(|originals| {
            let mut places = vec![0u32; originals.len()];
            originals.iter().enumerate().for_each(|(place, id)| places[*id as usize] = place as u32);
            places
        });
        Ok(Self {
            split,
            places: Places(places),
            others,
            negatives: config.train.negatives,
            dtype: shard.dtype.compute(),
            rank: shard.rank.clone(),
            counts: shard.counts(),
        })
    }

    /// This rank's share of so many.
    fn own(&self, count: usize) -> Range<usize> {
        let (rank, ranks) = (self.rank.index(), self.rank.count());
        rank * count / ranks..(rank + 1) * count / ranks
    }

    /// The rows of all ranks.
    fn gathered(&self, tape: &mut Tape, rows: &Var) -> Result<Var> {
        match self.rank.link() {
            Some(link) => Ok(all_rows(tape, link, "links", rows, &self.counts)?),
            None => Ok(rows.clone()),
        }
    }

    /// Gives `take` all rows for scores, in f64: so many columns of them after others.
    fn by_columns(&self, rows: &Matrix, mut take: impl FnMut(&Matrix) -> Result<()>) -> Result<()> {
        let nodes = self.counts.iter().sum::<usize>().max(1);
        let width = (LOT / (size_of::<f64>() * nodes)).clamp(1, rows.cols().max(1));
        for first in (0..rows.cols()).step_by(width) {
            let range = first..rows.cols().min(first + width);
            let mut tape = Tape::without_gradients(rows.device());
            let some = tape.constant(rows.clone());
            let some = if range.len() < rows.cols() { columns(&mut tape, &some, range.clone())? } else { some };
            let all = self.gathered(&mut tape, &some)?;
            let wide = rows.device().convert("metrics", all.value(), DType::F64)?;
            drop((tape, some, all));
            take(&wide)?;
        }
        Ok(())
    }

    fn scores(&self, metric: &'static Metric, rows: &Matrix, epoch: u64) -> Result<Scores> {
        let split = &self.split;
        let some = some_of(&split.train, split.valid.len() / 2);
        let valid_neg = self.others.against(split.valid_neg.as_deref(), split.valid.len() / 2, 1);
        let test_neg = self.others.against(split.test_neg.as_deref(), split.test.len() / 2, TEST);
        let train_neg = self.others.against(None, some.len() / 2, 0);
        let lists = [&some, &train_neg, &split.valid[..], &valid_neg, &split.test[..], &test_neg];
        let [train, train_neg, valid, valid_neg, test, test_neg] = self.ranked(rows, lists)?;
        let parts = [(train, train_neg), (valid, valid_neg), (test, test_neg)];
        let [train, valid, test] = parts.map(|(positive, negative)| Scored { positive, negative });
        // Every rank has the same list.
        let lost = [&train, &valid, &test].iter().map(|part| part.not_finite()).sum::<usize>();
        if lost > 0 {
            return Err(Error::NotScored { nodes: lost as u64 });
        }
        let score = |of: &Scored| of.score(metric);
        Ok(Scores { epoch, train: score(&train), valid: score(&valid), test: score(&test), valid_loss: valid.loss() })
    }

    /// The scores of lists of pairs.
    fn ranked<const K: usize>(&self, rows: &Matrix, lists: [&[i64]; K]) -> Result<[Vec<f64>; K]> {
        let own = lists.map(|pairs| self.own(pairs.len() / 2));
        let mut found = own.clone().map(|own| vec![0.0; own.len()]);
        let places = &self.places;
        self.by_columns(rows, |some| {
            let (all, cols) = (some.to_vec::<f64>()?, some.cols());
            let row = |id: i64| &all[places.of(id as u64) as usize * cols..][..cols];
            for ((found, own), pairs) in found.iter_mut().zip(&own).zip(lists) {
                found.par_iter_mut().zip(own.clone()).for_each(|(score, k)| {
                    let products = row(pairs[2 * k]).iter().zip(row(pairs[2 * k + 1])).map(|(a, b)| a * b);
                    // Column after column, however many there are at a time.
                    *score = products.fold(*score, |sum, product| sum + product);
                });
            }
            Ok(())
        })?;
        let mut scores = lists.map(|pairs| vec![0.0; pairs.len() / 2]);
        for ((scores, own), found) in scores.iter_mut().zip(own).zip(found) {
            scores[own].copy_from_slice(&found);
            // Nobody has a part of an empty list.
            if !scores.is_empty() {
                *scores = self.rank.sum(Total::Metrics, scores)?;
            }
        }
        Ok(scores)
    }
}

/// So many pairs at most, spread evenly.
fn some_of(pairs: &[i64], most: usize) -> Vec<i64> {
    let count = pairs.len() / 2;
    let taken = count.min(most);
    (0..taken).flat_map(|k| pairs[2 * (k * count / taken)..][..2].to_vec()).collect()
}

/// Scores of a part.
struct Scored {
    positive: Vec<f64>,
    negative: Vec<f64>,
}

impl Scored {
    fn not_finite(&self) -> usize {
        self.positive.iter().chain(&self.negative).filter(|score| !score.is_finite()).count()
    }

    fn score(&self, metric: &Metric) -> f64 {
        let kinds = [(&self.positive, true), (&self.negative, false)];
        let list: Vec<(f64, bool)> = kinds.iter().flat_map(|(all, kind)| all.iter().map(|s| (*s, *kind))).collect();
        let found = match metric.measure {
            Measure::Ranking { score, .. } => score(&list).unwrap_or(f64::NAN),
            Measure::Sums { .. } => f64::NAN,
        };
        if metric.scale == Scale::PerCent { 100.0 * found } else { found }
    }

    /// The mean over links plus the mean over pairs against them.
    fn loss(&self) -> f64 {
        let softplus = |x: f64| x.max(0.0) + (-x.abs()).exp().ln_1p();
        let mean = |all: &[f64], sign: f64| all.iter().map(|x| softplus(sign * x)).sum::<f64>() / all.len() as f64;
        mean(&self.positive, -1.0) + mean(&self.negative, 1.0)
    }
}

impl Objective for Pairs {
    fn loss(&self, tape: &mut Tape, outputs: &Var, draw: Draw) -> Result<Var> {
        let device = tape.device().clone();
        let links = self.split.train.len() / 2;
        let own = self.own(links);
        let (k, others) = (self.negatives as usize, &self.others);
        let positive = own.clone().map(|link| [2 * link, 2 * link + 1].map(|at| self.split.train[at] as u64));
        let keys = (0..own.len() * k).into_par_iter();
        let drawn: Vec<[u64; 2]> =
            keys.map(|at| others.drawn(Key { draw, link: (own.start + at / k) as u64, k: (at % k) as u64 })).collect();
        let pairs: Vec<[u64; 2]> = positive.chain(drawn).collect();
        let all = self.gathered(tape, outputs)?;
        let end = |tape: &mut Tape, end: usize| -> Result<Var> {
            let index = pairs.iter().map(|pair| self.places.of(pair[end])).collect();
            let index = Rc::new(RowIndex::drawn(&device, all.value().rows(), index)?);
            Ok(gather(tape, &all, &index)?)
        };
        let (heads, tails) = (end(tape, 0)?, end(tape, 1)?);
        let both = product(tape, &heads, 0.0, &tails)?;
        let constant = |rows, cols, values: &[f32]| -> Result<Matrix> {
            let m = device.upload_from(rows, cols, Tag::Workspace, || values)?;
            Ok(if self.dtype == DType::F32 { m } else { device.convert("links", &m, self.dtype)? })
        };
        let ones = tape.constant(constant(1, all.value().cols(), &vec![1.0; all.value().cols()])?);
        let [scores] = head_dot(tape, &both, [&ones])?;
        let is_link = |at: usize| at < own.len();
        let targets: Vec<f32> = (0..pairs.len()).map(|at| f32::from(u8::from(is_link(at)))).collect();
        let weights: Vec<f32> = (0..pairs.len()).map(|at| if is_link(at) { 1.0 } else { 1.0 / k as f32 }).collect();
        let rows = LossRows::weighted((0..pairs.len() as u32).collect::<Vec<_>>(), weights)?;
        Ok(binary_cross_entropy(tape, &scores, &constant(pairs.len(), 1, &targets)?, &rows, links as f64)?)
    }

    fn fixed(&self) -> Option<Fixed<'_>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use graphweft_tensor::gradcheck::{check, numbers};
    use graphweft_tensor::{Device, Error as Computed};

    use super::*;

    fn pairs(device: &Device, train: &[i64], nodes: u64, negatives: u64) -> Pairs {
        let none = || Vec::new().into();
        let split = LinkSplit {
            name: "own".into(),
            train: train.to_vec().into(),
            valid: none(),
            test: none(),
            valid_neg: None,
            test_neg: None,
        };
        let others = Others::new(nodes, train);
        let (rank, counts) = (Rank::alone(device), [nodes as usize].into());
        Pairs { split, places: Places(None), others, negatives, dtype: DType::F64, rank, counts }
    }

    #[test]
    fn the_loss_is_the_mean_over_links_plus_the_mean_over_pairs_against_them_with_its_gradient() {
        let device = Device::cpu();
        let train = [0, 1, 1, 2, 3, 4, 0, 4];
        let pairs = pairs(&device, &train, 7, 3);
        let (width, draw) = (4, Draw { seed: 3, epoch: 2 });
        let values = numbers(5, 7 * width);
        let z = device.upload(7, width, &values, Tag::Activations).unwrap();
        let mut tape = Tape::without_gradients(&device);
        let x = tape.constant(z.clone());
        let found = pairs.loss(&mut tape, &x, draw).unwrap().value().to_vec::<f64>().unwrap()[0];
        let row = |i: u64| &values[i as usize * width..][..width];
        let score = |[i, j]: [u64; 2]| row(i).iter().zip(row(j)).map(|(a, b)| a * b).sum::<f64>();
        let links: f64 = train.chunks(2).map(|p| (1.0 + (-score([p[0] as u64, p[1] as u64])).exp()).ln()).sum();
        let keys = (0..4).flat_map(|link| (0..3).map(move |k| Key { draw, link, k }));
        let others: f64 = keys.map(|key| (1.0 + score(pairs.others.drawn(key)).exp()).ln()).sum();
        let wanted = links / 4.0 + others / 12.0;
        // Weights of pairs are f32.
        assert!((found - wanted).abs() < 1e-7, "{found} {wanted}");
        let loss = |tape: &mut Tape, x: &[Var]| {
            let failed = |e: Error| Computed::Argument { op: "links", problem: e.to_string() };
            pairs.loss(tape, &x[0], draw).map_err(failed)
        };
        check(&device, &[z], &[], loss).unwrap();
    }

    #[test]
    fn of_the_links_of_training_some_are_scored_evenly() {
        let all: Vec<i64> = (0..20).collect();
        assert_eq!(some_of(&all, 3), [0, 1, 6, 7, 12, 13]);
        assert_eq!(some_of(&all, 30), all);
        assert!(some_of(&[], 3).is_empty());
    }
}
