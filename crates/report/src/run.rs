//! One run folder, as far as it can be read.

use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use graphweft_base::{Error, Result};
use serde_json::{Map, Value, json};
use toml::Table;

use crate::columns::Columns;
use crate::settings;
use crate::trace;

/// What the caller knows and a folder does not say.
pub struct Context<'a> {
    /// Settings that nobody has changed, for a model of this name, to tell which ones were.
    pub defaults: &'a dyn Fn(&str) -> Table,
    /// Of the program that makes the page.
    pub version: String,
    /// What takes the dataset to find out about the run in a folder: statistics, classes. An error is a remark.
    pub analyse: Option<Analyse<'a>>,
}

/// Finds out about the run in a folder what takes its dataset.
pub type Analyse<'a> = &'a dyn Fn(&Path) -> std::result::Result<Value, String>;

/// Whether a run is still going.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It has a result.
    Finished,
    /// Some process writes to it.
    Running,
    /// It has no result, and nobody writes to it.
    Stopped,
}

impl State {
    /// Of the run in `folder`.
    pub fn of(folder: &Path) -> Self {
        if folder.join("result.json").exists() {
            return Self::Finished;
        }
        // Whoever trains holds a lock on the folder.
        match File::open(folder).map(|folder| folder.try_lock_shared()) {
            Ok(Err(TryLockError::WouldBlock)) => Self::Running,
            _ => Self::Stopped,
        }
    }

    /// As people read it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Running => "running",
            Self::Stopped => "stopped",
        }
    }
}

/// What a run has left, or has written so far.
#[derive(Clone, Debug)]
pub struct RunFiles {
    pub(crate) folder: PathBuf,
    pub(crate) name: String,
    pub(crate) state: State,
    pub(crate) config: Table,
    pub(crate) seeds: Vec<Seed>,
    json: Map<String, Value>,
    /// What is wrong with its files: file and remark.
    pub(crate) problems: Vec<(String, String)>,
}

/// One seed of a run.
#[derive(Clone, Debug)]
pub(crate) struct Seed {
    pub(crate) result: Value,
    pub(crate) metrics: Columns,
    times: Columns,
    state: State,
    number: u64,
}

impl RunFiles {
    /// Reads the run in `folder`.
    ///
    /// # Errors
    /// If no run has begun there, or the folder cannot be read.
    pub fn open(folder: &Path, context: &Context<'_>) -> Result<Self> {
        let names = entries(folder)?;
        let begun =
            names.iter().any(|name| name == "config.toml" || name == "checkpoints" || name.starts_with("seed-"));
        if !begun {
            let what = format!("{} is not the folder of a run: it has no config.toml", folder.display());
            return Err(Error::request(what, "name the folder that was given to train with -o"));
        }
        let mut problems = Problems::default();
        let config = problems.toml(&folder.join("config.toml"));
        let mut folders: Vec<(u64, PathBuf)> = names
            .iter()
            .filter_map(|name| Some((name.strip_prefix("seed-")?.parse().ok()?, folder.join(name))))
            .filter(|(_, path)| path.is_dir())
            .collect();
        folders.sort_unstable();
        if folders.is_empty() {
            let seed = config.get("run").and_then(|run| run.get("seed")).and_then(toml::Value::as_integer);
            folders.push((seed.unwrap_or(0).unsigned_abs(), folder.to_path_buf()));
        }
        let seeds: Vec<Seed> = folders.iter().map(|(number, path)| Seed::read(*number, path, &mut problems)).collect();
        let first = folders.first().map_or(folder, |(_, path)| path.as_path());
        let mut json = Map::new();
        // Of several seeds, each has a plan with what it measured; the first stands for all.
        json.insert("plan".into(), problems.json(&first.join("plan.json"), Wanted::Always));
        json.insert("usage".into(), problems.json(&first.join("usage.json"), Wanted::IfThere));
        let looked_at = problems.json(&first.join("candidates.json"), Wanted::IfThere);
        if let Some(plan) = json.get_mut("plan").and_then(Value::as_object_mut).filter(|_| looked_at.is_object()) {
            plan.insert("candidates".into(), with_choice(&looked_at));
        }
        json.insert("starts".into(), problems.json(&folder.join("run.json"), Wanted::Always));
        json.insert("notes".into(), problems.notes(&folder.join("notes.jsonl")));
        json.insert("trace".into(), problems.trace(&first.join("trace.json")));
        let model = settings::text(&config, "model", "name").unwrap_or_default();
        json.insert("settings".into(), json!(settings::compare(&config, &(context.defaults)(&model))));
        let analysed = context.analyse.map(|analyse| analyse(first));
        match analysed.transpose() {
            Ok(found) => json.insert("data".into(), found.unwrap_or_default()),
            Err(why) => {
                problems.add("dataset", &why);
                json.insert("data".into(), Value::Null)
            }
        };
        let state = seeds.iter().map(|seed| seed.state).find(|state| *state != State::Finished);
        let state =
            if State::of(folder) == State::Finished { State::Finished } else { state.unwrap_or(State::Finished) };
        let name = folder.file_name().map_or_else(|| folder.display().to_string(), |n| n.to_string_lossy().into());
        let problems = problems.0;
        Ok(Self { folder: folder.to_path_buf(), name, state, config, seeds, json, problems })
    }

    /// A setting, as text.
    pub(crate) fn setting(&self, section: &str, key: &str) -> Option<String> {
        settings::text(&self.config, section, key)
    }

    /// What was learned from: the name of the folder, or what the graph was made by.
    pub(crate) fn dataset(&self) -> String {
        let folder = self.setting("data", "path");
        let name = folder.as_deref().map(Path::new).and_then(Path::file_name).map(|n| n.to_string_lossy().into_owned());
        name.or_else(|| self.setting("data", "graph")).unwrap_or_else(|| "unknown".into())
    }

    /// What was scored: as a result says, or as was asked for.
    pub(crate) fn metric(&self) -> Option<String> {
        let said = self.seeds.iter().find_map(|seed| seed.result["metric"].as_str().map(String::from));
        said.or_else(|| self.setting("train", "metric"))
    }

    /// How the work was spread.
    pub(crate) fn plan(&self) -> &Value {
        self.json.get("plan").unwrap_or(&Value::Null)
    }

    /// As the page reads it.
    pub(crate) fn to_json(&self) -> Value {
        let mut all = self.json.clone();
        let metric = self.metric();
        let lower = Better::of(metric.as_deref()) == Better::Lower;
        let errors = ["mae", "rmse", "mse", "r2"];
        let plain = metric.as_deref().is_some_and(|name| errors.contains(&name));
        let more = json!({
            "name": self.name, "folder": self.folder.display().to_string(), "state": self.state.name(),
            "dataset": self.dataset(), "model": self.setting("model", "name"), "metric": metric,
            "lower_is_better": lower, "unit": if plain { "" } else { " %" },
            "split": self.seeds.iter().find_map(|seed| seed.result["split"].as_str()),
            "seeds": self.seeds.iter().map(Seed::to_json).collect::<Vec<_>>(),
            "problems": self.problems.iter().map(|(file, text)| json!({"file": file, "text": text})).collect::<Vec<_>>(),
        });
        if let Value::Object(more) = more {
            all.extend(more);
        }
        Value::Object(all)
    }
}

/// The candidates of a plan, each with whether it was chosen.
pub(crate) fn with_choice(plan: &Value) -> Value {
    let choice = &plan["choice"];
    let is_choice = |one: &Value| ["strategy", "partition", "remat"].iter().all(|key| one[*key] == choice[*key]);
    let mut all = plan["candidates"].as_array().cloned().unwrap_or_default();
    for one in &mut all {
        let chosen = is_choice(one) && one["feasible"] == true;
        if let Some(one) = one.as_object_mut() {
            one.insert("chosen".into(), chosen.into());
        }
    }
    all.into()
}

/// Which scores of a metric are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Better {
    Lower,
    Higher,
}

impl Better {
    /// Of a metric by its name.
    pub(crate) fn of(metric: Option<&str>) -> Self {
        let lower = metric.is_some_and(|name| ["mae", "rmse", "mse", "loss"].contains(&name));
        if lower { Self::Lower } else { Self::Higher }
    }

    fn is_better(self, score: f64, other: f64) -> bool {
        match self {
            Self::Lower => score < other,
            Self::Higher => score > other,
        }
    }
}

/// Whether it is worth a remark that a file is not there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Always,
    IfThere,
}

impl Wanted {
    /// Of a file that only a run in this state must have.
    fn of_finished(state: State) -> Self {
        if state == State::Finished { Self::Always } else { Self::IfThere }
    }
}

impl Seed {
    fn read(number: u64, folder: &Path, problems: &mut Problems) -> Self {
        let state = State::of(folder);
        Self {
            result: problems.json(&folder.join("result.json"), Wanted::of_finished(state)),
            metrics: problems.columns(&folder.join("metrics.jsonl"), Wanted::Always),
            times: problems.columns(&folder.join("times.jsonl"), Wanted::IfThere),
            state,
            number,
        }
    }

    /// The scores of the epoch with the best validation: as the result says or, of a run without one, so far.
    pub(crate) fn best(&self, better: Better) -> Value {
        if self.result["best"].is_object() {
            return self.result["best"].clone();
        }
        let mut best: Option<(usize, f64)> = None;
        for (place, score) in self.metrics.get("valid").iter().enumerate() {
            if let Some(score) = score.filter(|score| best.is_none_or(|(_, old)| better.is_better(*score, old))) {
                best = Some((place, score));
            }
        }
        let Some((place, _)) = best else { return Value::Null };
        let of = |key: &str| self.metrics.get(key).get(place).copied().flatten();
        json!({"epoch": of("epoch"), "train": of("train"), "valid": of("valid"), "test": of("test")})
    }

    /// The median of what an epoch took.
    pub(crate) fn epoch_ms(&self) -> Option<f64> {
        let mut all: Vec<f64> = self.times.get("learn_ms").iter().flatten().copied().collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied()
    }

    fn to_json(&self) -> Value {
        let better = Better::of(self.result["metric"].as_str());
        let guard: Vec<Value> = self
            .metrics
            .objects
            .iter()
            .filter(|(_, key, _)| key == "guard")
            .map(|(line, _, value)| json!({"line": line, "seen": value}))
            .collect();
        json!({
            "seed": self.number, "state": self.state.name(), "best": self.best(better),
            "parameters": self.result["parameters"], "epochs": self.metrics.len(),
            "metrics": self.metrics.to_json(), "times": self.times.to_json(), "guard": guard,
        })
    }
}

/// What is wrong with files, collected while they are read.
#[derive(Default)]
struct Problems(Vec<(String, String)>);

impl Problems {
    fn add(&mut self, file: &str, text: &str) {
        self.0.push((file.into(), text.into()));
    }

    /// The text of a file; nothing, and a remark if it is wanted, where there is none.
    fn text(&mut self, path: &Path, wanted: Wanted) -> Option<String> {
        let name = name_of(path);
        match fs::read(path) {
            Ok(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
            Err(e) if e.kind() == ErrorKind::NotFound => {
                if wanted == Wanted::Always {
                    self.add(&name, "is missing");
                }
                None
            }
            Err(e) => {
                self.add(&name, &format!("cannot be read: {e}"));
                None
            }
        }
    }

    fn json(&mut self, path: &Path, wanted: Wanted) -> Value {
        let Some(text) = self.text(path, wanted) else { return Value::Null };
        serde_json::from_str(&text).unwrap_or_else(|e| {
            self.add(&name_of(path), &format!("is damaged: {e}"));
            Value::Null
        })
    }

    fn toml(&mut self, path: &Path) -> Table {
        let Some(text) = self.text(path, Wanted::Always) else { return Table::new() };
        text.parse().unwrap_or_else(|e: toml::de::Error| {
            self.add(&name_of(path), &format!("is damaged: {}", e.message()));
            Table::new()
        })
    }

    fn columns(&mut self, path: &Path, wanted: Wanted) -> Columns {
        let Some(text) = self.text(path, wanted) else { return Columns::default() };
        let (columns, cut) = Columns::read(&text);
        if let Some(line) = cut {
            self.add(&name_of(path), &format!("is damaged in line {line}; what comes before is shown"));
        }
        columns
    }

    fn notes(&mut self, path: &Path) -> Value {
        let Some(text) = self.text(path, Wanted::IfThere) else { return Value::Array(Vec::new()) };
        text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).collect()
    }

    fn trace(&mut self, path: &Path) -> Value {
        let Some(text) = self.text(path, Wanted::IfThere) else { return Value::Null };
        trace::pack(&text).unwrap_or_else(|why| {
            self.add(&name_of(path), &format!("is damaged: {why}"));
            Value::Null
        })
    }
}

/// The file with the folder of its seed, if it is in one.
fn name_of(path: &Path) -> String {
    let name = |path: &Path| path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let folder = path.parent().map(name).filter(|folder| folder.starts_with("seed-"));
    folder.map_or_else(|| name(path), |folder| format!("{folder}/{}", name(path)))
}

/// Names in a folder.
fn entries(folder: &Path) -> Result<Vec<String>> {
    let missing = |e: std::io::Error| Error::unreadable(folder, "run", &e);
    let all = fs::read_dir(folder).map_err(missing)?;
    Ok(all.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned())).collect())
}
