//! `graphweft train`: train a model, and say how good it became.

mod report;
mod watch;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use graphweft_graph::Error;
use graphweft_parallel::Strategy;
use graphweft_train::Stop;
use graphweft_train::config::{self, Choice as Strategies, Config, Draft, Loops};
use graphweft_train::data::Data;
use graphweft_train::emulation::Emulation;
use graphweft_train::run_dir::launch::Launch;
use graphweft_train::session::{self, Session, Start, absolute};
use graphweft_train::world::World;

use crate::device::Choice;
use crate::ranks::{self, Spread};
use crate::shortcuts::{MODELS, Shortcuts};
use crate::ui::Ui;
use crate::version::VERSION;
use report::Report;
use watch::Watch;

/// What a run without any setting does: a graph on which features alone are not enough, and a small graph transformer.
const DEFAULTS: [&str; 12] = [
    "data.graph=sbm:10000:10:12:snr=1.2",
    "data.self_loops=add",
    "model.name=gt",
    "model.hidden=64",
    "model.layers=2",
    "model.heads=4",
    "train.epochs=80",
    "train.lr=3e-3",
    "train.schedule=cosine",
    "train.warmup=5",
    "train.weight_decay=0.01",
    "train.dropout=0.3",
];
/// The floor that it is shown beside: the same features without the graph.
const FLOOR: [&str; 2] = ["model.name=mlp", "model.hidden=64"];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// A TOML configuration, and settings section.key=value, e.g. train.lr=0.01 model.hidden=128
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
    #[arg(long, value_name = "SIZE", value_parser = config::bytes)]
    memory: Option<u64>,

    #[command(flatten)]
    device: Choice,

    /// Time epochs as if ranks were elsewhere: a shipped profile, such as 16-cpu-10g, or a TOML file with the network and how
    /// fast ranks compute
    #[arg(long, value_name = "NAME|FILE")]
    emulate: Option<PathBuf>,

    /// What to do where a pipeline diverges from exact training: warn or stop
    #[arg(long, value_name = "NAME")]
    guard: Option<String>,

    /// Go on with the run in DIR, from its newest whole checkpoint or, with =CHECKPOINT, from this one: of this run, or of any
    /// other where DIR is new. A DIR without a run is begun only if --data or --graph say what to train on
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
    /// Adds what was given to a configuration, in place of what it has.
    pub(crate) fn apply(&self, config: &mut Config) {
        if let Some(path) = &self.data {
            (config.data.path, config.data.graph) = (Some(absolute(path)), None);
        }
        if let Some(spec) = &self.graph {
            (config.data.path, config.data.graph) = (None, Some(spec.clone()));
        }
    }
}

pub(crate) fn run(args: &Args, stop: Stop, ui: &Ui) -> anyhow::Result<()> {
    let given = args.draft()?;
    let start = match args.resume.as_deref() {
        None => Start::New,
        Some("auto") => Start::Newest,
        Some(path) => Start::At(path.into()),
    };
    let stored = match &args.output {
        Some(dir) => session::resumed(dir, &start, &given)?,
        None => None,
    };
    let mut config = match (stored, &args.output) {
        (Some(config), _) => config,
        // The same command may begin a run and go on with it, if it says what to train on. What is only a folder has nothing.
        (None, Some(dir)) if start != Start::New && !names_data(&given) => return Err(session::no_run(dir).into()),
        (None, _) => with_defaults(&given)?.finish()?,
    };
    args.check_guard(&config)?;
    if config.data.self_loops == Loops::Add && args.resume.is_none() && is_automatic(&given) {
        ui.note(&format!(
            "self-loops are added, as {} is published; data.self_loops=keep leaves them out",
            config.model_name()
        ));
    }
    let wanted = given.get("parallel", "ranks").and_then(|ranks| ranks.as_integer()?.try_into().ok());
    let output = args.output.as_deref();
    let place = args.device.place_of(&config.parallel, ui);
    if let Some(path) = &args.emulate {
        // What is planned is planned for there.
        config.parallel.profile.get_or_insert_with(|| path.display().to_string());
        let elsewhere = Emulation::read(path)?;
        let job = Job { config: &config, output, start, stop, emulated: Some(elsewhere.name.clone()) };
        return ranks::emulate(&config.parallel, vec![elsewhere], place, ui, |world, ui| train(job, &world, ui));
    }
    let job = Job { config: &config, output, start, stop, emulated: None };
    let place = (place, config.compute.precision.into());
    ranks::enter(&config.parallel, wanted, place, ui, |world, ui| train(job, &world, ui))
}

/// What is to be done, wherever the ranks are.
struct Job<'a> {
    config: &'a Config,
    output: Option<&'a Path>,
    start: Start,
    stop: Stop,
    /// Where ranks are as if, by name.
    emulated: Option<String>,
}

fn train(job: Job<'_>, world: &World, ui: &Ui) -> anyhow::Result<()> {
    let Job { config, output, start, stop, emulated } = job;
    let data = Arc::new(Data::open(&config.data, &config.encoding, ui)?);
    let name = config.model_name();
    let new = || free_folder(Path::new("runs"), &format!("{}-{name}", data.name));
    let dir = output.map_or_else(new, Path::to_path_buf);

    let watch = Arc::new(Watch::new(ui.clone(), config.run.seeds));
    let launch = Launch::of_this_process(VERSION);
    let session = Session { world, data: Arc::clone(&data), start, launch, observer: watch.clone(), stop };
    let summary = session.train(config.clone(), &dir)?;
    let floor = match floor(config)? {
        Some(config) => {
            ui.note("the same features without the graph:");
            let session = Session { start: of_floor(&session.start), ..session };
            Some(session.train(config, &dir.join("floor"))?)
        }
        None => None,
    };
    watch.end();
    let (threads, place, floor) = (world.threads_of_rank(), world.place(), floor.as_ref());
    Report { config, data: &data, dir: &dir, place, threads, summary: &summary, floor, emulated }.show(ui)
}

impl Args {
    /// Only pipelines have a guard.
    fn check_guard(&self, config: &Config) -> anyhow::Result<()> {
        let parallel = &config.parallel;
        let guarded = match parallel.strategy {
            Strategies::Auto => parallel.allow_approximate,
            Strategies::Named(strategy) => matches!(strategy, Strategy::Pipeline { .. }),
        };
        if self.guard.is_none() || guarded {
            return Ok(());
        }
        let what = format!("--guard watches over pipelines, and the strategy is {}", parallel.strategy);
        Err(Error::request(what, "leave it out, or add --strategy pipeline or --allow-approximate").into())
    }

    /// File, then flags, then settings.
    fn draft(&self) -> anyhow::Result<Draft> {
        let mut flags = Draft::default();
        for (section, key, value) in [("data", "split", &self.split), ("pipeline", "guard", &self.guard)] {
            if let Some(value) = value {
                flags.set(section, key, value.as_str())?;
            }
        }
        for (key, value) in [("seed", self.seed), ("seeds", self.seeds)] {
            if let Some(value) = value {
                flags.set("run", key, i64::from(value))?;
            }
        }
        if let Some(memory) = self.memory {
            flags.set("isolated", "memory", i64::try_from(memory)?)?;
        }
        self.ranks.set(&mut flags)?;
        self.shortcuts.set(&mut flags)?;
        draft(&self.settings, &self.origin, self.model.as_deref(), &flags)
    }
}

/// The file among `settings`, if there is one, then `flags` and the other settings, each of which is given once.
pub(crate) fn draft(settings: &[String], origin: &Origin, model: Option<&str>, flags: &Draft) -> anyhow::Result<Draft> {
    let (settings, files): (Vec<&String>, Vec<&String>) = settings.iter().partition(|s| s.contains('='));
    let mut draft = match files[..] {
        [] => Draft::default(),
        [file] => Draft::read(Path::new(file))?,
        [first, second, ..] => {
            let what = format!("two configurations, {first} and {second}");
            return Err(Error::request(what, "name one file; settings are written section.key=value").into());
        }
    };
    let mut flags = flags.clone();
    if origin.data.is_some() || origin.graph.is_some() {
        // A flag takes the place of either key in the file.
        draft.unset("data", "path");
        draft.unset("data", "graph");
    }
    for (section, key, value) in [
        ("data", "path", origin.data.as_deref().map(absolute)),
        ("data", "graph", origin.graph.clone()),
        ("model", "name", model.map(String::from)),
    ] {
        if let Some(value) = value {
            flags.set(section, key, value)?;
        }
    }
    settings.iter().try_for_each(|setting| given_once(&flags, setting))?;
    let mut draft = draft.and(&flags)?;
    settings.into_iter().try_for_each(|s| draft.assign(s))?;
    Ok(draft)
}

/// A flag is a short form of a setting: whoever gives both may mean either.
fn given_once(flags: &Draft, setting: &str) -> anyhow::Result<()> {
    let name = setting.split_once('=').map_or(setting, |(name, _)| name).trim();
    match name.split_once('.').filter(|(section, key)| flags.get(section, key).is_some()) {
        Some(_) => {
            let what = format!("{name} is given twice, by a flag and by the setting {setting}");
            Err(Error::request(what, "leave one of them out").into())
        }
        None => Ok(()),
    }
}

/// What was given and, unless that names a graph, the default graph with the settings that suit it; those of the default model
/// only for that model.
fn with_defaults(given: &Draft) -> anyhow::Result<Draft> {
    if names_data(given) {
        return Ok(given.clone());
    }
    let other = given.get("model", "name").is_some_and(|name| name.as_str() != Some("gt"));
    let suits = |setting: &&&str| !(other && setting.starts_with("model."));
    let defaults: Vec<&str> = DEFAULTS.iter().filter(suits).copied().collect();
    Ok(settings(&defaults)?.and(given)?)
}

/// Whether it says what to train on.
fn names_data(given: &Draft) -> bool {
    given.get("data", "path").or(given.get("data", "graph")).is_some()
}

fn settings(all: &[&str]) -> anyhow::Result<Draft> {
    let mut draft = Draft::default();
    all.iter().try_for_each(|s| draft.assign(s))?;
    Ok(draft)
}

/// For the default task, a run of the same graph with a model that does not see it.
fn floor(config: &Config) -> anyhow::Result<Option<Config>> {
    let default = settings(&DEFAULTS)?.finish()?;
    if (&config.data.graph, &config.model) != (&default.data.graph, &default.model) {
        return Ok(None);
    }
    Ok(Some(Config { model: settings(&FLOOR)?.finish()?.model, ..config.clone() }))
}

/// Where the floor goes on: a checkpoint that was named is of another model, so it looks for its own.
fn of_floor(start: &Start) -> Start {
    match start {
        Start::New => Start::New,
        Start::Newest | Start::At(_) => Start::Newest,
    }
}

/// Whether nobody said what to do with self-loops: neither a setting nor the default run, which says so itself.
fn is_automatic(given: &Draft) -> bool {
    let said = given.get("data", "self_loops").and_then(|value| value.as_str());
    let names_data = given.get("data", "path").or(given.get("data", "graph")).is_some();
    names_data && said.is_none_or(|said| said == "auto")
}

/// The first of `name`, `name-2`, `name-3`, … that is not there.
fn free_folder(parent: &Path, name: &str) -> PathBuf {
    let name: String = name.chars().map(|c| if c == ':' || c == '/' { '_' } else { c }).collect();
    let numbered = |k: u32| parent.join(if k == 1 { name.clone() } else { format!("{name}-{k}") });
    let is_free = |path: &PathBuf| fs::symlink_metadata(path).is_err();
    (1..u32::MAX).map(numbered).find(is_free).unwrap_or_else(|| numbered(u32::MAX))
}
