//! What came out of a run.

use std::path::{Path, PathBuf};

use graphweft_train::config::Config;
use graphweft_train::data::Data;
use graphweft_train::planning as plan;
use graphweft_train::ranks as rank;
use graphweft_train::ranks::World;
use graphweft_train::run as trainer;
use graphweft_train::run::{self as session, Summary};
use graphweft_train::task as metrics;
use serde::Serialize;
use serde_json::{Value, json};

use crate::memory::{self, Memory};
use crate::observe::Scores;

/// What came out of a run, and what it took.
///
/// ```
/// use graphweft::Run;
/// # let dir = tempfile::tempdir().unwrap();
/// let report = Run::new("sbm:100:3:6:f=8").epochs(5).seeds(0, 2).output(dir.path().join("run")).train()?;
/// assert_eq!((report.metric.name(), report.seeds.len()), ("accuracy", 2));
/// println!("{:.1} ± {:.1} %, {:.1} ms per epoch", report.test.mean, report.test.std, report.epoch_ms().unwrap());
/// assert!(report.folder.join("seed-0/metrics.jsonl").exists());
/// assert_eq!(report.to_json()["test"], report.test.mean);
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// What was scored.
    pub metric: Metric,
    /// The validation score at the best epoch, over seeds.
    pub valid: OverSeeds,
    /// The test score at the best epoch, over seeds.
    pub test: OverSeeds,
    /// One per seed.
    pub seeds: Vec<SeedReport>,
    /// How the work was spread.
    pub plan: Choice,
    /// What the graph is called.
    pub graph: String,
    /// Its nodes.
    pub nodes: usize,
    /// Its edges.
    pub edges: usize,
    /// Classes, or labels per node.
    pub classes: usize,
    /// What these are called: `classes`, `labels` or `targets`, as the task has it.
    pub noun: &'static str,
    /// What the model is called.
    pub model: String,
    /// Where the first rank computed.
    pub device: String,
    /// Threads of each rank.
    pub threads: usize,
    /// The folder of the run.
    pub folder: PathBuf,
    /// The machine on which epochs are timed as if, by name.
    pub emulated: Option<String>,
    /// For the first run of [`Run::default`](crate::Run::default), the same features without the graph.
    pub floor: Option<Box<Report>>,
    /// Whether this process speaks for all; processes that a launcher started beside it do not.
    pub leads: bool,
}

/// What was scored.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let report = graphweft::Run::new("sbm:60:3:4:f=8").epochs(1).output(dir.path().join("run")).train()?;
/// assert_eq!((report.metric.name(), report.metric.unit()), ("accuracy", " %"));
/// assert!(report.metric.is_better(70.0, 60.0));
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Metric(pub(crate) &'static metrics::Metric);

impl Metric {
    /// Its name, as settings and JSON have it.
    pub fn name(self) -> &'static str {
        self.0.name()
    }

    /// What follows the name of a column of scores: a sign for per cent, or nothing.
    pub fn unit(self) -> &'static str {
        self.0.unit()
    }

    /// What follows the name of the metric in a sentence: that scores are in per cent, or nothing.
    pub fn counted_in(self) -> &'static str {
        self.0.counted_in()
    }

    /// A score for people; a dash where no label is known.
    pub fn show(self, score: f64) -> String {
        self.0.show(score)
    }

    /// A mean and its deviation, for people.
    pub fn show_over_seeds(self, s: OverSeeds) -> String {
        if s.mean.is_nan() { self.show(s.mean) } else { format!("{} ± {}", self.show(s.mean), self.show(s.std)) }
    }

    /// Whether one score is better than another: of errors the lower one is.
    pub fn is_better(self, score: f64, other: f64) -> bool {
        self.0.better.is_better(score, other)
    }
}

/// Mean and standard deviation (n − 1 in the denominator) over seeds.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let report = graphweft::Run::new("sbm:60:3:4:f=8").epochs(1).output(dir.path().join("run")).train()?;
/// assert_eq!(report.test.std, 0.0, "there is one seed");
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct OverSeeds {
    /// The mean.
    pub mean: f64,
    /// The standard deviation; 0 for one seed.
    pub std: f64,
}

impl From<session::OverSeeds> for OverSeeds {
    fn from(s: session::OverSeeds) -> Self {
        Self { mean: s.mean, std: s.std }
    }
}

/// What came out of one seed.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let report = graphweft::Run::new("sbm:60:3:4:f=8").epochs(3).output(dir.path().join("run")).train()?;
/// let seed = &report.seeds[0];
/// assert_eq!((seed.seed, seed.losses.len(), seed.epoch_ms.len()), (0, 3, 3));
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SeedReport {
    /// The seed.
    pub seed: u64,
    /// The split.
    pub split: String,
    /// Scores at the best epoch by validation.
    pub best: Scores,
    /// The loss of each epoch.
    pub losses: Vec<f64>,
    /// Epochs that were run.
    pub epochs: u64,
    /// Milliseconds of each epoch that this process ran: forward, backward and update.
    pub epoch_ms: Vec<f64>,
    /// Numbers that were trained.
    pub parameters: usize,
    /// Seconds of everything, with evaluations and checkpoints.
    pub seconds: f64,
    /// Whether a GPU did steps by a recording.
    pub recorded: bool,
    /// Memory and messages of every rank, in the process that leads.
    pub ranks: Vec<RankUsage>,
}

/// What a rank used.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let run = graphweft::Run::new("sbm:60:3:4:f=8").epochs(1).ranks(2).strategy("halo");
/// let report = run.output(dir.path().join("run")).train()?;
/// assert!(report.seeds[0].ranks.iter().all(|rank| rank.bytes_sent() > 0));
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RankUsage {
    /// Memory when most was in use.
    pub peak: Memory,
    /// What it sent in an epoch, by operation.
    pub sent: Vec<Sent>,
}

impl RankUsage {
    /// Bytes that it sent in an epoch.
    pub fn bytes_sent(&self) -> u64 {
        self.sent.iter().map(|sent| sent.bytes).sum()
    }
}

impl From<&rank::RankUsage> for RankUsage {
    fn from(t: &rank::RankUsage) -> Self {
        let sent = t.sent.iter().map(|s| Sent {
            op: s.op.clone(),
            traffic: s.traffic.clone(),
            bytes: s.bytes,
            calls: s.calls,
        });
        Self { peak: t.peak.into(), sent: sent.collect() }
    }
}

/// What was sent for an operation in an epoch.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let run = graphweft::Run::new("sbm:60:3:4:f=8").epochs(1).ranks(2).strategy("halo");
/// let report = run.output(dir.path().join("run")).train()?;
/// assert!(report.sent().iter().any(|sent| sent.calls > 0));
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Sent {
    /// The operation.
    pub op: String,
    /// What the messages carried.
    pub traffic: String,
    /// Bytes.
    pub bytes: u64,
    /// Exchanges.
    pub calls: u64,
}

/// How the work of a run was spread, with what was expected of that and what came.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let report = graphweft::Run::new("sbm:60:3:4:f=8").epochs(1).output(dir.path().join("run")).train()?;
/// assert_eq!((report.plan.strategy.as_str(), report.plan.ranks), ("local", 1));
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Choice {
    /// What moves between ranks.
    pub strategy: String,
    /// How many there are.
    pub ranks: usize,
    /// Why so, in one sentence.
    pub why: String,
    /// What is computed again in backward instead of being kept.
    pub remat: String,
    /// What the planner expected.
    pub predicted: Option<EpochCost>,
    /// What it came to.
    pub measured: Option<EpochCost>,
}

/// What an epoch takes, as predicted or measured.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let report = graphweft::Run::new("sbm:60:3:4:f=8").epochs(1).output(dir.path().join("run")).train()?;
/// assert!(report.plan.measured.unwrap().peak_bytes > 0);
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct EpochCost {
    /// Milliseconds; nothing for one rank, of which only the memory is planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch_ms: Option<f64>,
    /// How far that may be off, as a share of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<f64>,
    /// Memory of the rank that needs most.
    pub peak_bytes: u64,
}

impl From<&plan::Plan> for Choice {
    fn from(p: &plan::Plan) -> Self {
        let remat = json!(p.remat);
        let predicted =
            p.predicted.map(|p| EpochCost { epoch_ms: p.epoch_ms, error: p.error, peak_bytes: p.peak_bytes });
        let measured = p.measured.map(|m| EpochCost { epoch_ms: m.epoch_ms, error: None, peak_bytes: m.peak_bytes });
        Self {
            strategy: p.strategy.to_string(),
            ranks: p.ranks,
            why: p.why.clone(),
            remat: remat.as_str().unwrap_or_default().into(),
            predicted,
            measured,
        }
    }
}

/// Of what, and where, a report is made.
pub(crate) struct Made<'a> {
    pub(crate) config: &'a Config,
    pub(crate) data: &'a Data,
    pub(crate) dir: &'a Path,
    pub(crate) world: &'a World,
    pub(crate) emulated: Option<String>,
}

impl From<trainer::Run> for SeedReport {
    fn from(run: trainer::Run) -> Self {
        let trainer::Run { outcome, losses, cost } = run;
        Self {
            seed: outcome.seed,
            split: outcome.split,
            best: (&outcome.best).into(),
            epochs: outcome.epochs,
            parameters: outcome.parameters,
            losses,
            epoch_ms: cost.epoch_ms,
            seconds: cost.seconds,
            recorded: cost.recorded,
            ranks: cost.usages.iter().map(RankUsage::from).collect(),
        }
    }
}

impl Report {
    pub(crate) fn of(summary: Summary, made: Made<'_>) -> Self {
        Self {
            metric: Metric(summary.metric),
            valid: summary.valid.into(),
            test: summary.test.into(),
            plan: (&summary.plan).into(),
            seeds: summary.runs.into_iter().map(SeedReport::from).collect(),
            graph: made.data.name.clone(),
            nodes: made.data.graph.num_dst(),
            edges: made.data.graph.num_edges(),
            classes: made.data.classes,
            noun: made.data.task.noun(),
            model: made.config.model_name().into(),
            device: made.world.place().to_string(),
            threads: made.world.threads_of_rank(),
            folder: made.dir.to_path_buf(),
            emulated: made.emulated,
            floor: None,
            leads: made.world.leads(),
        }
    }

    /// Milliseconds of the median epoch; nothing where all was done before.
    pub fn epoch_ms(&self) -> Option<f64> {
        let mut all: Vec<f64> = self.seeds.iter().flat_map(|seed| &seed.epoch_ms).copied().collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied()
    }

    /// Seconds of all seeds, with evaluations and checkpoints.
    pub fn seconds(&self) -> f64 {
        self.seeds.iter().map(|seed| seed.seconds).sum()
    }

    /// What each rank used, of the seed that took most memory.
    pub fn ranks(&self) -> &[RankUsage] {
        let all = self.seeds.iter().map(|seed| &seed.ranks[..]);
        all.max_by_key(|ranks| Memory::largest(ranks.iter().map(|rank| rank.peak)).total()).unwrap_or_default()
    }

    /// Memory of the rank that needed most, when it needed most.
    pub fn peak(&self) -> Memory {
        Memory::largest(self.ranks().iter().map(|rank| rank.peak))
    }

    /// What all ranks together sent in an epoch, by operation.
    pub fn sent(&self) -> Vec<Sent> {
        let mut all: Vec<Sent> = Vec::new();
        for sent in self.ranks().iter().flat_map(|rank| &rank.sent) {
            match all.iter_mut().find(|s| (&s.op, &s.traffic) == (&sent.op, &sent.traffic)) {
                Some(sum) => (sum.bytes, sum.calls) = (sum.bytes + sent.bytes, sum.calls + sent.calls),
                None => all.push(sent.clone()),
            }
        }
        all
    }

    /// As `graphweft train --json` prints it.
    pub fn to_json(&self) -> Value {
        let seed = |s: &SeedReport| {
            json!({ "seed": s.seed, "valid": s.best.valid, "test": s.best.test, "train": s.best.train,
                "epochs": s.epochs, "best_epoch": s.best.epoch, "split": s.split })
        };
        let (first, ranks) = (self.seeds.first(), self.ranks());
        let peaks: Vec<u64> = ranks.iter().map(|rank| rank.peak.total()).collect();
        let sent: Vec<u64> = ranks.iter().map(RankUsage::bytes_sent).collect();
        let by_rank: Vec<Value> = ranks.iter().map(|rank| rank.peak.to_json()).collect();
        let mut json = json!({
            "metric": self.metric.name(), "valid": self.valid.mean, "test": self.test.mean,
            "valid_std": self.valid.std, "test_std": self.test.std,
            "seeds": self.seeds.iter().map(seed).collect::<Vec<Value>>(),
            "loss": first.map_or(&[][..], |s| &s.losses), "epoch_ms": self.epoch_ms(),
            "epochs_ms": first.map_or(&[][..], |s| &s.epoch_ms),
            "seconds": self.seconds(), "recorded": first.is_some_and(|s| s.recorded),
            "parameters": first.map(|s| s.parameters),
            "peak_bytes": peaks, "peak": self.peak().to_json(), "peak_by_rank": by_rank,
            "bytes_sent_per_epoch": sent, "sent": self.sent(), "threads": self.threads, "device": self.device,
            "strategy": self.plan.strategy, "ranks": self.plan.ranks, "plan": self.folder.join("plan.json"),
            "resident_bytes": memory::peak_bytes(), "read_bytes": memory::read_bytes(),
            "remat": self.plan.remat, "predicted": self.plan.predicted, "measured": self.plan.measured,
            "graph": self.graph, "model": self.model, "run": self.folder,
        });
        if let Value::Object(json) = &mut json {
            if let Some(floor) = &self.floor {
                let floor = json!({ "model": floor.model, "valid": floor.valid.mean, "test": floor.test.mean });
                json.insert("floor".into(), floor);
            }
            if let Some(name) = &self.emulated {
                // Whose times of epochs are those of elsewhere.
                json.insert("emulated".into(), json!(name));
            }
        }
        json
    }
}
