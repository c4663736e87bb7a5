//! What a run would take, without computing: the code that trains, on devices that only count.
//!
//! Every rank is a thread that makes its [`EpochSource`](crate::epochs::source::EpochSource) and its
//! [`Learner`](crate::epochs::learner::Learner) on a [dry device](graphweft_tensor::dry) and
//! learns twice: once with what is done only once, such as agreeing on who sends what, and once more, which is what is
//! reported. No feature, label or weight is read; of the data, only sizes, the graph and the structure of sparse
//! features matter. Memory and messages are those of a real run, to the byte; times come from what a [`Work`] costs and
//! from a [`Network`], any number of them ([`Rehearsal::times`]). One thing is left out: where one rank learns from
//! several chunks, evaluations go through files, some rows after others, and only learning is rehearsed.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use graphweft_base::random::Philox;
use graphweft_comm::{Clocked, Communicator, Event, Log, Network, Recorder, Times, Type, View, replay, threads};
use graphweft_graph::partition::Partition;
use graphweft_model::Prepared;
use graphweft_parallel::{Layout, Strategy};
use graphweft_plan::Profile;
use graphweft_plan::kernels::sum_over_ranks;
use graphweft_plan::simulate::Peak;
use graphweft_tensor::{DType, Device, Usage, Work};

use crate::config::Config;
use crate::data::Data;
use crate::epochs::cuda_graph;
use crate::epochs::pieces::Allowance;
use crate::epochs::source::{EpochInputs, Purpose, RehearsedEpochs, Shared};
use crate::error::Result;
use crate::planning::plan::Plan;
use crate::ranks::rank::{Rank, Sent};

/// Ranks that compute nothing never wait long.
const DEADLINE: Duration = Duration::from_secs(600);

/// An epoch that was rehearsed.
#[derive(Clone, Debug)]
pub(crate) struct Rehearsal {
    /// What each rank would do, in order.
    pub ranks: Vec<Rehearsed>,
    /// Whether every step has rows of its own, as batches of graphs have.
    in_batches: bool,
}

/// What one rank would do.
#[derive(Clone, Debug)]
pub(crate) struct Rehearsed {
    /// Memory, from the first epoch on.
    pub peak: Peak,
    /// What is sent in an epoch.
    pub sent: Vec<Sent>,
    /// All that is computed, posted and waited for in an epoch.
    pub log: Log<Work>,
}

impl Rehearsal {
    /// Whether a GPU would [record](crate::config::ComputeConfig::record) the step: one rank, the same rows every time,
    /// not much memory, and nothing between the host and the device before the update but the loss.
    pub(crate) fn is_recorded(&self) -> bool {
        let ([rank], false) = (&self.ranks[..], self.in_batches) else { return false };
        let works = rank.log.iter().filter_map(|event| match event {
            Event::Compute(work) => Some(work.op),
            _ => None,
        });
        // Gradients are measured first of all.
        let pass: Vec<&str> = works.take_while(|op| *op != Work::SQUARE_SUMS).collect();
        let times = |op: &str| pass.iter().filter(|other| **other == op).count();
        rank.peak.most.total() <= cuda_graph::MOST && times(Work::UPLOAD) == 0 && times(Work::DOWNLOAD) <= 1
    }

    /// How long the epoch takes each rank on a network, if computing takes `cost` seconds.
    ///
    /// # Errors
    /// None for what [`Rehearser::rehearse`] gave.
    pub(crate) fn times(&self, network: &Network, cost: impl Fn(&Work) -> f64) -> Result<Vec<Times>> {
        let logs: Vec<&Log<Work>> = self.ranks.iter().map(|rank| &rank.log).collect();
        Ok(replay(&logs, network, |_, work| cost(work))?)
    }

    /// The same on average, where ranks are a little faster or slower than that. Which message goes first at a port
    /// where several meet is decided by moments, and all that follows may wait for it: one time alone would say more
    /// than is known.
    ///
    /// # Errors
    /// As for [`Rehearsal::times`].
    pub(crate) fn times_on_average(&self, network: &Network, cost: impl Fn(&Work) -> f64) -> Result<Vec<Times>> {
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

/// Makes a device that computes nothing, with so much memory, that says what it would do.
type NewDevice = fn(Option<u64>, Rc<dyn Fn(Work)>) -> Device;

/// A partition, and the layouts of all its ranks.
type LaidOut = (Arc<Partition>, Arc<[Layout]>);

/// Where runs over the same data are rehearsed. What does not depend on the strategy is made once.
pub(crate) struct Rehearser<'a> {
    data: &'a Arc<Data>,
    graph: &'a Prepared,
    device: NewDevice,
    layouts: RefCell<Vec<LaidOut>>,
}

impl<'a> Rehearser<'a> {
    /// For `data`; `graph` is its graph with the edges that the model adds.
    pub(crate) fn new(data: &'a Arc<Data>, graph: &'a Prepared) -> Self {
        Self { data, graph, device: Device::dry, layouts: RefCell::default() }
    }

    /// The same on the machine of `profile`: on GPUs, if it has them.
    pub(crate) fn on(self, profile: &Profile) -> Self {
        Self { device: if profile.gpu { Device::dry_gpu } else { Device::dry }, ..self }
    }

    /// Rehearses an epoch of `config`, spread as `plan` says.
    ///
    /// # Errors
    /// Where a run would refuse: the strategy is not for this number of ranks, say.
    pub(crate) fn rehearse(&self, config: &Config, plan: &Plan) -> Result<Rehearsal> {
        let Self { data, graph, device, .. } = *self;
        let config = &Config { wire: config.wire.at_last(), ..config.clone() };
        let split = data.split_name(config.data.split.as_deref()).and_then(|name| data.split(&name, config.run.seed));
        // Where there are no labels, all rows count.
        let (split, chunks) = (split.ok(), plan.chunks(&data.graph)?);
        let allowance = if chunks.is_some() { Some(Allowance::new(data, config)?) } else { None };
        // Stages have layers, not rows.
        let in_stages = matches!(plan.strategy, Strategy::Pipeline { .. });
        let layouts = match plan.parts.as_ref().filter(|_| !in_stages && plan.ranks > 1) {
            Some(parts) => Some(self.layouts(parts, plan.ranks)?),
            None => None,
        };
        let on_rank = |comm: Option<Rc<dyn Communicator>>| {
            let layout = comm.as_ref().zip(layouts.as_ref()).map(|(comm, layouts)| &layouts[comm.rank()]);
            let shared = Shared { split: split.as_ref(), layout, allowance: allowance.as_ref() };
            let (purpose, folder) = (Purpose::Rehearse(shared), Path::new(""));
            rehearse_rank(
                device,
                comm,
                &EpochInputs { config, plan, data, graph, chunks: chunks.as_ref(), purpose, folder },
            )
        };
        let ranks = if plan.ranks == 1 {
            vec![on_rank(None)?]
        } else {
            let options = threads::Options { ranks: plan.ranks, threads: 1, deadline: DEADLINE };
            threads::run(options, |comm| on_rank(Some(comm)))?
        };
        Ok(Rehearsal { ranks, in_batches: data.graphs.is_some() })
    }

    fn layouts(&self, parts: &Arc<Partition>, ranks: usize) -> Result<Arc<[Layout]>> {
        let mut known = self.layouts.borrow_mut();
        if let Some((_, layouts)) = known.iter().find(|(p, l)| Arc::ptr_eq(p, parts) && l.len() == ranks) {
            return Ok(Arc::clone(layouts));
        }
        let relations = self.graph.relations().map(|all| &**all);
        let all = Layout::all(&self.graph.csr, parts, ranks)?.into_iter();
        let layouts: Arc<[Layout]> = all.map(|layout| layout.with_relations(relations)).collect();
        known.push((Arc::clone(parts), Arc::clone(&layouts)));
        Ok(layouts)
    }
}

/// What one rank would do.
fn rehearse_rank(
    new_device: NewDevice,
    comm: Option<Rc<dyn Communicator>>,
    inputs: &EpochInputs<'_>,
) -> Result<Rehearsed> {
    let (recorder, meter) = (Recorder::told(sum), Rc::new(Meter::default()));
    let (noted, metered) = (recorder.clone(), Rc::clone(&meter));
    let note = move |work| {
        metered.note();
        noted.compute(work);
    };
    let device = new_device(None, Rc::new(note));
    let rank = match comm {
        None => Rank::alone(&device),
        Some(comm) => Rank::among(Rc::new(Clocked::new(comm, &recorder)), &device),
    };
    let rehearsed = epochs(&rank, inputs, &recorder, &meter);
    // Also where it failed: the device has the meter, which must not have the device.
    meter.stop();
    rehearsed
}

/// The epochs of one rank.
fn epochs(rank: &Rank, inputs: &EpochInputs<'_>, recorder: &Recorder<Work>, meter: &Meter) -> Result<Rehearsed> {
    let mut source = inputs.source(rank)?;
    let mut learner = source.learner(inputs.config)?;
    let RehearsedEpochs { count, scored_after } = source.rehearsed();
    let (mut sent, mut log) = (Vec::new(), Log::default());
    meter.start(rank.device());
    for epoch in 1..=count {
        recorder.take();
        rank.reset_sent();
        source.learn(&mut learner, epoch, inputs.config.train.lr, &mut |_, _| ())?;
        (sent, log) = (rank.sent(), recorder.take());
        if scored_after == Some(epoch) {
            source.rehearse_scores(&learner)?;
        }
    }
    let peak = meter.stop();
    Ok(Rehearsed { peak, sent, log })
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
        Type::Number(dtype) => dtype,
        Type::Bytes => DType::F32,
    };
    sum_over_ranks(dtype, to.bytes, pieces)
}

#[cfg(test)]
mod tests;
