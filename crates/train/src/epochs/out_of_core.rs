//! One rank that goes through chunks of a graph that need not fit into memory: it learns from pieces of it, and scores
//! and outputs come layer by layer, some rows after others.

use graphweft_graph::chunks::Chunks;
use graphweft_tensor::Error as Computation;

use crate::config::Config;
use crate::epochs::layer_wise::{LayerWise, ScoredNodes};
use crate::epochs::learner::{Learner, Phases, Report};
use crate::epochs::pieces::{self, Pieces};
use crate::epochs::source::{EpochInputs, EpochSource, Purpose, TakeOutputs};
use crate::error::{Error, Result};
use crate::ranks::rank::Rank;
use crate::run::checkpoint::Scores;
use crate::task::metrics::Metric;

/// Pieces, and all rows in turn.
pub(crate) struct OutOfCore {
    rank: Rank,
    shape: graphweft_model::Shape,
    /// Where something is learned.
    pieces: Option<Pieces>,
    rows: LayerWise,
    /// Where something is scored.
    scored: Option<ScoredNodes>,
}

impl OutOfCore {
    /// All of `chunks`, on the only rank.
    pub(crate) fn new(rank: &Rank, inputs: &EpochInputs<'_>, chunks: &Chunks) -> Result<Self> {
        let EpochInputs { config, data, folder, .. } = *inputs;
        let pieces = match inputs.purpose {
            Purpose::Train(_) | Purpose::Rehearse(_) => Some(Pieces::new(rank, inputs, chunks)?),
            Purpose::Evaluate(_) | Purpose::Predict => None,
        };
        let rows = LayerWise::new(rank, data, chunks, config, folder);
        let scored = match inputs.purpose {
            Purpose::Train(split) | Purpose::Evaluate(split) => Some(rows.scored(split)?),
            Purpose::Rehearse(_) | Purpose::Predict => None,
        };
        let shape = pieces::shape(data, &config.model, config.run.seed)?;
        Ok(Self { rank: rank.clone(), shape, pieces, rows, scored })
    }
}

impl EpochSource for OutOfCore {
    fn learner(&self, config: &Config) -> Result<Learner> {
        Learner::new(&self.rank, self.shape, config)
    }

    fn learn(&mut self, learner: &mut Learner, epoch: u64, lr: f64, phase: Phases<'_>) -> Result<Report> {
        self.pieces.as_mut().ok_or_else(|| lacks("nothing is learned here"))?.learn(learner, epoch, lr, phase)
    }

    fn scores(&mut self, learner: &Learner, metric: &'static Metric, epoch: u64) -> Result<Scores> {
        self.pieces.iter_mut().for_each(Pieces::put_away);
        let scored = self.scored.as_ref().ok_or_else(|| lacks("nothing is scored here"))?;
        self.rows.evaluate(learner, scored, metric, epoch)
    }

    fn predict(&self, learner: &Learner, scored: Option<u64>, take: TakeOutputs<'_>) -> Result<()> {
        self.rows.predict(learner, scored, take)
    }
}

fn lacks(problem: &str) -> Error {
    Computation::Argument { op: "out of core", problem: problem.into() }.into()
}
