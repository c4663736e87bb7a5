//! `graphweft train`: train a model, and say how good it became.

mod report;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;

use graphweft::{Amount, Stop};

use crate::asked::Asked;
use crate::device::Choice;
use crate::shortcuts::Flags;
use crate::ui::Ui;
use report::Report;
use watch::Watch;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    asked: Asked,

    /// Split; a family such as public-*, of which seed k takes the k-th; or one to draw: random:60/20/20 (per cent) or
    /// random:20-per-class
    #[arg(long, value_name = "NAME")]
    split: Option<String>,

    /// The first seed
    #[arg(long, value_name = "S")]
    seed: Option<u32>,

    /// How many seeds to run
    #[arg(long, value_name = "K")]
    seeds: Option<u32>,

    /// Bytes that a rank may use, with --strategy isolated, e.g. 8GiB: what does not fit stays on disk
    #[arg(long, value_name = "SIZE", value_parser = Amount::parse_bytes)]
    memory: Option<u64>,

    #[command(flatten)]
    device: Choice,

    /// Time epochs as if ranks were elsewhere: a shipped profile, such as 16-cpu-10g, or a TOML file with the network
    /// and how fast ranks compute
    #[arg(long, value_name = "NAME|FILE")]
    emulate: Option<PathBuf>,

    /// What to do where a pipeline diverges from exact training: warn or stop
    #[arg(long, value_name = "NAME")]
    guard: Option<String>,

    /// Go on with the run in DIR, from its newest whole checkpoint or, with =CHECKPOINT, from this one: of this run, or
    /// of any other where DIR is new. A DIR without a run is begun only if --data or --graph say what to train on
    #[arg(
        long,
        value_name = "CHECKPOINT",
        num_args = 0..=1,
        // A setting that follows is no checkpoint.
        require_equals = true,
        default_missing_value = "auto",
        requires = "output"
    )]
    resume: Option<String>,

    /// Renew report.html in the run directory, a page to look at, while the run goes on
    #[arg(long)]
    report: bool,

    /// Run directory [default: runs/DATA-MODEL, numbered]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, stop: &Stop, ui: &Ui) -> anyhow::Result<()> {
    let mut flags = Flags::default();
    flags.set("data.split", args.split.as_deref());
    flags.set("run.seed", args.seed);
    flags.set("run.seeds", args.seeds);
    flags.set("isolated.memory", args.memory);
    flags.set("run.report", args.report.then_some(true));
    let mut run = args.asked.run(flags, args.guard.as_deref())?;
    if let Some(profile) = &args.emulate {
        run = run.emulate(profile);
    }
    run = match args.resume.as_deref() {
        None => run,
        Some("auto") => run.resume(),
        Some(path) => run.resume_from(path),
    };
    if let Some(dir) = &args.output {
        run = run.output(dir);
    }
    let watch = Arc::new(Watch::new(ui.clone()));
    let report = run.device(args.device.device()).observer(watch.clone()).stop(stop).train();
    watch.end();
    let report = report?;
    if report.leads { Report(&report).show(ui) } else { Ok(()) }
}
