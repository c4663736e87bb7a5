//! A Chrome trace: what each rank did when. Open it in `chrome://tracing` or Perfetto.
//!
//! The file is valid JSON after every flush: the closing bracket is overwritten by what comes next.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use graphweft_graph::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

const NAME: &str = "trace.json";
const OPEN: &str = "[";
const CLOSE: &str = "\n]\n";
/// Later phases are not recorded: viewers slow down, and epochs look alike.
const MOST: usize = 20_000;

/// What a rank did, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phase {
    /// What.
    pub name: String,
    /// In which epoch.
    pub epoch: u64,
    /// Microseconds since 1970: the clock that processes share.
    pub start: u64,
    /// How many microseconds it took.
    pub duration: u64,
}

/// The phases of one rank, until they are written.
#[derive(Debug)]
pub struct Phases {
    /// The same moment by both clocks.
    origin: (Instant, Duration),
    all: Vec<Phase>,
    /// With those that were written.
    count: usize,
}

impl Default for Phases {
    fn default() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { origin: (Instant::now(), now), all: Vec::new(), count: 0 }
    }
}

impl Phases {
    /// Adds a phase that began at `start` and is over now.
    pub fn add(&mut self, name: &str, epoch: u64, start: Instant) {
        if self.count >= MOST {
            return;
        }
        self.count += 1;
        let began = self.origin.1 + start.saturating_duration_since(self.origin.0);
        let (start, duration) = (began.as_micros() as u64, start.elapsed().as_micros() as u64);
        self.all.push(Phase { name: name.into(), epoch, start, duration });
    }

    /// Takes those that were added since the last time.
    pub fn take(&mut self) -> Vec<Phase> {
        std::mem::take(&mut self.all)
    }
}

/// The file, written now and then.
#[derive(Debug)]
pub struct Trace {
    file: File,
    path: PathBuf,
    /// Where the next event goes.
    end: u64,
    count: usize,
    pending: String,
}

impl Trace {
    /// Opens or creates the trace in `folder`, with a row for each of `ranks`; what an earlier run has written stays.
    pub fn open(folder: &Path, ranks: usize) -> Result<Self> {
        let path = folder.join(NAME);
        let write = || Error::write("write", &path);
        let old = std::fs::read_to_string(&path).unwrap_or_default();
        let mut kept = String::from(OPEN);
        let mut count = 0;
        // A line per event; one that was cut short ends it.
        for line in old.strip_prefix(OPEN).unwrap_or_default().lines().filter(|l| !l.is_empty() && *l != "]") {
            let event = line.trim_end_matches(',');
            if serde_json::from_str::<Value>(event).is_err() {
                break;
            }
            kept.push_str(if count > 0 { ",\n" } else { "\n" });
            kept.push_str(event);
            count += 1;
        }
        let mut file = OpenOptions::new().create(true).truncate(true).write(true).open(&path).map_err(write())?;
        file.write_all(kept.as_bytes()).map_err(write())?;
        let mut trace = Self { file, path, end: kept.len() as u64, count, pending: String::new() };
        for rank in (0..ranks).filter(|_| count == 0) {
            let name = format!("rank {rank}");
            trace.push(&json!({"name": "thread_name", "ph": "M", "pid": 0, "tid": rank, "args": {"name": name}}));
        }
        trace.flush()?;
        Ok(trace)
    }

    /// Adds what a rank did.
    pub fn add(&mut self, rank: usize, phase: &Phase) {
        if self.count >= MOST {
            return;
        }
        let Phase { name, epoch, start, duration } = phase;
        self.push(&json!({
            "name": name, "cat": "train", "ph": "X", "pid": 0, "tid": rank, "ts": start, "dur": duration,
            "args": {"epoch": epoch},
        }));
    }

    fn push(&mut self, event: &Value) {
        self.pending.push_str(if self.count > 0 { ",\n" } else { "\n" });
        self.pending.push_str(&event.to_string());
        self.count += 1;
    }

    /// Writes what was added.
    pub fn flush(&mut self) -> Result<()> {
        let write = || Error::write("write", &self.path);
        self.file.seek(SeekFrom::Start(self.end)).map_err(write())?;
        self.file.write_all(format!("{}{CLOSE}", self.pending).as_bytes()).map_err(write())?;
        self.end += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn did(name: &str) -> Phase {
        let mut phases = Phases::default();
        phases.add(name, 1, Instant::now());
        let all = phases.take();
        assert!(phases.take().is_empty(), "each is given once");
        all[0].clone()
    }

    #[test]
    fn it_is_valid_json_at_any_time_and_goes_on_after_a_cut() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        let names = || -> Vec<String> {
            let events: Vec<Value> = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            let phases = events.iter().filter(|e| e["ph"] == "X");
            phases.map(|e| e["name"].as_str().unwrap().to_string()).collect()
        };
        let mut trace = Trace::open(dir.path(), 1).unwrap();
        assert!(names().is_empty());
        for (phase, shown) in [("forward", 1), ("backward", 2)] {
            trace.add(0, &did(phase));
            trace.flush().unwrap();
            assert_eq!(names().len(), shown);
        }
        drop(trace);
        let mut trace = Trace::open(dir.path(), 1).unwrap();
        trace.add(1, &did("update"));
        trace.flush().unwrap();
        assert_eq!(names(), ["forward", "backward", "update"]);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 20]).unwrap();
        Trace::open(dir.path(), 1).unwrap();
        assert_eq!(names(), ["forward", "backward"]);
    }
}
