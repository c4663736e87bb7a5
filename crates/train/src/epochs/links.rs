//! Learning links from the whole graph: exact.
//!
//! A pair scores z_i·z_j, and the loss is Σ log(1 + e^−s) over the links of training plus the mean of log(1 + e^s) over
//! the k pairs that stand against each of them, all divided by the number of links. These are drawn anew in every
//! epoch, by (seed, epoch, number of the link, k): from all pairs of nodes, but for those that are links of training
//! and pairs of a node with itself. So they are the same on any ranks. (A draw that fails 32 times stays as it is.)
//! Pairs have no direction.
//!
//! With several ranks each has all rows of z for the loss and takes an equal share of the pairs: pairs that are drawn
//! from everywhere name nearly every node on every rank. Forward moves N·(P − 1) rows in all, backward as many.
//!
//! Scores compare the links of a part with the pairs that the split gives against them or, where it gives none, with as
//! many that are drawn once; of the links of training as many are scored as there are to choose by. They are computed
//! in f64, every rank some of them, and put together in the order of the split: a metric sees the same list on any
//! ranks.

use std::ops::Range;
use std::rc::Rc;

use graphweft_base::Error as Bad;
use graphweft_base::random::{Philox, join, scale};
use graphweft_graph::dataset::LinkSplit;
use graphweft_model::Total;
use graphweft_parallel::{Strategy, all_rows};
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

/// Keeps the draws apart from others of the same seed.
const STREAM: u64 = 0x11_4b << 48;
/// Draws before one is taken as it is.
const ATTEMPTS: u64 = 32;

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

/// The pairs of nodes that are no links of training.
struct Others {
    nodes: u64,
    /// Links of training, the lower id first, in order.
    known: Vec<[u32; 2]>,
}

/// The part that is reported on, as pairs against it are drawn.
const TEST: u64 = 2;

impl Data {
    /// The links that a split reports on and the pairs that stand against them when they are scored, each with a pair
    /// after the other.
    ///
    /// # Errors
    /// If there is no such split of links.
    pub fn tested_pairs(&self, split: &str) -> Result<[Vec<i64>; 2]> {
        let split = self.link_split(split)?;
        let against = Others::new(self, split)?.against(split.test_neg.as_deref(), split.test.len() / 2, TEST);
        Ok([split.test.to_vec(), against])
    }
}

impl Others {
    /// Of the nodes of these data.
    ///
    /// # Errors
    /// If hardly any pair is left.
    fn new(data: &Data, split: &LinkSplit) -> Result<Self> {
        let nodes = data.graph.num_dst() as u64;
        let mut known: Vec<[u32; 2]> = split.train.chunks_exact(2).map(|pair| ordered(pair[0], pair[1])).collect();
        known.par_sort_unstable();
        known.dedup();
        let all = nodes as f64 * (nodes as f64 - 1.0) / 2.0;
        if known.len() as f64 > MOST_LINKS * all {
            let what = format!("{} of {all} pairs of nodes of {} are links", known.len(), data.name);
            let remedy = "learn from a graph in which some pairs are no links";
            return Err(Bad::request(what, remedy).into());
        }
        Ok(Self { nodes, known })
    }

    /// The pairs that stand against `positives` of a part where the split gives none.
    fn against(&self, given: Option<&[i64]>, positives: usize, part: u64) -> Vec<i64> {
        let draw =
            |link: usize| self.drawn(Key { draw: Draw { seed: 0, epoch: u64::MAX >> 8 }, link: link as u64, k: part });
        match given {
            Some(given) => given.to_vec(),
            None => (0..positives).flat_map(draw).map(|id| id as i64).collect(),
        }
    }

    /// A pair against a link.
    fn drawn(&self, key: Key) -> [u64; 2] {
        let Key { draw: Draw { seed, epoch }, link, k } = key;
        let random = Philox::new(seed, STREAM ^ (epoch << 8 | k));
        let draw = |attempt: u64| {
            let [a, b, c, d] = random.words(link * ATTEMPTS + attempt);
            [scale(join(a, b), self.nodes), scale(join(c, d), self.nodes)]
        };
        let is_link = |[i, j]: [u64; 2]| self.known.binary_search(&ordered(i as i64, j as i64)).is_ok();
        let mut drawn = (0..ATTEMPTS).map(draw);
        drawn.find(|pair| pair[0] != pair[1] && !is_link(*pair)).unwrap_or_else(|| draw(ATTEMPTS - 1))
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
        self.pairs()?.all(&rows).map(drop)
    }
}

/// What a pair that stands against a link is drawn by.
#[derive(Clone, Copy)]
struct Key {
    draw: Draw,
    /// The number of the link.
    link: u64,
    /// Which of the pairs against it.
    k: u64,
}

impl Pairs {
    fn new(shard: &Shard, data: &Data, split: LinkSplit, config: &Config) -> Result<Self> {
        let others = Others::new(data, &split)?;
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

    /// The same for scores, on the host.
    fn all(&self, rows: &Matrix) -> Result<Matrix> {
        let mut tape = Tape::without_gradients(rows.device());
        let rows = tape.constant(rows.clone());
        Ok(self.gathered(&mut tape, &rows)?.value().clone())
    }

    fn scores(&self, metric: &'static Metric, rows: &Matrix, epoch: u64) -> Result<Scores> {
        let all = self.all(rows)?;
        let all = all.device().convert("metrics", &all, DType::F64)?.to_vec::<f64>()?;
        let score = |of: &Scored| of.score(metric);
        let part = |k: u64, positives: Vec<i64>, given: Option<&[i64]>| -> Result<Scored> {
            let negatives = self.others.against(given, positives.len() / 2, k);
            Ok(Scored { positive: self.ranked(&all, &positives)?, negative: self.ranked(&all, &negatives)? })
        };
        let split = &self.split;
        let train = part(0, some_of(&split.train, split.valid.len() / 2), None)?;
        let valid = part(1, split.valid.to_vec(), split.valid_neg.as_deref())?;
        let test = part(TEST, split.test.to_vec(), split.test_neg.as_deref())?;
        // Every rank has the same list.
        let lost = [&train, &valid, &test].iter().map(|part| part.not_finite()).sum::<usize>();
        if lost > 0 {
            return Err(Error::NotScored { nodes: lost as u64 });
        }
        Ok(Scores { epoch, train: score(&train), valid: score(&valid), test: score(&test), valid_loss: valid.loss() })
    }

    /// The scores of pairs, from the rows of all nodes.
    fn ranked(&self, all: &[f64], pairs: &[i64]) -> Result<Vec<f64>> {
        let count = pairs.len() / 2;
        if count == 0 {
            return Ok(Vec::new());
        }
        let (cols, places) = (all.len() / (self.others.nodes as usize).max(1), &self.places);
        let row = |id: i64| &all[places.of(id as u64) as usize * cols..][..cols];
        let one = |k: usize| row(pairs[2 * k]).iter().zip(row(pairs[2 * k + 1])).map(|(a, b)| a * b).sum::<f64>();
        let mut scores = vec![0.0; count];
        let own = self.own(count);
        scores[own.clone()].par_iter_mut().zip(own).for_each(|(score, k)| *score = one(k));
        self.rank.sum(Total::Metrics, &scores)
    }
}

/// More than this share of all pairs cannot be links.
const MOST_LINKS: f64 = 0.9;

fn ordered(i: i64, j: i64) -> [u32; 2] {
    [i.min(j) as u32, i.max(j) as u32]
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
        let mut known: Vec<[u32; 2]> = train.chunks(2).map(|pair| ordered(pair[0], pair[1])).collect();
        known.sort_unstable();
        let (rank, counts) = (Rank::alone(device), [nodes as usize].into());
        let (places, others) = (Places(None), Others { nodes, known });
        Pairs { split, places, others, negatives, dtype: DType::F64, rank, counts }
    }

    #[test]
    fn what_is_drawn_is_no_link_and_depends_on_the_key_alone() {
        let device = Device::cpu();
        let train: Vec<i64> = (0..12).flat_map(|i| [i, (i + 1) % 12]).collect();
        let pairs = pairs(&device, &train, 12, 3);
        let mut seen = vec![0; 144];
        for epoch in 0..40 {
            for link in 0..12 {
                for k in 0..3 {
                    let key = Key { draw: Draw { seed: 7, epoch }, link, k };
                    let [i, j] = pairs.others.drawn(key);
                    assert!(i != j && i < 12 && j < 12 && (i + 1) % 12 != j && (j + 1) % 12 != i, "{i} {j}");
                    assert_eq!(pairs.others.drawn(key), [i, j]);
                    seen[(12 * i + j) as usize] += 1;
                }
            }
        }
        // 108 pairs may be drawn, 1440 draws were made.
        let drawn: Vec<u32> = seen.into_iter().filter(|count| *count > 0).collect();
        assert!(drawn.len() == 108 && drawn.iter().all(|count| *count < 40), "{drawn:?}");
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
