//! What an epoch goes through, and what the model is examined on.

use std::path::Path;
use std::sync::Arc;

use graphweft_graph::chunks::Chunks;
use graphweft_graph::dataset::Split;
use graphweft_model::{Prepared, Shape};

use crate::checkpoint::Scores;
use crate::config::Config;
use crate::data::Data;
use crate::error::Result;
use crate::isolated::Pieces;
use crate::layer_wise::{LayerWise, Scored};
use crate::learner::{Learner, Phases, Report};
use crate::metrics::Metric;
use crate::plan::Plan;
use crate::rank::Rank;
use crate::run_dir::RunDir;
use crate::shard::{Lesson, Shard};

/// The lessons of a run, and its exams, which are always on the whole graph.
pub(crate) enum Course {
    /// All rows of all ranks at once.
    Whole(Whole),
    /// Pieces, and all rows for exams.
    Pieces(Box<Pieces>, Whole),
    /// Pieces, and some rows after others for exams.
    OutOfCore(Box<Pieces>, Box<LayerWise>, Scored),
}

/// A rank's rows of the whole graph.
pub(crate) struct Whole {
    shard: Shard,
    lesson: Lesson,
}

/// What a course is made of.
pub(crate) struct Material<'a> {
    pub(crate) config: &'a Config,
    pub(crate) plan: &'a Plan,
    pub(crate) data: &'a Arc<Data>,
    /// The graph with the edges that the model adds.
    pub(crate) graph: &'a Prepared,
    /// For learning from pieces.
    pub(crate) chunks: Option<&'a Chunks>,
    pub(crate) split: &'a Split,
    /// Where temporary files go.
    pub(crate) folder: &'a Path,
}

impl Course {
    pub(crate) fn new(rank: &Rank, material: &Material<'_>) -> Result<Self> {
        let Material { config, plan, data, graph, chunks, split, folder } = *material;
        let whole = || -> Result<Whole> {
            let shard = Shard::new(rank, data, graph, plan, config)?;
            let lesson = Lesson::new(&shard, data.target()?, split)?;
            Ok(Whole { shard, lesson })
        };
        let Some(chunks) = chunks else { return Ok(Self::Whole(whole()?)) };
        let pieces = Box::new(Pieces::new(rank, data, chunks, split, config)?);
        if rank.count() > 1 || chunks.count() == 1 || !config.model.follows_edges() {
            return Ok(Self::Pieces(pieces, whole()?));
        }
        let rows = LayerWise::new(rank, data, chunks, config, folder)?;
        let scored = rows.scored(split)?;
        Ok(Self::OutOfCore(pieces, Box::new(rows), scored))
    }

    /// What a model must know of the data.
    pub(crate) fn shape(&self) -> Result<Shape> {
        match self {
            Self::Whole(whole) => Ok(whole.shard.shape),
            Self::Pieces(pieces, _) | Self::OutOfCore(pieces, ..) => pieces.shape(),
        }
    }

    /// Learns from all nodes once.
    pub(crate) fn learn(&mut self, learner: &mut Learner, epoch: u64, lr: f64, phase: Phases<'_>) -> Result<Report> {
        match self {
            Self::Whole(Whole { shard, lesson }) => learner.learn(shard, lesson, epoch, lr, phase),
            Self::Pieces(pieces, _) | Self::OutOfCore(pieces, ..) => pieces.learn(learner, epoch, lr, phase),
        }
    }

    /// The scores of all three parts.
    pub(crate) fn evaluate(&self, learner: &Learner, metric: Metric, epoch: u64) -> Result<Scores> {
        match self {
            Self::Whole(Whole { shard, lesson }) | Self::Pieces(_, Whole { shard, lesson }) => {
                learner.evaluate(shard, lesson, metric, epoch)
            }
            Self::OutOfCore(_, rows, scored) => rows.evaluate(learner, scored, metric, epoch),
        }
    }

    /// Writes the logits of all nodes, where the rank that leads is.
    pub(crate) fn predict(&self, learner: &Learner, dir: Option<&RunDir>) -> Result<()> {
        match self {
            Self::Whole(Whole { shard, .. }) | Self::Pieces(_, Whole { shard, .. }) => {
                let logits = learner.logits(shard)?;
                match (shard.collect(&logits)?, dir) {
                    (Some(rows), Some(dir)) => dir.predictions(&rows, logits.cols()),
                    _ => Ok(()),
                }
            }
            Self::OutOfCore(_, rows, _) => dir.map_or(Ok(()), |dir| rows.predict(learner, &dir.predictions_path())),
        }
    }
}
