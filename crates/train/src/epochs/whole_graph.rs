//! All rows of all ranks at once: exact.

use graphweft_tensor::Error as Computation;

use crate::config::Config;
use crate::epochs::learner::{Learner, Phases, Report};
use crate::epochs::network::network_of;
use crate::epochs::source::{EpochInputs, EpochSource, Purpose, TakeOutputs};
use crate::error::Result;
use crate::ranks::rank::Rank;
use crate::ranks::shard::Shard;
use crate::run::checkpoint::Scores;
use crate::task::Supervision;
use crate::task::metrics::Metric;

/// A rank's rows of the whole graph.
pub(crate) struct WholeGraph {
    shard: Shard,
    /// Not where outputs alone are asked for.
    supervision: Option<Supervision>,
}

impl WholeGraph {
    /// Those of `rank`.
    ///
    /// # Errors
    /// If the strategy is not for this model or this number of ranks.
    pub(crate) fn new(rank: &Rank, inputs: &EpochInputs<'_>) -> Result<Self> {
        let EpochInputs { config, plan, data, graph, .. } = *inputs;
        let shard = match inputs.purpose {
            Purpose::Rehearse(shared) => Shard::with_layout(rank, data, graph, &plan.strategy, shared.layout, config)?,
            _ => Shard::new(rank, data, graph, plan, config)?,
        };
        let supervision = inputs.supervision(&shard)?;
        Ok(Self { shard, supervision })
    }

    /// What this rank has.
    pub(crate) fn shard(&self) -> &Shard {
        &self.shard
    }

    /// What it is scored by.
    ///
    /// # Errors
    /// If it was made for outputs alone.
    pub(crate) fn supervision(&self) -> Result<&Supervision> {
        let problem = || Computation::Argument { op: "whole graph", problem: "it is for outputs alone".into() };
        Ok(self.supervision.as_ref().ok_or_else(problem)?)
    }
}

impl EpochSource for WholeGraph {
    fn learner(&self, config: &Config) -> Result<Learner> {
        Learner::of_sharded(&self.shard, network_of(&self.shard, config)?, config, None)
    }

    fn learn(&mut self, learner: &mut Learner, epoch: u64, lr: f64, phase: Phases<'_>) -> Result<Report> {
        learner.learn(&self.shard, self.supervision()?, epoch, lr, phase)
    }

    fn is_one_step(&self) -> bool {
        true
    }

    fn scores(&mut self, learner: &Learner, metric: &'static Metric, epoch: u64) -> Result<Scores> {
        learner.evaluate(&self.shard, self.supervision()?, metric, epoch)
    }

    fn predict(&self, learner: &Learner, _scored: Option<u64>, take: TakeOutputs<'_>) -> Result<()> {
        let logits = learner.logits(&self.shard)?;
        match self.shard.collect(&logits)? {
            Some(rows) => take(logits.cols(), &mut std::iter::once(Ok(rows))),
            None => Ok(()),
        }
    }

    fn rehearse_scores(&self, learner: &Learner) -> Result<()> {
        learner.logits(&self.shard).map(drop)
    }
}
