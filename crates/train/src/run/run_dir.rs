//! The run directory.
//!
//! ```text
//! runs/<name>/
//!   config.toml        every setting, with its value
//!   split/             the split, if it was drawn (`data.split = "random:60/20/20"`): nodes of train, valid and test
//!   plan.json          how the work is spread, what that was predicted to take and, at the end, what it took
//!   metrics.jsonl      a line per epoch: loss, learning rate, length of the gradients, scores, validation loss
//!   times.jsonl        a line per epoch: what it took
//!   run.json           command, host and version, each time that it was started
//!   usage.json         of every rank, at the last checkpoint: memory by purpose, bytes by operation, layer and peer
//!                      and, on CPUs, time by kernel
//!   candidates.json    what the planner looked at, if it was asked
//!   notes.jsonl        what was remarked while it ran
//!   bench.json         what `bench --for` timed for it, a line each; `report.html`, if a page was asked for
//!   result.json        the best epoch, its scores and the hash of its model; its presence says that the run is over
//!   model.safetensors  the parameters of the best epoch
//!   predictions.npy    their logits, a row per node in original ids
//!   curve.svg          loss and scores over epochs
//!   checkpoints/       see [`crate::run::checkpoint`]
//!   events.out.tfevents.0.graphweft, trace.json   TensorBoard and Chrome trace
//! ```
//!
//! Of a run with several seeds, each has such a folder, `seed-<s>/`, of its own, and the directory has `config.toml`,
//! `plan.json` and `result.json` with the mean. Everything but `run.json`, `times.jsonl`, `usage.json`, `notes.jsonl`,
//! `candidates.json`, events, trace and what `plan.json` says of times is a function of the configuration: a run that
//! was interrupted and resumed ends with the same bytes as one that was not.

pub(crate) mod curve;
pub(crate) mod events;
pub(crate) mod launch;
pub(crate) mod times;
pub(crate) mod trace;
pub(crate) mod usage;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

use graphweft_base::{Error as Bad, durable};
use graphweft_graph::dataset::Split;
use graphweft_graph::npy::write_npy;
use serde::{Deserialize, Serialize};

use crate::config::RunConfig;
use crate::epochs::pipeline::Divergence;
use crate::error::Result;
use crate::hash::sha256;
use crate::run::checkpoint::{Checkpoints, Scores};
use crate::task::metrics::read_score;
use crate::task::predictions::write_outputs;

const CONFIG: &str = "config.toml";
/// The last line of a `config.toml` that is all there.
const CONFIG_END: &str = "# end\n";
const PLAN: &str = "plan.json";
const METRICS: &str = "metrics.jsonl";
const RESULT: &str = "result.json";
const MODEL: &str = "model.safetensors";
const SPLIT: &str = "split";
const PREDICTIONS: &str = "predictions.npy";
const SEED: &str = "seed-";

/// A run directory that nobody else writes to while this lives.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    /// The folder itself, locked.
    _lock: File,
    /// A run that was refused, or told to end, before it wrote anything leaves no empty folder.
    _empty: durable::Unfinished,
}

impl RunDir {
    /// Creates `path`.
    ///
    /// # Errors
    /// [`Bad::Request`] if there is something already.
    pub fn create(path: &Path) -> Result<Self> {
        if fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some()) {
            let what = format!("{} exists already", path.display());
            return Err(Bad::request(what, "go on with --resume, remove it, or name another with -o").into());
        }
        Self::open(path)
    }

    /// Opens `path`, which is created if it does not exist.
    ///
    /// # Errors
    /// [`Bad::Request`] if another process writes there, or if there is something that no run has left.
    pub fn open(path: &Path) -> Result<Self> {
        if is_foreign(path) {
            let what = format!("{} has files, but neither {CONFIG} nor checkpoints of a run", path.display());
            return Err(Bad::request(what, "check the path, or name a new folder with -o").into());
        }
        durable::create_folder(path)?;
        let empty = durable::Unfinished::while_empty(path);
        let lock = File::open(path).map_err(Bad::write("open", path))?;
        match lock.try_lock() {
            Ok(()) => {
                // Only now: whoever writes here has the lock. Not every file is written again by a run that goes on.
                durable::remove_partial(path)?;
                Ok(Self { path: path.to_path_buf(), _lock: lock, _empty: empty })
            }
            Err(TryLockError::WouldBlock) => {
                let what = format!("another process is training in {}", path.display());
                Err(Bad::request(what, "wait for it, or name another folder with -o").into())
            }
            Err(TryLockError::Error(e)) => Err(Bad::write("lock", path)(e).into()),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its checkpoints.
    pub fn checkpoints(&self, config: &RunConfig) -> Checkpoints {
        Checkpoints::of(&self.path, config)
    }

    /// Writes the configuration and the plan.
    pub fn describe(&self, config: &str, plan: &str) -> Result<()> {
        self.replace(CONFIG, format!("{config}\n{CONFIG_END}").as_bytes())?;
        self.plan(plan)
    }

    /// Writes a split that was drawn, as a dataset folder has it.
    pub fn split(&self, split: &Split) -> Result<()> {
        let folder = self.path.join(SPLIT);
        durable::create_folder(&folder)?;
        for (part, ids) in split.parts() {
            write_npy(folder.join(format!("{part}.npy")), &[], ids)?;
        }
        Ok(())
    }

    /// Writes the plan, at the end with what it came to.
    pub fn plan(&self, plan: &str) -> Result<()> {
        self.replace(PLAN, plan.as_bytes())
    }

    /// The plan that was written, if there is one.
    pub fn stored_plan(&self) -> Option<String> {
        fs::read_to_string(self.path.join(PLAN)).ok()
    }

    /// The configuration that [`RunDir::describe`] wrote, unless it is missing or cut short.
    pub fn config(path: &Path) -> Option<String> {
        let text = fs::read_to_string(path.join(CONFIG)).ok()?;
        text.strip_suffix(CONFIG_END).map(String::from)
    }

    /// Writes `predictions.npy`: a row per node.
    ///
    /// # Errors
    /// [`Error::NotPredicted`](crate::Error::NotPredicted), and no file, if one has a number that is not finite.
    pub fn predictions(&self, cols: usize, lots: &mut dyn Iterator<Item = Result<Vec<f32>>>) -> Result<()> {
        write_outputs(&self.path.join(PREDICTIONS), cols, lots)
    }

    /// Writes `model.safetensors` and gives its hash.
    pub fn model(&self, bytes: &[u8]) -> Result<String> {
        self.replace(MODEL, bytes)?;
        Ok(sha256(bytes))
    }

    /// What `result.json` in `path` says of the model beside it; nothing where there is none.
    ///
    /// # Errors
    /// If it cannot be understood.
    pub fn ended(path: &Path) -> Result<Option<Ended>> {
        let file = path.join(RESULT);
        let bytes = match fs::read(&file) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Bad::unreadable(&file, "result", &e).into()),
        };
        let remedy = "the file is damaged: copy it again, or name a checkpoint of the run instead";
        let damaged = |e: serde_json::Error| Bad::bad(&file, "result", e.to_string(), remedy);
        Ok(Some(serde_json::from_slice(&bytes).map_err(damaged)?))
    }

    /// Writes `result.json`, which ends the run.
    pub fn finish(&self, result: &impl Serialize) -> Result<()> {
        let json = |e: serde_json::Error| Bad::request(format!("cannot write {RESULT}: {e}"), "report this as a bug");
        let mut bytes = serde_json::to_vec_pretty(result).map_err(json)?;
        bytes.push(b'\n');
        self.replace(RESULT, &bytes)
    }

    /// Whether a run in `path` has ended.
    pub fn is_over(path: &Path) -> bool {
        path.join(RESULT).exists()
    }

    /// The folders of the seeds of a run that has several, in their order.
    pub fn seeds(path: &Path) -> Vec<PathBuf> {
        let number = |name: &String| name.strip_prefix(SEED)?.parse::<u64>().ok();
        let mut seeds: Vec<u64> = names(path).iter().filter_map(number).collect();
        seeds.sort_unstable();
        seeds.into_iter().map(|seed| Self::of_seed(path, seed)).filter(|folder| folder.is_dir()).collect()
    }

    /// The folder of one of them.
    pub fn of_seed(path: &Path, seed: u64) -> PathBuf {
        path.join(format!("{SEED}{seed}"))
    }

    /// Whether a run has begun in `path`: its settings, its checkpoints or the folder of a seed are there.
    pub fn is_begun(path: &Path) -> bool {
        names(path).iter().any(|name| begins(name))
    }

    /// Fails if a run has ended here whose checkpoints are gone: it cannot go on, and what it left is not overwritten.
    pub(crate) fn check_unfinished(&self) -> Result<()> {
        let left = [RESULT, MODEL].map(|name| self.path.join(name)).into_iter().find(|file| file.exists());
        left.map_or(Ok(()), |file| {
            let problem = "a run has ended here, but there is no checkpoint to go on from";
            Err(Bad::bad(file, "run", problem, "begin anew with another folder for -o, or remove this one").into())
        })
    }

    /// Removes `result.json`: the run is not over.
    pub fn reopen(&self) -> Result<()> {
        match fs::remove_file(self.path.join(RESULT)) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(Bad::write("remove", self.path.join(RESULT))(e).into())
            }
            _ => Ok(()),
        }
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<()> {
        Ok(durable::replace(&self.path.join(name), bytes)?)
    }
}

/// Whether a folder has entries, but none of those that a run begins with. It may have been killed while it wrote the
/// first.
fn is_foreign(path: &Path) -> bool {
    let names = names(path);
    !names.is_empty() && !names.iter().any(|name| begins(name) || name.ends_with(".partial"))
}

/// Whether a run leaves something of this name as soon as it has begun.
fn begins(name: &str) -> bool {
    [CONFIG, "checkpoints"].contains(&name) || name.starts_with(SEED)
}

/// What is in a folder.
fn names(path: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(path) else { return Vec::new() };
    entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned())).collect()
}

/// Fails unless a file can be written to `path`.
pub(crate) fn check_target(path: &Path) -> Result<()> {
    if path.is_dir() {
        let what = format!("{} is a folder", path.display());
        return Err(Bad::request(what, "name a file in it with -o, e.g. predictions.npy").into());
    }
    durable::Target::of(path)?;
    match path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir()) {
        Some(folder) => {
            let what = format!("{} cannot be written: there is no folder {}", path.display(), folder.display());
            Err(Bad::request(what, "create it, or name another file with -o").into())
        }
        None => Ok(()),
    }
}

/// What `result.json` says beside the outcome of a run. Older versions did not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// The hash of `model.safetensors`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_sha256: Option<String>,
    /// What the model was trained to tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
}

impl Ended {
    /// Fails if these are not the bytes of the model, which are in `file`.
    pub(crate) fn verify(&self, file: &Path, bytes: &[u8]) -> Result<()> {
        let altered = self.model_sha256.as_ref().is_some_and(|hash| *hash != sha256(bytes));
        let remedy = "the file is damaged: copy it again, or name a checkpoint of the run instead";
        let problem = format!("its hash is not the one in {RESULT}");
        if altered { Err(Bad::bad(file, "content", problem, remedy).into()) } else { Ok(()) }
    }
}

/// A line of `metrics.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// From 1.
    pub epoch: u64,
    /// Of the nodes learned from, before the update.
    pub loss: f64,
    /// Learning rate.
    pub lr: f64,
    /// The length of all gradients together.
    pub gradient_norm: f64,
    /// After the update, in the epochs that are evaluated.
    #[serde(flatten)]
    pub scores: Option<Evaluated>,
    /// How far an approximate forward pass was from an exact one, in the epochs in which that is looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<Divergence>,
}

/// Scores as their metric counts them, and the mean loss of the nodes chosen by.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Evaluated {
    #[serde(deserialize_with = "read_score")]
    pub train: f64,
    #[serde(deserialize_with = "read_score")]
    pub valid: f64,
    #[serde(deserialize_with = "read_score")]
    pub test: f64,
    /// Older versions did not write it.
    #[serde(default = "unknown", deserialize_with = "read_score")]
    pub valid_loss: f64,
}

fn unknown() -> f64 {
    f64::NAN
}

impl From<Scores> for Evaluated {
    fn from(s: Scores) -> Self {
        Self { train: s.train, valid: s.valid, test: s.test, valid_loss: s.valid_loss }
    }
}

/// `metrics.jsonl`: on disk as far as the system has written it, and whole in memory for checkpoints.
#[derive(Debug)]
pub(crate) struct MetricsLog {
    file: File,
    path: PathBuf,
    bytes: Vec<u8>,
}

impl MetricsLog {
    /// Starts from what a checkpoint kept, or from nothing.
    pub(crate) fn start(dir: &RunDir, bytes: Vec<u8>) -> Result<Self> {
        let path = dir.path.join(METRICS);
        durable::replace(&path, &bytes)?;
        let file = OpenOptions::new().append(true).open(&path).map_err(Bad::write("open", &path))?;
        Ok(Self { file, path, bytes })
    }

    /// Adds an epoch.
    pub(crate) fn add(&mut self, line: &Line) -> Result<()> {
        let json = |e: serde_json::Error| Bad::request(format!("cannot write {METRICS}: {e}"), "report this as a bug");
        let mut text = serde_json::to_vec(line).map_err(json)?;
        text.push(b'\n');
        self.file.write_all(&text).map_err(Bad::write("write", &self.path))?;
        self.bytes.extend(text);
        Ok(())
    }

    /// Everything so far, with its bytes on the disk.
    pub(crate) fn sync(&self) -> Result<&[u8]> {
        self.file.sync_all().map_err(Bad::write("write", &self.path))?;
        Ok(&self.bytes)
    }

    /// The lines so far.
    pub(crate) fn lines(&self) -> Result<Vec<Line>> {
        let damaged =
            |e: serde_json::Error| Bad::bad(&self.path, "line", e.to_string(), "go on from another checkpoint");
        let lines = self.bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty());
        Ok(lines.map(|line| serde_json::from_slice(line).map_err(damaged)).collect::<std::result::Result<_, _>>()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_belongs_to_one_run_and_one_process() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("runs/a");
        let run = RunDir::create(&path).unwrap();
        let message = RunDir::open(&path).unwrap_err().to_string();
        assert!(message.contains("another process"), "{message}");
        drop(run);
        assert!(!path.exists(), "nothing was written");
        let run = RunDir::create(&path).unwrap();
        run.describe("[run]\n", "{}\n").unwrap();
        assert_eq!(RunDir::config(&path).unwrap(), "[run]\n\n");
        drop(run);
        let message = RunDir::create(&path).unwrap_err().to_string();
        assert!(message.contains("exists already") && message.contains("--resume"), "{message}");
        let run = RunDir::open(&path).unwrap();
        run.finish(&7).unwrap();
        assert_eq!(fs::read_to_string(path.join(RESULT)).unwrap(), "7\n");
        run.reopen().unwrap();
        run.reopen().unwrap();
        assert!(!path.join(RESULT).exists());
    }

    #[test]
    fn a_folder_that_no_run_has_begun_is_not_gone_on_in() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("thesis.tex"), "x").unwrap();
        let message = RunDir::open(dir.path()).unwrap_err().to_string();
        assert!(message.contains("neither config.toml nor checkpoints") && message.contains("remedy"), "{message}");
        for begun in [CONFIG, "checkpoints", "seed-3"] {
            let path = dir.path().join(begun);
            fs::create_dir(&path).unwrap();
            assert!(RunDir::open(dir.path()).is_ok(), "{begun}");
            fs::remove_dir(&path).unwrap();
        }
    }

    #[test]
    fn what_a_killed_run_has_left_half_written_is_removed_when_it_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(".config.toml.partial"), "[ru").unwrap();
        assert!(RunDir::open(dir.path()).is_ok(), "killed while it wrote its first file");
        RunDir::create(dir.path()).unwrap().describe("[run]\n", "{}\n").unwrap();
        fs::write(dir.path().join(".usage.json.partial"), "{").unwrap();
        fs::write(dir.path().join("mine.partial"), "x").unwrap();
        let run = RunDir::open(dir.path()).unwrap();
        fs::write(dir.path().join(".usage.json.partial"), "{").unwrap();
        assert!(RunDir::open(dir.path()).is_err(), "another has the lock");
        assert!(dir.path().join(".usage.json.partial").exists(), "and writes this");
        drop(run);
        RunDir::open(dir.path()).unwrap();
        let left: Vec<String> = names(dir.path()).into_iter().filter(|name| name.ends_with("partial")).collect();
        assert_eq!(left, ["mine.partial"]);
    }

    #[test]
    fn predictions_that_cannot_be_written_leave_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("p.npy");
        fs::create_dir(&folder).unwrap();
        for (path, part) in [(folder.clone(), "is a folder"), (dir.path().join("no/p.npy"), "there is no folder")] {
            let message = check_target(&path).unwrap_err().to_string();
            assert!(message.contains(part) && message.contains("-o"), "{message}");
            let lots = std::iter::once(Ok(vec![1.0, 2.0]));
            assert!(write_outputs(&path, 2, lots).is_err());
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no partial file");
        assert!(check_target(Path::new("p.npy")).is_ok() && check_target(&dir.path().join("q.npy")).is_ok());
    }

    #[test]
    fn metrics_go_on_from_a_checkpoint_with_the_same_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::create(dir.path()).unwrap();
        let line = |epoch| {
            let scores =
                (epoch % 2 == 0).then_some(Evaluated { train: 1.0 / 3.0, valid: 0.1, test: 99.0, valid_loss: 0.7 });
            Line { epoch, loss: 0.1 * epoch as f64, lr: 1e-3, gradient_norm: 2.0, scores, guard: None }
        };
        let mut log = MetricsLog::start(&run, Vec::new()).unwrap();
        (1..=3).for_each(|e| log.add(&line(e)).unwrap());
        let kept = log.sync().unwrap().to_vec();
        (4..=6).for_each(|e| log.add(&line(e)).unwrap());
        let whole = fs::read(dir.path().join(METRICS)).unwrap();
        drop(log);
        let mut log = MetricsLog::start(&run, kept.clone()).unwrap();
        assert_eq!(fs::read(dir.path().join(METRICS)).unwrap(), kept);
        (4..=6).for_each(|e| log.add(&line(e)).unwrap());
        assert_eq!(fs::read(dir.path().join(METRICS)).unwrap(), whole);
        assert_eq!(log.lines().unwrap(), (1..=6).map(line).collect::<Vec<_>>());
    }
}
