//! What an epoch goes through, and what the model is evaluated on.
//!
//! [`EpochSource`] is what the trainer, the rehearsal and evaluation see of it. The [whole graph](super::whole_graph),
//! [pieces](super::pieces) of it, [batches](super::batches) of many graphs, pieces of one that lies [on a
//! disk](super::out_of_core), the stages of a [pipeline](super::pipeline) and the [links](super::links) of a whole
//! graph implement it. [`EpochInputs::source`] chooses between them, for everyone.

use std::path::Path;
use std::sync::Arc;

use graphweft_graph::chunks::Chunks;
use graphweft_graph::dataset::Split;
use graphweft_model::Prepared;
use graphweft_parallel::{Layout, Strategy};

use crate::config::Config;
use crate::data::Data;
use crate::epochs::batches::Batches;
use crate::epochs::learner::{Learner, Phases, Report};
use crate::epochs::links::LinkGraph;
use crate::epochs::out_of_core::OutOfCore;
use crate::epochs::pieces::{Allowance, PiecesOnRanks};
use crate::epochs::pipeline::Stage;
use crate::epochs::watch::Watch;
use crate::epochs::whole_graph::WholeGraph;
use crate::error::{Error, Result};
use crate::planning::plan::Plan;
use crate::ranks::rank::Rank;
use crate::ranks::shard::Shard;
use crate::run::checkpoint::{Scores, Tensors};
use crate::task::Supervision;
use crate::task::metrics::Metric;

/// Takes the outputs of all nodes: so many columns, rows in the order of original ids, lot by lot.
pub(crate) type TakeOutputs<'a> = &'a mut dyn FnMut(usize, &mut dyn Iterator<Item = Result<Vec<f32>>>) -> Result<()>;

/// What one rank learns from, epoch by epoch, and is evaluated on, which is always the whole graph.
pub(crate) trait EpochSource {
    /// The model, or what this rank has of it, before it has learned anything.
    fn learner(&self, config: &Config) -> Result<Learner>;

    /// Numbers that are trained, on all ranks.
    fn size(&self, learner: &Learner) -> Result<usize> {
        Ok(learner.size())
    }

    /// What the optimizer of this rank remembers, with what else the next epoch depends on.
    fn memory(&self, learner: &Learner) -> Result<Tensors> {
        learner.optimizer()
    }

    /// Takes over what else the next epoch depends on.
    fn restore(&mut self, _from: &Tensors) -> Result<()> {
        Ok(())
    }

    /// Tensors of the whole model, where the rank that leads is, from what each rank has of them.
    fn together(&self, learner: &Learner, own: &dyn Fn() -> Result<Tensors>) -> Result<Option<Tensors>> {
        let rank = learner.rank();
        match learner.sharded().filter(|_| rank.count() > 1) {
            Some(sharded) => sharded.whole(rank, own()?),
            None => rank.leads().then(own).transpose(),
        }
    }

    /// Learns from all nodes once.
    fn learn(&mut self, learner: &mut Learner, epoch: u64, lr: f64, phase: Phases<'_>) -> Result<Report>;

    /// Whether an epoch is one step of the learner, and nothing else is changed by it: it can then be left before the
    /// update, as if it had not begun.
    fn is_one_step(&self) -> bool {
        false
    }

    /// Has what takes long counted from now on.
    fn watch(&mut self, _watch: &Arc<Watch>) {}

    /// The scores of all three parts.
    ///
    /// # Errors
    /// [`Error::NotScored`] of a model that gives no numbers.
    fn scores(&mut self, learner: &Learner, metric: &'static Metric, epoch: u64) -> Result<Scores>;

    /// The same while a run lasts: a model that gives no numbers has no scores, and training stops by itself if it does
    /// not recover.
    fn evaluate(&mut self, learner: &Learner, metric: &'static Metric, epoch: u64) -> Result<Scores> {
        match self.scores(learner, metric, epoch) {
            Err(Error::NotScored { .. }) => Ok(Scores::none(epoch)),
            scores => scores,
        }
    }

    /// Gives the outputs of all nodes to `take`, where the rank that leads is. Those that were scored after epoch
    /// `scored` need not be computed again.
    fn predict(&self, learner: &Learner, scored: Option<u64>, take: TakeOutputs<'_>) -> Result<()>;

    /// Which epochs a rehearsal goes through.
    fn rehearsed(&self) -> RehearsedEpochs {
        RehearsedEpochs { count: 2, scored_after: None }
    }

    /// Computes what scores come from, on a rank that computes nothing.
    fn rehearse_scores(&self, _learner: &Learner) -> Result<()> {
        Ok(())
    }
}

/// The epochs of a rehearsal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RehearsedEpochs {
    /// The last of so many is like all that would follow: those before do what is done only once.
    pub count: u64,
    /// The one after which scores are made, where that takes memory of its own.
    pub scored_after: Option<u64>,
}

/// What a source is made of.
#[derive(Clone, Copy)]
pub(crate) struct EpochInputs<'a> {
    /// Settings.
    pub config: &'a Config,
    /// How the work is spread.
    pub plan: &'a Plan,
    /// Features, labels and splits of the nodes.
    pub data: &'a Arc<Data>,
    /// The graph with the edges that the model adds.
    pub graph: &'a Prepared,
    /// For learning from pieces.
    pub chunks: Option<&'a Chunks>,
    /// What it is for.
    pub purpose: Purpose<'a>,
    /// Where temporary files go.
    pub folder: &'a Path,
}

/// What a source is for.
#[derive(Clone, Copy)]
pub(crate) enum Purpose<'a> {
    /// Learning, with scores on the way.
    Train(&'a Split),
    /// The same on ranks that compute nothing: features and labels are not read.
    Rehearse(Shared<'a>),
    /// Scores alone.
    Evaluate(&'a Split),
    /// Outputs alone.
    Predict,
}

/// What was made once for all ranks of a rehearsal.
#[derive(Clone, Copy)]
pub(crate) struct Shared<'a> {
    /// Which nodes are learned from: all, if nothing is said.
    pub(crate) split: Option<&'a Split>,
    /// The rows of this rank, where there are several.
    pub(crate) layout: Option<&'a Layout>,
    /// How much of the halo pieces have.
    pub(crate) allowance: Option<&'a Allowance>,
}

impl EpochInputs<'_> {
    /// What `rank` goes through.
    ///
    /// # Errors
    /// If the strategy is not for this model or this number of ranks.
    pub(crate) fn source(&self, rank: &Rank) -> Result<Box<dyn EpochSource>> {
        if self.data.graphs.is_some() {
            return Ok(Box::new(Batches::new(rank, self)?));
        }
        if !self.data.links.is_empty() {
            return Ok(Box::new(LinkGraph::new(rank, self)?));
        }
        let learns = matches!(self.purpose, Purpose::Train(_) | Purpose::Rehearse(_));
        if learns && matches!(self.plan.strategy, Strategy::Pipeline(_)) {
            return Ok(Box::new(Stage::new(rank, self)?));
        }
        match self.chunks {
            // Some rows after others: one rank never has all of them at once.
            Some(chunks) if rank.count() == 1 && chunks.count() > 1 && self.config.model.follows_edges() => {
                Ok(Box::new(OutOfCore::new(rank, self, chunks)?))
            }
            Some(chunks) if learns => Ok(Box::new(PiecesOnRanks::new(rank, self, chunks)?)),
            _ => Ok(Box::new(WholeGraph::new(rank, self)?)),
        }
    }

    /// What is learned from rows and what they are scored by; nothing for outputs alone.
    pub(crate) fn supervision(&self, shard: &Shard) -> Result<Option<Supervision>> {
        match self.purpose {
            Purpose::Train(split) | Purpose::Evaluate(split) => {
                Supervision::new(shard, self.data, split, &self.config.train).map(Some)
            }
            Purpose::Rehearse(Shared { split, .. }) => {
                let rows = self.graph.csr.num_dst().max(1) as f64;
                let learned = split.map_or(1.0, |split| split.train.len() as f64 / rows);
                Supervision::unread(shard, self.data, learned, &self.config.train).map(Some)
            }
            Purpose::Predict => Ok(None),
        }
    }
}
