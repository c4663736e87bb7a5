//! Checkpoints: everything that a run needs to go on as if nothing had happened.
//!
//! ```text
//! checkpoints/step-000100/
//!   model.safetensors       parameters and running moments, names and shapes as in PyTorch
//!   best.safetensors        the same at the best validation score so far
//!   optimizer.safetensors   <parameter>.exp_avg, …
//!   state.json              epoch, best scores, early stopping, schedule, seed, and which data it was trained on
//!   config.toml, plan.json  as in the run directory
//!   partition.safetensors   which rank has which nodes; empty for one rank
//!   metrics.jsonl           the run's metrics so far
//!   manifest.sha256         a hash of every file, and of itself
//! ```
//!
//! The folder is written under another name, every file and the folder are synced, and it is renamed last: a checkpoint
//! that has its name is complete. What is read is verified against the manifest first. A disk that lost power or bits
//! may still damage one: [`Checkpoints::newest`] goes back to the newest that is whole, and says which ones it has
//! passed over. Where there are checkpoints and none is whole, that is an error and nothing is touched. A folder that
//! never had its name (a run that was killed before its first checkpoint was complete) is no checkpoint: such a run
//! begins anew.

mod folder;
mod manifest;
pub(crate) mod parts;
mod tensors;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use graphweft_base::{Error as Bad, durable};
use graphweft_graph::partition::Partition;
use serde::{Deserialize, Serialize};

use crate::data::fingerprint::Fingerprint;
use crate::error::Result;
use crate::run::schedule::Plateau;
use crate::task::metrics::{Better, read_score};
use manifest::{MANIFEST, Manifest};

pub(crate) use folder::{Checkpoints, WholeCheckpoint};
pub(crate) use tensors::{Cut, Tensors};

const MODEL: &str = "model.safetensors";
const BEST: &str = "best.safetensors";
const OPTIMIZER: &str = "optimizer.safetensors";
const STATE: &str = "state.json";
const CONFIG: &str = "config.toml";
const PLAN: &str = "plan.json";
const PARTITION: &str = "partition.safetensors";
const METRICS: &str = "metrics.jsonl";
const FILES: [&str; 8] = [MODEL, BEST, OPTIMIZER, STATE, CONFIG, PLAN, PARTITION, METRICS];

const COPY_AGAIN: &str = "the checkpoint is damaged: go on from another one, or copy it again";

/// Scores of one evaluation, in per cent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    /// The epoch, from 1.
    pub epoch: u64,
    /// Of the nodes learned from.
    #[serde(deserialize_with = "read_score")]
    pub train: f64,
    /// Of the nodes chosen by.
    #[serde(deserialize_with = "read_score")]
    pub valid: f64,
    /// Of the nodes reported on.
    #[serde(deserialize_with = "read_score")]
    pub test: f64,
    /// The mean loss of the nodes chosen by: decides among equal scores.
    #[serde(deserialize_with = "read_score")]
    pub valid_loss: f64,
}

impl Scores {
    /// Where nothing could be scored.
    pub fn none(epoch: u64) -> Self {
        Self { epoch, train: f64::NAN, valid: f64::NAN, test: f64::NAN, valid_loss: f64::NAN }
    }

    /// Whether validation is better than it was, for those who wait for that.
    pub fn improves_on(&self, other: &Self, better: Better) -> bool {
        better.is_better(self.valid, other.valid) || other.valid.is_nan()
    }

    /// Whether these are the scores to report rather than earlier ones: better ones, or equal ones with a lower loss.
    pub fn beats(&self, other: &Self, better: Better) -> bool {
        self.improves_on(other, better) || self.valid == other.valid && self.valid_loss < other.valid_loss
    }
}

/// What a run remembers beside its tensors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Epochs done.
    pub epoch: u64,
    /// Updates done.
    pub steps: u64,
    /// Key of all randomness; counters are epochs, layers and elements.
    pub seed: u64,
    /// The best evaluation so far, by validation.
    pub best: Option<Scores>,
    /// The epoch in which the validation score last became better.
    pub improved: u64,
    /// The schedule's memory.
    pub schedule: Plateau,
    /// What it was trained on; older versions did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Fingerprint>,
}

/// The content of a checkpoint.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Checkpoint {
    pub state: State,
    pub model: Tensors,
    pub best: Tensors,
    pub optimizer: Tensors,
    pub config: String,
    pub plan: String,
    pub partition: Option<Arc<Partition>>,
    pub metrics: Vec<u8>,
}

impl Checkpoint {
    /// Writes the folder `path`, under another name until it is complete. One that is there is replaced.
    fn write(&self, path: &Path) -> Result<()> {
        let unfinished = durable::Unfinished::new(&hidden(path, "partial"));
        let partial = unfinished.path();
        remove(partial)?;
        durable::create_folder(partial)?;
        let json = |e: serde_json::Error| Bad::request(format!("cannot write {STATE}: {e}"), "report this as a bug");
        let mut state = serde_json::to_vec_pretty(&self.state).map_err(json)?;
        state.push(b'\n');
        let files = [
            self.model.encode()?,
            self.best.encode()?,
            self.optimizer.encode()?,
            state,
            self.config.clone().into_bytes(),
            self.plan.clone().into_bytes(),
            parts::encode(self.partition.as_deref())?,
            self.metrics.clone(),
        ];
        let mut manifest = Manifest::default();
        for (name, bytes) in FILES.iter().zip(&files) {
            durable::write_new(&partial.join(name), bytes)?;
            manifest.add(name, bytes);
        }
        durable::write_new(&partial.join(MANIFEST), manifest.to_text().as_bytes())?;
        durable::sync_folder(partial)?;
        if path.exists() {
            let old = hidden(path, "old");
            remove(&old)?;
            durable::rename(path, &old)?;
            unfinished.publish(path)?;
            remove(&old)?;
        } else {
            unfinished.publish(path)?;
        }
        Ok(())
    }

    /// Reads and verifies the folder `path`.
    ///
    /// # Errors
    /// [`Bad::BadInput`] names the first file that is missing, cut short or altered.
    pub fn read(path: &Path) -> Result<Self> {
        let manifest = Manifest::read(path, &FILES)?;
        let take = |name: &str| -> Result<Vec<u8>> {
            let file = path.join(name);
            let bytes = fs::read(&file).map_err(|e| Bad::unreadable(&file, "file", &e))?;
            Ok(manifest.verify(name, &file, bytes)?)
        };
        let text = |name: &str| -> Result<String> {
            String::from_utf8(take(name)?)
                .map_err(|_| Bad::bad(path.join(name), "file", "this is not text", COPY_AGAIN).into())
        };
        let tensors = |name: &str| Tensors::decode(&path.join(name), &take(name)?);
        let state = text(STATE)?;
        let state = serde_json::from_str(&state)
            .map_err(|e| Bad::bad(path.join(STATE), "state", e.to_string(), "it may be of another version"))?;
        Ok(Self {
            state,
            model: tensors(MODEL)?,
            best: tensors(BEST)?,
            optimizer: tensors(OPTIMIZER)?,
            config: text(CONFIG)?,
            plan: text(PLAN)?,
            partition: parts::decode(&path.join(PARTITION), &take(PARTITION)?)?,
            metrics: take(METRICS)?,
        })
    }
}

/// A name beside `path` that no listing takes for a checkpoint.
fn hidden(path: &Path, suffix: &str) -> std::path::PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{suffix}"))
}

/// Removes a folder if it is there.
fn remove(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Bad::write("remove", path)(e).into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
