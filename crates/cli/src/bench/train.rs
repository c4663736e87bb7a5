//! `graphweft bench train`: one epoch of a model: forward, loss, backward and update.
//!
//! The model is the one that `graphweft train` trains, input and output layers included, on random features and labels.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use clap::ValueEnum;
use graphweft_comm::Times;
use graphweft_graph::dataset::{Dense, Features, Split};
use graphweft_graph::progress::Progress;
use graphweft_graph::{Csr, Error};
use graphweft_parallel::Strategy;
use graphweft_tensor::{DType, Timings, Usage};
use graphweft_train::Error as Training;
use graphweft_train::config::{Choice, Config, Draft};
use graphweft_train::course::{Course, Material};
use graphweft_train::data::{Data, Target};
use graphweft_train::emulation::{Clock, Emulation, Epoch};
use graphweft_train::handout::Handout;
use graphweft_train::planner::kernels::{self, Compared};
use graphweft_train::planner::{self, Care, Heard};
use graphweft_train::rank::{Rank, Toll};
use graphweft_train::rehearsal::Stage;
use graphweft_train::world::World;
use serde::Serialize;
use serde_json::{Value, json};

use super::{Common, Input, at_least_one, middle, normals, open};
use crate::ranks::{self, Spread};
use crate::shortcuts::MODELS;
use crate::ui::{Ui, bytes, counted, table, usage};

/// The number of the first epoch: that of a run which is under way, in which a pipeline makes history only now and then.
const FIRST: u64 = 41;
/// Most epochs before those that are measured.
const WARM_UP: u64 = 6;

/// What is computed again in backward instead of being kept.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Remat {
    /// Nothing
    None,
    /// Attention, with the projections of its operands
    Attention,
    /// Everything inside a layer
    Layer,
    /// The same, and in that again its attention
    Both,
}

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    input: Input,

    #[command(flatten)]
    common: Common,

    #[arg(long, default_value = "gt", value_name = "NAME", help = MODELS)]
    model: String,

    /// Layers
    #[arg(long, default_value_t = 4, value_name = "L")]
    layers: u32,

    /// Columns of the features [default: as --hidden]
    #[arg(long, value_name = "F", value_parser = at_least_one())]
    features: Option<usize>,

    /// Classes
    #[arg(long, default_value_t = 40, value_name = "C", value_parser = at_least_one())]
    classes: usize,

    /// Share of elements that dropout drops
    #[arg(long, default_value_t = 0.1, value_name = "RATE")]
    dropout: f64,

    /// What to compute again instead of keeping it
    #[arg(long, value_enum, default_value_t = Remat::None)]
    remat: Remat,

    #[command(flatten)]
    ranks: Spread,

    /// Time epochs as if ranks were elsewhere: shipped profiles, such as 16-cpu-10g, or TOML files with the network and how fast
    /// ranks compute; one run serves all
    #[arg(long, value_name = "NAME|FILE")]
    emulate: Vec<PathBuf>,

    /// Also time every kernel, beside what the planner expects of it
    #[arg(long)]
    kernels: bool,

    /// Other keys of the model and of training, e.g. model.heads=4
    #[arg(value_name = "KEY=VALUE")]
    settings: Vec<String>,
}

impl Args {
    fn config(&self) -> anyhow::Result<Config> {
        let mut draft = Draft::default();
        draft.set("model", "name", self.model.as_str())?;
        draft.set("model", "hidden", self.common.hidden as i64)?;
        draft.set("model", "layers", i64::from(self.layers))?;
        draft.set("train", "dropout", self.dropout)?;
        draft.set("train", "attention_dropout", self.dropout)?;
        draft.set("compute", "dtype", DType::from(self.common.dtype).to_string())?;
        if let Some(remat) = self.remat.to_possible_value() {
            draft.set("compute", "remat", remat.get_name())?;
        }
        if let Some(folder) = self.input.source.folder() {
            // Where partitions may be stored.
            draft.set("data", "path", folder.display().to_string())?;
        }
        self.ranks.set(&mut draft)?;
        self.settings.iter().try_for_each(|s| draft.assign(s))?;
        Ok(draft.finish()?)
    }

    /// Random features and labels; every node is learned from.
    fn data(&self, name: String, graph: Csr<u32>) -> anyhow::Result<(Data, Split)> {
        let (nodes, width) = (graph.num_dst(), self.features.unwrap_or(self.common.hidden));
        let features = Dense::F32 { values: normals(nodes, width, 1)?.into(), width };
        let labels = (0..nodes as i64).map(|node| node * 7919 % self.classes as i64).collect();
        let all: Vec<i64> = (0..nodes as i64).collect();
        let valid = all.iter().copied().take(1).collect::<Vec<_>>().into();
        let split = Split { name: "all".into(), train: all.into(), valid, test: Vec::new().into() };
        let data = Data {
            name,
            folder: None,
            graph,
            features: Features::Dense(features),
            is_directed: false,
            has_edge_features: false,
            encodings: Vec::new(),
            target: Some(Target::Class(labels)),
            classes: self.classes,
            splits: Vec::new(),
        };
        Ok((data, split))
    }
}

/// What one rank measured.
struct Measured {
    /// All of each epoch, and its forward, backward and update.
    times: [Vec<f64>; 4],
    parameters: usize,
    /// Of all ranks, on the first.
    tolls: Vec<Toll>,
    /// On the first rank: of each place elsewhere, the times of all ranks.
    elsewhere: Vec<Vec<Times>>,
    /// Of each rank, on the first, seconds of every call of a kernel, if they are timed.
    kernels: Vec<Vec<f64>>,
    /// Whether the device did steps by itself.
    recorded: bool,
}

pub(super) fn run(args: &Args, ui: &Ui) -> anyhow::Result<()> {
    let mut config = args.config()?;
    if config.parallel.strategy == Choice::Named(Strategy::Isolated) {
        return Err(not_timed("--strategy isolated").into());
    }
    if config.isolated.memory.is_some() {
        let problem = "only the strategy isolated keeps to it, whose epochs are not timed here";
        let remedy = "leave it out, or use `graphweft train`, which says what its epochs take";
        return Err(Training::setting("isolated.memory", problem, remedy).into());
    }
    let place = args.common.device.place_of(&config.parallel, ui);
    if let Some(first) = args.emulate.first() {
        // What is planned is planned for there.
        config.parallel.profile.get_or_insert_with(|| first.display().to_string());
        let places = args.emulate.iter().map(|path| Emulation::read(path)).collect::<Result<Vec<_>, _>>()?;
        let names: Vec<String> = places.iter().map(|place| place.name.clone()).collect();
        let verb = |world: World, ui: &Ui| time(args, &config, &names, world, ui);
        return ranks::emulate(&config.parallel, places, place, ui, verb);
    }
    let place = (place, config.compute.precision.into());
    ranks::enter(&config.parallel, config.parallel.ranks, place, ui, |world, ui| time(args, &config, &[], world, ui))
}

/// Why pieces are refused, however they were asked for.
fn not_timed(asked: &str) -> Error {
    let what = format!("{asked}: epochs are timed here in which every rank learns from all its rows");
    Error::request(what, "use `graphweft train`, which says what its epochs take")
}

/// `places` are the names of those elsewhere.
fn time(args: &Args, config: &Config, places: &[String], world: World, ui: &Ui) -> anyhow::Result<()> {
    let world = &if args.kernels { world.timing_kernels() } else { world };
    let (name, csr) = open(&args.input, ui)?;
    let (data, split) = args.data(name, csr)?;
    let data = Arc::new(data);
    let graph = config.model.prepare(data.graph.clone(), config.run.seed)?;
    let progress: Arc<dyn Progress> = Arc::new(ui.clone());
    let plan = planner::shared(config, world, &data, &graph, &progress, &|line| ui.note(line))?;
    if plan.strategy == Strategy::Isolated {
        let chosen = || not_timed("--allow-approximate, by which isolated was chosen").into();
        return Err(if world.leads() { chosen() } else { Training::Refused.into() });
    }
    let mut config = config.clone();
    config.compute.remat = plan.remat;
    let tell = |line: &str| ui.note(line);
    let heard = Heard { progress: &progress, tell: &tell };
    let profile = match args.kernels {
        true => planner::profile(&config, world, world.leads(), Care::Full, heard)?,
        false => None,
    };
    let expected = match profile {
        Some(profile) => Some((Stage::new(&data, &graph).on(&profile).rehearse(&config, &plan)?, profile)),
        None => None,
    };
    let (name, nodes, edges) = (data.name.clone(), data.graph.num_dst(), data.graph.num_edges());
    let whole = Handout::new((data, graph, split), world.ranks_inside());
    let task = (config.clone(), plan.clone(), args.common.runs);
    let Measured { times, parameters, tolls, elsewhere, kernels, recorded } = world.run(move |rank| {
        let (whole, (config, plan, runs)) = (whole.take()?, &task);
        let (data, graph, split) = &*whole;
        let folder = Path::new("");
        let course = Course::new(rank, &Material { config, plan, data, graph, chunks: None, split, folder })?;
        drop(whole);
        measure(rank, course, config, *runs)
    })?;
    let dtype = DType::from(config.compute.dtype);
    // Settings may say otherwise than the flags.
    let [hidden, layers] = ["hidden", "layers"].map(|key| config.model_number(key));
    let [step, forward, backward, update] = times.map(middle);
    let peak = tolls.iter().map(|t| t.peak).max_by_key(Usage::total).unwrap_or_default();
    let peaks: Vec<u64> = tolls.iter().map(|t| t.peak.total()).collect();
    let sent: Vec<u64> = tolls.iter().map(Toll::bytes_sent).collect();
    let elsewhere: Vec<Elsewhere> =
        places.iter().zip(&elsewhere).map(|(name, times)| Elsewhere::new(name, times)).collect();
    let kernels = expected.and_then(|(rehearsal, profile)| kernels::compare(&rehearsal, &kernels, &profile));
    let mut json = json!({
        "op": "train", "model": config.model_name(), "graph": name, "nodes": nodes,
        "edges": edges, "threads": world.threads_of_rank(), "device": world.place().to_string(), "dtype": dtype.to_string(),
        "hidden": hidden, "layers": layers, "parameters": parameters, "dropout": config.train.dropout,
        "forward_ms": forward, "backward_ms": backward, "update_ms": update, "step_ms": step, "floor_ms": null,
        "recorded": recorded,
        "peak_bytes": peak.total(), "peak": usage(peak), "peak_bytes_by_rank": peaks,
        "bytes_sent": sent.iter().sum::<u64>(), "bytes_sent_by_rank": sent,
        "strategy": plan.strategy, "ranks": plan.ranks, "remat": plan.remat, "predicted": plan.predicted, "why": plan.why,
    });
    if let (Some(kernels), Value::Object(json)) = (&kernels, &mut json) {
        json.insert("kernels".into(), json!(kernels));
    }
    if let (Some(first), Value::Object(json)) = (elsewhere.first(), &mut json) {
        // Phases are not emulated, and how long they took here says nothing.
        ["forward_ms", "backward_ms", "update_ms"]
            .into_iter()
            .for_each(|key| drop(json.insert(key.into(), Value::Null)));
        json.insert("step_ms".into(), json!(first.step_ms));
        json.insert("emulated".into(), json!(elsewhere));
    }
    if let (true, Value::Object(json)) = (recorded, &mut json) {
        // The device does all of it in one.
        json.extend(["forward_ms", "backward_ms", "update_ms"].map(|key| (key.to_string(), Value::Null)));
    }
    ui.result(&json, || {
        let row = |name: &str, ms: f64| [name.to_string(), format!("{ms:.1}")];
        let rows = match &elsewhere[..] {
            [] if recorded => vec![row("epoch, recorded", step)],
            [] => vec![row("forward", forward), row("backward", backward), row("update", update), row("epoch", step)],
            all => all.iter().map(|e| row(&format!("epoch, emulated on {}", e.profile), e.step_ms)).collect(),
        };
        let title = format!(
            "{} with {} on {}, {} of {}, {}, {dtype}",
            config.model_name(),
            counted(layers.unwrap_or_default(), "layer"),
            name,
            counted(plan.ranks, "rank"),
            counted(world.threads_of_rank(), "thread"),
            plan.strategy,
        );
        let (peak, sent) = (bytes(peak.total()), bytes(sent.iter().sum()));
        let whose = if plan.ranks > 1 { format!(" of the largest rank, {sent} sent by all") } else { String::new() };
        let kernels = kernels.as_deref().map_or(String::new(), compared);
        format!("{title}\n\n{}\n{kernels}\n{peak} at the peak{whose}", table(["", "ms"], rows))
    })
}

/// Kernels of the mean rank, the slowest first.
fn compared(kernels: &[Compared]) -> String {
    let row = |c: &Compared| {
        let shape = c.shape.map_or(String::new(), |(heads, width)| format!("{heads} × {}", width / heads.max(1)));
        let [predicted, measured] = [c.predicted_ms, c.measured_ms].map(|ms| format!("{ms:.3}"));
        [c.op.clone(), shape, format!("{:.1}", c.calls), predicted, measured]
    };
    format!("\n{}\n", table(["kernel", "heads", "calls", "predicted", "ms"], kernels.iter().map(row)))
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
            step_ms: Clock::seconds(times) * 1e3,
            computing_ms: each(|t| t.computing),
            waiting_ms: each(|t| t.waiting),
        }
    }
}

/// Runs epochs on one rank.
fn measure(rank: &Rank, mut course: Course, config: &Config, runs: u32) -> graphweft_train::Result<Measured> {
    let (mut learner, ledger) = (course.learner(rank, config)?, rank.device().ledger());
    let (mut times, mut epochs, mut calls): ([Vec<f64>; 4], Vec<Epoch>, Vec<Vec<f64>>) = Default::default();
    ledger.reset_peak();
    // In the first, ranks agree on what they send; on a GPU, one of the next may be recorded.
    let mut epoch = FIRST;
    while epoch == FIRST || epoch < FIRST + WARM_UP && !learner.is_settled() {
        rank.clock().inspect(|clock| clock.start());
        course.learn(&mut learner, epoch, config.train.lr, &mut |_, _| ())?;
        rank.clock().map(Clock::stop).transpose()?;
        epoch += 1;
    }
    for epoch in epoch..epoch + u64::from(runs) {
        rank.reset_sent();
        rank.kernels().map(Timings::take);
        rank.clock().inspect(|clock| clock.start());
        let (start, mut phases) = (Instant::now(), [0.0; 3]);
        course.learn(&mut learner, epoch, config.train.lr, &mut |phase, start| {
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
    let (toll, parameters) = (Toll { peak: ledger.peak(), sent: rank.sent() }, course.size(&learner)?);
    let (tolls, kernels) = (toll.gather(rank)?, kernels::gather(rank, &kernels::least(&calls))?);
    Ok(Measured { times, parameters, tolls, elsewhere, kernels, recorded: learner.is_recorded() })
}
