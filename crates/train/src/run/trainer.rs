//! One run: epochs until the last or until validation no longer gets better, with checkpoints on the way.
//!
//! Every rank runs this. Losses and scores are sums over ranks, the same on each, so all come to the same decisions;
//! whether somebody asked to stop is agreed on after every epoch. A rank that is alone need not wait for that: it
//! leaves the step that it is in, which then has not begun. One rank writes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use graphweft_base::progress::Progress;
use graphweft_graph::chunks::Chunks;
use graphweft_model::{Prepared, Total};
use graphweft_tensor::Timings;
use serde::Serialize;

use crate::config::Config;
use crate::data::Data;
use crate::data::fingerprint::Fingerprint;
use crate::data::random_split::RandomSplit;
use crate::epochs::learner::Learner;
use crate::epochs::pipeline::Divergence;
use crate::epochs::source::{EpochInputs, EpochSource, Purpose};
use crate::error::{Error, Result};
use crate::planning::emulation::Clock;
use crate::planning::plan::{Measured, Plan};
use crate::ranks::once_per_rank::OncePerRank;
use crate::ranks::rank::{KernelTimes, Rank, RankUsage};
use crate::run::checkpoint::{Checkpoint, Checkpoints, Scores, State, Tensors};
use crate::run::run_dir::launch::Launch;
use crate::run::run_dir::times::Time;
use crate::run::run_dir::trace::{self, Phases};
use crate::run::run_dir::{Ended, Line, RunDir, curve};
use crate::run::run_writer::{RunWriter, Saved, timed, write_trace, write_usage};
use crate::run::schedule::Schedule;
use crate::run::stop::Stop;
use crate::task::metrics::Metric;

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
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Its seed.
    pub seed: u64,
    /// What was scored.
    pub metric: &'static Metric,
    /// The split.
    pub split: String,
    /// Epochs that were run.
    pub epochs: u64,
    /// Numbers that were trained.
    pub parameters: usize,
    /// The scores that are reported: test at the best validation.
    pub best: Scores,
}

/// The whole of `result.json`.
#[derive(Serialize)]
struct Finished<'a> {
    #[serde(flatten)]
    outcome: &'a Outcome,
    /// Which scores of the metric are better: `higher` or `lower`.
    better: &'static str,
    /// What they are counted in; nothing for plain numbers.
    unit: &'static str,
    #[serde(flatten)]
    ended: Ended,
}

/// What it took, which no two runs agree on.
#[derive(Clone, Debug, Default)]
pub struct Cost {
    /// Milliseconds of each epoch that this process ran: forward, backward and update. Emulated, if the world is.
    pub epoch_ms: Vec<f64>,
    /// Seconds of everything, with evaluations and checkpoints.
    pub seconds: f64,
    /// Memory and messages of every rank, where the rank that leads is.
    pub usages: Vec<RankUsage>,
    /// Whether the device did steps by a [recording](crate::config::ComputeConfig::record).
    pub recorded: bool,
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

/// The run whose seeds are runs of their own.
#[derive(Clone)]
pub(crate) struct AllSeeds {
    /// The directory above theirs.
    pub dir: Arc<RunDir>,
    /// The configuration of all.
    pub config: Config,
}

/// What a run works with; the configuration has one seed, its metric and its split. All ranks of a process share one.
pub(crate) struct Trainer {
    /// Settings.
    pub config: Config,
    /// How the work is spread.
    pub plan: Plan,
    /// The nodes.
    pub data: Arc<Data>,
    /// Their graph, with the edges that the model adds.
    pub graph: OncePerRank<Prepared>,
    /// The graph in chunks, for learning from pieces.
    pub chunks: Option<Chunks>,
    /// What to go on from.
    pub from: Option<Checkpoint>,
    /// Which data these are, where the rank that leads is.
    pub fingerprint: Option<Fingerprint>,
    /// The program that runs it.
    pub launch: Launch,
    /// Where the run is.
    pub folder: PathBuf,
    /// The same to write to, where the rank that leads is.
    pub dir: Option<RunDir>,
    /// All seeds, if there are several.
    pub above: Option<AllSeeds>,
    /// Who watches.
    pub observer: Arc<dyn Observer>,
    /// Who may stop it.
    pub stop: Stop,
}

/// What changes from epoch to epoch.
struct Progressing {
    learner: Learner,
    schedule: Schedule,
    epoch: u64,
    best: Option<Scores>,
    /// The epoch in which the validation score last became better.
    improved: u64,
    /// Parameters at the best evaluation.
    best_model: Tensors,
    phases: Phases,
    usage: RankUsage,
    /// What kernels took since this process began.
    kernels: KernelTimes,
}

impl Trainer {
    /// Runs to the end on this rank.
    ///
    /// # Errors
    /// [`Error::Stopped`] once everything is saved, if that was asked for; [`Error::NotFinite`] before a bad update.
    /// Both come to all ranks alike.
    pub(crate) fn run(&self, rank: &Rank) -> Result<(Run, Plan)> {
        let config = &self.config;
        let metric = self.data.task.metric(config.train.metric, self.data.classes)?;
        let split_name = self.data.split_name(config.data.split.as_deref())?;
        let split = self.data.split(&split_name, config.run.seed)?;
        let whole = self.graph.take()?;
        let inputs = EpochInputs {
            config,
            plan: &self.plan,
            data: &self.data,
            graph: &whole,
            chunks: self.chunks.as_ref(),
            purpose: Purpose::Train(&split),
            folder: &self.folder,
        };
        let mut source = inputs.source(rank)?;
        drop(whole);
        let mut now = self.start(source.learner(config)?)?;
        if let Some(saved) = &self.from {
            source.restore(&saved.optimizer)?;
        }

        // What comes before this is answered at once: nothing would be lost.
        let looking = self.stop.look();
        if self.is_stopped(rank)? {
            let checkpoint = Checkpoints::of(&self.folder, &config.run).path_of(now.epoch);
            return Err(Error::Stopped { epoch: now.epoch, checkpoint });
        }

        // Everything that can be refused was: from here on, the directory is written to.
        let mut writer = self.writer(rank, &now)?;
        let checkpoints = Checkpoints::of(&self.folder, &config.run);
        let (mut cost, started) = (Cost::default(), Instant::now());
        rank.device().ledger().reset_peak();
        rank.note_exchanges(trace::MOST / self.plan.ranks.max(1));

        if writer.is_some() {
            self.observer.begin(config.run.seed, now.epoch, config.train.epochs);
        }
        while !self.is_over(&now) {
            let epoch = self.epoch(rank, &mut now, &mut *source, metric);
            if epoch.as_ref().is_err_and(Learner::has_left) {
                return Err(self.left(rank, &*source, writer.as_mut(), &mut now)?);
            }
            let (line, time) = epoch?;
            cost.epoch_ms.push(time.learn_ms);
            if let Some(writer) = &mut writer {
                self.tell(&line, &mut now);
                writer.epoch(&line, &time)?;
                self.observer.epoch(&line, now.best.as_ref());
            }
            let (over, stop) = (self.is_over(&now), self.is_stopped(rank)?);
            if over || stop || checkpoints.is_due(now.epoch) {
                let checkpoint = self.keep(rank, &*source, writer.as_mut(), &mut now)?;
                if stop && !over {
                    return Err(Error::Stopped { epoch: now.epoch, checkpoint });
                }
            }
        }
        // The last epoch is saved: what follows can be done again.
        drop(looking);
        now.usage.peak = rank.device().ledger().peak();
        cost.recorded = now.learner.is_recorded();
        (cost.usages, cost.seconds) = (now.usage.gather(rank)?, started.elapsed().as_secs_f64());
        let outcome = Outcome {
            seed: config.run.seed,
            metric,
            split: split.name.clone(),
            epochs: now.epoch,
            parameters: source.size(&now.learner)?,
            best: self.to_best(&now, &mut *source, metric)?,
        };
        let plan = self.compared(&cost);
        // A run that was over before has nothing new to say of its plan.
        let told = Some(&plan).filter(|_| !cost.epoch_ms.is_empty());
        let losses = self.finish(&*source, &now, writer.as_ref(), told, &outcome)?;
        Ok((Run { outcome, losses, cost }, plan))
    }

    /// Writes the state after an epoch, and what led there; gives its checkpoint.
    fn keep(
        &self,
        rank: &Rank,
        source: &dyn EpochSource,
        mut writer: Option<&mut RunWriter<'_>>,
        now: &mut Progressing,
    ) -> Result<PathBuf> {
        let checkpoints = Checkpoints::of(&self.folder, &self.config.run);
        self.save(source, writer.as_deref(), now, &checkpoints)?;
        write_trace(rank, &mut now.phases, writer.as_deref_mut())?;
        write_usage(rank, &mut now.usage, writer.as_deref())?;
        Ok(checkpoints.path_of(now.epoch))
    }

    /// What a run ends with that was stopped within an epoch, which then has not begun: the one before is saved, unless
    /// it is already.
    fn left(
        &self,
        rank: &Rank,
        source: &dyn EpochSource,
        writer: Option<&mut RunWriter<'_>>,
        now: &mut Progressing,
    ) -> Result<Error> {
        let (epoch, saved) = (now.epoch, Checkpoints::of(&self.folder, &self.config.run).path_of(now.epoch));
        let checkpoint = if saved.exists() { saved } else { self.keep(rank, source, writer, now)? };
        Ok(Error::Stopped { epoch, checkpoint })
    }

    /// Says what of an epoch is out of the ordinary.
    fn tell(&self, line: &Line, now: &mut Progressing) {
        if let Some(seen) = line.guard.filter(Divergence::is_much) {
            self.observer.note(&format!("epoch {}: {seen}", line.epoch));
        }
        if let Some(why) = now.learner.refusal().filter(|_| self.config.compute.record == Some(true)) {
            self.observer.note(&format!("steps are not recorded: {why}"));
        }
    }

    /// Begins to write to the directory, where the rank that leads is.
    fn writer(&self, rank: &Rank, now: &Progressing) -> Result<Option<RunWriter<'_>>> {
        let Some(dir) = self.dir.as_ref().filter(|_| rank.leads()) else { return Ok(None) };
        if let Some(AllSeeds { dir: above, config }) = &self.above {
            above.reopen()?;
            above.describe(&config.to_toml()?, &self.plan.to_json()?)?;
            if self.config.run.seed == config.run.seed {
                self.launch.note(above.path(), now.epoch, self.plan.ranks)?;
            }
        }
        let metrics = self.from.as_ref().map_or(&[][..], |from| &from.metrics);
        // What a run that is over took stays in its plan, unless that is damaged.
        let plan = dir.stored_plan().filter(|_| self.is_over(now));
        let plan = plan.filter(|text| serde_json::from_str::<Plan>(text).is_ok());
        let writer = RunWriter::open(dir, &self.config, &self.plan, now.epoch, metrics)?;
        self.launch.note(dir.path(), now.epoch, self.plan.ranks)?;
        let split = self.config.data.split.as_deref().unwrap_or_default();
        if RandomSplit::parse(split).is_some() {
            dir.split(&self.data.split(split, self.config.run.seed)?)?;
        }
        plan.map_or(Ok(()), |plan| dir.plan(&plan))?;
        Ok(Some(writer))
    }

    /// The state before the first epoch, or after that of a checkpoint.
    fn start(&self, mut learner: Learner) -> Result<Progressing> {
        let train = &self.config.train;
        let (phases, usage, kernels) = (Phases::default(), RankUsage::default(), KernelTimes::default());
        Ok(match &self.from {
            None => Progressing {
                learner,
                schedule: Schedule::new(train),
                epoch: 0,
                best: None,
                improved: 0,
                best_model: Tensors::default(),
                phases,
                usage,
                kernels,
            },
            Some(saved) => {
                learner.load_model(&learner.own(&saved.model))?;
                let optimizer = learner.own(&saved.optimizer).into_owned();
                learner.load_optimizer(&optimizer, saved.state.steps)?;
                let best_model = learner.own(&saved.best).into_owned();
                Progressing {
                    learner,
                    schedule: Schedule::resume(train, saved.state.schedule),
                    epoch: saved.state.epoch,
                    best: saved.state.best,
                    improved: saved.state.improved,
                    best_model,
                    phases,
                    usage,
                    kernels,
                }
            }
        })
    }

    /// Whether the last epoch was run, or validation has not become better for long enough.
    fn is_over(&self, now: &Progressing) -> bool {
        let patience = self.config.train.patience;
        let waited = now.best.map_or(0, |_| now.epoch - now.improved);
        now.epoch >= self.config.train.epochs || patience > 0 && waited >= patience
    }

    /// Whether somebody asked some rank to stop. A signal reaches ranks at different times; they act on it together.
    fn is_stopped(&self, rank: &Rank) -> Result<bool> {
        let asked = f64::from(u8::from(self.stop.is_requested()));
        Ok(rank.sum(Total::Metrics, &[asked])?[0] > 0.0)
    }

    /// Learns and evaluates; also gives how long that took.
    fn epoch(
        &self,
        rank: &Rank,
        now: &mut Progressing,
        source: &mut dyn EpochSource,
        metric: &'static Metric,
    ) -> Result<(Line, Time)> {
        let (epoch, start) = (now.epoch + 1, Instant::now());
        // Before the first there is nothing to go back to.
        if epoch > 1 && source.is_one_step() {
            now.learner.leaves_steps_for(&self.stop);
        }
        let (lr, phases) = (now.schedule.lr(epoch), &mut now.phases);
        rank.reset_sent();
        // Those of the last evaluation.
        rank.kernels().map(Timings::take);
        rank.clock().inspect(|clock| clock.start());
        let phase = &mut |phase, start| phases.add(phase, epoch, start);
        let report = source.learn(&mut now.learner, epoch, lr, phase)?;
        let learn_ms = match rank.clock() {
            None => start.elapsed().as_secs_f64() * 1e3,
            Some(clock) => {
                let elsewhere = clock.stop()?.map(|epoch| clock.times(&epoch)).transpose()?.unwrap_or_default();
                elsewhere.first().map_or(0.0, |times| Clock::seconds(times)) * 1e3
            }
        };
        now.kernels.add(rank, learn_ms);
        now.usage = RankUsage { kernels: now.kernels.clone(), ..rank.usage() };
        now.epoch = epoch;
        let train = &self.config.train;
        let guard = report.guard;
        let mut line = Line { epoch, loss: report.loss, lr, gradient_norm: report.gradient_norm, scores: None, guard };
        let mut time = Time { epoch, learn_ms, evaluate_ms: None };
        if epoch.is_multiple_of(train.evaluate_every) || epoch == train.epochs {
            let (learner, start) = (&now.learner, Instant::now());
            let scores = timed(&mut now.phases, "evaluate", epoch, || source.evaluate(learner, metric, epoch))?;
            time.evaluate_ms = Some(start.elapsed().as_secs_f64() * 1e3);
            now.schedule.observe(scores.valid, metric.better);
            if now.best.is_none_or(|best| scores.improves_on(&best, metric.better)) {
                now.improved = epoch;
            }
            if now.best.is_none_or(|best| scores.beats(&best, metric.better)) {
                now.best = Some(scores);
                now.best_model = now.learner.model()?;
            }
            line.scores = Some(scores.into());
        }
        now.phases.add_exchanges(epoch, &rank.take_exchanges());
        Ok((line, time))
    }

    /// Brings the model together and saves it, where the writer is.
    fn save(
        &self,
        source: &dyn EpochSource,
        writer: Option<&RunWriter<'_>>,
        now: &mut Progressing,
        to: &Checkpoints,
    ) -> Result<()> {
        let (learner, start) = (&now.learner, Instant::now());
        let model = source.together(learner, &|| learner.model())?;
        let best_model = source.together(learner, &|| Ok(now.best_model.clone()))?;
        let memory = source.together(learner, &|| source.memory(learner))?;
        let (Some(writer), Some(model), Some(best_model), Some(memory)) = (writer, model, best_model, memory) else {
            return Ok(());
        };
        let (epoch, best, improved) = (now.epoch, now.best, now.improved);
        let (steps, seed, schedule) = (learner.steps(), self.config.run.seed, now.schedule.state());
        let data = self.fingerprint.clone();
        let state = State { epoch, steps, seed, best, improved, schedule, data };
        writer.save(state, Saved { model, best_model, memory }, to)?;
        now.phases.add("checkpoint", epoch, start);
        Ok(())
    }

    /// Goes back to the best epoch and gives its scores.
    fn to_best(&self, now: &Progressing, source: &mut dyn EpochSource, metric: &'static Metric) -> Result<Scores> {
        match now.best {
            Some(best) => {
                now.learner.load_model(&now.best_model)?;
                Ok(best)
            }
            None => source.evaluate(&now.learner, metric, now.epoch),
        }
    }

    /// The plan with what it came to, where something was predicted and an epoch was run.
    fn compared(&self, cost: &Cost) -> Plan {
        let mut epochs = cost.epoch_ms.clone();
        epochs.sort_by(f64::total_cmp);
        let peak_bytes = cost.usages.iter().map(|t| t.peak.total()).max().unwrap_or(0);
        let measured = Measured { epoch_ms: epochs.get(epochs.len() / 2).copied(), peak_bytes };
        let told = self.plan.predicted.filter(|_| !epochs.is_empty());
        Plan { measured: told.map(|_| measured), ..self.plan.clone() }
    }

    /// Writes what a run leaves behind, `result.json` last, and gives the loss of every epoch.
    fn finish(
        &self,
        source: &dyn EpochSource,
        now: &Progressing,
        writer: Option<&RunWriter<'_>>,
        plan: Option<&Plan>,
        outcome: &Outcome,
    ) -> Result<Vec<f64>> {
        let dir = self.dir.as_ref().filter(|_| writer.is_some());
        source.predict(&now.learner, Some(outcome.best.epoch), &mut |cols, lots| {
            dir.map_or(Ok(()), |dir| dir.predictions(cols, lots))
        })?;
        let model = source.together(&now.learner, &|| now.learner.model())?;
        let (Some(writer), Some(dir), Some(model)) = (writer, &self.dir, model) else { return Ok(Vec::new()) };
        let hash = dir.model(&model.encode()?)?;
        let (lines, best, metric) = (writer.lines()?, &outcome.best, outcome.metric);
        let test = if best.test.is_nan() { "no test score".into() } else { metric.show(best.test) + metric.unit() };
        let title = format!("{}, {} at epoch {}: {test}", self.data.name, metric.name, best.epoch);
        curve::write(dir.path(), &title, metric, &lines, best.epoch)?;
        plan.map_or(Ok(()), |plan| dir.plan(&plan.to_json()?))?;
        let ended = Ended { model_sha256: Some(hash), task: Some(self.data.task.name().into()) };
        dir.finish(&Finished { outcome, better: metric.better.name(), unit: metric.unit().trim(), ended })?;
        Ok(lines.iter().map(|l| l.loss).collect())
    }
}
