//! A model that learns: one step forward, back and down, and how good it is.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;
use std::time::Instant;

use graphweft_model::{Context, Mode, Network, Rates, Remat, Shape, Total};
use graphweft_tensor::ops::loss::LossRows;
use graphweft_tensor::optim::{Optimizer, clip_factor, gradient_norm, length};
use graphweft_tensor::{DType, Error as Computation, Matrix, Parameter, Tape, Var};

use crate::config::Config;
use crate::epochs::cuda_graph::{CapturedStep, CudaGraph};
use crate::epochs::network::network;
use crate::epochs::pipeline::Divergence;
use crate::epochs::sharded::{EPOCH, Sharded};
use crate::error::{Error, Result};
use crate::ranks::gradients::Buckets;
use crate::ranks::rank::Rank;
use crate::ranks::shard::Shard;
use crate::run::checkpoint::{Scores, Tensors};
use crate::run::stop::Stop;
use crate::task::Supervision;
use crate::task::metrics::Metric;

/// What a step found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Report {
    /// The mean loss of the nodes learned from, before the update.
    pub loss: f64,
    /// The length of all gradients together.
    pub gradient_norm: f64,
    /// How far an approximate forward pass is from an exact one, if that was looked at.
    pub guard: Option<Divergence>,
}

/// Hears of the phases of a step: a name, and when it began.
pub(crate) type Phases<'a> = &'a mut dyn FnMut(&'static str, Instant);

/// What is drawn anew in every step is drawn by this.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draw {
    pub seed: u64,
    pub epoch: u64,
}

/// What a step makes small.
pub(crate) trait Objective {
    /// This rank's part of the loss of what a network gives for its rows.
    fn loss(&self, tape: &mut Tape, outputs: &Var, draw: Draw) -> Result<Var>;

    /// What it is of, where that is the same in every step: such steps may be recorded.
    fn fixed(&self) -> Option<Fixed<'_>>;
}

/// What a loss is of.
#[derive(Clone, Copy)]
pub(crate) struct Fixed<'a> {
    pub rows: &'a LossRows,
    pub total: f64,
}

/// A network with its optimizer on one rank.
pub(crate) struct Learner {
    rank: Rank,
    network: Network,
    parameters: Vec<Rc<Parameter>>,
    optimizer: Optimizer,
    seed: u64,
    rates: Rates,
    remat: Remat,
    clip: f64,
    /// Where steps are recorded at all.
    cuda_graph: Option<CudaGraph>,
    /// Who may have a step left before its end.
    stop: Option<Stop>,
    /// Parameters of which each rank has some rows or columns.
    sharded: Option<Sharded>,
}

/// A step: of which rows, to what end, in which epoch and how far.
struct Way<'a> {
    shard: &'a Shard,
    objective: &'a dyn Objective,
    epoch: u64,
    lr: f64,
}

/// What a step ends with that was left.
#[derive(Debug, thiserror::Error)]
#[error("the step was left, as somebody asked to stop")]
struct Left;

impl Learner {
    /// Builds the model and its optimizer, for data of this shape.
    pub(crate) fn new(rank: &Rank, shape: Shape, config: &Config) -> Result<Self> {
        Self::of_network(rank, network(rank, shape, config)?, config)
    }

    /// The same with some of the layers.
    pub(crate) fn of_layers(rank: &Rank, shape: Shape, config: &Config, layers: Range<usize>) -> Result<Self> {
        let all = network(rank, shape, config)?;
        Self::of_network(rank, Network::new(all.layers()[layers].to_vec()), config)
    }

    /// A learner of these layers, which has what is in `sharded` by ranks, or else the columns of the shard.
    pub(crate) fn of_sharded(
        shard: &Shard,
        network: Network,
        config: &Config,
        sharded: Option<Sharded>,
    ) -> Result<Self> {
        let sharded = sharded.or_else(|| Sharded::of_columns(shard, &network));
        Ok(Self { sharded, ..Self::of_network(&shard.rank, network, config)? })
    }

    fn of_network(rank: &Rank, network: Network, config: &Config) -> Result<Self> {
        let seed = config.run.seed;
        let parameters = network.parameters();
        network.without_effect(config.train.rates()).iter().for_each(|p| p.set_without_effect());
        let optimizer = Optimizer::new(config.train.rule(), &parameters)?;
        let (rates, remat) = (config.train.rates(), config.compute.remat);
        // What ranks send each other is not recorded.
        let cuda_graph = (config.compute.records() && rank.link().is_none()).then(CudaGraph::default);
        Ok(Self {
            rank: rank.clone(),
            network,
            parameters,
            optimizer,
            seed,
            rates,
            remat,
            clip: config.train.clip,
            cuda_graph,
            stop: None,
            sharded: None,
        })
    }

    /// Numbers that are trained, with those that other ranks have of the same parameters.
    pub(crate) fn size(&self) -> usize {
        let own: usize = self.parameters.iter().map(|p| p.value().rows() * p.value().cols()).sum();
        own + self.sharded.as_ref().map_or(0, Sharded::elsewhere)
    }

    /// Whose it is.
    pub(crate) fn rank(&self) -> &Rank {
        &self.rank
    }

    /// What ranks have parts of.
    pub(crate) fn sharded(&self) -> Option<&Sharded> {
        self.sharded.as_ref()
    }

    /// What this rank has of whole tensors.
    pub(crate) fn own<'t>(&self, whole: &'t Tensors) -> Cow<'t, Tensors> {
        Sharded::own(self.sharded.as_ref(), whole)
    }

    /// What layers are told of the rows of `shard`.
    pub(crate) fn context_of(&self, shard: &Shard, mode: Mode, epoch: u64) -> Context {
        Context {
            ops: Rc::clone(&shard.ops),
            features: shard.features.clone(),
            positional: shard.positional.clone(),
            graphs: shard.graphs.clone(),
            types: shard.types.clone(),
            mode,
            seed: self.seed,
            epoch,
            rates: self.rates,
            remat: self.remat,
            dtype: shard.dtype,
        }
    }

    /// From the state before the first of its layers to the state after the last.
    pub(crate) fn through(&self, tape: &mut Tape, context: &Context, state: Vec<Var>) -> Result<Vec<Var>> {
        Ok(self.network.forward_from(tape, context, state, |_, _| Ok(()))?)
    }

    /// The length of the gradients that were collected.
    ///
    /// # Errors
    /// [`Computation::NotFinite`] names the parameter.
    pub(crate) fn gradient_norm(&self) -> std::result::Result<f64, Computation> {
        let sharded = self.sharded.as_ref();
        sharded.map_or_else(|| gradient_norm(&self.parameters), |own| own.gradient_norm(&self.rank, &self.parameters))
    }

    /// Moves the parameters, where all gradients, here and elsewhere, have this length.
    pub(crate) fn descend(&mut self, lr: f64, gradient_norm: f64) -> Result<()> {
        let scale = if self.clip > 0.0 { clip_factor(gradient_norm, self.clip) } else { 1.0 };
        Ok(self.optimizer.step(lr, scale)?)
    }

    pub(crate) fn forward(&self, tape: &mut Tape, context: &Context) -> Result<Var> {
        let logits = self.network.forward(tape, context)?;
        Ok(logits.ok_or_else(without_layers)?)
    }

    /// From now on a step is left where `stop` is requested before its update, and everything is as it was before it.
    /// Ranks would have to agree on that, so there is one.
    pub(crate) fn leaves_steps_for(&mut self, stop: &Stop) {
        self.stop = Some(stop.clone()).filter(|_| self.rank.count() == 1);
    }

    /// Fails if the step is to be left.
    fn look(&self) -> std::result::Result<(), Computation> {
        let asked = self.stop.as_ref().is_some_and(Stop::is_requested);
        if asked { Err(Computation::Ranks(Box::new(Left))) } else { Ok(()) }
    }

    /// Whether a step ended so because it was left.
    pub(crate) fn has_left(error: &Error) -> bool {
        matches!(error, Error::Tensor(Computation::Ranks(why)) if why.is::<Left>())
    }

    /// Learns from the rows of `shard` once. A step that is recorded is one phase.
    ///
    /// # Errors
    /// [`Error::NotFinite`] before anything is changed; what [`Learner::has_left`] knows, likewise.
    pub(crate) fn learn(
        &mut self,
        shard: &Shard,
        objective: &dyn Objective,
        epoch: u64,
        lr: f64,
        phase: Phases<'_>,
    ) -> Result<Report> {
        let marks = self.network.marks()?;
        let done = self.step(&Way { shard, objective, epoch, lr }, phase);
        if done.as_ref().is_err_and(Self::has_left) {
            self.parameters.iter().for_each(|p| drop(p.take_grad()));
            self.network.put_back(marks);
        }
        done
    }

    fn step(&mut self, way: &Way<'_>, phase: Phases<'_>) -> Result<Report> {
        let Way { shard, objective, epoch, lr } = *way;
        let (device, start) = (shard.device().clone(), Instant::now());
        self.rank.set_epoch(epoch & EPOCH);
        let _learning = shard.rank.learning(epoch);
        if let Some(report) = self.replay(shard, objective, epoch, lr)? {
            phase("step", start);
            return Ok(report);
        }
        let mut tape = Tape::new(&device);
        let loss = self.loss(&mut tape, shard, objective, epoch)?;
        let own = device.convert("loss", loss.value(), DType::F64)?.to_vec::<f64>()?[0];
        let value = self.rank.sum(Total::Loss, &[own])?[0];
        phase("forward", start);
        self.check(value, shard, epoch)?;
        let start = Instant::now();
        tape.start_from(&loss);
        drop(loss);
        let mut buckets = Buckets::new(&self.rank);
        tape.backward(Vec::new(), &[], |parameter| {
            self.look()?;
            match self.sharded.as_ref().filter(|sharded| sharded.has(parameter)) {
                Some(sharded) => buckets.add_columns(parameter, sharded.cut.shared),
                None => buckets.add(parameter),
            }
        })?;
        device.backend().wait()?;
        phase("backward", start);
        let start = Instant::now();
        buckets.finish()?;
        let gradient_norm = self.gradient_norm().map_err(|e| in_epoch(epoch, e))?;
        self.descend(lr, gradient_norm)?;
        device.backend().wait()?;
        phase("update", start);
        Ok(Report { loss: value, gradient_norm, guard: None })
    }

    /// The loss of a forward pass for training.
    fn loss(&self, tape: &mut Tape, shard: &Shard, objective: &dyn Objective, epoch: u64) -> Result<Var> {
        let context = self.context_of(shard, Mode::Train, epoch);
        let logits = self.network.forward_watched(tape, &context, |_, _| self.look())?.ok_or_else(without_layers)?;
        objective.loss(tape, &logits, Draw { seed: self.seed, epoch })
    }

    /// Whether the loss is a number.
    fn check(&self, loss: f64, shard: &Shard, epoch: u64) -> Result<()> {
        if loss.is_finite() {
            Ok(())
        } else {
            Err(Error::NotFinite { epoch: epoch & EPOCH, place: self.diagnose(shard, epoch)? })
        }
    }

    /// A step that the device does by itself; `None` where it has not recorded one.
    fn replay(&mut self, shard: &Shard, objective: &dyn Objective, epoch: u64, lr: f64) -> Result<Option<Report>> {
        let Some(fixed) = objective.fixed() else { return Ok(None) };
        let (device, phase) = (shard.device(), self.network.phase(epoch));
        let Some(cuda_graph) = &mut self.cuda_graph else { return Ok(None) };
        if cuda_graph.expects(device, shard, fixed, phase) {
            // It fails where a model needs the host within a step; that model computes as before, and the user is told.
            let captured = self.record(shard, objective, epoch).map_err(|e| e.to_string());
            if let Some(cuda_graph) = &mut self.cuda_graph {
                cuda_graph.keep(captured);
            }
        }
        let Some(captured) = self.cuda_graph.as_ref().and_then(CudaGraph::captured) else { return Ok(None) };
        let (moved, loss, square_sums) = captured.step(epoch, &self.optimizer.next(lr))?;
        self.check(loss, shard, epoch)?;
        let gradient_norm = length(moved.iter().map(|p| &**p), &square_sums).map_err(|e| in_epoch(epoch, e))?;
        self.optimizer.has_stepped();
        Ok(Some(Report { loss, gradient_norm, guard: None }))
    }

    /// Has the device record a step.
    fn record(&mut self, shard: &Shard, objective: &dyn Objective, epoch: u64) -> Result<Option<CapturedStep>> {
        let (device, clip) = (shard.device(), self.clip);
        // What steps before this one have left is done now, and no part of it.
        let marks = self.network.marks()?;
        let found = device.capture(|| -> Result<_> {
            let mut tape = Tape::new(device);
            let loss = self.loss(&mut tape, shard, objective, epoch)?;
            let value = device.convert("loss", loss.value(), DType::F64)?;
            tape.start_from(&loss);
            drop(loss);
            tape.backward(Vec::new(), &[], |_| Ok(()))?;
            self.network.marks()?;
            Ok(self.optimizer.capture(clip, &value)?)
        });
        // What a failed attempt has left.
        self.parameters.iter().for_each(|p| drop(p.take_grad()));
        if !matches!(found, Ok(Some(_))) {
            self.network.put_back(marks);
        }
        found
    }

    /// Whether the device does the next step as it did the last: after a few steps it may record one.
    pub(crate) fn is_settled(&self) -> bool {
        self.cuda_graph.as_ref().is_none_or(|graph| graph.is_settled(self.rank.device()))
    }

    /// Why steps are not recorded although that was asked for; says so once.
    pub(crate) fn refusal(&mut self) -> Option<String> {
        self.cuda_graph.as_mut().and_then(CudaGraph::refusal)
    }

    /// Whether steps are done by a recording.
    pub(crate) fn is_recorded(&self) -> bool {
        self.cuda_graph.as_ref().is_some_and(|graph| graph.captured().is_some())
    }

    /// The first layer whose output is not finite on some rank, found by computing once more.
    fn diagnose(&self, shard: &Shard, epoch: u64) -> Result<String> {
        let device = shard.device();
        let mut bad = Vec::new();
        let mut tape = Tape::without_gradients(device);
        let context = self.context_of(shard, Mode::Train, epoch);
        self.network.forward_watched(&mut tape, &context, |_, state| {
            let plain = |v: &Var| device.convert("diagnosis", v.value(), v.value().dtype().compute());
            let wide = state.iter().map(plain).collect::<std::result::Result<Vec<Matrix>, _>>()?;
            let sums = device.backend().square_sums(&wide.iter().collect::<Vec<_>>())?;
            bad.push(f64::from(u8::from(sums.iter().any(|s| !s.is_finite()))));
            Ok(())
        })?;
        let bad = self.rank.sum(Total::Loss, &bad)?;
        let first = self.network.layers().iter().zip(bad).find(|(_, bad)| *bad > 0.0);
        Ok(first.map_or_else(|| "the loss".into(), |(layer, _)| format!("the output of layer {}", layer.name())))
    }

    /// Logits of this rank's rows, without dropout.
    pub(crate) fn logits(&self, shard: &Shard) -> Result<Matrix> {
        let mut tape = Tape::without_gradients(shard.device());
        let logits = self.forward(&mut tape, &self.context_of(shard, Mode::Evaluate, 0))?;
        Ok(logits.value().clone())
    }

    /// The scores of all three parts.
    pub(crate) fn evaluate(
        &self,
        shard: &Shard,
        supervision: &Supervision,
        metric: &'static Metric,
        epoch: u64,
    ) -> Result<Scores> {
        supervision.scores(metric, &self.rank, &self.logits(shard)?, epoch)
    }

    /// From the state before some layers to the state after them, without dropout.
    pub(crate) fn layers(&self, layers: Range<usize>, shard: &Shard, state: Vec<Matrix>) -> Result<Vec<Matrix>> {
        let mut tape = Tape::without_gradients(shard.device());
        let mut state: Vec<Var> = state.into_iter().map(|m| tape.constant(m)).collect();
        let context = self.context_of(shard, Mode::Evaluate, 0);
        for layer in &self.network.layers()[layers] {
            state = layer.forward(&mut tape, &context, &state)?;
        }
        Ok(state.iter().map(|var| var.value().clone()).collect())
    }

    /// All layers, cut so that of each part at most one looks along edges.
    pub(crate) fn passes(&self) -> Vec<Range<usize>> {
        let layers = self.network.layers();
        let seeing = (0..layers.len()).filter(|k| layers[*k].sees_edges());
        let cuts: Vec<usize> = [0].into_iter().chain(seeing.skip(1)).chain([layers.len()]).collect();
        cuts.windows(2).map(|w| w[0]..w[1]).collect()
    }

    /// Running moments of ranks that have each seen rows of their own become their mean.
    pub(crate) fn average_moments(&self) -> Result<()> {
        let ranks = self.rank.count() as f64;
        for buffer in self.network.buffers().iter().filter(|_| ranks > 1.0) {
            let sums = self.rank.sum(Total::Moments, &buffer.values()?)?;
            buffer.set(sums.into_iter().map(|sum| sum / ranks).collect())?;
        }
        Ok(())
    }

    /// Parameters and running moments.
    pub(crate) fn model(&self) -> Result<Tensors> {
        let mut all = Tensors::default();
        for p in &self.parameters {
            all.add(p.name(), p.dims(), &p.value())?;
        }
        for buffer in self.network.buffers() {
            all.add_vector(buffer.name(), &buffer.values()?);
            if let Some(stem) = buffer.name().strip_suffix("running_mean") {
                all.add_count(&format!("{stem}num_batches_tracked"), self.optimizer.steps() as i64);
            }
        }
        Ok(all)
    }

    /// Takes parameters and running moments over, as [`Learner::model`] gave them or [`Learner::own`] has them.
    pub(crate) fn load_model(&self, from: &Tensors) -> Result<()> {
        let device = self.rank.device();
        for p in &self.parameters {
            let found = from.matrix(device, p.name(), &p.value())?;
            p.update(|value| device.backend().convert(value, &found))?;
        }
        for buffer in self.network.buffers() {
            let values = from.numbers(buffer.name(), buffer.count())?;
            buffer.set(values)?;
        }
        Ok(())
    }

    /// What the optimizer remembers.
    pub(crate) fn optimizer(&self) -> Result<Tensors> {
        let mut all = Tensors::default();
        for (name, m) in self.optimizer.state() {
            // `<parameter>.exp_avg` has the shape of the parameter.
            let of = name.rsplit_once('.').map_or("", |(parameter, _)| parameter);
            let parameter = self.parameters.iter().find(|p| p.name() == of);
            all.add(&name, parameter.map_or(&[m.rows(), m.cols()][..], |p| p.dims()), &m)?;
        }
        Ok(all)
    }

    /// Updates that were made.
    pub(crate) fn steps(&self) -> u64 {
        self.optimizer.steps()
    }

    /// Takes over what an optimizer remembered, of what this rank has.
    pub(crate) fn load_optimizer(&mut self, from: &Tensors, steps: u64) -> Result<()> {
        let device = self.rank.device().clone();
        let shapes: HashMap<String, Matrix> = self.optimizer.state().into_iter().collect();
        let mut found = HashMap::new();
        for (name, like) in &shapes {
            found.insert(name.clone(), from.matrix(&device, name, like)?);
        }
        drop(shapes);
        Ok(self.optimizer.restore(steps, |name| {
            found.remove(name).ok_or_else(|| Computation::Argument {
                op: "optimizer",
                problem: format!("the checkpoint has no {name}"),
            })
        })?)
    }
}

fn without_layers() -> Computation {
    Computation::Argument { op: "model", problem: "it has no layers".into() }
}

/// The mean over steps, by how much each counts.
pub(crate) fn mean(reports: &[(f64, Report)]) -> Report {
    let total: f64 = reports.iter().map(|(weight, _)| weight).sum();
    let of = |part: fn(&Report) -> f64| reports.iter().map(|(weight, r)| weight * part(r)).sum::<f64>() / total;
    Report { loss: of(|r| r.loss), gradient_norm: of(|r| r.gradient_norm), guard: None }
}

/// Says in which epoch a gradient was not finite.
fn in_epoch(epoch: u64, error: Computation) -> Error {
    match error {
        Computation::NotFinite { what } => Error::NotFinite { epoch: epoch & EPOCH, place: what },
        other => other.into(),
    }
}
