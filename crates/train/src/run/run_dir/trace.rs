//! A Chrome trace: what each rank did when. Open it in `chrome://tracing` or Perfetto.
//!
//! A rank's row has its phases and, inside them, its waits for others (`wait: attend`); its exchanges with them, from
//! when they are posted until they are over, are bars of their own with the bytes sent and received. They overlap with
//! computing where waits are short. All times are of the host: a GPU may still be at work when an exchange is over for
//! it.
//!
//! The file is valid JSON after every flush: the closing bracket is overwritten by what comes next.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use graphweft_base::{Error, Result};
use graphweft_comm::Exchange;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

const NAME: &str = "trace.json";
const OPEN: &str = "[";
const CLOSE: &str = "\n]\n";
/// Later phases, and later exchanges, are not recorded: viewers slow down, and epochs look alike.
pub(crate) const MOST: usize = 20_000;
/// Kinds of events: phases, exchanges, waits for these.
const PHASE: &str = "train";
const EXCHANGE: &str = "exchange";
const WAIT: &str = "wait";

/// What a rank did, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Phase {
    /// What.
    pub name: String,
    /// In which epoch.
    pub epoch: u64,
    /// Microseconds since 1970: the clock that processes share.
    pub start: u64,
    /// How many microseconds it took.
    pub duration: u64,
    /// Of an exchange with other ranks: what it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchange: Option<Moved>,
}

/// What an exchange moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Moved {
    /// Rows, gradients, …
    pub carries: String,
    /// For which layer.
    pub layer: u32,
    /// Bytes to other ranks.
    pub sent: u64,
    /// Bytes from other ranks.
    pub received: u64,
    /// For how many microseconds, the last ones, the rank did nothing but wait.
    pub waited: u64,
}

/// The phases of one rank, until they are written.
#[derive(Debug)]
pub(crate) struct Phases {
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
    pub(crate) fn add(&mut self, name: &str, epoch: u64, start: Instant) {
        if self.count >= MOST {
            return;
        }
        self.count += 1;
        let duration = start.elapsed().as_micros() as u64;
        self.all.push(Phase { name: name.into(), epoch, start: self.shared(start), duration, exchange: None });
    }

    /// Adds what was exchanged with other ranks in an epoch. How much of that is noted is decided where it is.
    pub(crate) fn add_exchanges(&mut self, epoch: u64, exchanges: &[Exchange]) {
        for exchange in exchanges {
            let Exchange { label, posted, waiting, over, sent, received } = *exchange;
            let micros = |from: Instant| over.saturating_duration_since(from).as_micros() as u64;
            let carries = format!("{:?}", label.traffic).to_lowercase();
            let moved = Moved { carries, layer: label.layer, sent, received, waited: micros(waiting) };
            let (name, start, duration) = (label.op.to_string(), self.shared(posted), micros(posted));
            self.all.push(Phase { name, epoch, start, duration, exchange: Some(moved) });
        }
    }

    /// A moment by the clock that processes share.
    fn shared(&self, moment: Instant) -> u64 {
        (self.origin.1 + moment.saturating_duration_since(self.origin.0)).as_micros() as u64
    }

    /// Takes those that were added since the last time.
    pub(crate) fn take(&mut self) -> Vec<Phase> {
        std::mem::take(&mut self.all)
    }
}

/// The file, written now and then.
#[derive(Debug)]
pub(crate) struct Trace {
    file: File,
    path: PathBuf,
    /// Where the next event goes.
    end: u64,
    count: usize,
    /// Phases of each rank.
    phases: Vec<usize>,
    exchanges: usize,
    pending: String,
}

impl Trace {
    /// Opens or creates the trace in `folder`, with a row for each of `ranks`; what an earlier run has written stays.
    pub(crate) fn open(folder: &Path, ranks: usize) -> Result<Self> {
        let path = folder.join(NAME);
        let write = || Error::write("write", &path);
        let old = std::fs::read_to_string(&path).unwrap_or_default();
        let mut kept = String::from(OPEN);
        let (mut count, mut phases, mut exchanges) = (0, vec![0; ranks.max(1)], 0);
        // A line per event; one that was cut short ends it.
        for line in old.strip_prefix(OPEN).unwrap_or_default().lines().filter(|l| !l.is_empty() && *l != "]") {
            let event = line.trim_end_matches(',');
            let Ok(known) = serde_json::from_str::<Value>(event) else { break };
            let of_rank = known["tid"].as_u64().and_then(|rank| phases.get_mut(rank as usize));
            if let Some(phases) = of_rank.filter(|_| known["cat"] == PHASE) {
                *phases += 1;
            }
            exchanges += usize::from(known["cat"] == EXCHANGE && known["ph"] == "b");
            kept.push_str(if count > 0 { ",\n" } else { "\n" });
            kept.push_str(event);
            count += 1;
        }
        let mut file = OpenOptions::new().create(true).truncate(true).write(true).open(&path).map_err(write())?;
        file.write_all(kept.as_bytes()).map_err(write())?;
        let mut trace = Self { file, path, end: kept.len() as u64, count, phases, exchanges, pending: String::new() };
        for rank in (0..ranks).filter(|_| count == 0) {
            let name = format!("rank {rank}");
            trace.push(&json!({"name": "thread_name", "ph": "M", "pid": 0, "tid": rank, "args": {"name": name}}));
        }
        trace.flush()?;
        Ok(trace)
    }

    /// Adds what a rank did.
    pub(crate) fn add(&mut self, rank: usize, phase: &Phase) {
        let Phase { name, epoch, start, duration, exchange } = phase;
        let Some(moved) = exchange else {
            // Each rank has the same room: all of them end with the same epoch, or nearly.
            let most = MOST / self.phases.len();
            if let Some(phases) = self.phases.get_mut(rank).filter(|phases| **phases < most) {
                *phases += 1;
                self.push(&json!({
                    "name": name, "cat": PHASE, "ph": "X", "pid": 0, "tid": rank, "ts": start, "dur": duration,
                    "args": {"epoch": epoch},
                }));
            }
            return;
        };
        if self.exchanges >= MOST {
            return;
        }
        self.exchanges += 1;
        let (id, end) = (self.exchanges, start + duration);
        let Moved { carries, layer, sent, received, waited } = moved;
        let args = json!({"epoch": epoch, "carries": carries, "layer": layer, "sent": sent, "received": received});
        for (ph, ts, args) in [("b", *start, args), ("e", end, json!({}))] {
            self.push(&json!({
                "name": name, "cat": EXCHANGE, "ph": ph, "id": id, "pid": 0, "tid": rank, "ts": ts, "args": args,
            }));
        }
        if *waited > 0 {
            self.push(&json!({
                "name": format!("wait: {name}"), "cat": WAIT, "ph": "X", "pid": 0, "tid": rank, "ts": end - waited,
                "dur": waited, "args": {"epoch": epoch},
            }));
        }
    }

    fn push(&mut self, event: &Value) {
        self.pending.push_str(if self.count > 0 { ",\n" } else { "\n" });
        self.pending.push_str(&event.to_string());
        self.count += 1;
    }

    /// Writes what was added.
    pub(crate) fn flush(&mut self) -> Result<()> {
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

    #[test]
    fn every_rank_has_the_same_room() {
        let dir = tempfile::tempdir().unwrap();
        let mut trace = Trace::open(dir.path(), 4).unwrap();
        let phase = did("forward");
        for rank in 0..4 {
            (0..MOST).for_each(|_| trace.add(rank, &phase));
        }
        assert_eq!(trace.phases, [MOST / 4; 4]);
        trace.flush().unwrap();
        assert_eq!(Trace::open(dir.path(), 4).unwrap().phases, [MOST / 4; 4], "and what goes on counts on");
    }

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
        let mut trace = Trace::open(dir.path(), 2).unwrap();
        trace.add(1, &did("update"));
        trace.flush().unwrap();
        assert_eq!(names(), ["forward", "backward", "update"]);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 20]).unwrap();
        Trace::open(dir.path(), 1).unwrap();
        assert_eq!(names(), ["forward", "backward"]);
    }
}
