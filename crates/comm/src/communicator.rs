//! The trait that everything between ranks goes through.

use std::rc::Rc;

use crate::collective;
use crate::error::Result;
use crate::view::View;

/// What an exchange carries: accounts are kept by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Traffic {
    /// Rows of nodes: what the strategies' formulas count.
    Rows,
    /// Biases and weights of edges that are computed elsewhere than where their destinations are.
    Edges,
    /// Gradients of parameters.
    Gradients,
    /// Sums for batch norm.
    Moments,
    /// Sums for linear global attention, and states of tokens.
    Global,
    /// Losses and scores.
    Metrics,
    /// What is agreed on once.
    Setup,
}

/// What an exchange is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Label {
    /// The operation, for accounts and errors.
    pub op: &'static str,
    /// What it carries.
    pub traffic: Traffic,
    /// The layer that asked for it.
    pub layer: u32,
}

/// One message of an exchange: to or from a rank.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    /// The other rank.
    pub peer: usize,
    /// What is sent, or where what is received goes.
    pub view: View,
}

/// An exchange under way. Dropping it gives the views back: what was not sent yet never is, which the other ranks
/// notice.
pub trait Pending {
    /// Blocks until everything was sent and received; what is on a GPU, at least in the order of its stream
    /// ([`Place::Cuda`](crate::Place::Cuda)).
    ///
    /// # Errors
    /// [`RankLost`](crate::Error::RankLost) if a peer ended or the deadline passed.
    fn wait(self: Box<Self>) -> Result<()>;
}

/// Calls that a communicator around another, its `inner`, leaves to it.
macro_rules! of_inner {
    ($($call:ident),+) => {
        $($crate::communicator::of_inner!(@ $call);)+
    };
    (@ rank) => {
        fn rank(&self) -> usize {
            self.inner.rank()
        }
    };
    (@ size) => {
        fn size(&self) -> usize {
            self.inner.size()
        }
    };
    (@ set_step) => {
        fn set_step(&self, step: u64) {
            self.inner.set_step(step);
        }
    };
    (@ added) => {
        fn added(&self, to: $crate::View, pieces: usize) {
            self.inner.added(to, pieces);
        }
    };
}
pub(crate) use of_inner;

/// How a rank talks to the others of its group. Every rank of a group makes the same calls in the same order.
pub trait Communicator {
    /// This rank in its group.
    fn rank(&self) -> usize;

    /// Ranks of the group.
    fn size(&self) -> usize;

    /// The epoch, for errors; holds for all groups of this rank.
    fn set_step(&self, step: u64);

    /// Starts sending and receiving. Messages between two ranks arrive in the order in which they were posted. A
    /// message to itself is copied.
    ///
    /// # Safety
    /// All views stay valid, and nobody else writes to those sent or touches those received, until the result was
    /// waited for or dropped. Handles of GPUs are what [`Gpu`](crate::Gpu) says.
    unsafe fn post(&self, label: Label, sends: &[Message], receives: &[Message]) -> Result<Box<dyn Pending>>;

    /// A group of some ranks of this one, in the order of `members`, which this rank is one of. Members must all call
    /// this with the same list.
    fn split(&self, members: &[usize]) -> Result<Rc<dyn Communicator>>;

    /// Replaces the elements of `view` by their sums over ranks, added in the order of ranks: the same bits on all of
    /// them.
    ///
    /// # Safety
    /// Nobody else touches `view` meanwhile.
    unsafe fn all_reduce(&self, label: Label, view: View) -> Result<()> {
        // SAFETY: as promised by the caller.
        unsafe { collective::all_reduce(self, label, view) }
    }

    /// Adds up the ranks' `from`, in the order of ranks, and leaves part `lengths[rank]` (in elements) of the sum in
    /// `to`.
    ///
    /// # Safety
    /// Nobody else touches the views meanwhile.
    unsafe fn reduce_scatter(&self, label: Label, from: View, lengths: &[usize], to: View) -> Result<()> {
        // SAFETY: as promised by the caller.
        unsafe { collective::reduce_scatter(self, label, from, lengths, to) }
    }

    /// Hears that this rank leaves the sum of so many pieces in a view, as collectives do: for those who keep a clock.
    fn added(&self, _to: View, _pieces: usize) {}

    /// Waits until all ranks are here.
    fn barrier(&self, label: Label) -> Result<()> {
        collective::barrier(self, label)
    }
}
