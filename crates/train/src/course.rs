//! What an epoch goes through, and what the model is examined on.

use std::path::Path;
use std::sync::Arc;

use graphweft_graph::chunks::Chunks;
use graphweft_graph::dataset::Split;
use graphweft_model::Prepared;
use graphweft_parallel::Strategy;

use crate::checkpoint::{Scores, Tensors};
use crate::config::Config;
use crate::data::Data;
use crate::error::{Error, Result};
use crate::isolated::{Pieces, is_out_of_core};
use crate::layer_wise::{LayerWise, Scored};
use crate::learner::{Learner, Phases, Report};
use crate::metrics::Metric;
use crate::pipeline::{Plant, Stage};
use crate::plan::Plan;
use crate::predictions::{NodeIds, Output, Task};
use crate::rank::Rank;
use crate::run_dir::RunDir;
use crate::shard::{Lesson, Shard};

/// The lessons of a run, and its exams, which are always on the whole graph.
pub struct Course(Kind);

enum Kind {
    /// All rows of all ranks at once.
    Whole(Whole),
    /// Pieces, and all rows for exams.
    Pieces(Box<Pieces>, Whole),
    /// Chunks that pass through layers, of which this rank has some.
    Stage(Box<Stage>),
    /// Pieces, and some rows after others for exams.
    OutOfCore(Box<Pieces>, Box<LayerWise>, Scored),
}

/// A rank's rows of the whole graph.
struct Whole {
    shard: Shard,
    lesson: Lesson,
}

/// What a course is made of.
pub struct Material<'a> {
    /// Settings.
    pub config: &'a Config,
    /// How the work is spread.
    pub plan: &'a Plan,
    /// The nodes.
    pub data: &'a Arc<Data>,
    /// The graph with the edges that the model adds.
    pub graph: &'a Prepared,
    /// For learning from pieces.
    pub chunks: Option<&'a Chunks>,
    /// What is learned from, chosen by and reported on.
    pub split: &'a Split,
    /// Where temporary files go.
    pub folder: &'a Path,
}

impl Course {
    /// Prepares what `rank` has of it.
    ///
    /// # Errors
    /// If the strategy is not for this model or this number of ranks.
    pub fn new(rank: &Rank, material: &Material<'_>) -> Result<Self> {
        let Material { config, plan, data, graph, chunks, split, folder } = *material;
        if let Strategy::Pipeline { .. } = plan.strategy {
            let lesson = |shard: &Shard| Lesson::new(shard, data.target()?, split);
            return Ok(Self(Kind::Stage(Box::new(Stage::new(rank, Plant { config, plan, data, graph }, lesson)?))));
        }
        let whole = || -> Result<Whole> {
            let shard = Shard::new(rank, data, graph, plan, config)?;
            let lesson = Lesson::new(&shard, data.target()?, split)?;
            Ok(Whole { shard, lesson })
        };
        let Some(chunks) = chunks else { return Ok(Self(Kind::Whole(whole()?))) };
        let pieces = Box::new(Pieces::new(rank, data, chunks, split, config)?);
        if !is_out_of_core(rank, chunks, config) {
            return Ok(Self(Kind::Pieces(pieces, whole()?)));
        }
        let rows = LayerWise::new(rank, data, chunks, config, folder)?;
        let scored = rows.scored(split)?;
        Ok(Self(Kind::OutOfCore(pieces, Box::new(rows), scored)))
    }

    /// The model, or what this rank has of it, before it has learned anything.
    pub fn learner(&self, rank: &Rank, config: &Config) -> Result<Learner> {
        match &self.0 {
            Kind::Whole(whole) => Learner::new(rank, whole.shard.shape, config),
            Kind::Stage(stage) => stage.learner(config),
            Kind::Pieces(pieces, _) | Kind::OutOfCore(pieces, ..) => Learner::new(rank, pieces.shape()?, config),
        }
    }

    /// Numbers that are trained, on all ranks.
    pub fn size(&self, learner: &Learner) -> Result<usize> {
        match &self.0 {
            Kind::Stage(stage) => stage.size(learner),
            _ => Ok(learner.size()),
        }
    }

    /// What the optimizer of this rank remembers, with what else the next epoch depends on.
    pub(crate) fn memory(&self, learner: &Learner) -> Result<Tensors> {
        let mut all = learner.optimizer()?;
        if let Kind::Stage(stage) = &self.0 {
            all.extend(stage.memory());
        }
        Ok(all)
    }

    /// Takes over what else the next epoch depends on.
    pub(crate) fn restore(&mut self, from: &Tensors) -> Result<()> {
        match &mut self.0 {
            Kind::Stage(stage) => stage.restore(from),
            _ => Ok(()),
        }
    }

    /// Tensors of the whole model, where the rank that leads is, from what each rank has of them.
    pub(crate) fn together(&self, rank: &Rank, own: impl FnOnce() -> Result<Tensors>) -> Result<Option<Tensors>> {
        match &self.0 {
            Kind::Stage(stage) => stage.together(&own()?),
            _ => rank.leads().then(own).transpose(),
        }
    }

    /// Learns from all nodes once.
    pub fn learn(&mut self, learner: &mut Learner, epoch: u64, lr: f64, phase: Phases<'_>) -> Result<Report> {
        match &mut self.0 {
            Kind::Whole(Whole { shard, lesson }) => learner.learn(shard, lesson, epoch, lr, phase),
            Kind::Stage(stage) => stage.learn(learner, epoch, lr, phase),
            Kind::Pieces(pieces, _) | Kind::OutOfCore(pieces, ..) => pieces.learn(learner, epoch, lr, phase),
        }
    }

    /// The scores of all three parts. A model that gives no numbers has none: training stops by itself if it does not recover.
    pub(crate) fn evaluate(&mut self, learner: &Learner, metric: Metric, epoch: u64) -> Result<Scores> {
        match self.examine(learner, metric, epoch) {
            Err(Error::NotScored { .. }) => Ok(Scores::none(epoch)),
            scores => scores,
        }
    }

    fn examine(&mut self, learner: &Learner, metric: Metric, epoch: u64) -> Result<Scores> {
        match &mut self.0 {
            Kind::Whole(Whole { shard, lesson }) | Kind::Pieces(_, Whole { shard, lesson }) => {
                learner.evaluate(shard, lesson, metric, epoch)
            }
            Kind::Stage(stage) => stage.evaluate(learner, metric, epoch),
            Kind::OutOfCore(pieces, rows, scored) => {
                pieces.put_away();
                rows.evaluate(learner, scored, metric, epoch)
            }
        }
    }

    /// Writes the logits of all nodes, where the rank that leads is; the model was last scored after epoch `epoch`.
    pub(crate) fn predict(&self, learner: &Learner, epoch: u64, dir: Option<&RunDir>) -> Result<()> {
        match &self.0 {
            Kind::Whole(Whole { shard, .. }) | Kind::Pieces(_, Whole { shard, .. }) => {
                let logits = learner.logits(shard)?;
                match (shard.collect(&logits)?, dir) {
                    (Some(rows), Some(dir)) => dir.predictions(rows, logits.cols()),
                    _ => Ok(()),
                }
            }
            Kind::Stage(stage) => stage.predict(learner, dir),
            Kind::OutOfCore(_, rows, _) => {
                let Some(dir) = dir else { return Ok(()) };
                let to = Output::logits(&dir.predictions_path());
                rows.predict(learner, Some(epoch), |cols, lots| {
                    to.write_logits(cols, Task::Class, &NodeIds::Places, lots)
                })
            }
        }
    }
}
