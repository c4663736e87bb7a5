//! What `--strategy auto` means: every way to spread a run is rehearsed, and the fastest that fits is taken.

mod described;
mod here;
mod instead;
pub(crate) mod kernels;
mod trial;

use std::cell::RefCell;
use std::sync::Arc;

use graphweft_base::progress::{Progress, Silent};
use graphweft_comm::Times;
use graphweft_graph::partition::{Method, Partition, statistics};
use graphweft_model::Prepared;
use graphweft_parallel::{Strategy, settings};
use graphweft_plan::candidates::pipelines;
use graphweft_plan::explain::{self, Facts};
use graphweft_plan::search::{Prediction, RankPrediction, Rehearse, Space};
use graphweft_plan::{Candidate, Error as Planning, Found, Profile, search};
use graphweft_tensor::{DType, Work};

use crate::config::{Choice, Config};
use crate::data::Data;
use crate::epochs::{batches, pieces};
use crate::error::{Error, Result};
use crate::planning::machines;
use crate::planning::plan::{Division, Plan, Predicted, Trial, chunk_parts, divide};
use crate::planning::rehearsal::{Rehearsal, Rehearsed, Rehearser};
use crate::ranks::world::World;

pub(crate) use here::Effort;
pub use here::Listener;
pub(crate) use here::Role;
use here::profile_as;
pub(crate) use instead::instead;
pub(crate) use trial::decide_by_measuring;

/// A way to divide the graph is not rehearsed if it cuts this many times as many rows off as another.
const HOPELESS: f64 = 2.0;

/// What a run learns from.
#[derive(Clone, Copy)]
pub struct PreparedData<'a> {
    /// Features, labels and splits of the nodes.
    pub data: &'a Arc<Data>,
    /// Their graph, with the edges that the model adds.
    pub graph: &'a Prepared,
}

/// What is planned for, and with what.
pub struct Planner<'a> {
    /// Settings.
    pub config: &'a Config,
    /// How many ranks there will be.
    pub ranks: usize,
    /// The nodes.
    pub data: &'a Arc<Data>,
    /// Their graph, with the edges that the model adds.
    pub graph: &'a Prepared,
    /// The machine.
    pub profile: &'a Profile,
}

/// A choice, everything that was compared, and what a rank may use.
pub struct Planned {
    /// What was chosen.
    pub plan: Plan,
    /// All candidates.
    pub found: Found,
    /// Bytes of a rank.
    pub memory: u64,
}

/// A graph, divided.
struct Divided {
    division: Division,
    parts: Arc<Partition>,
    alpha: f64,
}

impl Planner<'_> {
    /// Rehearses and chooses. As in a run, memory that is given for pieces decides the number of chunks.
    ///
    /// # Errors
    /// If nothing fits, or the graph cannot be divided.
    pub fn plan(&self, progress: &dyn Progress) -> Result<Planned> {
        let mut config = self.config.clone();
        config.parallel.ranks = Some(self.ranks as u64);
        pieces::size(&mut config, self.data)?;
        Planner { config: &config, ..*self }.choose(progress)
    }

    fn choose(&self, progress: &dyn Progress) -> Result<Planned> {
        let in_chunks = match self.config.parallel.strategy {
            // One rank that goes through chunks divides the graph as no other strategy would.
            Choice::Named(Strategy::Isolated(_)) if self.ranks == 1 => {
                Some(Plan::unplanned(self.config, 1, self.data, progress)?)
            }
            _ => None,
        };
        let of_graphs = self.of_graphs(progress)?;
        let divided = if self.ranks == 1 || of_graphs.is_some() { Vec::new() } else { self.divisions(progress)? };
        let best = divided.iter().map(|d| d.alpha).fold(f64::INFINITY, f64::min);
        let (hopeful, hopeless): (Vec<&Divided>, Vec<&Divided>) = divided
            .iter()
            .partition(|d| d.division.method == self.config.parallel.partition || d.alpha <= HOPELESS * best);
        let memory = memory_of(self.profile);
        let (shares, heads) = shares(self.config);
        let mut space = Space::exact(
            self.ranks,
            shares,
            hopeful.iter().map(|d| d.division.method).collect(),
            self.config.compute.remat,
        );
        if self.config.parallel.allow_approximate {
            space = space.with_approximate();
            space.strategies.extend(pipelines(self.ranks));
        }
        space.strategies = match of_graphs {
            Some(only) => vec![only],
            None => self.strategies(space.strategies)?,
        };
        let reason = |d: &&Divided| (d.division.method, format!("α = {:.2}, where another way has {best:.2}", d.alpha));
        space.hopeless = hopeless.iter().map(reason).collect();
        let wire = self.profile.network.wire(0, self.ranks - 1);
        let facts = Facts {
            ranks: self.ranks,
            memory,
            shares,
            heads,
            wide: self.config.compute.dtype != DType::Bf16,
            alphas: divided.iter().map(|d| (Some(d.division.method), d.alpha)).collect(),
            latency: wire.latency,
            bandwidth: wire.bandwidth,
        };
        let rehearser = Rehearser::new(self.data, self.graph).on(self.profile);
        let chunked = RefCell::default();
        let candidates = Candidates {
            planner: self,
            rehearser,
            divided: &divided,
            chunked: &chunked,
            in_chunks: in_chunks.as_ref(),
            refusal: RefCell::default(),
        };
        // Where nothing is possible, what a run would say.
        let refused = |e| match (e, candidates.refusal.take()) {
            (Planning::Impossible { .. }, Some(refusal)) => refusal,
            (e, _) => e.into(),
        };
        let mut found = search(&space, &candidates, &facts, progress).map_err(refused)?;
        let (candidate, prediction) = found.choice;
        let costs = candidate.partition.map(|_| self.data.tell_row_costs(&self.config.model));
        found.why.push_str(&costs.unwrap_or_default());
        let mut chosen = divided.into_iter().find(|d| Some(d.division.method) == candidate.partition);
        if let (Some(chosen), Strategy::Pipeline(settings::Pipeline { shape })) = (&mut chosen, candidate.strategy) {
            let count = chunk_parts(shape, self.ranks, self.config)?;
            (chosen.division, chosen.parts) = self.chunks(&chunked, chosen.division.method, count)?;
        }
        let (partition, parts) = chosen.map(|d| (d.division, d.parts)).unzip();
        let plan = Plan {
            strategy: candidate.strategy,
            ranks: self.ranks,
            why: found.why.clone(),
            remat: candidate.remat,
            predicted: Some(predicted(&prediction, self.profile)),
            candidates: Some(Arc::new(explain::to_json(&found))),
            trials: trials(&found, self.config.parallel.measure as usize, self.profile),
            ..in_chunks.unwrap_or(Plan { partition, parts, ..Plan::local(candidate.remat) })
        };
        Ok(Planned { plan, found, memory })
    }

    /// What is asked for, or all of these that are for the machine and the settings.
    fn strategies(&self, mut all: Vec<Strategy>) -> Result<Vec<Strategy>> {
        let Config { parallel, wire, .. } = self.config;
        if let Choice::Named(only) = parallel.strategy {
            return Ok(vec![machines::known(only, parallel, Some(self.profile))?]);
        }
        all.extend(machines::candidate(self.ranks, self.profile));
        all.retain(|strategy| wire.is_for(strategy));
        Ok(all)
    }

    /// What there is for data of many graphs, if that is what these are.
    fn of_graphs(&self, progress: &dyn Progress) -> Result<Option<Strategy>> {
        let plan = || Plan::for_data(self.config, self.ranks, self.data, progress);
        Ok(self.data.graphs.as_ref().map(|_| plan()).transpose()?.map(|plan| plan.strategy))
    }

    /// What one rank would take that has all rows, as fast as each of the ranks.
    ///
    /// # Errors
    /// As a run.
    pub fn on_one_rank(&self) -> Result<Prediction> {
        let mut config = self.config.clone();
        (config.parallel.ranks, config.parallel.parts, config.parallel.strategy) = (Some(1), None, Choice::Auto);
        let plan = Plan::local(config.compute.remat);
        let rehearsal = Rehearser::new(self.data, self.graph).on(self.profile).rehearse(&config, &plan)?;
        Ok(Prediction::of(&self.whole_epoch(parts_of(&rehearsal, &config, self.profile)?)))
    }

    /// What ranks would take for an epoch, where one step of the largest batch was rehearsed: as much more as there is
    /// more work.
    fn whole_epoch(&self, mut parts: Vec<RankPrediction>) -> Vec<RankPrediction> {
        let Some(ptr) = self.data.graphs.as_deref() else { return parts };
        let split = self.data.split_name(self.config.data.split.as_deref());
        let split = split.and_then(|name| self.data.split(&name, self.config.run.seed));
        let all = (0..self.data.items() as u64).collect();
        let learned: Vec<u64> = split.map_or(all, |split| split.train.iter().map(|id| *id as u64).collect());
        let batch = self.config.train.batch_of(self.data.items());
        let of = |graphs: &[u64]| graphs.iter().map(|g| batches::work(self.data, ptr, *g)).sum::<u64>().max(1) as f64;
        let more = of(&learned) / of(&batches::largest(self.data, &learned, batch));
        let steps = learned.len().div_ceil(batch).max(1) as u64;
        for part in &mut parts {
            part.compute *= more;
            part.seconds *= more;
            part.sent *= steps;
        }
        parts
    }

    /// About how many seconds a run takes, if it were shared by ranks for nothing: what one rank takes for all epochs,
    /// of each its part. Nothing if that cannot be rehearsed.
    pub fn run_seconds(&self) -> Option<f64> {
        let epoch = self.on_one_rank().ok()?.seconds / self.ranks as f64;
        Some(epoch * self.config.train.epochs as f64 * self.config.run.seeds as f64)
    }

    /// The graph in chunks, as one of `known` or as it is divided now.
    fn chunks(&self, known: &RefCell<Vec<Chunked>>, method: Method, count: usize) -> Result<Chunked> {
        let same = |(division, _): &&Chunked| (division.method, division.parts) == (method, count);
        if let Some(found) = known.borrow().iter().find(same) {
            return Ok(found.clone());
        }
        let mut config = self.config.clone();
        config.parallel.partition = method;
        let (division, parts) = divide(&config, count, self.data, &Silent)?;
        let made = (division, Arc::new(parts));
        known.borrow_mut().push(made.clone());
        Ok(made)
    }

    /// The way that is asked for, and ranges of ids, which cost nothing and are hard to beat on a graph in a good
    /// order.
    fn divisions(&self, progress: &dyn Progress) -> Result<Vec<Divided>> {
        let asked = self.config.parallel.partition;
        let mut all = Vec::new();
        for method in [asked, Method::Contiguous] {
            if all.iter().any(|d: &Divided| d.division.method == method) {
                continue;
            }
            let mut config = self.config.clone();
            config.parallel.partition = method;
            let (division, parts) = divide(&config, config.parallel.parts_for(self.ranks), self.data, progress)?;
            let alpha = statistics(&self.data.graph, &parts).alpha;
            all.push(Divided { division, parts: Arc::new(parts), alpha });
        }
        Ok(all)
    }
}

/// A graph in chunks, and how it was divided into them.
type Chunked = (Division, Arc<Partition>);

/// Bytes of a rank.
fn memory_of(profile: &Profile) -> u64 {
    profile.memory.unwrap_or(f64::MAX) as u64
}

/// Heads that ranks can share, or columns where there are none, and which of the two.
fn shares(config: &Config) -> (usize, bool) {
    config.model.heads().map_or((config.model.hidden(), false), |heads| (heads, true))
}

/// The first line of an error.
fn in_words(e: &Error) -> String {
    e.to_string().lines().next().unwrap_or_default().to_string()
}

fn predicted(prediction: &Prediction, profile: &Profile) -> Predicted {
    let timed = !profile.kernels.is_empty();
    Predicted {
        epoch_ms: timed.then_some(prediction.seconds * 1e3),
        error: timed.then(|| profile.error()),
        peak_bytes: prediction.peak.total(),
    }
}

/// The choice and the best after it, `count` in all, as far as they need the same parts.
fn trials(found: &Found, count: usize, profile: &Profile) -> Vec<Trial> {
    let chosen = found.choice.0;
    let alike = found.candidates.iter().filter(|a| a.feasible && a.candidate.partition == chosen.partition);
    let others = alike.filter(|a| a.candidate != chosen).filter_map(|a| Some((a.candidate, a.prediction?)));
    // Chunks are other parts, and what computes something else is not tried for its speed alone.
    let all = std::iter::once(found.choice).chain(others);
    let all = all.filter(|(c, _)| c.strategy.is_exact() && chosen.strategy.is_exact());
    let trial = |(c, p): (Candidate, Prediction)| Trial {
        strategy: c.strategy,
        remat: c.remat,
        predicted: predicted(&p, profile),
    };
    all.take(count).map(trial).collect()
}

impl Plan {
    /// The plan for a run in all processes of `world`: what is asked for, or the planner's choice. `listener` hears, in
    /// a line each, what was tried and does not fit.
    ///
    /// # Errors
    /// As [`Planner::plan`]; elsewhere than in the process that leads, [`Error::Refused`].
    pub fn agreed(config: &Config, world: &World, nodes: PreparedData<'_>, listener: Listener<'_>) -> Result<Self> {
        let profile = profile_for(config, world, Role::of(world), nodes, listener);
        let plan = || decide(config, world.ranks(), nodes, profile?.as_ref(), &**listener.progress);
        decide_by_measuring(Self::share(world, world.leads().then(plan))?, config, world, nodes, listener.tell)
    }
}

/// A profile, where a strategy is to be chosen; see [`profile`]. One rank has nothing to choose, and nothing is timed
/// for it.
pub(crate) fn profile_for(
    config: &Config,
    world: &World,
    role: Role,
    nodes: PreparedData<'_>,
    listener: Listener<'_>,
) -> Result<Option<Profile>> {
    let (PreparedData { data, graph }, ranks) = (nodes, world.ranks());
    let seconds = |rough: &Profile| Planner { config, ranks, data, graph, profile: rough }.run_seconds();
    let effort = if world.ranks() > 1 { Effort::ForRun(&seconds) } else { Effort::Untimed };
    match config.parallel.strategy {
        Choice::Auto => profile_as(role, config, world, effort, listener),
        Choice::Named(_) => Ok(None),
    }
}

/// What is asked for, or with a profile the planner's choice.
pub(crate) fn decide(
    config: &Config,
    ranks: usize,
    nodes: PreparedData<'_>,
    profile: Option<&Profile>,
    progress: &dyn Progress,
) -> Result<Plan> {
    let PreparedData { data, graph } = nodes;
    match profile {
        Some(profile) => Ok(Planner { config, ranks, data, graph, profile }.plan(progress)?.plan),
        None => Plan::for_data(config, ranks, data, progress),
    }
}

/// Those who rehearse.
struct Candidates<'a> {
    planner: &'a Planner<'a>,
    rehearser: Rehearser<'a>,
    divided: &'a [Divided],
    chunked: &'a RefCell<Vec<Chunked>>,
    /// For one rank that goes through chunks.
    in_chunks: Option<&'a Plan>,
    /// The last one.
    refusal: RefCell<Option<Error>>,
}

impl Rehearse for Candidates<'_> {
    fn rehearse(&self, candidate: &Candidate) -> std::result::Result<Vec<RankPrediction>, String> {
        let Planner { config, ranks, profile, .. } = *self.planner;
        let divided = self.divided.iter().find(|d| Some(d.division.method) == candidate.partition);
        let mut config = config.clone();
        config.compute.remat = candidate.remat;
        let rehearsal = || {
            let parts = match (candidate.strategy, divided) {
                (Strategy::Pipeline(settings::Pipeline { shape }), Some(d)) => {
                    let count = chunk_parts(shape, ranks, &config)?;
                    Some(self.planner.chunks(self.chunked, d.division.method, count)?.1)
                }
                (_, divided) => divided.map(|d| Arc::clone(&d.parts)),
            };
            let Candidate { strategy, remat, .. } = *candidate;
            let plan = match self.in_chunks {
                Some(plan) => Plan { remat, ..plan.clone() },
                None => Plan { strategy, remat, ranks, parts, ..Plan::local(remat) },
            };
            self.rehearser.rehearse(&config, &plan)
        };
        let rehearsal = rehearsal().map_err(|e| {
            let words = in_words(&e);
            self.refusal.replace(Some(e));
            words
        })?;
        let parts = parts_of(&rehearsal, &config, profile).map_err(|e| in_words(&e))?;
        Ok(self.planner.whole_epoch(parts))
    }
}

/// What every rank would take for what was rehearsed.
fn parts_of(rehearsal: &Rehearsal, config: &Config, profile: &Profile) -> Result<Vec<RankPrediction>> {
    let recorded = config.compute.records() && rehearsal.is_recorded();
    let seconds = |work: &Work| match (recorded, work.op) {
        (false, _) => profile.seconds(work),
        // The host reads the loss with what gradients came to, which is a part of every recorded step.
        (true, Work::DOWNLOAD) => 0.0,
        (true, _) => profile.seconds_recorded(work),
    };
    let times = rehearsal.times_on_average(&profile.network, seconds)?;
    let part = |(rank, times): (&Rehearsed, &Times)| RankPrediction {
        compute: times.computing,
        seconds: times.end,
        sent: rank.sent.iter().map(|s| s.bytes).sum(),
        peak: rank.peak.most,
    };
    Ok(rehearsal.ranks.iter().zip(&times).map(part).collect())
}
