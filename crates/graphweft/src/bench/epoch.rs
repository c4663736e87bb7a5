//! One epoch of a model: forward, loss, backward and update.
//!
//! The model is the one that a run trains, input and output layers included, on random features and labels.

use std::sync::Arc;

use graphweft_base::progress::Progress;
use graphweft_comm::Times;
use graphweft_graph::dataset::{Dense, Features, Split};
use graphweft_parallel::Strategy;
use graphweft_plan::explain::counted;
use graphweft_train::Error as Training;
use graphweft_train::config::{Choice, Config};
use graphweft_train::data::Data;
use graphweft_train::planning::{Emulation, EpochTiming, Listener, Plan, PreparedData, TimedEpochs};
use graphweft_train::ranks::World;
use graphweft_train::task::{Labels, NodeClass};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Bench, Kernels, Named, Timed, Timing, middle, normals, open};
use crate::error::{Error, Result};
use crate::input::Input;
use crate::memory::Memory;
use crate::observe::Watched;
use crate::place::Ranks;
use crate::report::RankUsage;
use crate::run::Run;

/// Times epochs of the model of `run` on the graph of `input`.
pub(super) fn run(bench: &Bench, input: &Input, run: &Run) -> Result<Timing> {
    let mut config = run.finish(run.draft()?)?;
    if let Choice::Named(Strategy::Isolated(_)) = config.parallel.strategy {
        return Err(not_timed("--strategy isolated"));
    }
    if config.isolated.memory.is_some() {
        let problem = "only the strategy isolated keeps to it, whose epochs are not timed here";
        let remedy = "leave it out, or use `graphweft train`, which says what its epochs take";
        return Err(Training::setting("isolated.memory", problem, remedy).into());
    }
    let watched = Watched::by(&bench.observer);
    let place = bench.device.place_of(&config.parallel, &watched);
    let (wanted, precision) = (config.parallel.ranks, config.compute.precision);
    let timed = Subject { bench, input };
    let Some(first) = bench.emulated.first() else {
        let ranks = Ranks { config: &config.parallel, wanted, place, precision, watched: &watched };
        return ranks.enter(|world, watched| time(&timed, &config, &[], world, &watched));
    };
    // What is planned is planned for there.
    config.parallel.profile.get_or_insert_with(|| first.display().to_string());
    let places = bench.emulated.iter().map(|path| Emulation::read(path)).collect::<Result<Vec<_>, _>>()?;
    let names: Vec<String> = places.iter().map(|place| place.name.clone()).collect();
    let ranks = Ranks { config: &config.parallel, wanted, place, precision, watched: &watched };
    ranks.emulate(places, |world, watched| time(&timed, &config, &names, world, &watched))
}

/// What is timed, and on what.
struct Subject<'a> {
    bench: &'a Bench,
    input: &'a Input,
}

impl Subject<'_> {
    /// Random features and labels; every node is learned from.
    fn data(&self, named: Named) -> Result<(Data, Split)> {
        let Named { name, csr: graph } = named;
        let (nodes, width) = (graph.num_dst(), self.bench.features.unwrap_or(self.bench.hidden));
        let features = Dense::F32 { values: normals(nodes, width, 1)?.into(), width };
        let labels = (0..nodes as i64).map(|node| node * 7919 % self.bench.classes as i64).collect();
        let all: Vec<i64> = (0..nodes as i64).collect();
        let valid = all.iter().copied().take(1).collect::<Vec<_>>().into();
        let split = Split { name: "all".into(), train: all.into(), valid, test: Vec::new().into() };
        let data = Data {
            name,
            folder: None,
            graph,
            features: Features::Dense(features),
            is_directed: false,
            edges: None,
            types: Default::default(),
            encodings: Vec::new(),
            task: &NodeClass,
            labels: Some(Labels::Integers(labels)),
            classes: self.bench.classes,
            splits: Vec::new(),
            graphs: None,
            links: Vec::new(),
            relation_names: Vec::new(),
        };
        Ok((data, split))
    }
}

/// Why pieces are refused, however they were asked for.
fn not_timed(asked: &str) -> Error {
    let what = format!("{asked}: epochs are timed here in which every rank learns from all its rows");
    Error::request(what, "use `graphweft train`, which says what its epochs take")
}

/// `places` are the names of those elsewhere.
fn time(timed: &Subject<'_>, config: &Config, places: &[String], world: World, watched: &Watched) -> Result<Timing> {
    let world = &if timed.bench.kernels == Kernels::Timed { world.timing_kernels() } else { world };
    let (data, split) = timed.data(open(timed.input, watched)?)?;
    let data = Arc::new(data);
    let graph = data.graph_for(&config.model, config.run.seed)?;
    let progress: Arc<dyn Progress> = Arc::new(watched.clone());
    let tell = |line: &str| watched.note(line);
    let listener = Listener { progress: &progress, tell: &tell };
    let plan = Plan::agreed(config, world, PreparedData { data: &data, graph: &graph }, listener)?;
    if let Strategy::Isolated(_) = plan.strategy {
        let chosen = || not_timed("--allow-approximate, by which isolated was chosen");
        return Err(if world.leads() { chosen() } else { Training::Refused.into() });
    }
    let mut config = config.clone();
    config.compute.remat = plan.remat;
    let about = About {
        graph: data.name.clone(),
        nodes: data.graph.num_dst(),
        edges: data.graph.num_edges(),
        threads: world.threads_of_rank(),
        device: world.place().to_string(),
        config: config.clone(),
        plan: plan.clone(),
    };
    let timing = EpochTiming { config, plan, data, graph, split, runs: timed.bench.runs };
    let measured = timing.run(world, listener)?;
    if !world.leads() {
        return Err(Error::follows());
    }
    Ok(about.timing(measured, places))
}

/// What was timed.
struct About {
    graph: String,
    nodes: usize,
    edges: usize,
    threads: usize,
    device: String,
    config: Config,
    plan: Plan,
}

impl About {
    fn timing(&self, measured: TimedEpochs, places: &[String]) -> Timing {
        let Self { config, plan, graph, .. } = self;
        let usages: Vec<RankUsage> = measured.usages.iter().map(RankUsage::from).collect();
        let mut json = self.json(&measured, &usages);
        json["bytes_sent_to"] =
            json!(measured.usages.iter().map(graphweft_train::ranks::RankUsage::sent_to).collect::<Vec<_>>());
        let TimedEpochs { times, elsewhere, recorded, kernels: compared, .. } = measured;
        let elsewhere: Vec<Elsewhere> =
            places.iter().zip(&elsewhere).map(|(name, times)| Elsewhere::new(name, times)).collect();
        if let Some(compared) = &compared {
            json["kernels"] = json!(compared);
        }
        let [step, forward, backward, update] = times.map(middle);
        // Phases are not emulated, and how long they took here says nothing; a recording does all in one.
        if recorded || !elsewhere.is_empty() {
            ["forward_ms", "backward_ms", "update_ms"].into_iter().for_each(|key| json[key] = Value::Null);
        }
        if let Some(first) = elsewhere.first() {
            json["step_ms"] = json!(first.step_ms);
            json["emulated"] = json!(elsewhere);
        }
        let phase = |name: &str, ms| Timed::new(name, ms);
        let phases = match &elsewhere[..] {
            [] if recorded => vec![phase("epoch, recorded", step)],
            [] => vec![
                phase("forward", forward),
                phase("backward", backward),
                phase("update", update),
                phase("epoch", step),
            ],
            all => all.iter().map(|e| Timed::new(format!("epoch, emulated on {}", e.profile), e.step_ms)).collect(),
        };
        let layers = counted(config.model.layers(), "layer");
        let (ranks, threads) = (counted(plan.ranks, "rank"), counted(self.threads, "thread"));
        let (strategy, dtype) = (plan.strategy, config.compute.dtype);
        Timing {
            title: format!(
                "{} with {layers} on {graph}, {ranks} of {threads}, {strategy}, {dtype}",
                config.model_name()
            ),
            phases,
            rate: None,
            peak: Some(Memory::largest(usages.iter().map(|usage| usage.peak))),
            over_floor: None,
            sent: (plan.ranks > 1).then(|| usages.iter().map(RankUsage::bytes_sent).sum()),
            kernels: compared.map(|all| {
                let kernels = all.iter().map(|c| Timed {
                    heads: c.shape.map(|(heads, width)| (heads, width / heads.max(1))),
                    calls: Some(c.calls),
                    predicted_ms: Some(c.predicted_ms),
                    ..Timed::new(c.op.clone(), c.measured_ms)
                });
                kernels.collect()
            }),
            json,
        }
    }

    /// As it is before phases are left out.
    fn json(&self, measured: &TimedEpochs, usages: &[RankUsage]) -> Value {
        let Self { config, plan, .. } = self;
        let [step, forward, backward, update] = measured.times.clone().map(middle);
        let peak = Memory::largest(usages.iter().map(|usage| usage.peak));
        let peaks: Vec<u64> = usages.iter().map(|usage| usage.peak.total()).collect();
        let sent: Vec<u64> = usages.iter().map(RankUsage::bytes_sent).collect();
        json!({
            "op": "train", "model": config.model_name(), "graph": self.graph, "nodes": self.nodes,
            "edges": self.edges, "threads": self.threads, "device": self.device,
            "dtype": config.compute.dtype.to_string(),
            // Settings may say otherwise than the flags.
            "hidden": config.model.hidden(), "layers": config.model.layers(), "parameters": measured.parameters,
            "dropout": config.train.dropout,
            "forward_ms": forward, "backward_ms": backward, "update_ms": update, "step_ms": step, "floor_ms": null,
            "recorded": measured.recorded,
            "peak_bytes": peak.total(), "peak": peak.to_json(), "peak_bytes_by_rank": peaks,
            "bytes_sent": sent.iter().sum::<u64>(), "bytes_sent_by_rank": sent,
            "strategy": plan.strategy, "ranks": plan.ranks, "remat": plan.remat, "predicted": plan.predicted,
            "why": plan.why,
        })
    }
}

/// An epoch elsewhere, in milliseconds.
#[derive(Serialize)]
struct Elsewhere {
    profile: String,
    step_ms: f64,
    /// Of each rank.
    computing_ms: Vec<f64>,
    waiting_ms: Vec<f64>,
}

impl Elsewhere {
    fn new(name: &str, times: &[Times]) -> Self {
        let each = |of: fn(&Times) -> f64| times.iter().map(|t| of(t) * 1e3).collect();
        Self {
            profile: name.into(),
            step_ms: TimedEpochs::seconds(times) * 1e3,
            computing_ms: each(|t| t.computing),
            waiting_ms: each(|t| t.waiting),
        }
    }
}
