//! `times.jsonl`: how long each epoch took. Its own file, because no two runs agree on it.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use graphweft_base::{Error, Result, durable};
use serde::{Deserialize, Serialize};

const NAME: &str = "times.jsonl";

/// A line: what an epoch took, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Time {
    /// From 1.
    pub epoch: u64,
    /// Forward, backward and update; emulated, if the world is.
    pub learn_ms: f64,
    /// Scoring, in the epochs that are evaluated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluate_ms: Option<f64>,
}

/// The file, appended to.
#[derive(Debug)]
pub(crate) struct Times {
    file: File,
    path: PathBuf,
}

impl Times {
    /// Opens or creates it in `folder` and drops what is after epoch `epoch`, or damaged.
    pub(crate) fn open(folder: &Path, epoch: u64) -> Result<Self> {
        let path = folder.join(NAME);
        let old = std::fs::read_to_string(&path).unwrap_or_default();
        let before = |line: &&str| serde_json::from_str::<Time>(line).is_ok_and(|time| time.epoch <= epoch);
        let kept: String = old.lines().take_while(before).flat_map(|line| [line, "\n"]).collect();
        durable::replace(&path, kept.as_bytes())?;
        let file = OpenOptions::new().append(true).open(&path).map_err(Error::write("open", &path))?;
        Ok(Self { file, path })
    }

    /// Adds an epoch.
    pub(crate) fn add(&mut self, time: &Time) -> Result<()> {
        let bug = |e: serde_json::Error| Error::request(format!("cannot write {NAME}: {e}"), "report this as a bug");
        let text = serde_json::to_string(time).map_err(bug)? + "\n";
        self.file.write_all(text.as_bytes()).map_err(Error::write("write", &self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resumed_file_has_each_epoch_once() {
        let dir = tempfile::tempdir().unwrap();
        let time = |epoch| Time { epoch, learn_ms: 1.5, evaluate_ms: (epoch % 2 == 0).then_some(0.25) };
        let read = || std::fs::read_to_string(dir.path().join(NAME)).unwrap();
        let mut times = Times::open(dir.path(), 0).unwrap();
        (1..=4).for_each(|epoch| times.add(&time(epoch)).unwrap());
        let whole = read();
        assert!(
            whole.starts_with("{\"epoch\":1,\"learn_ms\":1.5}\n{\"epoch\":2,\"learn_ms\":1.5,\"evaluate_ms\":0.25}\n")
        );
        // Cut in the middle of the last line, and gone on from epoch 2.
        std::fs::write(dir.path().join(NAME), &whole[..whole.len() - 9]).unwrap();
        let mut times = Times::open(dir.path(), 2).unwrap();
        assert_eq!(read().lines().count(), 2);
        (3..=4).for_each(|epoch| times.add(&time(epoch)).unwrap());
        assert_eq!(read(), whole);
    }
}
