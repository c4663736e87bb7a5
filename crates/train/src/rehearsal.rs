//! What a run would take, without computing: the code that trains, on devices that only count.
//!
//! Every rank is a thread that makes its [`Shard`] and its [`Learner`] on a [dry device](graphweft_tensor::dry) and learns twice:
//! once with what is done only once, such as agreeing on who sends what, and once more, which is what is reported. No feature,
//! label or weight is read; of the data, only sizes, the graph and the structure of sparse features matter. Memory and messages
//! are those of a real run, to the byte; times come from what a [`Work`] costs and from a [`Network`], any number of them
//! ([`Rehearsal::times`]). One thing is left out: where one rank learns from several chunks, exams go through files, some rows after
//! others, and only learning is rehearsed.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use graphweft_comm::{Clocked, Communicator, Event, Log, Network, Recorder, Times, Type, View, replay, threads};
use graphweft_graph::chunks::Chunks;
use graphweft_graph::dataset::Split;
use graphweft_graph::partition::Partition;
use graphweft_graph::random::Philox;
use graphweft_model::Prepared;
use graphweft_parallel::{Layout, Strategy};
use graphweft_plan::Profile;
use graphweft_plan::kernels::sum_over_ranks;
use graphweft_plan::simulate::Peak;
use graphweft_tensor::{DType, Device, Usage, Work};

use crate::config::Config;
use crate::data::Data;
use crate::error::Result;
use crate::isolated::{self, Allowance, Unread, is_out_of_core};
use crate::learner::Learner;
use crate::pipeline::{self, Plant};
use crate::plan::Plan;
use crate::rank::{Rank, Sent};
use crate::recorded;
use crate::shard::{Lesson, Shard};

/// Ranks that compute nothing never wait long.
const DEADLINE: Duration = Duration::from_secs(600);

/// An epoch that was rehearsed.
#[derive(Clone, Debug)]
pub struct Rehearsal {
    /// What each rank would do, in order.
    pub ranks: Vec<Rehearsed>,
    /// Numbers that would be trained.
    pub parameters: usize,
}

/// What one rank would do.
#[derive(Clone, Debug)]
pub struct Rehearsed {
    /// Memory, from the first epoch on.
    pub peak: Peak,
    /// What is sent in an epoch.
    pub sent: Vec<Sent>,
    /// All that is computed, posted and waited for in an epoch.
    pub log: Log<Work>,
}

impl Rehearsal {
    /// Whether a GPU would [record](crate::config::ComputeConfig::record) the step: one rank, not much memory, and nothing between
    /// the host and the device before the update but the loss.
    pub fn is_recorded(&self) -> bool {
        let [rank] = &self.ranks[..] else { return false };
        let works = rank.log.iter().filter_map(|event| match event {
            Event::Compute(work) => Some(work.op),
            _ => None,
        });
        // Gradients are measured first of all.
        let pass: Vec<&str> = works.take_while(|op| *op != "square sums").collect();
        let times = |op: &str| pass.iter().filter(|other| **other == op).count();
        rank.peak.most.total() <= recorded::MOST && times("upload") == 0 && times("download") <= 1
    }

    /// How long the epoch takes each rank on a network, if computing takes `cost` seconds.
    ///
    /// # Errors
    /// None for what [`Stage::rehearse`] gave.
    pub fn times(&self, network: &Network, cost: impl Fn(&Work) -> f64) -> Result<Vec<Times>> {
        let logs: Vec<&Log<Work>> = self.ranks.iter().map(|rank| &rank.log).collect();
        Ok(replay(&logs, network, |_, work| cost(work))?)
    }

    /// The same on average, where ranks are a little faster or slower than that. Which message goes first at a port where several
    /// meet is decided by moments, and all that follows may wait for it: one time alone would say more than is known.
    ///
    /// # Errors
    /// As for [`Rehearsal::times`].
    pub fn times_on_average(&self, network: &Network, cost: impl Fn(&Work) -> f64) -> Result<Vec<Times>> {
        let mut mean = self.times(network, &cost)?;
        if self.ranks.len() < 2 {
            return Ok(mean);
        }
        let logs: Vec<&Log<Work>> = self.ranks.iter().map(|rank| &rank.log).collect();
        let busiest = |times: &[Times]| times.iter().map(|t| t.computing).fold(0.0, f64::max);
        let computing = busiest(&mean);
        mean.iter_mut().for_each(|t| t.end = 0.0);
        for draw in 0..DRAWS {
            let found = replay(&logs, network, |rank, work| cost(work) * (1.0 + UNSURE * pick(draw, rank)))?;
            // The slowest of many is slower than one: that much is not the network's.
            let slower = busiest(&found) - computing;
            for (mean, found) in mean.iter_mut().zip(&found) {
                mean.end += (found.end - slower) / DRAWS as f64;
            }
        }
        mean.iter_mut().for_each(|t| t.waiting = (t.end - t.computing).max(0.0));
        Ok(mean)
    }
}

/// How far computing may be from what is expected, each way: what differs between the ranks of an even partition.
const UNSURE: f64 = 0.03;
/// So many times are averaged, in pairs of opposites.
const DRAWS: usize = 8;

/// A number between −1 and 1 for a rank, the same every time; of a pair of draws one is the opposite of the other.
fn pick(draw: usize, rank: usize) -> f64 {
    let unit = Philox::new(draw as u64 / 2, 0).uniform(rank as u64);
    (2.0 * unit - 1.0) * if draw.is_multiple_of(2) { 1.0 } else { -1.0 }
}

/// A partition, and the layouts of all its ranks.
type LaidOut = (Arc<Partition>, Arc<[Layout]>);

/// Where runs over the same data are rehearsed. What does not depend on the strategy is made once.
pub struct Stage<'a> {
    data: &'a Data,
    graph: &'a Prepared,
    gpu: bool,
    layouts: RefCell<Vec<LaidOut>>,
}

impl<'a> Stage<'a> {
    /// For `data`; `graph` is its graph with the edges that the model adds.
    pub fn new(data: &'a Data, graph: &'a Prepared) -> Self {
        Self { data, graph, gpu: false, layouts: RefCell::default() }
    }

    /// The same on the machine of `profile`: on GPUs, if it has them.
    pub fn on(self, profile: &Profile) -> Self {
        Self { gpu: profile.gpu, ..self }
    }

    /// Rehearses an epoch of `config`, spread as `plan` says.
    ///
    /// # Errors
    /// Where a run would refuse: the strategy is not for this number of ranks, say.
    pub fn rehearse(&self, config: &Config, plan: &Plan) -> Result<Rehearsal> {
        let Self { data, graph, gpu, .. } = *self;
        let split = data.split_name(config.data.split.as_deref()).and_then(|name| data.split(&name, config.run.seed));
        // Where there are no labels, all rows count.
        let (split, chunks) = (split.ok(), plan.chunks(&data.graph)?);
        let split = split.as_ref();
        let allowance = if chunks.is_some() { Some(Allowance::new(data, config)?) } else { None };
        let scene = Scene { config, data, graph, plan, gpu, chunks: chunks.as_ref().zip(allowance.as_ref()), split };
        // Stages have layers, not rows.
        let in_stages = matches!(plan.strategy, Strategy::Pipeline { .. });
        let layouts = match plan.parts.as_ref().filter(|_| !in_stages && plan.ranks > 1) {
            Some(parts) => Some(self.layouts(parts, plan.ranks)?),
            None => None,
        };
        let ranks = if plan.ranks == 1 {
            vec![scene.play(None, None)?]
        } else {
            let options = threads::Options { ranks: plan.ranks, threads: 1, deadline: DEADLINE };
            threads::run(options, |comm| {
                let layout = layouts.as_ref().map(|layouts| &layouts[comm.rank()]);
                scene.play(Some(comm), layout)
            })?
        };
        let each = ranks.iter().map(|(_, parameters)| *parameters);
        let parameters = if in_stages { each.sum() } else { each.max().unwrap_or(0) };
        Ok(Rehearsal { ranks: ranks.into_iter().map(|(rank, _)| rank).collect(), parameters })
    }

    fn layouts(&self, parts: &Arc<Partition>, ranks: usize) -> Result<Arc<[Layout]>> {
        let mut known = self.layouts.borrow_mut();
        if let Some((_, layouts)) = known.iter().find(|(p, l)| Arc::ptr_eq(p, parts) && l.len() == ranks) {
            return Ok(Arc::clone(layouts));
        }
        let layouts: Arc<[Layout]> = Layout::all(&self.graph.csr, parts, ranks)?.into();
        known.push((Arc::clone(parts), Arc::clone(&layouts)));
        Ok(layouts)
    }
}

/// What all ranks of a rehearsal play.
struct Scene<'a> {
    config: &'a Config,
    data: &'a Data,
    graph: &'a Prepared,
    plan: &'a Plan,
    gpu: bool,
    /// For learning from pieces, with how much of the halo they have.
    chunks: Option<(&'a Chunks, &'a Allowance)>,
    /// Which nodes are learned from.
    split: Option<&'a Split>,
}

impl Scene<'_> {
    /// One rank; also gives the number of parameters that it has for all.
    fn play(&self, comm: Option<Rc<dyn Communicator>>, layout: Option<&Layout>) -> Result<(Rehearsed, usize)> {
        let (recorder, meter) = (Recorder::told(sum), Rc::new(Meter::default()));
        let (heard, metered) = (recorder.clone(), Rc::clone(&meter));
        let note = move |work| {
            metered.note();
            heard.compute(work);
        };
        let device = if self.gpu { Device::dry_gpu } else { Device::dry }(None, Rc::new(note));
        let rank = match comm {
            None => Rank::alone(&device),
            Some(comm) => Rank::among(Rc::new(Clocked::new(comm, &recorder)), &device),
        };
        let played = self.play_as(&rank, layout, &recorder, &meter);
        // Also where it failed: the device has the meter, which must not have the device.
        meter.stop();
        played
    }

    fn play_as(
        &self,
        rank: &Rank,
        layout: Option<&Layout>,
        recorder: &Recorder<Work>,
        meter: &Meter,
    ) -> Result<(Rehearsed, usize)> {
        let rows = self.graph.csr.num_dst().max(1) as f64;
        let learned = self.split.map_or(1.0, |split| split.train.len() as f64 / rows);
        let lesson = |shard: &Shard| Lesson::unread(shard, self.data.target.as_ref(), learned);
        if let Strategy::Pipeline { .. } = self.plan.strategy {
            return self.play_stage(rank, recorder, meter, lesson);
        }
        let mut pieces = self.chunks.map(|chunks| Unread::new(rank, self.data, chunks, self.config, self.split));
        // A rank that learns from pieces has its rows of the whole graph all the same, for exams, unless these go through files.
        let whole = match self.chunks {
            Some((chunks, _)) if is_out_of_core(rank, chunks, self.config) => None,
            _ => {
                let strategy = (&self.plan.strategy, layout);
                let shard = Shard::with_layout(rank, self.data, self.graph, strategy, self.config)?;
                let lesson = lesson(&shard)?;
                Some((shard, lesson))
            }
        };
        let shape = match &whole {
            Some((shard, _)) => shard.shape,
            None => isolated::shape(self.data, &self.config.model, self.config.run.seed)?,
        };
        let mut learner = Learner::new(rank, shape, self.config)?;
        meter.start(rank.device());
        for epoch in 1..=2 {
            recorder.take();
            rank.reset_sent();
            match (&mut pieces, &whole) {
                (Some(pieces), whole) => {
                    pieces.learn(&mut learner, epoch)?;
                    if let (1, Some((shard, _))) = (epoch, whole) {
                        // What the first exam makes of those rows stays.
                        let _ = learner.logits(shard)?;
                    }
                }
                (None, Some((shard, lesson))) => {
                    learner.learn(shard, lesson, epoch, self.config.train.lr, &mut |_, _| ())?;
                }
                (None, None) => {}
            }
        }
        let (peak, sent, log) = (meter.stop(), rank.sent(), recorder.take());
        Ok((Rehearsed { peak, sent, log }, learner.size()))
    }

    /// One rank of a stage. Its first two epochs make history; scores are made by a pass of its own, which may need most memory.
    fn play_stage(
        &self,
        rank: &Rank,
        recorder: &Recorder<Work>,
        meter: &Meter,
        lesson: impl Fn(&Shard) -> Result<Lesson>,
    ) -> Result<(Rehearsed, usize)> {
        let Self { config, data, graph, plan, .. } = *self;
        let mut stage = pipeline::Stage::new(rank, Plant { config, plan, data, graph }, lesson)?;
        let mut learner = stage.learner(config)?;
        meter.start(rank.device());
        for epoch in 1..=3 {
            recorder.take();
            rank.reset_sent();
            stage.learn(&mut learner, epoch, config.train.lr, &mut |_, _| ())?;
        }
        let (sent, log) = (rank.sent(), recorder.take());
        stage.exact(&learner)?;
        Ok((Rehearsed { peak: meter.stop(), sent, log }, stage.own_size(&learner)))
    }
}

/// What a device holds whenever a kernel would run.
#[derive(Default)]
struct Meter {
    device: RefCell<Option<Device>>,
    at_kernels: RefCell<Vec<Usage>>,
}

impl Meter {
    fn start(&self, device: &Device) {
        device.ledger().reset_peak();
        self.device.replace(Some(device.clone()));
    }

    /// A kernel would run now.
    fn note(&self) {
        if let Some(device) = &*self.device.borrow() {
            self.at_kernels.borrow_mut().push(device.ledger().now());
        }
    }

    fn stop(&self) -> Peak {
        let most = self.device.take().map(|device| device.ledger().peak()).unwrap_or_default();
        Peak { most, at_kernels: self.at_kernels.take() }
    }
}

/// The sum of pieces that ranks have sent, left in a view.
fn sum(to: View, pieces: usize) -> Work {
    let dtype = match to.dtype {
        Type::F64 => DType::F64,
        Type::Bf16 => DType::Bf16,
        Type::F32 | Type::Bytes => DType::F32,
    };
    sum_over_ranks(dtype, to.bytes, pieces)
}
