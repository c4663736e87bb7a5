//! One run: epochs until the last or until validation no longer gets better, with checkpoints on the way.
//!
//! Every rank runs this. Losses and scores are sums over ranks, the same on each, so all come to the same decisions; whether
//! somebody asked to stop is agreed on after every epoch. One rank writes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use graphweft_graph::progress::Progress;
use graphweft_model::{Prepared, Total};
use serde::{Deserialize, Serialize};

use crate::checkpoint::{Checkpoint, Checkpoints, Scores, Tensors};
use crate::config::Config;
use crate::data::Data;
use crate::emulation::Clock;
use crate::error::{Error, Result};
use crate::handout::Handout;
use crate::learner::Learner;
use crate::metrics::Metric;
use crate::plan::{Plan, Predicted};
use crate::rank::{Rank, Toll};
use crate::record::{Moment, Record, timed, trace};
use crate::run_dir::trace::Phases;
use crate::run_dir::{Line, RunDir, curve};
use crate::schedule::Schedule;
use crate::shard::{Lesson, Shard};
use crate::stop::Stop;

/// Who watches a run.
pub trait Observer: Progress {
    /// A run of `epochs` epochs begins, or goes on after epoch `from`.
    fn begin(&self, seed: u64, from: u64, epochs: u64);

    /// An epoch is over.
    fn epoch(&self, line: &Line, best: Option<&Scores>);

    /// One line for people.
    fn note(&self, line: &str);
}

/// What is kept of a run: `result.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Its seed.
    pub seed: u64,
    /// What was scored.
    pub metric: Metric,
    /// The split.
    pub split: String,
    /// Epochs that were run.
    pub epochs: u64,
    /// Numbers that were trained.
    pub parameters: usize,
    /// The scores that are reported: test at the best validation.
    pub best: Scores,
}

/// What it took, which no two runs agree on.
#[derive(Clone, Debug, Default)]
pub struct Cost {
    /// Milliseconds of each epoch that this process ran: forward, backward and update. Emulated, if the world is.
    pub epoch_ms: Vec<f64>,
    /// Seconds of everything, with evaluations and checkpoints.
    pub seconds: f64,
    /// Memory and messages of every rank, where the rank that leads is.
    pub tolls: Vec<Toll>,
}

/// A run that is over.
#[derive(Clone, Debug)]
pub struct Run {
    /// What came out.
    pub outcome: Outcome,
    /// The loss of each epoch.
    pub losses: Vec<f64>,
    /// What it took.
    pub cost: Cost,
}

/// What a run works with; the configuration has one seed, its metric and its split. All ranks of a process share one.
pub struct Trainer {
    /// Settings.
    pub config: Config,
    /// How the work is spread.
    pub plan: Plan,
    /// The nodes.
    pub data: Arc<Data>,
    /// Their graph, with the edges that the model adds.
    pub graph: Handout<Prepared>,
    /// What to go on from.
    pub from: Option<Checkpoint>,
    /// Where the run is.
    pub folder: PathBuf,
    /// The same to write to, where the rank that leads is.
    pub dir: Option<RunDir>,
    /// The directory above it and the configuration of all seeds, if there are several.
    pub above: Option<(Arc<RunDir>, Config)>,
    /// Who watches.
    pub observer: Arc<dyn Observer>,
    /// Who may stop it.
    pub stop: Stop,
}

/// What changes from epoch to epoch.
struct Progressing<'a> {
    learner: Learner<'a>,
    schedule: Schedule,
    epoch: u64,
    best: Option<Scores>,
    /// The epoch in which the validation score last became better.
    improved: u64,
    /// Parameters at the best evaluation.
    best_model: Tensors,
    phases: Phases,
    toll: Toll,
}

impl Trainer {
    /// Runs to the end on this rank.
    ///
    /// # Errors
    /// [`Error::Stopped`] once everything is saved, if that was asked for; [`Error::NotFinite`] before a bad update. Both come
    /// to all ranks alike.
    pub fn run(&self, rank: &Rank) -> Result<(Run, Plan)> {
        let config = &self.config;
        let metric = config.train.metric.unwrap_or(self.data.target()?.default_metric());
        metric.check(&self.data.target()?.truth(), self.data.classes)?;
        let shard = Shard::new(rank, &self.data, &*self.graph.take()?, &self.plan, config)?;
        let split_name = self.data.split_name(config.data.split.as_deref())?;
        let split = self.data.split(&split_name, config.run.seed)?;
        let lesson = Lesson::new(&shard, self.data.target()?, split)?;
        let mut now = self.start(Learner::new(&shard, config)?)?;

        // Everything that can be refused was: from here on, the directory is written to.
        let metrics = self.from.as_ref().map_or(&[][..], |from| &from.metrics);
        let mut record = match self.dir.as_ref().filter(|_| rank.leads()) {
            Some(dir) => {
                if let Some((above, config)) = &self.above {
                    above.reopen()?;
                    above.describe(&config.to_toml()?, &self.plan.to_json()?)?;
                }
                Some(Record::open(dir, config, &self.plan, now.epoch, metrics)?)
            }
            None => None,
        };
        let checkpoints = Checkpoints::of(&self.folder, &config.run);
        let (mut cost, started) = (Cost::default(), Instant::now());
        rank.device().ledger().reset_peak();

        if record.is_some() {
            self.observer.begin(config.run.seed, now.epoch, config.train.epochs);
        }
        while !self.is_over(&now) {
            let (line, ms) = self.epoch(rank, &mut now, &lesson, metric)?;
            cost.epoch_ms.push(ms);
            if let Some(record) = &mut record {
                record.epoch(&line, ms)?;
                self.observer.epoch(&line, now.best.as_ref());
            }
            let (over, stop) = (self.is_over(&now), self.is_stopped(&shard)?);
            if over || stop || checkpoints.is_due(now.epoch) {
                if let Some(record) = &record {
                    self.save(record, &mut now, &checkpoints)?;
                }
                trace(rank, &mut now.phases, record.as_mut())?;
                if stop && !over {
                    let checkpoint = checkpoints.path_of(now.epoch);
                    return Err(Error::Stopped { epoch: now.epoch, checkpoint });
                }
            }
        }
        now.toll.peak = rank.device().ledger().peak();
        (cost.tolls, cost.seconds) = (now.toll.gather(rank)?, started.elapsed().as_secs_f64());
        let outcome = Outcome {
            seed: config.run.seed,
            metric,
            split: split.name.clone(),
            epochs: now.epoch,
            parameters: now.learner.size(),
            best: self.to_best(&now, &lesson, metric)?,
        };
        let plan = self.compared(&cost);
        let losses = self.finish(&shard, &now, record.as_ref(), &plan, &outcome)?;
        Ok((Run { outcome, losses, cost }, plan))
    }

    /// The state before the first epoch, or after that of a checkpoint.
    fn start<'a>(&self, mut learner: Learner<'a>) -> Result<Progressing<'a>> {
        let train = &self.config.train;
        let (phases, toll) = (Phases::default(), Toll::default());
        Ok(match &self.from {
            None => Progressing {
                learner,
                schedule: Schedule::new(train),
                epoch: 0,
                best: None,
                improved: 0,
                best_model: Tensors::default(),
                phases,
                toll,
            },
            Some(saved) => {
                learner.load_model(&saved.model)?;
                learner.load_optimizer(&saved.optimizer, saved.state.steps)?;
                Progressing {
                    learner,
                    schedule: Schedule::resume(train, saved.state.schedule),
                    epoch: saved.state.epoch,
                    best: saved.state.best,
                    improved: saved.state.improved,
                    best_model: saved.best.clone(),
                    phases,
                    toll,
                }
            }
        })
    }

    /// Whether the last epoch was run, or validation has not become better for long enough.
    fn is_over(&self, now: &Progressing<'_>) -> bool {
        let patience = self.config.train.patience;
        let waited = now.best.map_or(0, |_| now.epoch - now.improved);
        now.epoch >= self.config.train.epochs || patience > 0 && waited >= patience
    }

    /// Whether somebody asked some rank to stop. A signal reaches ranks at different times; they act on it together.
    fn is_stopped(&self, shard: &Shard) -> Result<bool> {
        let asked = f64::from(u8::from(self.stop.is_requested()));
        Ok(shard.sum(Total::Metrics, &[asked])?[0] > 0.0)
    }

    /// Learns and evaluates; also gives the milliseconds of learning.
    fn epoch(&self, rank: &Rank, now: &mut Progressing<'_>, lesson: &Lesson, metric: Metric) -> Result<(Line, f64)> {
        let (epoch, start) = (now.epoch + 1, Instant::now());
        let (lr, phases) = (now.schedule.lr(epoch), &mut now.phases);
        rank.reset_sent();
        rank.clock().inspect(|clock| clock.start());
        let report = now.learner.learn(lesson, epoch, lr, &mut |phase, start| phases.add(phase, epoch, start))?;
        let ms = match rank.clock().map(Clock::stop).transpose()?.flatten() {
            Some(elsewhere) => elsewhere.first().map_or(0.0, |times| Clock::seconds(times)) * 1e3,
            None => start.elapsed().as_secs_f64() * 1e3,
        };
        now.toll.sent = rank.sent();
        now.epoch = epoch;
        let train = &self.config.train;
        let mut line = Line { epoch, loss: report.loss, lr, gradient_norm: report.gradient_norm, scores: None };
        if epoch.is_multiple_of(train.evaluate_every) || epoch == train.epochs {
            let learner = &now.learner;
            let scores = timed(&mut now.phases, "evaluate", epoch, || learner.evaluate(lesson, metric, epoch))?;
            now.schedule.observe(scores.valid);
            if now.best.is_none_or(|best| scores.improves_on(&best)) {
                now.improved = epoch;
            }
            if now.best.is_none_or(|best| scores.beats(&best)) {
                now.best = Some(scores);
                now.best_model = now.learner.model()?;
            }
            line.scores = Some(scores.into());
        }
        Ok((line, ms))
    }

    fn save(&self, record: &Record<'_>, now: &mut Progressing<'_>, to: &Checkpoints) -> Result<()> {
        let Progressing { learner, schedule, epoch, best, improved, best_model, phases, .. } = now;
        let (seed, schedule) = (self.config.run.seed, schedule.state());
        let moment = Moment { epoch: *epoch, seed, best: *best, best_model, improved: *improved, schedule };
        timed(phases, "checkpoint", *epoch, || record.save(learner, moment, to))
    }

    /// Goes back to the best epoch and gives its scores.
    fn to_best(&self, now: &Progressing<'_>, lesson: &Lesson, metric: Metric) -> Result<Scores> {
        match now.best {
            Some(best) => {
                now.learner.load_model(&now.best_model)?;
                Ok(best)
            }
            None => now.learner.evaluate(lesson, metric, now.epoch),
        }
    }

    /// The plan with what it came to, where something was predicted.
    fn compared(&self, cost: &Cost) -> Plan {
        let mut epochs = cost.epoch_ms.clone();
        epochs.sort_by(f64::total_cmp);
        let peak_bytes = cost.tolls.iter().map(|t| t.peak.total()).max().unwrap_or(0);
        let measured = Predicted { epoch_ms: epochs.get(epochs.len() / 2).copied(), peak_bytes };
        Plan { measured: self.plan.predicted.map(|_| measured), ..self.plan.clone() }
    }

    /// Writes what a run leaves behind, `result.json` last, and gives the loss of every epoch.
    fn finish(
        &self,
        shard: &Shard,
        now: &Progressing<'_>,
        record: Option<&Record<'_>>,
        plan: &Plan,
        outcome: &Outcome,
    ) -> Result<Vec<f64>> {
        let logits = now.learner.logits()?;
        let predictions = shard.collect(&logits)?;
        let (Some(record), Some(dir), Some(predictions)) = (record, &self.dir, predictions) else {
            return Ok(Vec::new());
        };
        dir.model(&now.learner.model()?.encode()?)?;
        dir.predictions(&predictions, logits.cols())?;
        let (lines, best, metric) = (record.lines()?, &outcome.best, outcome.metric);
        let title = format!("{}, {} at epoch {}: {:.2} %", self.data.name, metric.name(), best.epoch, best.test);
        curve::write(dir.path(), &title, metric, &lines, best.epoch)?;
        dir.plan(&plan.to_json()?)?;
        dir.finish(outcome)?;
        Ok(lines.iter().map(|l| l.loss).collect())
    }
}
