//! What a run writes while it lasts. One rank does that for all.

use std::time::Instant;

use crate::checkpoint::{Checkpoint, Checkpoints, Scores, State, Tensors};
use crate::config::Config;
use crate::error::Result;
use crate::learner::Learner;
use crate::plan::Plan;
use crate::rank::Rank;
use crate::run_dir::events::Events;
use crate::run_dir::trace::{Phase, Phases, Trace};
use crate::run_dir::{Line, MetricsLog, RunDir};
use crate::schedule::Plateau;

/// The files of a run under way.
pub(crate) struct Record<'a> {
    plan: &'a Plan,
    config: String,
    plan_text: String,
    metrics: MetricsLog,
    events: Events,
    trace: Trace,
}

/// What a checkpoint keeps beside what the learner and the files know.
#[derive(Clone, Copy)]
pub(crate) struct Moment<'a> {
    pub(crate) epoch: u64,
    pub(crate) seed: u64,
    pub(crate) best: Option<Scores>,
    pub(crate) best_model: &'a Tensors,
    pub(crate) improved: u64,
    pub(crate) schedule: Plateau,
}

impl<'a> Record<'a> {
    /// Begins a run, or one that goes on after `epoch` with these metrics.
    pub(crate) fn open(dir: &RunDir, config: &Config, plan: &'a Plan, epoch: u64, metrics: &[u8]) -> Result<Self> {
        let (config_text, plan_text) = (config.to_toml()?, plan.to_json()?);
        dir.reopen()?;
        dir.describe(&config_text, &plan_text)?;
        dir.checkpoints(&config.run).clean()?;
        Ok(Self {
            plan,
            config: config_text,
            plan_text,
            metrics: MetricsLog::start(dir, metrics.to_vec())?,
            events: Events::open(dir.path(), epoch)?,
            trace: Trace::open(dir.path(), plan.ranks)?,
        })
    }

    /// An epoch is over.
    pub(crate) fn epoch(&mut self, line: &Line, ms: f64) -> Result<()> {
        self.metrics.add(line)?;
        let mut scalars = vec![("loss", line.loss), ("lr", line.lr), ("epoch_ms", ms)];
        if let Some(s) = line.scores {
            scalars.extend([("train", s.train), ("valid", s.valid), ("test", s.test)]);
        }
        Ok(self.events.add(line.epoch, &scalars)?)
    }

    /// Saves a checkpoint.
    pub(crate) fn save(&self, learner: &Learner, now: Moment<'_>, to: &Checkpoints) -> Result<()> {
        let (optimizer, steps) = learner.optimizer()?;
        let Moment { epoch, seed, best, best_model, improved, schedule } = now;
        to.save(&Checkpoint {
            state: State { epoch, steps, seed, best, improved, schedule },
            model: learner.model()?,
            best: best_model.clone(),
            optimizer,
            config: self.config.clone(),
            plan: self.plan_text.clone(),
            partition: self.plan.parts.clone(),
            metrics: self.metrics.sync()?.to_vec(),
        })?;
        Ok(())
    }

    /// The epochs so far.
    pub(crate) fn lines(&self) -> Result<Vec<Line>> {
        self.metrics.lines()
    }
}

/// Brings the phases of all ranks to the one that has the record, and writes them.
pub(crate) fn trace(rank: &Rank, phases: &mut Phases, record: Option<&mut Record<'_>>) -> Result<()> {
    let own = serde_json::to_vec(&phases.take()).unwrap_or_default();
    let all = rank.gather("metrics", own)?;
    let Some(record) = record else { return Ok(()) };
    for (rank, phases) in all.iter().enumerate() {
        let phases: Vec<Phase> = serde_json::from_slice(phases).unwrap_or_default();
        phases.iter().for_each(|phase| record.trace.add(rank, phase));
    }
    Ok(record.trace.flush()?)
}

/// Runs `work` and notes how long it took.
pub(crate) fn timed<T>(phases: &mut Phases, name: &str, epoch: u64, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    let done = work()?;
    phases.add(name, epoch, start);
    Ok(done)
}
