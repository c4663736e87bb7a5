//! The search: every candidate is rehearsed, those that do not fit are out, the fastest of the others is chosen; of
//! those whose times are [alike](ALIKE), the one that needs least memory.
//!
//! Computing again what could be kept costs time and saves memory. So each strategy is rehearsed keeping everything,
//! and with more computed again only until it fits: what would be slower without need is not tried. Nothing else is
//! left out unseen, and what is left out is in the table with the reason.

use std::cmp::Ordering;

use graphweft_base::progress::{Progress, Unit};
use graphweft_graph::partition::Method;
use graphweft_model::Remat;
use graphweft_parallel::{Strategy, settings};
use graphweft_tensor::{Tag, Usage};

use crate::candidates::{Candidate, name_of, remats, strategies};
use crate::error::{Error, Result};
use crate::explain::{self, Facts};

/// Times that differ by less than this factor are the same, for all that is known before a run.
pub const ALIKE: f64 = 1.01;

/// One rank's part of a rehearsed step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RankPrediction {
    /// Seconds of kernels.
    pub compute: f64,
    /// When it was done.
    pub seconds: f64,
    /// Bytes sent to other ranks.
    pub sent: u64,
    /// Memory when most was in use.
    pub peak: Usage,
}

/// What a candidate is predicted to take for one epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Seconds until the last rank is done: the sum of the three below.
    pub seconds: f64,
    /// The mean rank's kernels.
    pub compute: f64,
    /// What the busiest rank computes more than that.
    pub imbalance: f64,
    /// Waiting for messages.
    pub exposed: f64,
    /// Bytes sent by all ranks.
    pub sent: u64,
    /// Memory of the rank that needs most.
    pub peak: Usage,
}

impl Prediction {
    /// What the ranks' parts come to.
    pub fn of(parts: &[RankPrediction]) -> Self {
        let largest = |f: &dyn Fn(&RankPrediction) -> f64| parts.iter().map(f).fold(0.0, f64::max);
        let (seconds, busiest) = (largest(&|p| p.seconds), largest(&|p| p.compute));
        let compute = parts.iter().map(|p| p.compute).sum::<f64>() / parts.len().max(1) as f64;
        let peak = parts.iter().map(|p| p.peak).max_by_key(Usage::total).unwrap_or_default();
        Self {
            seconds,
            compute,
            imbalance: (busiest - compute).max(0.0),
            exposed: (seconds - busiest).max(0.0),
            sent: parts.iter().map(|p| p.sent).sum(),
            peak,
        }
    }
}

/// Plays one step of training.
pub trait Rehearse {
    /// What `candidate` would take on each rank.
    ///
    /// # Errors
    /// Why it cannot be done so, in words.
    fn rehearse(&self, candidate: &Candidate) -> std::result::Result<Vec<RankPrediction>, String>;
}

/// What is searched.
#[derive(Clone, Debug)]
pub struct Space {
    /// Strategies.
    pub strategies: Vec<Strategy>,
    /// Ways to divide the graph; none for one rank.
    pub partitions: Vec<Method>,
    /// Ways to divide it that are not worth rehearsing, and why.
    pub hopeless: Vec<(Method, String)>,
    /// At least this is computed again.
    pub remat: Remat,
}

impl Space {
    /// All exact strategies for a number of ranks; `shares` as for [`strategies`].
    pub fn exact(ranks: usize, shares: usize, partitions: Vec<Method>, remat: Remat) -> Self {
        let partitions = if ranks == 1 { Vec::new() } else { partitions };
        Self { strategies: strategies(ranks, shares), partitions, hopeless: Vec::new(), remat }
    }

    /// The same with pieces, which compute something else; one rank needs none. Pipelines are for those to add who know
    /// the layers.
    pub fn with_approximate(mut self) -> Self {
        if !self.strategies.iter().any(|strategy| matches!(strategy, Strategy::Local(_))) {
            self.strategies.push(settings::Isolated.into());
        }
        self
    }
}

/// A candidate and what is known of it.
#[derive(Clone, Debug)]
pub struct Assessed {
    /// Which.
    pub candidate: Candidate,
    /// What it would take, if it was rehearsed.
    pub prediction: Option<Prediction>,
    /// Whether it can be chosen.
    pub feasible: bool,
    /// Whether nobody looked: it could only be slower than another, and whether it fits is not known.
    pub skipped: bool,
    /// Why not.
    pub reason: Option<String>,
}

impl Assessed {
    /// One that was not looked at.
    fn skipped(candidate: Candidate, reason: String) -> Self {
        Self { candidate, prediction: None, feasible: false, skipped: true, reason: Some(reason) }
    }
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// The fastest that fits, or one that is as fast and needs less memory, with its prediction.
    pub choice: (Candidate, Prediction),
    /// What decided, in one sentence.
    pub why: String,
    /// All candidates: those that can be chosen first, the fastest first.
    pub candidates: Vec<Assessed>,
}

/// Rehearses all of `space` and chooses.
///
/// # Errors
/// [`Error::DoesNotFit`] with what would; [`Error::Impossible`] if nothing could be rehearsed.
pub fn search(space: &Space, stage: &dyn Rehearse, facts: &Facts, progress: &dyn Progress) -> Result<Found> {
    let divisions: Vec<Option<Method>> = match &space.partitions[..] {
        [] => vec![None],
        some => some.iter().copied().map(Some).collect(),
    };
    let task = progress.start("rehearsing", (divisions.len() * space.strategies.len()) as u64, Unit::Items);
    let mut all = Vec::new();
    for partition in divisions {
        for strategy in &space.strategies {
            all.extend(assess(*strategy, partition, space.remat, stage, facts.memory));
            task.add(1);
        }
    }
    drop(task);
    for (strategy, (method, reason)) in space.strategies.iter().flat_map(|s| space.hopeless.iter().map(move |h| (s, h)))
    {
        let candidate = Candidate { strategy: *strategy, partition: Some(*method), remat: space.remat };
        all.push(Assessed::skipped(candidate, reason.clone()));
    }
    all.sort_by(order);
    let feasible = || all.iter().filter(|a| a.feasible).filter_map(|a| Some((a.candidate, a.prediction?)));
    let alike = |(_, p): &(Candidate, Prediction)| feasible().all(|(_, other)| p.seconds <= other.seconds * ALIKE);
    let Some((candidate, prediction)) = feasible().filter(alike).min_by_key(|(_, p)| p.peak.total()) else {
        return Err(nothing_fits(&all, facts));
    };
    let why = explain::why(&candidate, &prediction, &all, facts);
    Ok(Found { choice: (candidate, prediction), why, candidates: all })
}

/// A strategy with as little computed again as fits.
fn assess(
    strategy: Strategy,
    partition: Option<Method>,
    least: Remat,
    stage: &dyn Rehearse,
    memory: u64,
) -> Vec<Assessed> {
    let mut all = Vec::new();
    let least = if matches!(strategy, Strategy::Pipeline { .. }) { least.with_attention() } else { least };
    for remat in remats(least) {
        let candidate = Candidate { strategy, partition, remat: *remat };
        if let Some(done) = all.iter().find(|a: &&Assessed| a.feasible) {
            let reason = match done.candidate.remat {
                Remat::None => "slower without need: it fits with nothing computed a second time".to_string(),
                enough => format!("slower without need: it fits with {} recomputed", name_of(enough)),
            };
            all.push(Assessed::skipped(candidate, reason));
            continue;
        }
        match stage.rehearse(&candidate) {
            Ok(parts) => {
                let prediction = Prediction::of(&parts);
                let over = prediction.peak.total().checked_sub(memory).filter(|over| *over > 0);
                let reason = over.map(|over| {
                    let (peak, over) = (explain::bytes(prediction.peak.total()), explain::bytes(over));
                    format!("{peak} are {over} more than a rank has")
                });
                let (prediction, feasible) = (Some(prediction), over.is_none());
                all.push(Assessed { candidate, prediction, feasible, skipped: false, reason });
            }
            Err(reason) => {
                let reason = Some(reason);
                all.push(Assessed { candidate, prediction: None, feasible: false, skipped: false, reason });
                // What is computed again changes nothing about that.
                break;
            }
        }
    }
    all
}

/// Those that can be chosen first, the fastest first; then those that were rehearsed, the smallest first.
fn order(a: &Assessed, b: &Assessed) -> Ordering {
    let key = |x: &Assessed| match x.prediction {
        Some(p) if x.feasible => (0, p.seconds),
        Some(p) => (1, p.peak.total() as f64),
        None => (2, 0.0),
    };
    let ((ka, xa), (kb, xb)) = (key(a), key(b));
    ka.cmp(&kb).then(xa.total_cmp(&xb))
}

/// By how much the smallest misses, and what would fit.
fn nothing_fits(all: &[Assessed], facts: &Facts) -> Error {
    let rehearsed = all.iter().filter_map(|a| Some((a.candidate, a.prediction?)));
    let Some((candidate, p)) = rehearsed.min_by_key(|(_, p)| p.peak.total()) else {
        let mut reasons: Vec<String> = all.iter().filter_map(|a| a.reason.clone()).collect();
        reasons.dedup();
        return Error::Impossible { reasons: reasons.join("; ") };
    };
    let (peak, memory) = (p.peak.total(), facts.memory);
    let short = format!(
        "the smallest, {candidate}, needs {} on a rank that has {}, {} more",
        explain::bytes(peak),
        explain::bytes(memory),
        explain::bytes(peak - memory)
    );
    let mut remedies = Vec::new();
    // What every rank has in full does not shrink with more of them.
    let fixed: u64 = [Tag::Parameters, Tag::Gradients, Tag::Optimizer].map(|tag| p.peak.of(tag)).iter().sum();
    if fixed < memory {
        let ranks = (facts.ranks as u64 * (peak - fixed)).div_ceil(memory - fixed);
        remedies.push(format!("about {ranks} ranks instead of {}", facts.ranks));
    }
    let halved = [Tag::Activations, Tag::Exchange].map(|tag| p.peak.of(tag)).iter().sum::<u64>() / 2;
    if facts.wide && peak - halved <= memory {
        remedies.push("compute.dtype=bf16, which halves what is kept of every row".into());
    }
    if remedies.is_empty() {
        remedies.push("a narrower model, or ranks with more memory".into());
    }
    Error::DoesNotFit { short, remedy: remedies.join("; or ") }
}

#[cfg(test)]
mod tests {
    use graphweft_base::progress::Silent;

    use super::*;
    use crate::explain::tests::facts;

    /// Takes what it is told to, less memory for what is computed again and more time.
    struct Told(fn(&Candidate) -> std::result::Result<(f64, u64), String>);

    impl Rehearse for Told {
        fn rehearse(&self, candidate: &Candidate) -> std::result::Result<Vec<RankPrediction>, String> {
            let (ms, peak) = (self.0)(candidate)?;
            let (times, factor) = match candidate.remat {
                Remat::None => (1.0, 1.0),
                Remat::Attention => (1.2, 0.7),
                Remat::Layer => (1.3, 0.5),
                Remat::Both => (1.5, 0.5),
            };
            let peak = (peak as f64 * factor) as u64;
            let peak = Usage::new(|tag| if tag == Tag::Activations { peak } else { 0 });
            let seconds = ms * times * 1e-3;
            Ok(vec![RankPrediction { compute: seconds * 0.5, seconds, sent: 10, peak }, RankPrediction::default()])
        }
    }

    fn run(memory: u64, told: fn(&Candidate) -> std::result::Result<(f64, u64), String>) -> Result<Found> {
        let space = Space::exact(2, 8, vec![Method::Contiguous], Remat::None);
        search(&space, &Told(told), &facts(2, memory), &Silent)
    }

    fn by_strategy(c: &Candidate) -> std::result::Result<(f64, u64), String> {
        match c.strategy {
            Strategy::Gather(_) => Ok((1.0, 1000)),
            Strategy::Ring { .. } => Ok((5.0, 100)),
            Strategy::Heads(_) => Err("it has no heads".into()),
            _ => Ok((2.0, 300)),
        }
    }

    #[test]
    fn the_fastest_that_fits_is_chosen_and_the_rest_is_told_why() {
        let chosen = |memory| run(memory, by_strategy).unwrap().choice.0;
        assert_eq!((chosen(2000).strategy, chosen(2000).remat), (settings::Gather.into(), Remat::None));
        assert_eq!((chosen(700).strategy, chosen(700).remat), (settings::Gather.into(), Remat::Attention));
        let short = chosen(260);
        assert!(matches!(short.strategy, Strategy::Halo(_)) && short.remat == Remat::Attention, "{short}");
        assert!(matches!(chosen(60).strategy, Strategy::Ring { .. }));
        let found = run(700, by_strategy).unwrap();
        assert_eq!(found.candidates.len(), 4 * 4 + 1);
        let reason = |strategy, remat| {
            let is = |a: &&Assessed| a.candidate.strategy == strategy && a.candidate.remat == remat;
            found.candidates.iter().find(is).unwrap().reason.clone().unwrap()
        };
        assert!(reason(settings::Gather.into(), Remat::None).contains("300 B more than a rank has"));
        assert!(reason(settings::Gather.into(), Remat::Layer).contains("without need"));
        assert!(reason(settings::Heads.into(), Remat::None).contains("no heads"));
    }

    #[test]
    fn of_those_that_are_as_fast_the_smallest_is_chosen() {
        let chosen = |told| run(2000, told).unwrap();
        let found = chosen(|c| match c.strategy {
            Strategy::Gather(_) => Ok((1.0, 1000)),
            Strategy::Ring { .. } => Ok((1.009, 100)),
            _ => Ok((1.02, 10)),
        });
        assert!(matches!(found.choice.0.strategy, Strategy::Ring { .. }), "{}", found.choice.0);
        assert!(found.why.contains("gather, contiguous is as fast"), "{}", found.why);
        assert_eq!(
            found.candidates[0].candidate.strategy,
            settings::Gather.into(),
            "the fastest is first in the table"
        );
    }

    #[test]
    fn if_nothing_fits_it_says_by_how_much_and_what_would() {
        let Err(Error::DoesNotFit { short, remedy }) = run(40, by_strategy) else { panic!("it cannot fit") };
        assert!(short.contains("ring") && short.contains("50 B") && short.contains("10 B more"), "{short}");
        assert!(remedy.contains("about 3 ranks instead of 2") && remedy.contains("bf16"), "{remedy}");
        let message = run(40, |_| Err("heads are missing".into())).unwrap_err().to_string();
        assert_eq!(message.matches("heads are missing").count(), 1, "{message}");
    }

    #[test]
    fn time_is_split_into_what_it_is_spent_on() {
        let part = |compute, seconds| RankPrediction { compute, seconds, ..RankPrediction::default() };
        let p = Prediction::of(&[part(1.0, 5.0), part(3.0, 4.0)]);
        assert_eq!((p.seconds, p.compute, p.imbalance, p.exposed), (5.0, 2.0, 1.0, 2.0));
    }
}
