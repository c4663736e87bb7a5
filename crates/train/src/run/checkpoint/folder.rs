//! The folder of a run's checkpoints: which there are, which to go on from, which to remove.

use std::fs;
use std::path::{Path, PathBuf};

use graphweft_base::{Error as Bad, durable};

use super::manifest::Manifest;
use super::{Checkpoint, FILES, hidden, remove};
use crate::config::RunConfig;
use crate::error::{Error, Result};

const PREFIX: &str = "step-";

/// `checkpoints/` of a run.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    path: PathBuf,
    /// Epochs between checkpoints that are kept; others are made when the run is asked to stop, or ends.
    every: u64,
    keep: usize,
}

/// A checkpoint that was read, and where.
#[derive(Debug)]
pub struct WholeCheckpoint {
    /// Its folder.
    pub folder: PathBuf,
    /// What it has.
    pub checkpoint: Checkpoint,
}

/// Where a run can go on.
#[derive(Debug)]
pub struct Newest {
    /// The newest checkpoint that is whole, if there is one.
    pub found: Option<WholeCheckpoint>,
    /// Newer ones, which are not.
    pub damaged: Vec<Damaged>,
}

/// A checkpoint that cannot be read.
#[derive(Debug)]
pub struct Damaged {
    /// Its folder.
    pub path: PathBuf,
    /// What is wrong with it.
    pub why: Error,
}

impl Damaged {
    /// What is wrong, without the remedy.
    pub fn reason(&self) -> String {
        self.why.to_string().lines().next().unwrap_or_default().to_string()
    }
}

impl WholeCheckpoint {
    /// Reads the one in this folder.
    pub fn read(folder: PathBuf) -> Result<Self> {
        Ok(Self { checkpoint: Checkpoint::read(&folder)?, folder })
    }
}

impl Newest {
    /// The checkpoint to go on from; nothing where none was ever made.
    ///
    /// # Errors
    /// Where there are checkpoints, and none is whole.
    pub fn whole(self) -> Result<Option<WholeCheckpoint>> {
        match (self.found, self.damaged.first()) {
            (None, Some(newest)) => {
                let (count, why) = (self.damaged.len(), newest.reason());
                let problem = match count {
                    1 => format!("it is the only one, and damaged: {why}"),
                    _ => format!("it and the {} older ones are damaged: {why}", count - 1),
                };
                let remedy =
                    "put back a copy of one of them, or begin anew with another folder for -o; nothing was changed";
                Err(Bad::bad(&newest.path, "checkpoint", problem, remedy).into())
            }
            (found, _) => Ok(found),
        }
    }
}

impl Checkpoints {
    /// The folder `path`; it need not exist.
    pub fn new(path: PathBuf, every: u64, keep: u64) -> Self {
        Self { path, every, keep: usize::try_from(keep).unwrap_or(usize::MAX) }
    }

    /// Those of the run in the folder `run`.
    pub fn of(run: &Path, config: &RunConfig) -> Self {
        Self::new(run.join("checkpoints"), config.checkpoint_every, config.keep)
    }

    /// Whether a checkpoint is due after this epoch.
    pub fn is_due(&self, epoch: u64) -> bool {
        epoch.is_multiple_of(self.every)
    }

    /// Saves, then removes what is no longer wanted: all but the newest, and the last ones that were due. So a run that
    /// was stopped in between ends with the same checkpoints as one that was not.
    pub fn save(&self, checkpoint: &Checkpoint) -> Result<PathBuf> {
        durable::create_folder(&self.path)?;
        let epoch = checkpoint.state.epoch;
        let path = self.path_of(epoch);
        checkpoint.write(&path)?;
        let mut due = 0;
        for (step, path) in self.list()?.into_iter().rev() {
            // Later ones are of a past that this run has left.
            let stays = step == epoch || step < epoch && self.is_due(step) && due < self.keep;
            due += usize::from(self.is_due(step) && step <= epoch);
            if !stays {
                // Not "old": those come back if their place is empty.
                let gone = hidden(&path, "gone");
                remove(&gone)?;
                durable::rename(&path, &gone)?;
                remove(&gone)?;
            }
        }
        Ok(path)
    }

    /// The newest checkpoint that is whole, and those that were passed over.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn newest(&self) -> Result<Newest> {
        let mut damaged = Vec::new();
        for (_, path) in self.list()?.into_iter().rev() {
            match Checkpoint::read(&path) {
                Ok(checkpoint) => {
                    return Ok(Newest { found: Some(WholeCheckpoint { folder: path, checkpoint }), damaged });
                }
                Err(why) => damaged.push(Damaged { path, why }),
            }
        }
        Ok(Newest { found: None, damaged })
    }

    /// Removes what a run that was killed has left half-written, and what is incomplete. A checkpoint that was on its
    /// way to be replaced by another one of the same epoch comes back.
    pub fn clean(&self) -> Result<()> {
        for (path, old) in self.set_aside()? {
            durable::rename(&old, &path)?;
        }
        let partial = self.names()?.into_iter().filter(|name| name.starts_with(&format!(".{PREFIX}")));
        let partial: Vec<PathBuf> = partial.map(|name| self.path.join(name)).collect();
        let incomplete = self.list()?.into_iter().map(|(_, path)| path).filter(|p| !Manifest::is_complete(p, &FILES));
        partial.into_iter().chain(incomplete).try_for_each(|path| remove(&path))
    }

    /// Those that were set aside for others of the same epoch which never came: where each belongs, and where it is.
    fn set_aside(&self) -> Result<Vec<(PathBuf, PathBuf)>> {
        let place = |name: String| Some(self.path.join(name.strip_prefix('.')?.strip_suffix(".old")?));
        let lost = self.names()?.into_iter().filter_map(place).filter(|path| !path.exists());
        Ok(lost.map(|path| (path.clone(), hidden(&path, "old"))).collect())
    }

    /// All checkpoints by step, oldest first.
    fn list(&self) -> Result<Vec<(u64, PathBuf)>> {
        let step = |path: &Path| path.file_name()?.to_str()?.strip_prefix(PREFIX)?.parse::<u64>().ok();
        let named = self.names()?.into_iter().map(|name| self.path.join(name)).map(|path| (path.clone(), path));
        let all = named.chain(self.set_aside()?);
        let mut all: Vec<_> = all.filter_map(|(path, at)| Some((step(&path)?, at))).collect();
        all.sort_unstable();
        Ok(all)
    }

    fn names(&self) -> Result<Vec<String>> {
        let unreadable = |e: std::io::Error| Bad::unreadable(&self.path, "folder", &e);
        if !self.path.exists() {
            return Ok(Vec::new());
        }
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(unreadable)? {
            names.extend(entry.map_err(unreadable)?.file_name().into_string().ok());
        }
        Ok(names)
    }

    /// Where the checkpoint of an epoch is, if there is one.
    pub fn path_of(&self, epoch: u64) -> PathBuf {
        self.path.join(format!("{PREFIX}{epoch:06}"))
    }

    /// Where they are.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
