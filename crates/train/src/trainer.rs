//! One run: epochs until the last or until validation no longer gets better, with checkpoints on the way.

use std::path::PathBuf;
use std::time::Instant;

use graphweft_graph::progress::Progress;
use graphweft_tensor::{Device, Usage};
use serde::{Deserialize, Serialize};

use crate::checkpoint::{Checkpoint, Checkpoints, Scores, State, Tensors};
use crate::config::Config;
use crate::data::Data;
use crate::error::{Error, Result};
use crate::learner::Learner;
use crate::metrics::Metric;
use crate::run_dir::events::Events;
use crate::run_dir::trace::Trace;
use crate::run_dir::{Line, MetricsLog, RunDir, curve};
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
    /// Milliseconds of each epoch that this process ran: forward, backward and update.
    pub epoch_ms: Vec<f64>,
    /// Seconds of everything, with evaluations and checkpoints.
    pub seconds: f64,
    /// Memory when most was in use.
    pub peak: Usage,
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

/// What a run works with; the configuration has one seed, its metric and its split.
pub struct Trainer<'a> {
    /// Settings.
    pub config: &'a Config,
    /// How the work is spread, as `plan.json` has it.
    pub plan: &'a str,
    /// The graph.
    pub data: &'a Data,
    /// Where to write.
    pub dir: &'a RunDir,
    /// Who watches.
    pub observer: &'a dyn Observer,
    /// Who may stop it.
    pub stop: &'a Stop,
}

/// What changes from epoch to epoch.
struct Progressing<'a> {
    learner: Learner<'a>,
    schedule: Schedule,
    epoch: u64,
    best: Option<Scores>,
    /// Parameters at that time.
    best_model: Tensors,
    metrics: MetricsLog,
}

impl Trainer<'_> {
    /// Runs to the end, from the beginning or from a checkpoint.
    ///
    /// # Errors
    /// [`Error::Stopped`] once everything is saved, if that was asked for; [`Error::NotFinite`] before a bad update.
    pub fn run(&self, device: &Device, from: Option<Checkpoint>) -> Result<Run> {
        let config = self.config;
        let metric = config.train.metric.unwrap_or(self.data.target()?.default_metric());
        metric.check(&self.data.target()?.truth(), self.data.classes)?;
        let shard = Shard::local(device, self.data, config)?;
        let split_name = self.data.split_name(config.data.split.as_deref())?;
        let split = self.data.split(&split_name, config.run.seed)?;
        let lesson = Lesson::new(&shard, self.data.target()?, split)?;
        let learner = Learner::new(&shard, config)?;

        // Everything that can be refused was: from here on, the directory is written to.
        let text = config.to_toml()?;
        self.dir.reopen()?;
        self.dir.describe(&text, self.plan)?;
        let checkpoints = self.dir.checkpoints(&config.run);
        checkpoints.clean()?;
        let mut now = self.start(learner, from)?;
        let mut events = Events::open(self.dir.path(), now.epoch)?;
        let mut trace = Trace::open(self.dir.path(), 1)?;
        let (mut cost, started) = (Cost::default(), Instant::now());
        device.ledger().reset_peak();

        self.observer.begin(config.run.seed, now.epoch, config.train.epochs);
        while !self.is_over(&now) {
            let (line, ms) = self.epoch(&mut now, &lesson, metric, &mut trace)?;
            cost.epoch_ms.push(ms);
            now.metrics.add(&line)?;
            let mut scalars = vec![("loss", line.loss), ("lr", line.lr), ("epoch_ms", ms)];
            if let Some(s) = line.scores {
                scalars.extend([("train", s.train), ("valid", s.valid), ("test", s.test)]);
            }
            events.add(now.epoch, &scalars)?;
            self.observer.epoch(&line, now.best.as_ref());

            let (over, stop) = (self.is_over(&now), self.stop.is_requested());
            if over || stop || checkpoints.is_due(now.epoch) {
                let start = Instant::now();
                let checkpoint = self.save(&now, &text, &checkpoints)?;
                trace.add(0, "checkpoint", now.epoch, start);
                trace.flush()?;
                if stop && !over {
                    return Err(Error::Stopped { epoch: now.epoch, checkpoint });
                }
            }
        }
        (cost.peak, cost.seconds) = (device.ledger().peak(), started.elapsed().as_secs_f64());
        let run = self.finish(&now, &shard, &lesson, metric, &split.name, cost)?;
        trace.flush()?;
        Ok(run)
    }

    /// The state before the first epoch, or after that of a checkpoint.
    fn start<'a>(&self, mut learner: Learner<'a>, from: Option<Checkpoint>) -> Result<Progressing<'a>> {
        let train = &self.config.train;
        Ok(match from {
            None => Progressing {
                learner,
                schedule: Schedule::new(train),
                epoch: 0,
                best: None,
                best_model: Tensors::default(),
                metrics: MetricsLog::start(self.dir, Vec::new())?,
            },
            Some(saved) => {
                learner.load_model(&saved.model)?;
                learner.load_optimizer(&saved.optimizer, saved.state.steps)?;
                Progressing {
                    learner,
                    schedule: Schedule::resume(train, saved.state.schedule),
                    epoch: saved.state.epoch,
                    best: saved.state.best,
                    best_model: saved.best,
                    metrics: MetricsLog::start(self.dir, saved.metrics)?,
                }
            }
        })
    }

    /// Whether the last epoch was run, or validation has not become better for long enough.
    fn is_over(&self, now: &Progressing<'_>) -> bool {
        let patience = self.config.train.patience;
        let waited = now.best.map_or(0, |best| now.epoch - best.epoch);
        now.epoch >= self.config.train.epochs || patience > 0 && waited >= patience
    }

    /// Learns and evaluates; also gives the milliseconds of learning.
    fn epoch(
        &self,
        now: &mut Progressing<'_>,
        lesson: &Lesson,
        metric: Metric,
        trace: &mut Trace,
    ) -> Result<(Line, f64)> {
        let (epoch, start) = (now.epoch + 1, Instant::now());
        let lr = now.schedule.lr(epoch);
        let report = now.learner.learn(lesson, epoch, lr, &mut |phase, start| trace.add(0, phase, epoch, start))?;
        let ms = start.elapsed().as_secs_f64() * 1e3;
        now.epoch = epoch;
        let train = &self.config.train;
        let mut line = Line { epoch, loss: report.loss, lr, gradient_norm: report.gradient_norm, scores: None };
        if epoch.is_multiple_of(train.evaluate_every) || epoch == train.epochs {
            let start = Instant::now();
            let scores = now.learner.evaluate(lesson, metric, epoch)?;
            now.schedule.observe(scores.valid);
            if now.best.is_none_or(|best| scores.valid > best.valid || best.valid.is_nan()) {
                now.best = Some(scores);
                now.best_model = now.learner.model()?;
            }
            line.scores = Some(scores.into());
            trace.add(0, "evaluate", epoch, start);
        }
        Ok((line, ms))
    }

    fn save(&self, now: &Progressing<'_>, config: &str, to: &Checkpoints) -> Result<PathBuf> {
        let (optimizer, steps) = now.learner.optimizer()?;
        let schedule = now.schedule.state();
        to.save(&Checkpoint {
            state: State { epoch: now.epoch, steps, seed: self.config.run.seed, best: now.best, schedule },
            model: now.learner.model()?,
            best: now.best_model.clone(),
            optimizer,
            config: config.to_string(),
            plan: self.plan.to_string(),
            metrics: now.metrics.sync()?.to_vec(),
        })
    }

    /// Writes what a run leaves behind, `result.json` last.
    fn finish(
        &self,
        now: &Progressing<'_>,
        shard: &Shard,
        lesson: &Lesson,
        metric: Metric,
        split: &str,
        cost: Cost,
    ) -> Result<Run> {
        let best = match now.best {
            Some(best) => {
                now.learner.load_model(&now.best_model)?;
                best
            }
            None => now.learner.evaluate(lesson, metric, now.epoch)?,
        };
        self.dir.model(&now.learner.model()?.encode()?)?;
        let logits = now.learner.logits()?;
        self.dir.predictions(&shard.collect(&logits)?, logits.cols())?;
        let lines = now.metrics.lines()?;
        let title = format!("{}, {} at epoch {}: {:.2} %", self.data.name, metric.name(), best.epoch, best.test);
        curve::write(self.dir.path(), &title, metric, &lines, best.epoch)?;
        let outcome = Outcome {
            seed: self.config.run.seed,
            metric,
            split: split.to_string(),
            epochs: now.epoch,
            parameters: now.learner.size(),
            best,
        };
        self.dir.finish(&outcome)?;
        Ok(Run { outcome, losses: lines.iter().map(|l| l.loss).collect(), cost })
    }
}
