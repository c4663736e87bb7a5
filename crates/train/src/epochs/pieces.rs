//! Training on pieces of the graph: `isolated`.
//!
//! The graph is cut into chunks ([`graphweft_graph::chunks`]). A rank has some of them as *base* chunks, whose nodes it
//! learns from. In a step every rank takes one of its bases, with another chunk beside it and the halo of both
//! ([`Piece`]), and works on that as if it were the whole graph. Nothing travels but gradients, and a few numbers that
//! add up losses. The chunk beside a base is another one every `rotate_every` epochs: a *round*. So in the long run
//! every edge between chunks is seen with both ends whole.
//!
//! What is missing is the surroundings of the halo. A node whose logits depend on much that is missing says less about
//! the model on the whole graph: its loss is weighted by how much is there ([`Correction`]).
//!
//! An epoch is a step per base chunk. All ranks take the same number of steps; one that has no base left takes part
//! with a piece without rows. With one chunk per rank this is like training on whole parts, with many like
//! mini-batches; and because a piece needs nothing from the others, one rank can go through chunks that lie on a disk.
//! Which piece is next depends on the epoch and the step alone, so the next one is loaded by a thread while this one is
//! trained on, and a run that was interrupted goes on with the same bits.
//!
//! Scores are exact: on the whole graph, through `ring` on several ranks, [layer by layer](crate::epochs::layer_wise)
//! on one.

mod halo;
mod loader;
mod memory;
mod timetable;

use std::sync::Arc;
use std::thread::JoinHandle;

use graphweft_comm::threads;
use graphweft_graph::chunks::Chunks;
use graphweft_tensor::{DType, Error as Computation};

use crate::config::{Config, TrainConfig};
use crate::epochs::learner::{Learner, Phases, Report, mean};
use crate::epochs::source::{EpochInputs, EpochSource, RehearsedEpochs, TakeOutputs};
use crate::epochs::whole_graph::WholeGraph;
use crate::error::{Error, Result};
use crate::ranks::rank::Rank;
use crate::ranks::shard::Shard;
use crate::run::checkpoint::Scores;
use crate::task::Supervision;
use crate::task::metrics::Metric;
use loader::Loader;
use timetable::{Timetable, Visit};

pub(crate) use halo::Allowance;
pub(crate) use loader::{Learned, Loaded, gather, shape};
pub(crate) use memory::{Demand, size};

/// Pieces to learn from, and a rank's rows of the whole graph for scores.
pub(crate) struct PiecesOnRanks {
    rank: Rank,
    pieces: Pieces,
    whole: WholeGraph,
}

impl PiecesOnRanks {
    /// Those of `rank`.
    pub(crate) fn new(rank: &Rank, inputs: &EpochInputs<'_>, chunks: &Chunks) -> Result<Self> {
        let pieces = Pieces::new(rank, inputs, chunks)?;
        Ok(Self { rank: rank.clone(), pieces, whole: WholeGraph::new(rank, inputs)? })
    }
}

impl EpochSource for PiecesOnRanks {
    fn learner(&self, config: &Config) -> Result<Learner> {
        Learner::new(&self.rank, self.pieces.loader.shape()?, config)
    }

    fn learn(&mut self, learner: &mut Learner, epoch: u64, lr: f64, phase: Phases<'_>) -> Result<Report> {
        self.pieces.learn(learner, epoch, lr, phase)
    }

    fn scores(&mut self, learner: &Learner, metric: &'static Metric, epoch: u64) -> Result<Scores> {
        self.whole.scores(learner, metric, epoch)
    }

    fn predict(&self, learner: &Learner, scored: Option<u64>, take: TakeOutputs<'_>) -> Result<()> {
        self.whole.predict(learner, scored, take)
    }

    fn rehearsed(&self) -> RehearsedEpochs {
        // What the first evaluation makes of the whole graph's rows stays.
        RehearsedEpochs { count: 2, scored_after: Some(1) }
    }

    fn rehearse_scores(&self, learner: &Learner) -> Result<()> {
        self.whole.rehearse_scores(learner)
    }
}

/// The pieces that a rank learns from.
pub(crate) struct Pieces {
    rank: Rank,
    loader: Arc<Loader>,
    timetable: Timetable,
    now: Option<(Visit, Shard, Supervision)>,
    coming: Option<(Visit, JoinHandle<Result<Loaded>>)>,
    train: TrainConfig,
    dtype: DType,
}

impl Pieces {
    /// Those of `rank`.
    pub(crate) fn new(rank: &Rank, inputs: &EpochInputs<'_>, chunks: &Chunks) -> Result<Self> {
        let config = inputs.config;
        let loader = Loader::new(inputs, chunks)?;
        let timetable = Timetable::new(&loader.seeds_by_chunk(), rank.count(), rank.index(), config);
        Ok(Self {
            rank: rank.clone(),
            loader: Arc::new(loader),
            timetable,
            now: None,
            coming: None,
            train: config.train.clone(),
            dtype: config.compute.dtype,
        })
    }

    /// Learns from all bases once.
    pub(crate) fn learn(&mut self, learner: &mut Learner, epoch: u64, lr: f64, phase: Phases<'_>) -> Result<Report> {
        let mut reports = Vec::with_capacity(self.timetable.steps());
        for step in 0..self.timetable.steps() {
            let start = std::time::Instant::now();
            self.turn_to(self.timetable.visit(epoch, step))?;
            self.look_ahead(epoch, step);
            phase("load", start);
            let Some((_, shard, supervision)) = &self.now else { return Err(lost("there is no piece")) };
            reports.push((supervision.total(), learner.learn(shard, supervision, epoch, lr, phase)?));
        }
        learner.average_moments()?;
        match reports[..] {
            [(_, report)] => Ok(report),
            _ => Ok(mean(&reports)),
        }
    }

    /// Puts the piece of a visit in place of the one that was there.
    fn turn_to(&mut self, visit: Visit) -> Result<()> {
        if self.now.as_ref().is_some_and(|(at, ..)| *at == visit) {
            return Ok(());
        }
        // Before the next one takes its memory.
        self.now = None;
        let loaded = match self.coming.take() {
            Some((coming, thread)) if coming == visit => {
                thread.join().map_err(|_| lost("the thread that loads pieces has panicked"))??
            }
            _ => self.loader.load(&visit)?,
        };
        let (shard, learned) = Shard::of_piece(&self.rank, loaded, self.dtype, self.loader.data().outputs())?;
        let supervision = match learned {
            Learned::Rows(rows) => Supervision::of_piece(&shard, self.loader.data(), rows, &self.train)?,
            Learned::Share(share) => Supervision::unread(&shard, self.loader.data(), share, &self.train)?,
        };
        self.now = Some((visit, shard, supervision));
        Ok(())
    }

    /// Gives back the memory of the piece at hand and of the one that comes next; they are loaded again when they are
    /// needed.
    pub(crate) fn put_away(&mut self) {
        self.now = None;
        if let Some((_, thread)) = self.coming.take() {
            // What went wrong there will go wrong again.
            drop(thread.join());
        }
    }

    /// Begins to load what comes next.
    fn look_ahead(&mut self, epoch: u64, step: usize) {
        if self.coming.is_some() || !self.loader.reads() {
            return;
        }
        if let Some(next) = self.timetable.next(epoch, step, self.train.epochs) {
            let loader = Arc::clone(&self.loader);
            let load = move || {
                // The core of this rank is busy with the piece at hand.
                threads::unpin();
                loader.load(&next)
            };
            self.coming = Some((next, std::thread::spawn(load)));
        }
    }
}

fn lost(problem: &str) -> Error {
    Computation::Argument { op: "isolated", problem: problem.into() }.into()
}
