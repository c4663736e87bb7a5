//! Learning from many graphs, batch by batch. Exact on any number of ranks.
//!
//! The order of an epoch is a function of the seed and the epoch, and a batch is the next `train.batch` graphs in it,
//! laid side by side: one graph whose adjacency matrix is block-diagonal. Each rank has a run of the batch with about
//! the same number of nodes and edges (`order::Share`). The loss is a sum over graphs divided by the number of labels
//! that all ranks know, batch norms count the nodes of all ranks, and dropout is keyed by ids of nodes and of graphs in
//! the data. So the update is that of one rank, but for rounding.
//!
//! The next batch is put together by a thread while this one is learned from. Scores are those of all graphs, each
//! computed once, with the ranks sharing them; a rank goes through its own in lots of a batch's share.
//!
//! A rehearsal learns from the graphs of the split that have most nodes and edges, as many as a batch has: what is
//! planned is room for the largest batch there can be.

mod loader;
mod order;

use std::ops::Range;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use graphweft_comm::threads;
use graphweft_graph::dataset::Split;
use graphweft_model::Total;
use graphweft_tensor::{DType, Error as Computation, Ids};

use crate::config::{Config, TrainConfig};
use crate::epochs::learner::{Learner, Phases, Report, mean};
use crate::epochs::pieces::shape;
use crate::epochs::source::{EpochInputs, EpochSource, Purpose, RehearsedEpochs, TakeOutputs};
use crate::error::{Error, Result};
use crate::ranks::rank::Rank;
use crate::ranks::shard::Shard;
use crate::run::checkpoint::Scores;
use crate::task::metrics::{Logits, Metric, Scoring, SplitPart};
use crate::task::{Labels, Supervision, check_split};

use loader::Loader;
use order::{Order, Share};

pub(crate) use loader::{Loaded, LoadedBatch};
pub(crate) use order::{largest, work};

/// The batches of a rank, and the graphs that it scores.
pub(crate) struct Batches {
    rank: Rank,
    loader: Arc<Loader>,
    order: Order,
    purpose: Kind,
    coming: Option<(u64, usize, JoinHandle<Result<Loaded>>)>,
    config: Config,
}

/// What they are for.
enum Kind {
    Learn(Scored),
    /// With the graphs that this rank would score.
    Rehearse(Vec<u64>),
    Score(Scored),
    Predict,
}

/// This rank's graphs of all that are scored.
struct Scored {
    graphs: Vec<u64>,
    labels: Labels,
    parts: [SplitPart; 3],
}

impl Scored {
    fn new(rank: &Rank, loader: &Loader, split: &Split) -> Result<Self> {
        let data = loader.data();
        let all = named(split);
        let graphs = all[loader.share(&all, rank).own].to_vec();
        let ids = Ids::Listed(graphs.as_slice().into());
        let labels = data.labels()?.of_rows(&ids, data.classes);
        Ok(Self { parts: data.task.parts(split, &ids), graphs, labels })
    }
}

/// All graphs of a split, ascending.
fn named(split: &Split) -> Vec<u64> {
    let mut all: Vec<u64> = split.parts().iter().flat_map(|(_, ids)| ids.iter().map(|id| *id as u64)).collect();
    all.sort_unstable();
    all
}

impl Batches {
    /// Those of `rank`.
    ///
    /// # Errors
    /// If a part of the split that is needed is empty.
    pub(crate) fn new(rank: &Rank, inputs: &EpochInputs<'_>) -> Result<Self> {
        let config = inputs.config.clone();
        let loader = Loader::new(inputs.data, &config.model)?;
        let batch = config.train.batch_of(loader.count());
        let (purpose, learned) = match inputs.purpose {
            Purpose::Train(split) => {
                check_split(split)?;
                let learned = split.train.iter().map(|id| *id as u64).collect();
                (Kind::Learn(Scored::new(rank, &loader, split)?), learned)
            }
            Purpose::Rehearse(shared) => {
                let all = |split: &Split| split.train.iter().map(|id| *id as u64).collect();
                let learned = shared.split.map_or_else(|| (0..loader.count() as u64).collect(), all);
                let scored = shared.split.map_or_else(|| (0..loader.count() as u64).collect(), named);
                let own = loader.share(&scored, rank).own;
                (Kind::Rehearse(scored[own].to_vec()), learned)
            }
            Purpose::Evaluate(split) => (Kind::Score(Scored::new(rank, &loader, split)?), Vec::new()),
            Purpose::Predict => (Kind::Predict, Vec::new()),
        };
        let order = Order::new(config.run.seed, learned, batch);
        Ok(Self { rank: rank.clone(), loader: Arc::new(loader), order, purpose, coming: None, config })
    }

    fn train(&self) -> &TrainConfig {
        &self.config.train
    }

    fn dtype(&self) -> DType {
        self.config.compute.dtype
    }

    /// The batches of an epoch.
    fn epoch(&self, epoch: u64) -> Vec<Vec<u64>> {
        match self.purpose {
            Kind::Rehearse(_) => vec![largest(self.loader.data(), self.order.graphs(), self.order.batch())],
            _ => self.order.epoch(epoch),
        }
    }

    /// The batch of a step: what was put together meanwhile, or now.
    fn load(&mut self, epoch: u64, step: usize, graphs: &[u64]) -> Result<Loaded> {
        match self.coming.take() {
            Some((e, s, thread)) if (e, s) == (epoch, step) => {
                thread.join().map_err(|_| lost("the thread that puts batches together has panicked"))?
            }
            _ => self.loader.load(graphs, &self.loader.share(graphs, &self.rank)),
        }
    }

    /// Begins to put together what comes next.
    fn look_ahead(&mut self, epoch: u64, step: usize, batches: &[Vec<u64>]) {
        if matches!(self.purpose, Kind::Rehearse(_)) {
            return;
        }
        let next = match batches.get(step + 1) {
            Some(graphs) => Some((epoch, step + 1, graphs.clone())),
            None if epoch < self.train().epochs => {
                self.epoch(epoch + 1).into_iter().next().map(|graphs| (epoch + 1, 0, graphs))
            }
            None => None,
        };
        if let Some((epoch, step, graphs)) = next {
            let (loader, share) = (Arc::clone(&self.loader), self.loader.share(&graphs, &self.rank));
            let load = move || {
                // The core of this rank is busy with the batch at hand.
                threads::unpin();
                loader.load(&graphs, &share)
            };
            self.coming = Some((epoch, step, std::thread::spawn(load)));
        }
    }

    /// How many graphs are scored at a time.
    fn lot(&self) -> usize {
        self.train().batch_of(self.loader.count()).div_ceil(self.rank.count()).max(1)
    }

    /// Gives the logits of these graphs to `take`, lot by lot, each with the place of its first.
    fn outputs(
        &self,
        learner: &Learner,
        graphs: &[u64],
        mut take: impl FnMut(usize, graphweft_tensor::Matrix) -> Result<()>,
    ) -> Result<()> {
        let lot = self.lot();
        // Nobody else has rows of these.
        let alone = Rank::alone(self.rank.device());
        for (k, graphs) in graphs.chunks(lot).enumerate() {
            let loaded = self.loader.load(graphs, &Share::all(graphs.len()))?;
            let (shard, _) = Shard::of_batch(&alone, loaded, self.dtype(), self.loader.data())?;
            take(k * lot, learner.logits(&shard)?)?;
        }
        Ok(())
    }

    fn scored(&self) -> Result<&Scored> {
        match &self.purpose {
            Kind::Learn(scored) | Kind::Score(scored) => Ok(scored),
            Kind::Rehearse(_) | Kind::Predict => Err(lost("there is nothing to score")),
        }
    }
}

impl EpochSource for Batches {
    fn learner(&self, config: &Config) -> Result<Learner> {
        Learner::new(&self.rank, shape(self.loader.data(), &config.model, config.run.seed)?, config)
    }

    fn learn(&mut self, learner: &mut Learner, epoch: u64, lr: f64, phase: Phases<'_>) -> Result<Report> {
        let batches = self.epoch(epoch);
        let mut reports = Vec::with_capacity(batches.len());
        for (step, graphs) in batches.iter().enumerate() {
            let start = Instant::now();
            let loaded = self.load(epoch, step, graphs)?;
            self.look_ahead(epoch, step, &batches);
            let (shard, batch) = Shard::of_batch(&self.rank, loaded, self.dtype(), self.loader.data())?;
            shard.bring()?;
            let supervision = Supervision::of_batch(&shard, self.loader.data(), batch, self.train())?;
            phase("load", start);
            reports.push((supervision.total(), learner.learn(&shard, &supervision, epoch, lr, phase)?));
        }
        match reports[..] {
            [(_, report)] => Ok(report),
            _ => Ok(mean(&reports)),
        }
    }

    fn scores(&mut self, learner: &Learner, metric: &'static Metric, epoch: u64) -> Result<Scores> {
        let (scored, data) = (self.scored()?, self.loader.data());
        let mut lots = Vec::new();
        self.outputs(learner, &scored.graphs, |first, m| {
            lots.push(Ok(Logits::of_lot(&m, first)?));
            Ok(())
        })?;
        // A rank without graphs takes part in sums all the same.
        if lots.is_empty() {
            lots.push(Ok(Logits::none(data.outputs())));
        }
        let reduce = self.rank.reduce(Total::Metrics);
        let (device, labels) = (self.rank.device(), scored.labels.view());
        let scoring = Scoring { task: data.task, metric, labels, device, reduce: &*reduce };
        scoring.scores_of_lots(lots.into_iter(), &scored.parts, epoch)
    }

    fn rehearsed(&self) -> RehearsedEpochs {
        RehearsedEpochs { count: 2, scored_after: Some(1) }
    }

    fn rehearse_scores(&self, learner: &Learner) -> Result<()> {
        match &self.purpose {
            Kind::Rehearse(graphs) => {
                let lot = largest(self.loader.data(), graphs, self.lot());
                self.outputs(learner, &lot, |_, _| Ok(()))
            }
            _ => Ok(()),
        }
    }

    fn predict(&self, learner: &Learner, _scored: Option<u64>, take: TakeOutputs<'_>) -> Result<()> {
        let all: Vec<u64> = (0..self.loader.count() as u64).collect();
        let own: Range<usize> = self.loader.share(&all, &self.rank).own;
        let mut rows: Vec<f32> = Vec::new();
        self.outputs(learner, &all[own], |_, m| {
            rows.extend(m.device().convert("collect", &m, DType::F32)?.to_vec::<f32>()?);
            Ok(())
        })?;
        let parts = self.rank.gather("metrics", bytemuck::cast_slice(&rows).to_vec())?;
        if !self.rank.leads() {
            return Ok(());
        }
        // Runs of ranks follow one another.
        let rows = bytemuck::pod_collect_to_vec(&parts.concat());
        take(self.loader.data().outputs(), &mut std::iter::once(Ok(rows)))
    }
}

fn lost(problem: &str) -> Error {
    Computation::Argument { op: "batches", problem: problem.into() }.into()
}
