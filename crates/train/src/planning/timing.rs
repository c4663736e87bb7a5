//! Epochs that are timed, phase by phase and, if that is asked for, kernel by kernel beside what was expected.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use graphweft_comm::Times;
use graphweft_graph::dataset::Split;
use graphweft_model::Prepared;
use graphweft_tensor::Timings;

use crate::config::Config;
use crate::data::Data;
use crate::epochs::source::{EpochInputs, EpochSource, Purpose};
use crate::error::Result;
use crate::planning::emulation::{Clock, Epoch};
use crate::planning::plan::Plan;
use crate::planning::planner::kernels::{self, Compared};
use crate::planning::planner::{Effort, Listener};
use crate::planning::rehearsal::Rehearser;
use crate::ranks::once_per_rank::OncePerRank;
use crate::ranks::rank::{Rank, RankUsage};
use crate::ranks::world::World;

/// The number of the first epoch: that of a run which is under way, in which a pipeline makes history only now and
/// then.
const FIRST: u64 = 41;
/// Most epochs before those that are measured.
const WARM_UP: u64 = 6;

/// What is timed.
pub struct EpochTiming {
    /// Settings.
    pub config: Config,
    /// How the work is spread.
    pub plan: Plan,
    /// Features and labels of the nodes.
    pub data: Arc<Data>,
    /// Their graph, with the edges that the model adds.
    pub graph: Prepared,
    /// What is learned from.
    pub split: Split,
    /// So many epochs.
    pub runs: u32,
}

/// What was timed.
pub struct TimedEpochs {
    /// Milliseconds of each epoch: all of it, forward, backward and update.
    pub times: [Vec<f64>; 4],
    /// Numbers that are trained.
    pub parameters: usize,
    /// Of all ranks, on the first.
    pub usages: Vec<RankUsage>,
    /// On the first rank: of each place elsewhere, the times of all ranks.
    pub elsewhere: Vec<Vec<Times>>,
    /// Kernels beside what was expected of them, where [the world times them](World::timing_kernels) and a rehearsal
    /// made the same calls.
    pub kernels: Option<Vec<Compared>>,
    /// Whether the device did steps by itself.
    pub recorded: bool,
}

/// What one rank measured.
struct Measured {
    found: TimedEpochs,
    /// Of each rank, on the first, seconds of every call of a kernel.
    calls: Vec<Vec<f64>>,
}

impl EpochTiming {
    /// Runs the epochs. All processes of `world` do together.
    ///
    /// # Errors
    /// Of a run.
    pub fn run(self, world: &World, listener: Listener<'_>) -> Result<TimedEpochs> {
        let Self { config, plan, data, graph, split, runs } = self;
        let profile = if world.times_kernels() { listener.profile(&config, world, Effort::Full)? } else { None };
        let expected = match profile {
            Some(profile) => Some((Rehearser::new(&data, &graph).on(&profile).rehearse(&config, &plan)?, profile)),
            None => None,
        };
        let whole = OncePerRank::new((data, graph, split), world.ranks_inside());
        let Measured { found, calls } = world.run(move |rank| {
            let whole = whole.take()?;
            let (config, plan, (data, graph, split)) = (&config, &plan, &*whole);
            let (purpose, folder) = (Purpose::Train(split), Path::new(""));
            let mut source = EpochInputs { config, plan, data, graph, chunks: None, purpose, folder }.source(rank)?;
            drop(whole);
            measure(rank, &mut *source, config, runs)
        })?;
        let kernels = expected.and_then(|(rehearsal, profile)| kernels::compare(&rehearsal, &calls, &profile));
        Ok(TimedEpochs { kernels, ..found })
    }
}

impl TimedEpochs {
    /// Seconds of an epoch elsewhere: when the last rank was ready.
    pub fn seconds(times: &[Times]) -> f64 {
        Clock::seconds(times)
    }
}

/// Runs epochs on one rank.
fn measure(rank: &Rank, source: &mut dyn EpochSource, config: &Config, runs: u32) -> Result<Measured> {
    let (mut learner, ledger) = (source.learner(config)?, rank.device().ledger());
    let (mut times, mut epochs, mut calls): ([Vec<f64>; 4], Vec<Epoch>, Vec<Vec<f64>>) = Default::default();
    ledger.reset_peak();
    // In the first, ranks agree on what they send; on a GPU, one of the next may be recorded.
    let mut epoch = FIRST;
    while epoch == FIRST || epoch < FIRST + WARM_UP && !learner.is_settled() {
        rank.clock().inspect(|clock| clock.start());
        source.learn(&mut learner, epoch, config.train.lr, &mut |_, _| ())?;
        rank.clock().map(Clock::stop).transpose()?;
        epoch += 1;
    }
    for epoch in epoch..epoch + u64::from(runs) {
        rank.reset_sent();
        rank.kernels().map(Timings::take);
        rank.clock().inspect(|clock| clock.start());
        let (start, mut phases) = (Instant::now(), [0.0; 3]);
        source.learn(&mut learner, epoch, config.train.lr, &mut |phase, start| {
            let which = ["forward", "backward", "update"].iter().position(|name| *name == phase);
            if let Some(sum) = which.and_then(|k| phases.get_mut(k)) {
                *sum += start.elapsed().as_secs_f64() * 1e3;
            }
        })?;
        let all = start.elapsed().as_secs_f64() * 1e3;
        times.iter_mut().zip([all].into_iter().chain(phases)).for_each(|(times, ms)| times.push(ms));
        epochs.extend(rank.clock().map(Clock::stop).transpose()?.flatten());
        calls.extend(rank.kernels().map(|timings| timings.take().iter().map(|t| t.seconds).collect()));
    }
    let elsewhere = match rank.clock() {
        Some(clock) if rank.leads() => clock.times(&Epoch::least(&epochs))?,
        _ => Vec::new(),
    };
    let (usage, parameters) = (rank.usage(), source.size(&learner)?);
    let (usages, calls) = (usage.gather(rank)?, kernels::gather(rank, &kernels::least(&calls))?);
    let recorded = learner.is_recorded();
    Ok(Measured { found: TimedEpochs { times, parameters, usages, elsewhere, kernels: None, recorded }, calls })
}
