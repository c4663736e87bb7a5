//! `graphweft plan`: what every way to spread a training run would take, which one is best, and why.

mod figure;
mod probe;
mod simulate;

use std::path::PathBuf;
use std::sync::Arc;

use graphweft_graph::Error;
use graphweft_graph::partition::Existing;
use graphweft_graph::progress::Progress;
use graphweft_parallel::Strategy;
use graphweft_plan::candidates::name_of;
use graphweft_plan::explain::{self, ms};
use graphweft_plan::search::{Assessed, Prediction};
use graphweft_plan::simulate::Description;
use graphweft_plan::{Found, Profile};
use graphweft_train::config::{self, Config, Draft};
use graphweft_train::data::Data;
use graphweft_train::planner::{self, Planned, Planner};
use graphweft_train::world::World;
use serde_json::{Value, json};

use crate::device::Choice;
use crate::plot;
use crate::ranks::{self, Spread};
use crate::train::{Origin, draft};
use crate::ui::{Ui, bytes, count, table};
use probe::Target;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// A TOML configuration, and settings section.key=value, e.g. model.hidden=128 compute.dtype=bf16
    #[arg(value_name = "CONFIG | KEY=VALUE")]
    settings: Vec<String>,

    #[command(flatten)]
    origin: Origin,

    #[command(flatten)]
    ranks: Spread,

    /// Model: gt, gcn, sage, gat, …, mlp
    #[arg(long, value_name = "NAME")]
    model: Option<String>,

    /// Bytes that a rank may use, with --strategy isolated, e.g. 8GiB: decides the number of chunks
    #[arg(long, value_name = "SIZE", value_parser = config::bytes, conflicts_with = "simulate")]
    memory: Option<u64>,

    /// Machine to plan for: a shipped profile, such as h200x8, or a file [default: this one, measured once]
    #[arg(long, alias = "hardware", value_name = "NAME|FILE")]
    profile: Option<String>,

    /// Columns of dense features, whatever the graph has [default: what it has, or 128]
    #[arg(long, value_name = "F")]
    features: Option<usize>,

    /// Classes, with --features or for a graph that has none [default: 40]
    #[arg(long, value_name = "C")]
    classes: Option<usize>,

    /// Plan for a graph that is only described: nodes=2.4e6,edges=1.2e8,features=100,classes=47,alpha=0.3
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

    /// Only measure this machine, and write its profile
    #[arg(
        long,
        requires = "output",
        conflicts_with_all = ["data", "graph", "features", "classes", "simulate", "plot", "profile", "model", "memory"]
    )]
    probe: bool,

    /// Where --probe writes
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
    ranks::enter(&config.parallel, config.parallel.ranks, place, ui, |world, ui| match target {
        Some(target) => probe::run(&world, config.parallel.probe_rounds, target, ui),
        None => match &args.simulate {
            Some(graph) => simulate::run(args, &config, graph, &world, ui),
            None => plan(args, &config, &world, ui),
        },
    })
}

fn plan(args: &Args, config: &Config, world: &World, ui: &Ui) -> anyhow::Result<()> {
    let progress: Arc<dyn Progress> = Arc::new(ui.clone());
    let data = Data::open_unread(&config.data, &config.encoding, (args.features, args.classes), ui)?;
    let graph = config.model.prepare(data.graph.clone(), config.run.seed)?;
    let Some(profile) = planner::profile(config, world, world.leads(), &progress)? else { return Ok(()) };
    let planner = Planner { config, ranks: world.ranks(), data: &data, graph: &graph, profile: &profile };
    let Planned { plan, found, memory } = planner.plan(ui)?;
    let (nodes, edges) = (data.graph.num_dst() as u64, data.graph.num_edges() as u64);
    let chunks = plan.partition.filter(|_| plan.strategy == Strategy::Isolated).map(|division| division.parts as u64);
    let in_chunks = chunks.map_or(String::new(), |chunks| format!(" in {} chunks", count(chunks)));
    let size = format!("{}: {} nodes, {} edges{in_chunks}", data.name, count(nodes), count(edges));
    let title = title(config, &size, world.ranks(), &profile);
    if let Some(path) = &args.plot {
        figure::write(path, &title, &found, memory)?;
    }
    let mut json = to_json(&found, &data.name, world.ranks(), memory, &profile);
    if let Some(chunks) = chunks {
        json["chunks"] = chunks.into();
    }
    ui.result(&json, || text(&found, &title, &profile))
}

fn title(config: &Config, graph: &str, ranks: usize, profile: &Profile) -> String {
    format!("{} on {graph}; {ranks} ranks; {}", config.model_name(), profile.about)
}

fn to_json(found: &Found, graph: &str, ranks: usize, memory: u64, profile: &Profile) -> Value {
    let mut json = explain::to_json(found);
    if let Value::Object(json) = &mut json {
        json.insert("graph".into(), json!(graph));
        json.insert("ranks".into(), json!(ranks));
        json.insert("memory".into(), json!(memory));
        json.insert("profile".into(), json!(profile.about));
    }
    json
}

fn text(found: &Found, title: &str, profile: &Profile) -> String {
    let timed = !profile.kernels.is_empty();
    let row = |a: &Assessed| {
        let p = a.prediction.as_ref();
        let time = |of: fn(&Prediction) -> f64| match p {
            Some(p) if timed => ms(of(p)),
            _ => "–".into(),
        };
        [
            a.candidate.strategy.to_string(),
            a.candidate.partition.map_or("–".into(), |m| m.to_string()),
            name_of(a.candidate.remat).into(),
            time(|p| p.seconds),
            time(|p| p.compute),
            time(|p| p.imbalance),
            time(|p| p.exposed),
            p.map_or("–".into(), |p| bytes(p.sent)),
            p.map_or("–".into(), |p| bytes(p.peak.total())),
            a.reason.clone().unwrap_or_default(),
        ]
    };
    let header = ["strategy", "parts", "again", "epoch", "kernels", "imbalance", "waiting", "sent", "peak", "why not"];
    let (choice, _) = found.choice;
    let (shown, others): (Vec<&Assessed>, Vec<&Assessed>) =
        found.candidates.iter().partition(|a| a.prediction.is_some());
    let others = match others.len() {
        0 => String::new(),
        n => format!("\nnot rehearsed: {n} (--json has each with its reason)\n{}", reasons(&others)),
    };
    format!("{title}\n\n{}\n{others}\n{choice}: {}", table(header, shown.into_iter().map(row)), found.why)
}

/// Why candidates were not rehearsed, each reason once.
fn reasons(others: &[&Assessed]) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for reason in others.iter().filter_map(|a| a.reason.as_deref()) {
        match counts.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, count)) => *count += 1,
            None => counts.push((reason, 1)),
        }
    }
    counts.iter().map(|(reason, count)| format!("  {count} × {reason}\n")).collect()
}
