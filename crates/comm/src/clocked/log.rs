//! What a rank did, in order.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;
use std::time::Duration;

use super::cpu_time::cpu_time;
use crate::view::View;

/// What a rank did; `C` is what is known of its computing.
#[derive(Clone, Debug, PartialEq)]
pub enum Event<C> {
    /// It computed.
    Compute(C),
    /// It posted an exchange.
    Post {
        /// Its number on this rank.
        exchange: u64,
        /// In the order in which they leave.
        sends: Vec<Transfer>,
        /// In any order.
        receives: Vec<Transfer>,
    },
    /// It waited for an exchange.
    Wait {
        /// Its number on this rank.
        exchange: u64,
    },
}

/// A message to or from another rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The other rank, in the whole world.
    pub peer: usize,
    /// The group in which both are. Messages between two ranks are matched in order, group by group.
    pub group: u64,
    /// Its size.
    pub bytes: usize,
}

/// All that one rank did.
pub type Log<C> = Vec<Event<C>>;

/// Writes the log of one rank. Clones write the same.
pub struct Recorder<C>(Rc<State<C>>);

struct State<C> {
    events: RefCell<Log<C>>,
    /// Exchanges that were posted.
    exchanges: Cell<u64>,
    /// How often a list of members was asked for.
    splits: RefCell<HashMap<Vec<usize>, u64>>,
    source: Source<C>,
}

/// How it is known what a rank computes.
enum Source<C> {
    /// By the processor's time that its thread has used.
    Watch { since: Cell<Duration>, span: fn(f64) -> C },
    /// By what it is told, and by this for sums of so many pieces.
    Told { sum: fn(View, usize) -> C },
}

impl Recorder<f64> {
    /// For a rank that computes: the processor's time of this thread, in seconds, is what it computes.
    pub fn measuring() -> Self {
        Self::new(Source::Watch { since: Cell::new(cpu_time()), span: |seconds| seconds })
    }
}

impl<C> Recorder<C> {
    /// For a rank that only says what it would compute, by [`Recorder::compute`]; `sum` says what it is to leave the
    /// sum of so many pieces in a view, which collectives do.
    pub fn told(sum: fn(View, usize) -> C) -> Self {
        Self::new(Source::Told { sum })
    }

    fn new(source: Source<C>) -> Self {
        let (events, exchanges, splits) = (RefCell::default(), Cell::new(0), RefCell::default());
        Self(Rc::new(State { events, exchanges, splits, source }))
    }

    /// The rank computes this.
    pub fn compute(&self, what: C) {
        self.0.events.borrow_mut().push(Event::Compute(what));
    }

    /// What it did since this was last asked for.
    pub fn take(&self) -> Log<C> {
        self.stop();
        let log = self.0.events.take();
        self.start();
        log
    }

    /// What follows is not computing.
    pub(super) fn stop(&self) {
        if let Source::Watch { since, span } = &self.0.source {
            self.compute(span(cpu_time().saturating_sub(since.get()).as_secs_f64()));
        }
    }

    /// What follows is.
    pub(super) fn start(&self) {
        if let Source::Watch { since, .. } = &self.0.source {
            since.set(cpu_time());
        }
    }

    pub(super) fn added(&self, to: View, pieces: usize) {
        if let Source::Told { sum } = &self.0.source {
            self.compute(sum(to, pieces));
        }
    }

    pub(super) fn post(&self, sends: Vec<Transfer>, receives: Vec<Transfer>) -> u64 {
        let exchange = self.0.exchanges.get();
        self.0.exchanges.set(exchange + 1);
        self.0.events.borrow_mut().push(Event::Post { exchange, sends, receives });
        exchange
    }

    pub(super) fn wait(&self, exchange: u64) {
        self.0.events.borrow_mut().push(Event::Wait { exchange });
    }

    /// A number for the group of `members` that is asked for now, the same on all of them.
    pub(super) fn group(&self, members: &[usize]) -> u64 {
        let mut splits = self.0.splits.borrow_mut();
        let count = splits.entry(members.to_vec()).or_default();
        *count += 1;
        let mut hasher = DefaultHasher::new();
        (members, *count).hash(&mut hasher);
        hasher.finish()
    }
}

impl<C> Clone for Recorder<C> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}
