//! One run folder, as far as it can be read.

use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use graphweft_base::{Error, Result};
use serde_json::{Value, json};
use toml::Table;

use crate::columns::Columns;
use crate::growing::Growing;
use crate::locks;
use crate::settings;
use crate::trace::{self, Room};

/// What the caller knows and a folder does not say.
pub struct Context<'a> {
    /// Settings that nobody has changed, for a model of this name, to tell which ones were.
    pub defaults: &'a dyn Fn(&str) -> Table,
    /// Of the program that makes the page.
    pub version: String,
    /// What takes the dataset to find out about the run in a folder: statistics, classes. An error is a remark.
    pub analyse: Option<Analyse<'a>>,
    /// What was read before, for pages that are made again and again.
    pub before: Growing,
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
    /// It has no result, and nobody writes to it. On a file system that hosts share: nobody has, for some minutes.
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
            _ if locks::may_go_on_elsewhere(folder) => Self::Running,
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

/// What a run has left, or has written so far: what a list of runs needs. The rest is read when a page is made.
#[derive(Clone, Debug)]
pub struct RunFiles {
    pub(crate) folder: PathBuf,
    pub(crate) name: String,
    pub(crate) state: State,
    pub(crate) config: Table,
    pub(crate) seeds: Vec<Seed>,
    problems: Problems,
}

/// One seed of a run.
#[derive(Clone, Debug)]
pub(crate) struct Seed {
    folder: PathBuf,
    pub(crate) result: Value,
    pub(crate) metrics: Columns,
    times: Columns,
    plan: Value,
    state: State,
    number: u64,
}

impl RunFiles {
    /// Reads the run in `folder`.
    ///
    /// # Errors
    /// If no run has begun there, or the folder cannot be read.
    pub fn open(folder: &Path) -> Result<Self> {
        Self::open_again(folder, &Growing::default())
    }

    /// The same with what was read before.
    ///
    /// # Errors
    /// As [`RunFiles::open`].
    pub(crate) fn open_again(folder: &Path, before: &Growing) -> Result<Self> {
        let names = entries(folder)?;
        let begun =
            names.iter().any(|name| name == "config.toml" || name == "checkpoints" || name.starts_with("seed-"));
        if !begun {
            let what = format!("{} is not the folder of a run: it has no config.toml", folder.display());
            return Err(Error::request(what, "name the folder that was given to train with -o"));
        }
        let mut problems = Problems { all: Vec::new(), before: before.clone() };
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
        let state = seeds.iter().map(|seed| seed.state).find(|state| *state != State::Finished);
        let state =
            if State::of(folder) == State::Finished { State::Finished } else { state.unwrap_or(State::Finished) };
        let name = folder.file_name().map_or_else(|| folder.display().to_string(), |n| n.to_string_lossy().into());
        Ok(Self { folder: folder.to_path_buf(), name, state, config, seeds, problems })
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

    /// How the work was spread. Of several seeds, each has a plan with what it measured; the first stands for all.
    pub(crate) fn plan(&self) -> &Value {
        self.seeds.first().map_or(&Value::Null, |seed| &seed.plan)
    }

    /// How scores of this run are read: as a result says or, of one that older versions wrote, by the metric's name.
    pub(crate) fn scale(&self) -> Scale {
        let said = self.seeds.iter().find_map(|seed| Scale::said(&seed.result));
        said.unwrap_or_else(|| Scale::of_older(self.metric().as_deref()))
    }

    /// As the page reads it, with the files that only a page shows.
    pub(crate) fn to_json(&self, context: &Context<'_>) -> Value {
        let mut problems = self.problems.clone();
        let scale = self.scale();
        // Several seeds share the room that a page has for events.
        let room = if self.state == State::Running { Room::SO_FAR } else { Room::ALL };
        let room = Room { events: room.events / self.seeds.len().max(1), ..room };
        let seeds: Vec<Value> = self.seeds.iter().map(|seed| seed.to_json(scale, room, &mut problems)).collect();
        let model = self.setting("model", "name");
        let settings = settings::compare(&self.config, &(context.defaults)(model.as_deref().unwrap_or_default()));
        let starts = problems.json(&self.folder.join("run.json"), Wanted::Always);
        let notes = problems.notes(&self.folder.join("notes.jsonl"));
        let floors = problems.floors(&self.folder.join("bench.json"));
        let first = self.seeds.first().map_or(&self.folder, |seed| &seed.folder);
        let analysed = context.analyse.map_or(Ok(Value::Null), |analyse| analyse(first)).unwrap_or_else(|why| {
            problems.add("dataset", &why);
            Value::Null
        });
        json!({
            "name": self.name, "folder": self.folder.display().to_string(), "state": self.state.name(),
            "dataset": self.dataset(), "model": model, "metric": self.metric(), "unit": scale.unit,
            "split": self.seeds.iter().find_map(|seed| seed.result["split"].as_str()),
            "task": self.seeds.iter().find_map(|seed| seed.result["task"].as_str()), "seeds": seeds,
            "settings": settings, "starts": starts, "notes": notes, "data": analysed, "floors": floors,
            "problems": problems.all.iter().map(|(file, text)| json!({"file": file, "text": text})).collect::<Vec<_>>(),
        })
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

/// How the scores of a metric are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scale {
    better: Better,
    unit: &'static str,
}

/// Which scores are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Better {
    Lower,
    Higher,
}

impl Scale {
    const PER_CENT: &'static str = " %";

    /// As a result says.
    fn said(result: &Value) -> Option<Self> {
        let better = if result["better"].as_str()? == "lower" { Better::Lower } else { Better::Higher };
        Some(Self { better, unit: if result["unit"].as_str()?.is_empty() { "" } else { Self::PER_CENT } })
    }

    /// Of a metric that there was before results said so, by its name.
    fn of_older(metric: Option<&str>) -> Self {
        match metric {
            Some("mae" | "rmse" | "mse") => Self { better: Better::Lower, unit: "" },
            Some("r2") => Self { better: Better::Higher, unit: "" },
            _ => Self { better: Better::Higher, unit: Self::PER_CENT },
        }
    }

    /// Which scores are better, in a word.
    pub(crate) fn better(self) -> &'static str {
        match self.better {
            Better::Lower => "lower",
            Better::Higher => "higher",
        }
    }

    fn is_better(self, score: f64, other: f64) -> bool {
        match self.better {
            Better::Lower => score < other,
            Better::Higher => score > other,
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
            plan: problems.json(&folder.join("plan.json"), Wanted::Always),
            folder: folder.to_path_buf(),
            state,
            number,
        }
    }

    /// The scores of the epoch with the best validation: as the result says or, of a run without one, so far.
    pub(crate) fn best(&self, scale: Scale) -> Value {
        if self.result["best"].is_object() {
            return self.result["best"].clone();
        }
        let mut best: Option<(usize, f64)> = None;
        for (place, score) in self.metrics.get("valid").iter().enumerate() {
            if let Some(score) = score.filter(|score| best.is_none_or(|(_, old)| scale.is_better(*score, old))) {
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

    fn to_json(&self, scale: Scale, room: Room, problems: &mut Problems) -> Value {
        let guard: Vec<Value> = self
            .metrics
            .objects
            .iter()
            .filter(|(_, key, _)| key == "guard")
            .map(|(line, _, value)| json!({"line": line, "seen": value}))
            .collect();
        let mut plan = self.plan.clone();
        let looked_at = problems.json(&self.folder.join("candidates.json"), Wanted::IfThere);
        if let Some(plan) = plan.as_object_mut().filter(|_| looked_at.is_object()) {
            plan.insert("candidates".into(), with_choice(&looked_at));
        }
        json!({
            "seed": self.number, "state": self.state.name(), "best": self.best(scale),
            "parameters": self.result["parameters"], "epochs": self.metrics.len(),
            "metrics": self.metrics.to_json(), "times": self.times.to_json(), "guard": guard, "plan": plan,
            "usage": problems.json(&self.folder.join("usage.json"), Wanted::IfThere),
            "trace": problems.trace(&self.folder.join("trace.json"), room),
        })
    }
}

/// What is wrong with files, collected while they are read.
#[derive(Clone, Debug)]
struct Problems {
    /// Files, and what is wrong with them.
    all: Vec<(String, String)>,
    before: Growing,
}

impl Problems {
    fn add(&mut self, file: &str, text: &str) {
        self.all.push((file.into(), text.into()));
    }

    /// The text of a file; nothing, and a remark if it is wanted, where there is none.
    fn text(&mut self, path: &Path, wanted: Wanted) -> Option<String> {
        let bytes = self.found(path, wanted, fs::read(path))?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// What was read of a file; nothing, and a remark where that is worth one.
    fn found<T>(&mut self, path: &Path, wanted: Wanted, read: std::io::Result<T>) -> Option<T> {
        match read {
            Ok(found) => Some(found),
            Err(e) if e.kind() == ErrorKind::NotFound => {
                if wanted == Wanted::Always {
                    self.add(&name_of(path), "is missing");
                }
                None
            }
            Err(e) => {
                self.add(&name_of(path), &format!("cannot be read: {e}"));
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
        let read = self.before.columns(path);
        let Some((columns, cut)) = self.found(path, wanted, read) else { return Columns::default() };
        if let Some(line) = cut {
            self.add(&name_of(path), &format!("is damaged in line {line}; what comes before is shown"));
        }
        columns
    }

    fn notes(&mut self, path: &Path) -> Value {
        let Some(text) = self.text(path, Wanted::IfThere) else { return Value::Array(Vec::new()) };
        text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).collect()
    }

    /// What `bench --json` printed, one after another.
    fn floors(&mut self, path: &Path) -> Vec<Value> {
        let Some(text) = self.text(path, Wanted::IfThere) else { return Vec::new() };
        let read = serde_json::Deserializer::from_str(&text).into_iter().collect::<serde_json::Result<_>>();
        read.unwrap_or_else(|e| {
            self.add(&name_of(path), &format!("is damaged: {e}"));
            Vec::new()
        })
    }

    fn trace(&mut self, path: &Path, room: Room) -> Value {
        let read = self.before.trace(path, room, trace::pack);
        match self.found(path, Wanted::IfThere, read) {
            Some(Ok(trace)) => trace,
            Some(Err(why)) => {
                self.add(&name_of(path), &format!("is damaged: {why}"));
                Value::Null
            }
            None => Value::Null,
        }
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
