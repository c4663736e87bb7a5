//! Learning links from the whole graph: exact.
//!
//! A [decoder](graphweft_model::decoders) scores a link by the rows of its ends. It is [`learned`] from all
//! links at once, or from `train.batch` of them in each step, in an order that is drawn anew in every epoch: beside
//! [pairs](others) or [triples](corrupted) that are drawn against them by (seed, epoch, number of the link, k), from
//! all nodes as partners, or from [all pairs](all_pairs). So what is learned is the same on any ranks. Pairs have no
//! direction.
//!
//! What is known is [scored](scores) beside pairs that are none, or by [ranks](ranking) among all nodes. Rows of a
//! [`table`] are where they are needed: each rank has those of its nodes.

mod all_pairs;
mod corrupted;
mod known;
mod learned;
mod others;
mod ranking;
mod scores;
mod table;

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use graphweft_base::Error as Bad;
use graphweft_base::random::Philox;
use graphweft_graph::dataset::LinkSplit;
use graphweft_model::decoders::variational::means;
use graphweft_model::decoders::{Decoder, DecoderName, DecoderShape, HostDecoder};
use graphweft_model::{Init, Layer, Network, Shape};
use graphweft_parallel::{Strategy, all_rows};
use graphweft_tensor::{Error as Computation, Matrix, Tape, Var};

use crate::config::{Config, LinkConfig, LinkLoss};
use crate::data::Data;
use crate::epochs::learner::{Learner, Phases, Report, mean};
use crate::epochs::network::network_of;
use crate::epochs::source::{EpochInputs, EpochSource, Purpose, TakeOutputs};
use crate::epochs::watch::Watch;
use crate::error::{Error, Result};
use crate::ranks::rank::Rank;
use crate::ranks::shard::Shard;
use crate::run::checkpoint::Scores;
use crate::task::metrics::{Measure, Metric};
use corrupted::Corrupted;
use known::{Known, Question};
use learned::Step;
use others::{Others, TEST};
use scores::{ColumnsAtOnce, Scored};

/// Keeps the order of links apart from other draws of the same seed.
const ORDER: u64 = 0x11_4e << 48;

/// A rank's rows of the whole graph, with the links that all ranks learn from.
pub(crate) struct LinkGraph {
    shard: Shard,
    config: Config,
    relations: usize,
    /// That of the learner which was made last.
    decoder: RefCell<Option<Rc<dyn Decoder>>>,
    /// Not where outputs alone are asked for.
    links: Option<Links>,
    /// Where somebody watches how far ranks are.
    watch: Option<Arc<Watch>>,
}

/// The links of a split, as every rank has them.
struct Links {
    split: LinkSplit,
    config: LinkConfig,
    nodes: u64,
    /// 0 where links have none.
    relations: usize,
    /// Where the rows of nodes are among those of all ranks.
    places: Places,
    /// The original ids of this rank's rows.
    own_ids: Rc<[u64]>,
    /// What pairs against links are drawn from.
    others: Others,
    /// Pairs against each link.
    negatives: u64,
    /// Who is whose partner in training,
    trained: Known,
    /// and in all parts.
    known: Known,
    /// What is asked, where all partners of it are learned at once.
    questions: Vec<Question>,
    /// Of rows of relations.
    dropout: f64,
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
        let pairs = if split.width == 2 { &split.train[..] } else { &[] };
        let others = Others::new(self.graph.num_dst() as u64, pairs);
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
        check(&config.link, data)?;
        let mut shard = match inputs.purpose {
            Purpose::Rehearse(shared) => Shard::with_layout(rank, data, graph, &plan.strategy, shared.layout, config)?,
            _ => Shard::new(rank, data, graph, plan, config)?,
        };
        if config.link.variational {
            shard.shape.classes *= 2;
        }
        let split = match inputs.purpose {
            Purpose::Train(split) | Purpose::Evaluate(split) => Some(data.link_split(&split.name)?),
            Purpose::Rehearse(shared) => match shared.split {
                Some(split) => Some(data.link_split(&split.name)?),
                None => data.links.first(),
            },
            Purpose::Predict => None,
        };
        let links = split.map(|split| Links::new(&shard, data, split.clone(), config)).transpose()?;
        let (config, decoder) = (config.clone(), RefCell::new(None));
        Ok(Self { shard, config, relations: data.relations(), decoder, links, watch: None })
    }

    fn links(&self) -> Result<&Links> {
        let problem = || Computation::Argument { op: "links", problem: "it is for outputs alone".into() };
        Ok(self.links.as_ref().ok_or_else(problem)?)
    }

    /// That of the learner which was made last.
    fn decoder(&self) -> Result<Rc<dyn Decoder>> {
        let problem = || Computation::Argument { op: "links", problem: "there is no learner yet".into() };
        Ok(self.decoder.borrow().clone().ok_or_else(problem)?)
    }

    fn on_host(&self) -> Result<Box<dyn HostDecoder>> {
        Ok(self.decoder()?.on_host()?)
    }

    /// What is scored and predicted of what the model gives: of a variational one the means.
    fn rows(&self, learner: &Learner) -> Result<Matrix> {
        let outputs = learner.logits(&self.shard)?;
        if !self.config.link.variational {
            return Ok(outputs);
        }
        let mut tape = Tape::without_gradients(self.shard.device());
        let outputs = tape.constant(outputs);
        Ok(means(&mut tape, &outputs)?.value().clone())
    }
}

/// Tails that are known of training.
pub(crate) struct Tails(Known);

impl Tails {
    /// Those of all splits of `data`.
    pub(crate) fn of(data: &Data) -> Self {
        let lists: Vec<&[i64]> = data.links.iter().map(|links| &links.train[..]).collect();
        Self(Known::of(&lists, data.link_width()))
    }

    /// Those of a head and a relation, ascending.
    pub(crate) fn of_head(&self, head: usize, relation: usize) -> Vec<u32> {
        let known = self.0.partners(head as u64, relation as u32, graphweft_model::decoders::Missing::Tail);
        known.iter().map(|[.., tail]| *tail).collect()
    }
}

/// The decoder of rows of so many columns, as a configuration has it.
pub(crate) fn decoder_of(rank: &Rank, config: &Config, relations: usize, columns: usize) -> Result<Rc<dyn Decoder>> {
    let link = &config.link;
    let directions = if link.reciprocal { 2 } else { 1 };
    let columns = if link.variational { columns / 2 } else { columns };
    let shape = DecoderShape {
        columns,
        relations: directions * relations.max(1),
        hidden: link.hidden.map_or(columns, |hidden| hidden as usize),
        layers: link.layers as usize,
        margin: link.margin,
    };
    let init = Init::new(rank.device(), config.compute.dtype.compute(), config.run.seed);
    link.decoder(relations).build(&init, &shape).map_err(|e| match e {
        Computation::Argument { problem, .. } => Error::setting("link.decoder", problem, "set data.embedding"),
        other => other.into(),
    })
}

/// Refuses what means nothing for these links.
fn check(link: &LinkConfig, data: &Data) -> Result<()> {
    let (relations, decoder) = (data.relations(), link.decoder(data.relations()));
    let pairs_only = matches!(link.loss, LinkLoss::Logistic | LinkLoss::Adversarial);
    let compares_all = decoder.compares_all();
    if relations == 0 && decoder.reads_relations() {
        let problem = format!("the links of {} have no relations", data.name);
        return Err(Error::setting("link.decoder", problem, "set dot or mlp"));
    }
    if relations == 0 && link.reciprocal {
        let problem = format!("the links of {} have no relations", data.name);
        return Err(Error::setting("link.reciprocal", problem, "leave it out"));
    }
    if !pairs_only && !compares_all {
        let problem = format!("{} needs scores of all nodes, and this decoder has those of pairs", link.loss.name());
        return Err(Error::setting("link.loss", problem, "set logistic or adversarial, or another link.decoder"));
    }
    if link.loss == LinkLoss::AllPairs && (relations > 0 || link.decoder(0).reads_relations()) {
        let problem = format!("the links of {} have relations", data.name);
        return Err(Error::setting("link.loss", problem, "set some-of-all"));
    }
    Ok(())
}

/// The parameters of a decoder, as a layer that changes nothing.
struct Decoding(Rc<dyn Decoder>);

impl Layer for Decoding {
    fn name(&self) -> String {
        "decoder".into()
    }

    fn parameters(&self) -> Vec<Rc<graphweft_tensor::Parameter>> {
        self.0.parameters()
    }

    fn sees_edges(&self) -> bool {
        false
    }

    fn forward(&self, _: &mut Tape, _: &graphweft_model::Context, state: &[Var]) -> graphweft_tensor::Result<Vec<Var>> {
        Ok(state.to_vec())
    }
}

impl EpochSource for LinkGraph {
    fn learner(&self, config: &Config) -> Result<Learner> {
        let rank = &self.shard.rank;
        let Shape { classes, .. } = self.shard.shape;
        let decoder = decoder_of(rank, config, self.relations, classes)?;
        let (mut layers, sharded) = match config.link.table {
            false => (network_of(&self.shard, config)?.layers().to_vec(), None),
            true => {
                let (layer, sharded) = table::rows(&self.shard, classes, config)?;
                (vec![layer], Some(sharded))
            }
        };
        if !decoder.parameters().is_empty() {
            layers.push(Rc::new(Decoding(Rc::clone(&decoder))));
        }
        *self.decoder.borrow_mut() = Some(decoder);
        Learner::of_sharded(&self.shard, Network::new(layers), config, sharded)
    }

    fn learn(&mut self, learner: &mut Learner, epoch: u64, lr: f64, phase: Phases<'_>) -> Result<Report> {
        let (links, decoder) = (self.links()?, self.decoder()?);
        let order = links.order(self.config.run.seed, epoch, self.config.train.batch);
        let most = self.config.train.batch.map_or(order.len(), |batch| batch as usize).max(1);
        let mut reports = Vec::new();
        for (number, lot) in (0u64..).zip(order.chunks(most)) {
            let step = Step { links, decoder: &*decoder, lot };
            let report = learner.learn(&self.shard, &step, epoch | number << 32, lr, phase)?;
            reports.push((lot.len() as f64, report));
        }
        match reports[..] {
            [(_, report)] => Ok(report),
            _ => Ok(mean(&reports)),
        }
    }

    fn watch(&mut self, watch: &Arc<Watch>) {
        self.watch = Some(Arc::clone(watch)).filter(|_| self.shard.rank.leads());
    }

    fn scores(&mut self, learner: &Learner, metric: &'static Metric, epoch: u64) -> Result<Scores> {
        let scored = Scored { rows: &self.rows(learner)?, decoder: &*self.on_host()?, watch: self.watch.as_deref() };
        self.links()?.scores(metric, &scored, epoch)
    }

    fn predict(&self, learner: &Learner, _scored: Option<u64>, take: TakeOutputs<'_>) -> Result<()> {
        let rows = self.rows(learner)?;
        match self.shard.collect(&rows)? {
            Some(all) => take(rows.cols(), &mut std::iter::once(Ok(all))),
            None => Ok(()),
        }
    }

    fn rehearse_scores(&self, learner: &Learner) -> Result<()> {
        let (rows, links) = (self.rows(learner)?, self.links()?);
        let of_ranks = links.relations > 0
            || self.config.train.metric.is_some_and(|name| {
                let found = crate::task::named("link").and_then(|task| task.metric(Some(name), 0).ok());
                found.is_some_and(|metric| matches!(metric.measure, Measure::Ranks { .. }))
            });
        if of_ranks && !self.config.link.decoder(self.relations).compares_all() {
            return Ok(());
        }
        if of_ranks {
            let width = links.split.width;
            // Of training no more are ranked than there are to choose by.
            let most = links.split.valid.len().max(links.split.test.len());
            return ranking::rehearse(&rows, 2 * most / width);
        }
        let is_dot = self.config.link.decoder(0) == DecoderName::Dot;
        links.by_columns(&rows, if is_dot { ColumnsAtOnce::Some } else { ColumnsAtOnce::All }, |_| Ok(()))
    }
}

impl Links {
    fn new(shard: &Shard, data: &Data, split: LinkSplit, config: &Config) -> Result<Self> {
        let (others, width) = (data.others(&split)?, split.width);
        let places = shard.originals().map(|originals| {
            let mut places = vec![0u32; originals.len()];
            originals.iter().enumerate().for_each(|(place, id)| places[*id as usize] = place as u32);
            places
        });
        let counts = shard.counts();
        let before: usize = counts[..shard.rank.index()].iter().sum();
        let own = before..before + counts[shard.rank.index().min(counts.len() - 1)];
        let own_ids = match shard.originals() {
            Some(originals) => originals[own].into(),
            None => own.map(|id| id as u64).collect(),
        };
        let trained = Known::of(&[&split.train], width);
        let (nodes, relations) = (data.graph.num_dst() as u64, data.relations());
        if relations > 0 && matches!(config.link.loss, LinkLoss::Logistic | LinkLoss::Adversarial) {
            Corrupted { known: &trained, nodes, local: None }.check(&data.name)?;
        }
        let questions = if config.link.loss == LinkLoss::SomeOfAll { trained.questions() } else { Vec::new() };
        let ranked =
            config.train.metric.is_some_and(|name| name.as_str() == "mrr" || name.as_str().starts_with("hits@"));
        let all: [&[i64]; 3] = [&split.train, &split.valid, &split.test];
        let known = if relations > 0 || ranked { Known::of(&all, width) } else { Known::of(&[], width) };
        Ok(Self {
            config: config.link.clone(),
            nodes,
            relations,
            places: Places(places),
            own_ids,
            others,
            negatives: config.train.negatives,
            trained,
            known,
            questions,
            dropout: config.train.dropout,
            rank: shard.rank.clone(),
            counts,
            split,
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

    /// The numbers of what is learned from in an epoch: in order, or as drawn where it takes several steps.
    fn order(&self, seed: u64, epoch: u64, batch: Option<u64>) -> Vec<u32> {
        let count = match self.config.loss {
            LinkLoss::SomeOfAll => self.questions.len(),
            LinkLoss::AllPairs => 1,
            _ => self.split.train.len() / self.split.width,
        };
        let mut all: Vec<u32> = (0..count as u32).collect();
        if batch.is_some_and(|batch| (batch as usize) < count) {
            let random = Philox::new(seed, ORDER ^ epoch);
            all.sort_by_cached_key(|number| random.words(u64::from(*number)));
        }
        all
    }
}

#[cfg(test)]
mod tests;
