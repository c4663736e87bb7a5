//! `graphweft plan`: what every way to spread a training run would take, which one is best, and why.

mod figure;
mod probe;
mod shown;
mod simulate;

use std::path::PathBuf;
use std::sync::Arc;

use graphweft_graph::Error;
use graphweft_graph::partition::Existing;
use graphweft_graph::progress::Progress;
use graphweft_parallel::Strategy;
use graphweft_plan::Profile;
use graphweft_plan::simulate::Description;
use graphweft_train::config::{self, Config, Draft};
use graphweft_train::data::Data;
use graphweft_train::planner::{self, Care, Heard, Planned, Planner};
use graphweft_train::world::World;

use crate::device::Choice;
use crate::plot;
use crate::ranks::{self, Spread};
use crate::shortcuts::{MODELS, Shortcuts};
use crate::train::{Origin, draft};
use crate::ui::{Ui, count, counted};
use probe::Target;
use shown::{Columns, Shown};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// A TOML configuration, and settings section.key=value, e.g. model.hidden=128 compute.dtype=bf16
    #[arg(value_name = "CONFIG | KEY=VALUE")]
    settings: Vec<String>,

    #[command(flatten)]
    origin: Origin,

    #[command(flatten)]
    ranks: Spread,

    #[arg(long, value_name = "NAME", help = MODELS)]
    model: Option<String>,

    #[command(flatten)]
    shortcuts: Shortcuts,

    /// Bytes that a rank may use, with --strategy isolated, e.g. 8GiB: decides the number of chunks
    #[arg(long, value_name = "SIZE", value_parser = config::bytes, conflicts_with = "simulate")]
    memory: Option<u64>,

    /// Machine to plan for: a shipped profile, such as h200x8, or a file [default: this one, timed for a moment, or as --probe
    /// measured it]
    #[arg(long, alias = "hardware", value_name = "NAME|FILE")]
    profile: Option<String>,

    /// Columns of dense features, whatever the graph has [default: what it has, or 128]
    #[arg(long, value_name = "F")]
    features: Option<usize>,

    /// Classes, with --features or for a graph that has none [default: 40]
    #[arg(long, value_name = "C")]
    classes: Option<usize>,

    /// Plan for a graph that is only described, as in nodes=2.4e6,edges=1.2e8,features=100,classes=47
    #[arg(
        long,
        alias = "describe",
        value_name = "STATISTICS",
        conflicts_with_all = ["data", "graph", "features", "classes"]
    )]
    simulate: Option<Description>,

    /// Also draw, for --simulate, the time of an epoch on 1, 2, 4, … ranks as SVG
    #[arg(long, value_name = "FILE.svg", value_parser = plot::path(), requires = "simulate")]
    scaling: Option<PathBuf>,

    /// Also draw all candidates as SVG
    #[arg(long, value_name = "FILE.svg", value_parser = plot::path())]
    plot: Option<PathBuf>,

    /// Only measure this machine, which takes up to a minute, for the plans that follow on as many ranks
    #[arg(
        long,
        conflicts_with_all = ["data", "graph", "features", "classes", "simulate", "plot", "profile", "model", "memory"]
    )]
    probe: bool,

    /// Also write what --probe measured, as a profile
    #[arg(short, long, value_name = "FILE", requires = "probe")]
    output: Option<PathBuf>,

    /// Replace a profile that is there already
    #[arg(long, requires = "probe")]
    replace: bool,

    #[command(flatten)]
    device: Choice,
}

pub(crate) fn run(args: &Args, ui: &Ui) -> anyhow::Result<()> {
    // What clap cannot be told: a flag that needs another is let through where that one conflicts with a third.
    if !args.probe && (args.output.is_some() || args.replace) {
        let remedy = "leave it out (`--json > FILE` keeps a plan), or measure with --probe alone";
        return Err(Error::request("-o and --replace are for the profile that --probe writes", remedy).into());
    }
    if args.scaling.is_some() && args.simulate.is_none() {
        return Err(Error::request("--scaling is drawn for --simulate", "add --simulate, or leave it out").into());
    }
    let mut flags = Draft::default();
    args.ranks.set(&mut flags)?;
    args.shortcuts.set(&mut flags)?;
    if let Some(profile) = &args.profile {
        flags.set("parallel", "profile", profile.as_str())?;
    }
    if let Some(memory) = args.memory {
        flags.set("isolated", "memory", i64::try_from(memory)?)?;
    }
    let config = draft(&args.settings, &args.origin, args.model.as_deref(), &flags)?.finish()?;
    let place = (args.device.place_of(&config.parallel, ui), config.compute.precision.into());
    let existing = if args.replace { Existing::Replace } else { Existing::Keep };
    let target = args.output.as_deref().map(|file| Target::open(file, existing)).transpose()?;
    ranks::enter(&config.parallel, config.parallel.ranks, place, ui, |world, ui| match &args.simulate {
        _ if args.probe => probe::run(&world, config.parallel.probe_rounds, target, ui),
        Some(graph) => simulate::run(args, &config, graph, &world, ui),
        None => plan(args, &config, &world, ui),
    })
}

fn plan(args: &Args, config: &Config, world: &World, ui: &Ui) -> anyhow::Result<()> {
    let progress: Arc<dyn Progress> = Arc::new(ui.clone());
    let data = Data::open_unread(&config.data, &config.encoding, (args.features, args.classes), ui)?;
    let graph = config.model.prepare(data.graph.clone(), config.run.seed)?;
    let ranks = world.ranks();
    let seconds = |rough: &Profile| planner::run_seconds(config, ranks, (&data, &graph), rough);
    let tell = |line: &str| ui.note(line);
    let heard = Heard { progress: &progress, tell: &tell };
    let Some(profile) = planner::profile(config, world, world.leads(), Care::ForRun(&seconds), heard)? else {
        return Ok(());
    };
    let planner = Planner { config, ranks, data: &data, graph: &graph, profile: &profile };
    let Planned { plan, found, memory } = planner.plan(ui)?;
    // To compare with; what cannot be rehearsed so is not shown.
    let one_rank = if ranks > 1 { planner.on_one_rank().ok() } else { None };
    let (nodes, edges) = (data.graph.num_dst() as u64, data.graph.num_edges() as u64);
    let chunks = plan.partition.filter(|_| plan.strategy == Strategy::Isolated).map(|division| division.parts);
    let in_chunks = chunks.map_or(String::new(), |chunks| format!(" in {}", counted(chunks, "chunk")));
    let name = config.model_name();
    let title = format!("{name} on {}: {} nodes, {} edges{in_chunks}", data.name, count(nodes), count(edges));
    let features = Some(Columns::of(args, &data));
    let shown = Shown { found: &found, title, features, one_rank, config, ranks, memory, profile: &profile };
    if let Some(path) = &args.plot {
        figure::write(path, &shown)?;
    }
    let mut json = shown.json(&data.name);
    if let Some(chunks) = chunks {
        json["chunks"] = chunks.into();
    }
    ui.result(&json, || shown.text())
}
