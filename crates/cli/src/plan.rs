//! `graphweft plan`: what every way to spread a training run would take, which one is best, and why.

mod shown;

use std::path::PathBuf;
use std::sync::Arc;

use graphweft::{Amount, Calibration, Description, Error, Page};

use crate::asked::Asked;
use crate::device::Choice;
use crate::shortcuts::Flags;
use crate::ui::{self, Ui, bytes, counted, within};
use shown::Shown;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    asked: Asked,

    /// Bytes that a rank may use, with --strategy isolated, e.g. 8GiB: decides the number of chunks
    #[arg(long, value_name = "SIZE", value_parser = Amount::parse_bytes, conflicts_with = "simulate")]
    memory: Option<u64>,

    /// Machine to plan for: a shipped profile, such as h200x8, or a file [default: this one, timed for a moment, or as
    /// --calibrate measured it]
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
    #[arg(long, value_name = "FILE.svg", value_parser = ui::svg(), requires = "simulate")]
    scaling: Option<PathBuf>,

    /// Also draw all candidates as SVG
    #[arg(long, value_name = "FILE.svg", value_parser = ui::svg())]
    plot: Option<PathBuf>,

    /// Also write a page to look at
    #[arg(long, value_name = "FILE.html", conflicts_with = "calibrate")]
    report: Option<PathBuf>,

    /// Only measure this machine, which takes up to a minute, for the plans that follow on as many ranks
    #[arg(
        long,
        conflicts_with_all = ["data", "graph", "features", "classes", "simulate", "plot", "profile", "model", "memory"]
    )]
    calibrate: bool,

    /// Also write what --calibrate measured, as a profile
    #[arg(short, long, value_name = "FILE", requires = "calibrate")]
    output: Option<PathBuf>,

    /// Replace a profile that is there already
    #[arg(long, requires = "calibrate")]
    replace: bool,

    #[command(flatten)]
    device: Choice,
}

pub(crate) fn run(args: &Args, ui: &Ui) -> anyhow::Result<()> {
    // What clap cannot be told: a flag that needs another is let through where that one conflicts with a third.
    if !args.calibrate && (args.output.is_some() || args.replace) {
        let remedy = "leave it out (`--json > FILE` keeps a plan), or measure with --calibrate alone";
        return Err(Error::request("-o and --replace are for the profile that --calibrate writes", remedy).into());
    }
    if args.scaling.is_some() && args.simulate.is_none() {
        return Err(Error::request("--scaling is drawn for --simulate", "add --simulate, or leave it out").into());
    }
    let mut flags = Flags::default();
    flags.set("parallel.profile", args.profile.as_deref());
    flags.set("isolated.memory", args.memory);
    let run = args.asked.run(flags, None)?.assume(args.features, args.classes);
    let run = run.device(args.device.device()).observer(Arc::new(ui.clone()));
    if args.calibrate {
        let run = if args.replace { run.replace() } else { run };
        let measured = run.calibrate(args.output.as_deref())?;
        return ui.result(&measured.to_json(), || calibrated(&measured));
    }
    let plan = match &args.simulate {
        Some(graph) => {
            let curves = args.scaling.is_some() || args.report.is_some();
            if curves { run.simulate_scaling(graph) } else { run.simulate(graph) }?
        }
        None => run.plan()?,
    };
    if let Some(path) = &args.scaling {
        plan.plot_scaling(path)?;
    }
    if let Some(path) = &args.plot {
        plan.plot(path)?;
    }
    if let Some(path) = &args.report {
        Page::of_plan(&plan).write(path)?;
    }
    ui.result(&plan.to_json(), || Shown(&plan).text())
}

fn calibrated(measured: &Calibration) -> String {
    let Calibration { latency, bandwidth, .. } = measured;
    let between = format!("{:.1} µs and {:.2} GB/s between ranks", latency * 1e6, bandwidth / 1e9);
    let memory = bytes(measured.memory.unwrap_or(0.0) as u64);
    let written = measured.file.as_ref().map_or(String::new(), |file| format!("\nwritten to {}", file.display()));
    format!(
        "{}\n{} kernels, {between}, {memory} per rank\nplans for {} here are made with this; times {}{written}",
        measured.about,
        measured.kernels,
        counted(measured.ranks, "rank"),
        within(measured.error),
    )
}
