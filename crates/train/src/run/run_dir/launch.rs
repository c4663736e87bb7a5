//! `run.json`: by which command, where and with which version a run was started, each time that it was.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use graphweft_base::{Error, Result, durable};
use serde::{Deserialize, Serialize};

const NAME: &str = "run.json";

/// The program that runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    /// Its name and arguments.
    pub command: Vec<String>,
    /// Its version, with the commit where that is known.
    pub version: String,
    /// What it runs on: processor, cores, memory.
    pub machine: String,
}

impl Launch {
    /// This process, which is of this version, on such a machine.
    pub fn of_this_process(version: &str, machine: &str) -> Self {
        let command = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect();
        Self { command, version: version.into(), machine: machine.into() }
    }

    /// Adds to what the folder of a run says: it goes on after `epoch`, on so many ranks. What cannot be understood is
    /// written anew.
    pub(crate) fn note(&self, folder: &Path, epoch: u64, ranks: usize) -> Result<()> {
        let path = folder.join(NAME);
        let old = std::fs::read(&path).unwrap_or_default();
        let mut all: Vec<Started> = serde_json::from_slice(&old).unwrap_or_default();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        all.push(Started {
            command: self.command.clone(),
            folder: std::env::current_dir().map_or_else(|_| String::new(), |path| path.display().to_string()),
            host: host(),
            machine: self.machine.clone(),
            version: self.version.clone(),
            time: now.as_secs(),
            epoch,
            ranks,
        });
        let bug = |e: serde_json::Error| Error::request(format!("cannot write {NAME}: {e}"), "report this as a bug");
        durable::replace(&path, (serde_json::to_string_pretty(&all).map_err(bug)? + "\n").as_bytes())
    }
}

/// One start of a run.
#[derive(Debug, Serialize, Deserialize)]
struct Started {
    command: Vec<String>,
    /// Where the command was given.
    folder: String,
    host: String,
    #[serde(default)]
    machine: String,
    version: String,
    /// Seconds since 1970.
    time: u64,
    /// Epochs that were done before.
    epoch: u64,
    ranks: usize,
}

/// What this machine calls itself.
fn host() -> String {
    let told =
        std::fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| std::fs::read_to_string("/etc/hostname"));
    let name = told.ok().map(|name| name.trim().to_string()).filter(|name| !name.is_empty());
    name.or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_else(|| "unknown".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_start_is_noted_and_a_damaged_file_is_no_obstacle() {
        let dir = tempfile::tempdir().unwrap();
        let command = vec!["graphweft".into(), "train".into()];
        let launch = Launch { command, version: "1.2.3 (abc)".into(), machine: "abacus".into() };
        let read =
            || -> serde_json::Value { serde_json::from_slice(&std::fs::read(dir.path().join(NAME)).unwrap()).unwrap() };
        launch.note(dir.path(), 0, 2).unwrap();
        launch.note(dir.path(), 7, 1).unwrap();
        let all = read();
        assert_eq!(all.as_array().unwrap().len(), 2);
        assert_eq!((&all[1]["command"][1], &all[1]["version"]), (&"train".into(), &"1.2.3 (abc)".into()));
        assert_eq!((all[0]["ranks"].as_u64(), all[1]["epoch"].as_u64()), (Some(2), Some(7)));
        assert_eq!(all[0]["machine"], "abacus");
        assert!(!all[0]["host"].as_str().unwrap().is_empty() && all[0]["time"].as_u64() > Some(1_700_000_000));
        std::fs::write(dir.path().join(NAME), "[{").unwrap();
        launch.note(dir.path(), 0, 1).unwrap();
        assert_eq!(read().as_array().unwrap().len(), 1);
    }
}
