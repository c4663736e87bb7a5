//! What a run writes while it lasts. One rank does that for all.

use std::path::PathBuf;
use std::time::Instant;

use graphweft_base::durable;

use crate::config::Config;
use crate::error::Result;
use crate::planning::plan::Plan;
use crate::ranks::rank::{Rank, RankUsage};
use crate::run::checkpoint::{Checkpoint, Checkpoints, State, Tensors};
use crate::run::run_dir::events::Events;
use crate::run::run_dir::times::{Time, Times};
use crate::run::run_dir::trace::{Phase, Phases, Trace};
use crate::run::run_dir::{Line, MetricsLog, RunDir, usage};

/// The files of a run under way.
pub(crate) struct RunWriter<'a> {
    folder: PathBuf,
    plan: &'a Plan,
    config: String,
    plan_text: String,
    metrics: MetricsLog,
    times: Times,
    events: Events,
    trace: Trace,
}

/// The tensors of a checkpoint.
pub(crate) struct Saved {
    pub(crate) model: Tensors,
    pub(crate) best_model: Tensors,
    /// Of the optimizer, and what else the next epoch depends on.
    pub(crate) memory: Tensors,
}

impl<'a> RunWriter<'a> {
    /// Begins a run, or one that goes on after `epoch` with these metrics.
    pub(crate) fn open(dir: &RunDir, config: &Config, plan: &'a Plan, epoch: u64, metrics: &[u8]) -> Result<Self> {
        let (config_text, plan_text) = (config.to_toml()?, plan.to_json()?);
        dir.reopen()?;
        dir.describe(&config_text, &plan_text)?;
        if let Some(candidates) = &plan.candidates {
            durable::replace(&dir.path().join("candidates.json"), format!("{candidates}\n").as_bytes())?;
        }
        dir.checkpoints(&config.run).clean()?;
        Ok(Self {
            folder: dir.path().to_path_buf(),
            plan,
            config: config_text,
            plan_text,
            metrics: MetricsLog::start(dir, metrics.to_vec())?,
            times: Times::open(dir.path(), epoch)?,
            events: Events::open(dir.path(), epoch)?,
            trace: Trace::open(dir.path(), plan.ranks)?,
        })
    }

    /// An epoch is over.
    pub(crate) fn epoch(&mut self, line: &Line, time: &Time) -> Result<()> {
        self.metrics.add(line)?;
        self.times.add(time)?;
        let learned = [("loss", line.loss), ("lr", line.lr), ("gradient_norm", line.gradient_norm)];
        let mut scalars = [&learned[..], &[("epoch_ms", time.learn_ms)]].concat();
        if let Some(s) = line.scores {
            let scored = [("train", s.train), ("valid", s.valid), ("test", s.test), ("valid_loss", s.valid_loss)];
            // Where nothing could be scored, no point is drawn.
            scalars.extend(scored.into_iter().filter(|(_, x)| !x.is_nan()));
        }
        scalars.extend(time.evaluate_ms.map(|ms| ("evaluate_ms", ms)));
        Ok(self.events.add(line.epoch, &scalars)?)
    }

    /// Saves a checkpoint.
    pub(crate) fn save(&self, state: State, saved: Saved, to: &Checkpoints) -> Result<()> {
        let Saved { model, best_model: best, memory: optimizer } = saved;
        to.save(&Checkpoint {
            state,
            model,
            best,
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

/// Brings the phases of all ranks to the one that has the writer, and writes them.
pub(crate) fn write_trace(rank: &Rank, phases: &mut Phases, writer: Option<&mut RunWriter<'_>>) -> Result<()> {
    let own = serde_json::to_vec(&phases.take()).unwrap_or_default();
    let all = rank.gather("metrics", own)?;
    let Some(writer) = writer else { return Ok(()) };
    for (rank, phases) in all.iter().enumerate() {
        let phases: Vec<Phase> = serde_json::from_slice(phases).unwrap_or_default();
        phases.iter().for_each(|phase| writer.trace.add(rank, phase));
    }
    Ok(writer.trace.flush()?)
}

/// Brings what all ranks use to the one that has the writer, and writes it.
pub(crate) fn write_usage(rank: &Rank, usage: &mut RankUsage, writer: Option<&RunWriter<'_>>) -> Result<()> {
    usage.peak = rank.device().ledger().peak();
    let all = usage.gather(rank)?;
    writer.map_or(Ok(()), |writer| Ok(usage::write(&writer.folder, &all)?))
}

/// Runs `work` and notes how long it took.
pub(crate) fn timed<T>(phases: &mut Phases, name: &str, epoch: u64, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    let done = work()?;
    phases.add(name, epoch, start);
    Ok(done)
}
