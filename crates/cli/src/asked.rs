//! What a run or a plan is asked for: the same arguments for both.

use std::path::Path;

use graphweft::{Error, Input, Run};

use crate::ranks::Spread;
use crate::shortcuts::{Flags, Shortcuts, models};

#[derive(clap::Args)]
pub(crate) struct Asked {
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
}

impl Asked {
    /// A run as the file among the settings, if there is one, says, then these and `more` flags and the other settings,
    /// each of which is given once. `guard` is a flag of pipelines alone.
    pub(crate) fn run(&self, more: Flags, guard: Option<&str>) -> anyhow::Result<Run> {
        let mut flags = more;
        flags.set("model.name", self.model.as_deref());
        self.ranks.set(&mut flags);
        self.shortcuts.set(&mut flags);
        let (settings, files): (Vec<&String>, Vec<&String>) = self.settings.iter().partition(|s| s.contains('='));
        let mut run = match files[..] {
            [] => Run::default(),
            [file] => Run::from_file(Path::new(file))?,
            [first, second, ..] => {
                let what = format!("two configurations, {first} and {second}");
                return Err(Error::request(what, "name one file; settings are written section.key=value").into());
            }
        };
        let given = |key: &str| match key {
            "data.path" => self.origin.data.is_some(),
            "data.graph" => self.origin.graph.is_some(),
            "pipeline.guard" => guard.is_some(),
            key => flags.has(key),
        };
        settings.iter().try_for_each(|setting| given_once(given, setting))?;
        // A flag takes the place of either key in the file.
        if let Some(input) = self.origin.input() {
            run = run.data(input);
        }
        if let Some(guard) = guard {
            run = run.guard(guard);
        }
        let run = flags.into_all().into_iter().fold(run, |run, (key, value)| run.set(key, value));
        Ok(settings.into_iter().fold(run, |run, setting| run.assign(setting)))
    }
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
