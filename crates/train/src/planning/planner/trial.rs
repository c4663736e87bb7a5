//! `parallel.measure`: the best few candidates run for a few steps, and time decides. One that runs out of memory is
//! out.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use graphweft_model::Total;
use graphweft_plan::{Candidate, explain};
use graphweft_tensor::Error as Computation;

use crate::config::Config;
use crate::epochs::source::{EpochInputs, Purpose};
use crate::error::{Error, Result};
use crate::planning::plan::{Plan, Trial};
use crate::planning::planner::PreparedData;
use crate::ranks::rank::Rank;
use crate::ranks::world::World;

/// Steps of each; the first, which agrees on who sends what, is not counted.
const STEPS: u64 = 4;

/// `plan`, or that of its trials which is the fastest here. All processes ask together, and find the same. `tell` hears
/// what does not fit.
///
/// # Errors
/// Of a run. Out of memory is one where no trial fits, or where ranks are processes: those that wait for the one that
/// has failed cannot be called back.
pub(crate) fn decide_by_measuring(
    mut plan: Plan,
    config: &Config,
    world: &World,
    nodes: PreparedData<'_>,
    tell: &dyn Fn(&str),
) -> Result<Plan> {
    let trials = std::mem::take(&mut plan.trials);
    if trials.len() < 2 {
        return Ok(plan);
    }
    let all_inside = world.ranks_inside() == world.ranks();
    let spread = plan.clone();
    // Each on ranks of its own: what one has left, in memory or unsent, is gone before the next begins.
    let measure = |trial: &Trial| {
        let inputs = (spread.clone(), *trial, config.clone(), Arc::clone(nodes.data), nodes.graph.clone());
        let seconds = world.run(move |rank| {
            let (plan, trial, config, data, graph) = &inputs;
            seconds(rank, plan, trial, config, PreparedData { data, graph })
        });
        if all_inside { TrialOutcome::of(seconds) } else { seconds.map(TrialOutcome::Seconds) }
    };
    decide(plan, &trials, measure, tell)
}

/// What came of a trial.
enum TrialOutcome {
    Seconds(f64),
    DoesNotFit(Error),
}

impl TrialOutcome {
    fn of(seconds: Result<f64>) -> Result<Self> {
        match seconds {
            Ok(seconds) => Ok(Self::Seconds(seconds)),
            Err(e @ Error::Tensor(Computation::OutOfMemory { .. })) => Ok(Self::DoesNotFit(e)),
            Err(e) => Err(e),
        }
    }
}

/// The plan with the fastest of `trials` that fits.
fn decide(
    mut plan: Plan,
    trials: &[Trial],
    measure: impl Fn(&Trial) -> Result<TrialOutcome>,
    tell: &dyn Fn(&str),
) -> Result<Plan> {
    let (mut refusal, mut told) = (None, Vec::new());
    let mut best: Option<(usize, f64)> = None;
    for (k, trial) in trials.iter().enumerate() {
        match measure(trial)? {
            TrialOutcome::Seconds(seconds) => {
                told.push(format!("{} {}", trial.strategy, explain::ms(seconds)));
                if best.is_none_or(|(_, least)| seconds < least) {
                    best = Some((k, seconds));
                }
            }
            TrialOutcome::DoesNotFit(e) => {
                told.push(format!("{} did not fit", trial.strategy));
                tell(&does_not_fit(trial, &e));
                refusal.get_or_insert(e);
            }
        }
    }
    let Some((best, _)) = best else { return refusal.map_or(Ok(plan), Err) };
    // The first is what would have been chosen without measuring, for the reason that is known.
    let before = if best == 0 { String::new() } else { format!("it would have been {}: ", plan.strategy) };
    plan.why = format!("measured: {}; {before}{}", told.join(", "), plan.why);
    let Trial { strategy, remat, predicted } = trials[best];
    (plan.strategy, plan.remat, plan.predicted) = (strategy, remat, Some(predicted));
    Ok(plan)
}

/// A line about a trial that has no room.
fn does_not_fit(trial: &Trial, error: &Error) -> String {
    let candidate = Candidate { strategy: trial.strategy, partition: None, remat: trial.remat };
    match error {
        Error::Tensor(Computation::OutOfMemory { op, device, requested, .. }) => {
            format!("{candidate} was tried and does not fit: {requested} more bytes for {op} on {device}")
        }
        other => format!("{candidate} was tried and does not fit: {}", super::in_words(other)),
    }
}

/// Seconds of a step of a trial, the same number on every rank.
fn seconds(rank: &Rank, plan: &Plan, trial: &Trial, config: &Config, nodes: PreparedData<'_>) -> Result<f64> {
    let PreparedData { data, graph } = nodes;
    let split = data.split(&data.split_name(config.data.split.as_deref())?, config.run.seed)?;
    let (mut plan, mut config) = (plan.clone(), config.clone());
    (plan.strategy, plan.remat, config.compute.remat) = (trial.strategy, trial.remat, trial.remat);
    let (plan, config, purpose, folder) = (&plan, &config, Purpose::Train(&split), Path::new(""));
    let mut source = EpochInputs { config, plan, data, graph, chunks: None, purpose, folder }.source(rank)?;
    let mut learner = source.learner(config)?;
    let mut best = f64::INFINITY;
    for step in 1..=STEPS {
        let start = Instant::now();
        source.learn(&mut learner, step, config.train.lr, &mut |_, _| ())?;
        if step > 1 {
            best = best.min(start.elapsed().as_secs_f64());
        }
    }
    Ok(rank.sum(Total::Setup, &[best])?[0] / rank.count() as f64)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::time::Duration;

    use graphweft_base::progress::Silent;
    use graphweft_comm::threads;
    use graphweft_model::{Prepared, Remat};
    use graphweft_parallel::{Strategy, settings};
    use graphweft_tensor::Device;

    use super::*;
    use crate::config::Draft;
    use crate::data::Data;
    use crate::planning::plan::Predicted;

    const RANKS: usize = 3;

    /// A run whose trials are on devices that only count, with so much memory on the last rank.
    struct Trials {
        config: Config,
        data: Arc<Data>,
        graph: Prepared,
        plan: Plan,
        ranks: usize,
    }

    impl Trials {
        fn new(ranks: usize) -> Self {
            let mut draft = Draft::default();
            let settings = ["data.graph=sbm:400:3:6:f=8", "model.hidden=32", "model.layers=6", "model.heads=2"];
            settings.iter().for_each(|s| draft.assign(s).unwrap());
            let config = draft.finish().unwrap();
            let data = Arc::new(Data::open(&config.data, &config.encoding, &Silent).unwrap());
            let graph = config.model.prepare(data.graph.clone(), 0).unwrap();
            let plan = Plan::unplanned(&config, ranks, &data, &Silent).unwrap();
            Self { config, data, graph, plan, ranks }
        }

        /// What a trial takes in seconds, and in bytes on the last rank.
        fn measure(&self, trial: &Trial, memory: Option<u64>) -> Result<(f64, u64)> {
            let Self { config, data, graph, plan, ranks } = self;
            let measure = |rank: &Rank| {
                let seconds = seconds(rank, plan, trial, config, PreparedData { data, graph })?;
                Ok((seconds, rank.device().ledger().peak().total()))
            };
            let device = |limited: bool| Device::dry(memory.filter(|_| limited), Rc::new(|_| ()));
            if *ranks == 1 {
                return measure(&Rank::alone(&device(true)));
            }
            let options = threads::Options { ranks: *ranks, threads: 1, deadline: Duration::from_secs(60) };
            let all = threads::run(options, |comm| {
                let last = comm.rank() + 1 == comm.size();
                measure(&Rank::among(comm, &device(last)))
            });
            Ok(all?[ranks - 1])
        }

        fn decide(&self, trials: &[Trial], memory: u64) -> (Result<Plan>, Vec<String>) {
            let told = RefCell::new(Vec::new());
            let measure =
                |trial: &Trial| TrialOutcome::of(self.measure(trial, Some(memory)).map(|(seconds, _)| seconds));
            let plan = decide(self.plan.clone(), trials, measure, &|line| told.borrow_mut().push(line.to_string()));
            (plan, told.into_inner())
        }
    }

    fn trial(strategy: Strategy, remat: Remat) -> Trial {
        Trial { strategy, remat, predicted: Predicted { epoch_ms: None, error: None, peak_bytes: 0 } }
    }

    #[test]
    fn what_runs_out_of_memory_is_told_and_the_others_are_tried() {
        let alone = (1, [trial(settings::Local.into(), Remat::None), trial(settings::Local.into(), Remat::Both)]);
        let halo = Strategy::Halo(settings::Cover::Plain);
        let ranks = (RANKS, [trial(halo, Remat::None), trial(settings::Gather.into(), Remat::Both)]);
        for (ranks, trials) in [alone, ranks] {
            let trying = Trials::new(ranks);
            let [large, small] = trials.each_ref().map(|trial| trying.measure(trial, None).unwrap().1);
            assert!(small + small / 4 < large, "{small} of {large}");
            for order in [[0, 1], [1, 0]] {
                let (plan, told) = trying.decide(&order.map(|k| trials[k]), (small + large) / 2);
                let plan = plan.unwrap();
                assert_eq!((plan.strategy, plan.remat), (trials[1].strategy, Remat::Both), "{}", plan.why);
                assert!(plan.why.contains("did not fit"), "{}", plan.why);
                assert_eq!(told.len(), 1, "{told:?}");
                let fits = told[0].starts_with(&trials[0].strategy.to_string()) && told[0].contains("does not fit");
                assert!(fits && told[0].lines().count() == 1, "{told:?}");
            }
            let (plan, told) = trying.decide(&trials, small / 2);
            let error = plan.unwrap_err();
            assert!(matches!(error, Error::Tensor(Computation::OutOfMemory { .. })), "{error}");
            assert_eq!(told.len(), 2, "{told:?}");
            let (plan, told) = trying.decide(&trials, 2 * large);
            assert!(plan.unwrap().why.starts_with("measured: ") && told.is_empty(), "{told:?}");
        }
    }
}
