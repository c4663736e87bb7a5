//! One TOML file says everything about a run.
//!
//! ```toml
//! [data]
//! path = "cora"
//! self_loops = "add"
//!
//! [model]
//! name = "gcn"
//!
//! [train]
//! epochs = 200
//! lr = 0.01
//! ```
//!
//! A [`Draft`] collects it: a file, then `section.key=value` from the command line. A key that does not exist is an
//! error that names the nearest one that does. [`Draft::finish`] checks every value; what is written to a run directory
//! has every key, so that the file reproduces the run wherever defaults go later.

mod compute;
mod data;
mod isolated;
mod keys;
mod kinds;
mod limits;
mod link;
mod parallel;
mod pipeline;
mod places;
pub mod reference;
mod run;
mod size;
mod train;
mod wire;

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;

use graphweft_base::{Position, plain};
use graphweft_model::encoding::Encodings;
use graphweft_model::{ModelConfig, Models, keys_of};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::error::{Error, Result};
use keys::nearest;
use kinds::kind;
use places::{Places, line};

pub(crate) use compute::ComputeConfig;
pub use data::Loops;
pub(crate) use data::{DataConfig, NodeFeatures, Normalise};
pub(crate) use isolated::{Correction, IsolatedConfig};
pub(crate) use link::{DrawFrom, LinkConfig, LinkLoss};
pub use parallel::{Choice, CommName, ParallelConfig};
pub(crate) use pipeline::{Guard, PipelineConfig};
pub(crate) use run::RunConfig;
pub use train::TrainConfig;
pub(crate) use train::{OptimizerName, ScheduleName};
pub(crate) use wire::WireConfig;

/// A key inside a section, what is wrong with its value, and what to do.
type Problem = (&'static str, String, &'static str);

const SECTIONS: [&str; 11] =
    ["data", "encoding", "model", "link", "train", "compute", "parallel", "wire", "pipeline", "isolated", "run"];

/// Everything about a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct Config {
    #[serde(default)]
    pub data: DataConfig,
    #[serde(default)]
    pub encoding: Encodings,
    #[serde(default)]
    pub model: ModelConfig,
    #[serde(default)]
    pub link: LinkConfig,
    #[serde(default)]
    pub train: TrainConfig,
    #[serde(default)]
    pub compute: ComputeConfig,
    #[serde(default)]
    pub parallel: ParallelConfig,
    #[serde(default)]
    pub wire: WireConfig,
    #[serde(default)]
    pub pipeline: PipelineConfig,
    #[serde(default)]
    pub isolated: IsolatedConfig,
    #[serde(default)]
    pub run: RunConfig,
}

impl Config {
    /// The first encoding that is asked for.
    pub(crate) fn encoding_key(&self) -> Option<&'static str> {
        let Encodings { laplacian, random_walk, degree } = self.encoding;
        let all = [
            ("encoding.laplacian", laplacian > 0),
            ("encoding.random_walk", random_walk > 0),
            ("encoding.degree", degree),
        ];
        all.into_iter().find(|(_, asked)| *asked).map(|(key, _)| key)
    }

    /// The file that reproduces this run.
    pub fn to_toml(&self) -> Result<String> {
        toml::to_string(self).map_err(|e| Error::setting("config", e.to_string(), "report this as a bug"))
    }

    /// Whether links are scored by the product of the rows of their ends.
    pub fn scores_products(&self) -> bool {
        self.link.decoder(0) == graphweft_model::decoders::DecoderName::Dot
    }

    /// The model's name.
    pub fn model_name(&self) -> &'static str {
        self.model.name()
    }

    /// `section.key` of every setting that differs.
    pub fn differences(&self, other: &Self) -> Result<Vec<String>> {
        let (ours, theirs) = (self.table()?, other.table()?);
        let mut all = Vec::new();
        for section in SECTIONS {
            let keys = |t: &Table| -> BTreeSet<String> {
                t.get(section).and_then(Value::as_table).into_iter().flat_map(|t| t.keys().cloned()).collect()
            };
            let value = |t: &Table, key: &str| t.get(section).and_then(|s| s.get(key)).cloned();
            let differ = |key: &String| value(&ours, key) != value(&theirs, key);
            all.extend(keys(&ours).union(&keys(&theirs)).filter(|k| differ(k)).map(|key| format!("{section}.{key}")));
        }
        Ok(all)
    }

    fn table(&self) -> Result<Table> {
        Table::try_from(self).map_err(|e| Error::setting("config", e.to_string(), "report this as a bug"))
    }

    fn check(&self) -> Result<()> {
        let in_section = |section: &str| {
            let section = section.to_string();
            move |(key, problem, remedy): Problem| Error::setting(format!("{section}.{key}"), problem, remedy)
        };
        self.data.check().map_err(in_section("data"))?;
        self.link.check().map_err(in_section("link"))?;
        self.train.check().map_err(in_section("train"))?;
        self.parallel.check().map_err(in_section("parallel"))?;
        let strategy = match &self.parallel.strategy {
            Choice::Named(strategy) => Some(strategy),
            Choice::Auto => None,
        };
        self.wire.check(strategy).map_err(in_section("wire"))?;
        self.pipeline.check().map_err(in_section("pipeline"))?;
        self.isolated.check().map_err(in_section("isolated"))?;
        self.run.check().map_err(in_section("run"))?;
        limits::check(&self.table()?)
    }
}

/// A configuration in the making: settings that were given, and no others.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    settings: Table,
    places: Places,
    models: Models,
}

impl Draft {
    /// The same where a model of somebody's own can be named too.
    #[must_use]
    pub fn with_models(mut self, models: &Models) -> Self {
        self.models = self.models.with_all(models);
        self
    }

    /// The models that can be named.
    pub(crate) fn models(&self) -> &Models {
        &self.models
    }

    /// Reads a file.
    ///
    /// # Errors
    /// If it cannot be read, is not TOML, or has an unknown key or a value of the wrong type.
    pub fn read(path: &Path) -> Result<Self> {
        let text = File::open(path).and_then(plain::text);
        let text = text.map_err(|e| graphweft_base::Error::unreadable(path, "config", &e))?;
        Self::parse(&text, path)
    }

    /// Reads the text of the file `path`.
    pub fn parse(text: &str, path: &Path) -> Result<Self> {
        let table: Table = toml::from_str(text).map_err(|e| {
            let line = e.span().map_or(1, |s| line(text, s.start));
            let problem = graphweft_base::Problem::at(
                Position::Line(line as u64),
                format!("line {line}: {}", e.message().trim_end()),
            );
            graphweft_base::Error::bad(path, "config", problem, "write it as TOML: [section] and key = value")
        })?;
        let places = Places::of(text, path);
        let mut draft = Self::default();
        for (section, content) in table {
            draft.set_section(&section, content, &places).map_err(|e| places.name(e))?;
        }
        Ok(draft)
    }

    fn set_section(&mut self, section: &str, content: Value, places: &Places) -> Result<()> {
        check_section(section, section)?;
        let Value::Table(content) = content else {
            let remedy = format!("write [{section}] and keys below it");
            return Err(Error::setting(section, "this is a section, not a key", remedy));
        };
        for (key, value) in content {
            self.set(section, &key, value)?;
            self.places.take(&format!("{section}.{key}"), places);
        }
        Ok(())
    }

    /// Takes `section.key=value` from a command line. Quotes around strings may be left out.
    pub fn assign(&mut self, text: &str) -> Result<()> {
        let malformed = |problem: &str| Error::setting(text, problem, "write section.key=value, e.g. train.lr=0.01");
        let (name, raw) = text.split_once('=').ok_or_else(|| malformed("there is no ="))?;
        let (section, key) = name.trim().split_once('.').ok_or_else(|| malformed("there is no section"))?;
        let string = Value::String(raw.trim().to_string());
        match raw.trim().parse::<Value>() {
            // `data.split=5` means the string where a string is wanted.
            Ok(value) => self.set(section, key, value).or_else(|e| self.set(section, key, string).map_err(|_| e)),
            Err(_) => self.set(section, key, string),
        }
    }

    /// Sets one value.
    ///
    /// # Errors
    /// If there is no such key, or if it cannot have this value. Keys of `[model]` depend on its name and are looked at
    /// by [`Draft::finish`].
    pub fn set(&mut self, section: &str, key: &str, value: impl Into<Value>) -> Result<()> {
        let value = value.into();
        check_section(section, &format!("{section}.{key}"))?;
        match section {
            "data" => check_key::<DataConfig>("data", key, &value)?,
            "encoding" => check_key::<Encodings>("encoding", key, &value)?,
            "link" => check_key::<LinkConfig>("link", key, &value)?,
            "train" => check_key::<TrainConfig>("train", key, &value)?,
            "compute" => check_key::<ComputeConfig>("compute", key, &value)?,
            "parallel" => check_key::<ParallelConfig>("parallel", key, &value)?,
            "pipeline" => check_key::<PipelineConfig>("pipeline", key, &value)?,
            "wire" => check_key::<WireConfig>("wire", key, &value)?,
            "isolated" => check_key::<IsolatedConfig>("isolated", key, &value)?,
            "run" => check_key::<RunConfig>("run", key, &value)?,
            _ => {}
        }
        if let Value::Table(content) = self.settings.entry(section).or_insert_with(|| Value::Table(Table::new())) {
            content.insert(key.to_string(), value);
        }
        self.places.take(&format!("{section}.{key}"), &Places::default());
        Ok(())
    }

    /// Takes a setting away, if it was given.
    pub fn unset(&mut self, section: &str, key: &str) {
        if let Some(Value::Table(content)) = self.settings.get_mut(section) {
            content.remove(key);
        }
    }

    /// These settings, and those of `later` in place of the same ones. If `later` has fewer epochs than are warm-up
    /// here, all of them are: whoever asked for them did not ask for a warm-up.
    pub fn and(self, later: &Self) -> Result<Self> {
        let mut all = self.changed_by(later)?;
        let number = |draft: &Self, key| draft.get("train", key).and_then(Value::as_integer);
        let epochs = number(later, "epochs").filter(|_| later.get("train", "warmup").is_none());
        if let Some(epochs) = epochs.filter(|epochs| number(&all, "warmup").is_some_and(|warmup| warmup > *epochs)) {
            all.set("train", "warmup", epochs)?;
        }
        Ok(all)
    }

    /// These settings with those of `later` in place of the same ones, and no other change.
    pub(crate) fn changed_by(self, later: &Self) -> Result<Self> {
        let mut this = self.with_models(&later.models);
        for (section, content) in &later.settings {
            for (key, value) in content.as_table().into_iter().flatten() {
                this.set(section, key, value.clone())?;
                this.places.take(&format!("{section}.{key}"), &later.places);
            }
        }
        Ok(this)
    }

    /// What was given for a setting.
    pub fn get(&self, section: &str, key: &str) -> Option<&Value> {
        self.settings.get(section)?.get(key)
    }

    /// `section.key` of every setting that was given.
    pub fn keys(&self) -> Vec<String> {
        let of = |(section, content): (&String, &Value)| {
            let keys = content.as_table().into_iter().flat_map(|t| t.keys());
            keys.map(|key| format!("{section}.{key}")).collect::<Vec<_>>()
        };
        self.settings.iter().flat_map(of).collect()
    }

    /// Fills in defaults and checks every value.
    pub fn finish(mut self) -> Result<Config> {
        let model = self.model().map_err(|e| self.places.name(e))?;
        self.settings.remove("model");
        let mut config = self.settings.try_into::<Config>().map_err(|e| in_config(&e))?;
        config.model = model;
        config.data.self_loops = config.data.self_loops.decided(&config.model);
        config.check().map_err(|e| self.places.name(e))?;
        Ok(config)
    }

    /// The model, one of those that this knows.
    fn model(&self) -> Result<ModelConfig> {
        let mut keys = self.settings.get("model").and_then(Value::as_table).cloned().unwrap_or_default();
        let named = keys.remove("name").unwrap_or_else(|| ModelConfig::default().name().into());
        let name = named.as_str().map_or_else(|| named.to_string(), str::to_string);
        let Some(kind) = self.models.get(&name) else {
            let known = self.models.names();
            let near = nearest(&name, known.iter().copied()).map_or(String::new(), |n| format!("did you mean {n}? "));
            let remedy = format!("{near}models are {}", known.join(", "));
            return Err(Error::setting("model.name", format!("there is no model {name:?}"), remedy));
        };
        let section = Section { name: "model", of: format!(" of {name}"), keys: kind.keys() };
        for (key, value) in &keys {
            let refusal = |value: &Value| kind.read(Table::from_iter([(key.clone(), value.clone())])).err();
            section.check(key, value, |value| refusal(value).map(|e| e.message().trim_end().to_string()))?;
        }
        kind.read(keys).map_err(|e| in_config(&e))
    }
}

fn in_config(e: &toml::de::Error) -> Error {
    Error::setting("config", e.message().trim_end(), "check the values")
}

/// Fails unless the section `name` can have this key and this value.
fn check_key<T: DeserializeOwned>(name: &'static str, key: &str, value: &Value) -> Result<()> {
    let section = Section { name, of: String::new(), keys: keys_of::<T>() };
    section.check(key, value, |value| refusal_of::<T>(key, value))
}

/// Why a key of `T` cannot have this value.
fn refusal_of<T: DeserializeOwned>(key: &str, value: &Value) -> Option<String> {
    let trial = Table::from_iter([(key.to_string(), value.clone())]);
    trial.try_into::<T>().err().map(|e| e.message().trim_end().to_string())
}

/// The keys of a section.
struct Section {
    name: &'static str,
    /// Whose they are, where they depend on another one.
    of: String,
    keys: &'static [&'static str],
}

impl Section {
    /// Fails unless there is this key and `refusal` has nothing against this value.
    fn check(&self, key: &str, value: &Value, refusal: impl Fn(&Value) -> Option<String>) -> Result<()> {
        let Self { name: section, of, keys } = self;
        let name = format!("{section}.{key}");
        if !keys.contains(&key) {
            let remedy = match nearest(key, keys.iter().copied()) {
                Some(near) => format!("did you mean {section}.{near}?"),
                None => format!("keys of [{section}] are {}", keys.join(", ")),
            };
            return Err(Error::setting(name, format!("there is no such key{of}"), remedy));
        }
        let Some(message) = refusal(value) else { return Ok(()) };
        // Names are listed where none of them is given.
        let nameless = || refusal(&Value::String(String::new())).as_deref().and_then(kind);
        Err(match kind(&message).or_else(nameless) {
            Some(kind) => Error::setting(name, format!("{value} cannot be its value"), format!("set {kind}")),
            None => Error::setting(name, message, "choose one that there is"),
        })
    }
}

fn check_section(section: &str, name: &str) -> Result<()> {
    if SECTIONS.contains(&section) {
        return Ok(());
    }
    let remedy = match nearest(section, SECTIONS) {
        Some(near) => format!("did you mean [{near}]?"),
        None => format!("sections are {}", SECTIONS.join(", ")),
    };
    Err(Error::setting(name, format!("there is no section [{section}]"), remedy))
}

fn at_least_one(key: &'static str, x: u64) -> std::result::Result<(), Problem> {
    if x >= 1 { Ok(()) } else { Err((key, "0 is too few".into(), "set at least 1")) }
}

fn positive(key: &'static str, x: f64) -> std::result::Result<(), Problem> {
    if x > 0.0 && x.is_finite() {
        Ok(())
    } else {
        Err((key, format!("{x} is not positive, or no number"), "set a number above 0"))
    }
}

fn not_negative(key: &'static str, x: f64) -> std::result::Result<(), Problem> {
    if x >= 0.0 && x.is_finite() { Ok(()) } else { Err((key, format!("{x} is negative"), "set 0 or more")) }
}

fn part_of_one(key: &'static str, x: f64) -> std::result::Result<(), Problem> {
    match (0.0..1.0).contains(&x) {
        true => Ok(()),
        false => Err((key, format!("{x} is not a share"), "set a number that is at least 0 and below 1")),
    }
}

#[cfg(test)]
mod tests;
