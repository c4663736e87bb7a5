//! `graphweft train`: train a model, and say how good it became.

mod report;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use graphweft::units::parse_bytes;
use graphweft::{Error, Input, Run, Stop};

use crate::device::Choice;
use crate::ranks::Spread;
use crate::shortcuts::{Flags, Shortcuts, models};
use crate::ui::Ui;
use report::Report;
use watch::Watch;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// A TOML configuration, and settings section.key=value, e.g. train.lr=0.01 model.hidden=128
    #[arg(value_name = "CONFIG | KEY=VALUE")]
    settings: Vec<String>,

    #[command(flatten)]
    origin: Origin,

    #[command(flatten)]
    ranks: Spread,

    #[arg(long, value_name = "NAME", help = models())]
    model: Option<String>,

    #[command(flatten)]
    shortcuts: Shortcuts,

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
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
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

/// Where the graph comes from: at most one of these.
#[derive(clap::Args)]
#[group(multiple = false)]
pub(crate) struct Origin {
    /// Dataset folder
    #[arg(long, value_name = "DIR")]
    data: Option<String>,

    /// Graph to generate, e.g. sbm:2000:5:10
    #[arg(long, value_name = "SPEC")]
    graph: Option<String>,
}

impl Origin {
    /// What was given.
    pub(crate) fn input(&self) -> Option<Input> {
        self.data.as_ref().map(Input::folder).or_else(|| self.graph.as_deref().map(Input::generate))
    }
}

pub(crate) fn run(args: &Args, stop: &Stop, ui: &Ui) -> anyhow::Result<()> {
    let mut flags = Flags::default();
    flags.set("data.split", args.split.as_deref());
    flags.set("run.seed", args.seed);
    flags.set("run.seeds", args.seeds);
    flags.set("isolated.memory", args.memory);
    flags.set("model.name", args.model.as_deref());
    flags.set("run.report", args.report.then_some(true));
    args.ranks.set(&mut flags);
    args.shortcuts.set(&mut flags);
    let mut run = described(&args.settings, &args.origin, flags, args.guard.as_deref())?;
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

/// A run as the file among `settings`, if there is one, says, then `flags` and the other settings, each of which is
/// given once. `guard` is a flag of pipelines alone.
pub(crate) fn described(
    settings: &[String],
    origin: &Origin,
    flags: Flags,
    guard: Option<&str>,
) -> anyhow::Result<Run> {
    let (settings, files): (Vec<&String>, Vec<&String>) = settings.iter().partition(|s| s.contains('='));
    let mut run = match files[..] {
        [] => Run::default(),
        [file] => Run::from_file(Path::new(file))?,
        [first, second, ..] => {
            let what = format!("two configurations, {first} and {second}");
            return Err(Error::request(what, "name one file; settings are written section.key=value").into());
        }
    };
    let given = |key: &str| match key {
        "data.path" => origin.data.is_some(),
        "data.graph" => origin.graph.is_some(),
        "pipeline.guard" => guard.is_some(),
        key => flags.has(key),
    };
    settings.iter().try_for_each(|setting| given_once(given, setting))?;
    // A flag takes the place of either key in the file.
    if let Some(input) = origin.input() {
        run = run.data(input);
    }
    if let Some(guard) = guard {
        run = run.guard(guard);
    }
    let run = flags.into_all().into_iter().fold(run, |run, (key, value)| run.set(key, value));
    Ok(settings.into_iter().fold(run, |run, setting| run.assign(setting)))
}

/// A flag is a short form of a setting: whoever gives both may mean either.
fn given_once(is_flag: impl Fn(&str) -> bool, setting: &str) -> anyhow::Result<()> {
    let name = setting.split_once('=').map_or(setting, |(name, _)| name).trim();
    match is_flag(name) {
        true => {
            let what = format!("{name} is given twice, by a flag and by the setting {setting}");
            Err(Error::request(what, "leave one of them out").into())
        }
        false => Ok(()),
    }
}
