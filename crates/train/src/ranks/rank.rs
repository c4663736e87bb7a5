//! One rank: where it computes, and how it talks to the others.

use std::collections::BTreeMap;
use std::rc::Rc;

use graphweft_comm::{Account, Communicator, Count, Exchange, Label, Metered, Traffic, gather};
use graphweft_model::Total;
use graphweft_parallel::{Learning, Link, ranks, sums};
use graphweft_tensor::{Alone, Device, Reduce, Tag, Timing, Timings, Usage};
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::error::Result;
use crate::planning::emulation::Clock;

/// A rank of a run. Ranks that are alone need nobody.
#[derive(Clone)]
pub struct Rank {
    device: Device,
    others: Option<Others>,
    clock: Option<Clock>,
    kernels: Option<Timings>,
}

/// The rest of the world.
#[derive(Clone)]
struct Others {
    link: Link,
    account: Account,
}

impl Rank {
    /// The only one.
    pub fn alone(device: &Device) -> Self {
        Self { device: device.clone(), others: None, clock: None, kernels: None }
    }

    /// One of those that `comm` connects; what it sends is counted.
    pub fn among(comm: Rc<dyn Communicator>, device: &Device) -> Self {
        let metered = Metered::new(comm);
        let account = metered.account();
        let others = Others { link: Link::new(Rc::new(metered), device), account };
        Self { device: device.clone(), others: Some(others), clock: None, kernels: None }
    }

    /// The same among some of the ranks only, its own among them. All ranks ask together; one that is the only one is
    /// alone.
    pub(crate) fn part(&self, members: &[usize]) -> Result<Self> {
        match &self.others {
            Some(Others { link, account }) if members.len() > 1 => {
                let others = Others { link: link.split(members)?, account: account.clone() };
                Ok(Self { others: Some(others), ..self.clone() })
            }
            _ => Ok(Self::alone(&self.device)),
        }
    }

    /// The same where rows are coded for others while it learns, if `config` says so.
    pub(crate) fn coded(&self, config: &Config) -> Self {
        let coding = config.wire.coding(config.train.epochs, config.run.seed);
        let Some((others, coding)) = self.others.as_ref().zip(coding) else { return self.clone() };
        let link = others.link.coded(coding);
        Self { others: Some(Others { link, ..others.clone() }), ..self.clone() }
    }

    /// Begins to learn, until the result is dropped.
    pub(crate) fn learning(&self, epoch: u64) -> Option<Learning> {
        self.others.as_ref().map(|others| others.link.learning(epoch))
    }

    /// The same with a clock, which is not of this world.
    pub(crate) fn timed_by(self, clock: Clock) -> Self {
        Self { clock: Some(clock), ..self }
    }

    /// The same with the times of its device's kernels.
    pub(crate) fn with_kernels(self, kernels: Option<Timings>) -> Self {
        Self { kernels, ..self }
    }

    /// Its number, from 0.
    pub fn index(&self) -> usize {
        self.others.as_ref().map_or(0, |o| o.link.rank())
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.others.as_ref().map_or(1, |o| o.link.size())
    }

    /// Whether it is the one that writes and speaks for all.
    pub fn leads(&self) -> bool {
        self.index() == 0
    }

    /// Where it computes.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Matrices to and from the others, if there are any.
    pub fn link(&self) -> Option<&Link> {
        self.others.as_ref().map(|o| &o.link)
    }

    /// Sums over ranks.
    pub fn reduce(&self, total: Total) -> Rc<dyn Reduce> {
        match &self.others {
            Some(others) => sums(&others.link, total, 0),
            None => Rc::new(Alone),
        }
    }

    /// A few numbers summed over ranks.
    pub fn sum(&self, total: Total, values: &[f64]) -> Result<Vec<f64>> {
        if self.others.is_none() {
            return Ok(values.to_vec());
        }
        let mut m = self.device.upload(1, values.len(), values, Tag::Workspace)?;
        self.reduce(total).sum(&mut m)?;
        Ok(m.to_vec()?)
    }

    /// Says which epoch it is, for errors.
    pub fn set_epoch(&self, epoch: u64) {
        if let Some(others) = &self.others {
            others.link.comm().set_step(epoch);
        }
    }

    /// The bytes of every rank, in order, on the rank that [leads](Rank::leads); nothing elsewhere.
    pub fn gather(&self, op: &'static str, bytes: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        match &self.others {
            None => Ok(vec![bytes]),
            Some(o) => Ok(gather(&**o.link.comm(), metrics(op), bytes).map_err(ranks)?),
        }
    }

    /// Forgets what was sent so far.
    pub fn reset_sent(&self) {
        if let Some(others) = &self.others {
            others.account.reset();
        }
    }

    /// Notes when it exchanges what with the others, so many times at most.
    pub(crate) fn note_exchanges(&self, most: usize) {
        if let Some(others) = &self.others {
            others.account.note(most);
        }
    }

    /// What was noted since the last time.
    pub(crate) fn take_exchanges(&self) -> Vec<Exchange> {
        self.others.as_ref().map_or_else(Vec::new, |others| others.account.take_noted())
    }

    /// Its clock, where times are [emulated](crate::planning::emulation).
    pub fn clock(&self) -> Option<&Clock> {
        self.clock.as_ref()
    }

    /// The times of its kernels, where a world [times](crate::ranks::world::World::timing_kernels) them.
    pub fn kernels(&self) -> Option<&Timings> {
        self.kernels.as_ref()
    }

    /// What was sent to other ranks since then, by operation.
    pub fn sent(&self) -> Vec<Sent> {
        let Some(others) = &self.others else { return Vec::new() };
        let mut all: Vec<Sent> = Vec::new();
        for (label, count) in others.account.snapshot().iter() {
            let traffic = format!("{:?}", label.traffic).to_lowercase();
            match all.iter_mut().find(|s| s.op == label.op && s.traffic == traffic) {
                Some(sent) => (sent.bytes, sent.calls) = (sent.bytes + count.bytes, sent.calls + count.calls),
                None => all.push(Sent { op: label.op.into(), traffic, bytes: count.bytes, calls: count.calls }),
            }
        }
        all
    }

    /// The same layer by layer.
    fn sent_by_layer(&self) -> Vec<SentByLayer> {
        let Some(others) = &self.others else { return Vec::new() };
        let traffic = |label: &Label| format!("{:?}", label.traffic).to_lowercase();
        let of = |(label, count): (&Label, &Count)| SentByLayer {
            op: label.op.into(),
            traffic: traffic(label),
            layer: label.layer,
            bytes: count.bytes,
            calls: count.calls,
        };
        others.account.snapshot().iter().map(of).collect()
    }

    /// Bytes that went to each rank since then.
    fn sent_to(&self) -> Vec<u64> {
        let Some(others) = &self.others else { return Vec::new() };
        let by_peer = others.account.sent_to();
        (0..self.count()).map(|peer| by_peer.get(&peer).copied().unwrap_or(0)).collect()
    }

    /// What this rank uses: memory so far, and what it sent since then.
    pub fn usage(&self) -> RankUsage {
        RankUsage {
            peak: self.device.ledger().peak(),
            sent: self.sent(),
            by_layer: self.sent_by_layer(),
            to: self.sent_to(),
            kernels: KernelTimes::default(),
        }
    }
}

/// What is agreed on once.
pub(crate) const SETUP: Label = Label { op: "setup", traffic: Traffic::Setup, layer: 0 };

fn metrics(op: &'static str) -> Label {
    Label { op, traffic: Traffic::Metrics, layer: 0 }
}

/// What an operation sent, over all layers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// Its name: attend, aggregate, gradients, …
    pub op: String,
    /// What it carried.
    pub traffic: String,
    /// Payload to other ranks.
    pub bytes: u64,
    /// Exchanges.
    pub calls: u64,
}

/// What an operation sent for one layer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SentByLayer {
    op: String,
    traffic: String,
    layer: u32,
    bytes: u64,
    calls: u64,
}

/// What a run took on one rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankUsage {
    /// Memory when most was in use.
    pub peak: Usage,
    /// What was sent in the last epoch, while learning.
    pub sent: Vec<Sent>,
    /// The same layer by layer.
    pub(crate) by_layer: Vec<SentByLayer>,
    /// Bytes of it to each rank.
    pub(crate) to: Vec<u64>,
    /// What kernels took, in all epochs that this process ran.
    pub(crate) kernels: KernelTimes,
}

/// What the kernels of a rank took while it learned.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct KernelTimes {
    /// Milliseconds of all these epochs, with what is no kernel.
    learn_ms: f64,
    by_kernel: BTreeMap<String, KernelTime>,
}

/// All calls of one kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct KernelTime {
    calls: u64,
    ms: f64,
}

impl KernelTimes {
    /// An epoch of `learn_ms` milliseconds is over.
    pub(crate) fn add(&mut self, rank: &Rank, learn_ms: f64) {
        let Some(timings) = rank.kernels() else { return };
        self.learn_ms += learn_ms;
        for Timing { op, seconds } in timings.take() {
            // A name is copied once, not for every call.
            if !self.by_kernel.contains_key(op) {
                self.by_kernel.insert(op.into(), KernelTime::default());
            }
            if let Some(sum) = self.by_kernel.get_mut(op) {
                (sum.calls, sum.ms) = (sum.calls + 1, sum.ms + seconds * 1e3);
            }
        }
    }
}

/// A usage on its way to the rank that leads.
#[derive(Default, Serialize, Deserialize)]
struct Message {
    peak: Vec<u64>,
    sent: Vec<Sent>,
    by_layer: Vec<SentByLayer>,
    to: Vec<u64>,
    kernels: KernelTimes,
}

impl RankUsage {
    /// The usages of all ranks, on the one that leads.
    pub fn gather(&self, rank: &Rank) -> Result<Vec<Self>> {
        let peak = Tag::ALL.iter().map(|tag| self.peak.of(*tag)).collect();
        let Self { sent, by_layer, to, kernels, .. } = self.clone();
        let message = serde_json::to_vec(&Message { peak, sent, by_layer, to, kernels }).unwrap_or_default();
        let open = |bytes: Vec<u8>| {
            let Message { peak, sent, by_layer, to, kernels } = serde_json::from_slice(&bytes).unwrap_or_default();
            let peak = Usage::new(|tag| peak.get(tag as usize).copied().unwrap_or(0));
            Self { peak, sent, by_layer, to, kernels }
        };
        Ok(rank.gather("metrics", message)?.into_iter().map(open).collect())
    }

    /// Bytes sent in an epoch.
    pub fn bytes_sent(&self) -> u64 {
        self.sent.iter().map(|s| s.bytes).sum()
    }

    /// Bytes of it to each rank.
    pub fn sent_to(&self) -> &[u64] {
        &self.to
    }
}
