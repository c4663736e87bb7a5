//! Ranks with a clock that a network which is not here would make.
//!
//! [`Clocked`] lets messages through and notes, for its rank, what is computed, posted and waited for: a [`Log`].
//! Nothing is timed meanwhile, so that it does not matter when and where the threads of ranks happen to run. [`replay`]
//! makes times of the logs of all ranks, on one [`Network`] or on many: real numerics, computing as it was measured,
//! messages as they would have been.
//!
//! What a rank computes is the processor's time that its thread has used outside of the communicator, whose own copies
//! are not charged; so ranks need one thread each, and may be many more than the machine has cores. Ranks of a
//! rehearsal, which compute nothing, say instead what they would have.
//!
//! The messages of one exchange leave in a fixed order, to the next rank of the group first, then to the one after it:
//! in an exchange between all, everyone receives from one rank at a time.

mod cpu_time;
mod log;
mod network;
mod replay;

use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::communicator::{Communicator, Label, Message, Pending, Traffic, of_inner};
use crate::error::Result;
use crate::view::View;

pub use cpu_time::cpu_time;
pub use log::{Event, Log, Recorder, Transfer};
pub use network::{Network, Wire};
pub use replay::{Times, replay};

/// Notes what goes through another communicator. See the top of this file.
pub struct Clocked<C> {
    inner: Rc<dyn Communicator>,
    recorder: Recorder<C>,
    group: u64,
    /// Of this group, as ranks of the world.
    members: Vec<usize>,
}

impl<C> Clocked<C> {
    /// Notes in `recorder` what goes through `inner`, all of whose ranks are the world.
    pub fn new(inner: Rc<dyn Communicator>, recorder: &Recorder<C>) -> Self {
        let members = (0..inner.size()).collect();
        Self { inner, recorder: recorder.clone(), group: 0, members }
    }

    fn transfers(&self, messages: &[Message]) -> Vec<Transfer> {
        let (rank, size) = (self.inner.rank(), self.inner.size());
        let mut others: Vec<&Message> = messages.iter().filter(|m| m.peer != rank && m.peer < size).collect();
        others.sort_by_key(|m| (m.peer + size - rank) % size);
        let transfer = |m: &&Message| Transfer { peer: self.members[m.peer], group: self.group, bytes: m.view.bytes };
        others.iter().map(transfer).collect()
    }
}

impl<C: 'static> Communicator for Clocked<C> {
    of_inner!(rank, size, set_step);

    unsafe fn post(&self, label: Label, sends: &[Message], receives: &[Message]) -> Result<Box<dyn Pending>> {
        self.recorder.stop();
        // SAFETY: as promised by the caller.
        let pending = unsafe { self.inner.post(label, sends, receives) }?;
        let exchange = self.recorder.post(self.transfers(sends), self.transfers(receives));
        self.recorder.start();
        Ok(Box::new(Noted { pending, recorder: self.recorder.clone(), exchange }))
    }

    fn split(&self, members: &[usize]) -> Result<Rc<dyn Communicator>> {
        let inner = self.inner.split(members)?;
        let members: Vec<usize> = members.iter().filter_map(|m| self.members.get(*m).copied()).collect();
        let (recorder, group) = (self.recorder.clone(), self.recorder.group(&members));
        Ok(Rc::new(Self { inner, recorder, group, members }))
    }

    fn added(&self, to: View, pieces: usize) {
        self.recorder.added(to, pieces);
    }
}

struct Noted<C> {
    pending: Box<dyn Pending>,
    recorder: Recorder<C>,
    exchange: u64,
}

impl<C> Pending for Noted<C> {
    fn wait(self: Box<Self>) -> Result<()> {
        let Self { pending, recorder, exchange } = *self;
        recorder.stop();
        pending.wait()?;
        recorder.wait(exchange);
        recorder.start();
        Ok(())
    }
}

/// Where the logs of ranks that are threads meet.
pub struct Meeting<C>(Mutex<Vec<Log<C>>>);

impl<C> Meeting<C> {
    /// For so many ranks.
    pub fn new(ranks: usize) -> Self {
        Self(Mutex::new((0..ranks).map(|_| Log::new()).collect()))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Log<C>>> {
        // Logs are moved in and out whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everyone brings what was noted since the last meeting, and rank 0 takes it. Ranks meet when none of their
    /// exchanges is under way; `comm` is one that does not note.
    ///
    /// # Errors
    /// [`RankLost`](crate::Error::RankLost) if somebody does not come.
    pub fn bring(&self, comm: &dyn Communicator, recorder: &Recorder<C>) -> Result<Option<Vec<Log<C>>>> {
        const LABEL: Label = Label { op: "clock", traffic: Traffic::Setup, layer: 0 };
        let log = recorder.take();
        if let Some(place) = self.lock().get_mut(comm.rank()) {
            *place = log;
        }
        comm.barrier(LABEL)?;
        let all = (comm.rank() == 0).then(|| self.lock().iter_mut().map(std::mem::take).collect());
        comm.barrier(LABEL)?;
        recorder.start();
        Ok(all)
    }
}
