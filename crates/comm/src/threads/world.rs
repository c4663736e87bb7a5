//! Where ranks of one process meet: messages are matched here and copied once, from the sender's memory to the
//! receiver's.
//!
//! Sends and receives of a route are matched in the order in which they were posted. Who copies a matched message is
//! whichever of the two ranks waits first, so that a rank that still computes is not held up and waits may come in any
//! order. What is on GPUs is enqueued at once: copies wait there for what was computed before, and what is computed
//! later waits for them. All states are kept under one lock, which is never held during a copy that takes long; a rank
//! that has to wait sleeps on a condition variable of its own and is woken only when there is something to do for it.
//!
//! Memory: a message that is being copied cannot be withdrawn (its owner waits until the copy is over), one that was
//! withdrawn is never copied. Blame: the first loss is kept and told to everyone; if a deadline passes, it is the rank
//! that others wait for, directly or not, that waits for nobody itself, and that was not heard of for the longest time.
//! Where all wait for each other, a message was lost on its way: ranks make the same calls in the same order, so it is
//! one that the rank at the earliest call misses.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crate::moving::{self, Fault, Held, Moment};
use crate::sync::{Condvar, Mutex, MutexGuard};
use crate::view::{Place, View};

/// Up to this many bytes are copied at once by whoever comes second: cheaper than waking the other.
const SMALL: usize = 2048;

/// Why an exchange failed; ranks are those of the whole world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Lost(usize),
    Unequal { from: usize, sent: usize, to: usize, expected: usize },
    Unmoved(Fault),
}

/// A message of a posted exchange, to or from `peer`.
#[derive(Clone, Copy)]
pub(crate) struct Posted {
    pub(crate) peer: usize,
    pub(crate) view: View,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Route {
    group: usize,
    from: usize,
    to: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Send,
    Receive,
}

/// One end of a message.
#[derive(Clone, Copy)]
struct End {
    rank: usize,
    exchange: u64,
    view: View,
}

/// A message under way.
#[derive(Clone, Copy)]
enum Transfer {
    /// One end was posted; `peer` has not come yet.
    Open { end: End, peer: usize },
    /// Nobody copies it yet.
    Ready { from: End, to: End },
    /// Somebody does.
    Copying,
    /// The end that was posted is gone.
    Withdrawn { by: usize },
}

/// Messages with one end, all of the same side, first come first.
struct Line {
    side: Side,
    transfers: VecDeque<u64>,
}

struct Exchange {
    /// How many its rank had posted before.
    call: u64,
    /// Messages that have not arrived.
    left: usize,
    transfers: Vec<u64>,
    failure: Option<Failure>,
    /// From when on its memory may be touched, by place; nothing for the host's.
    ready: Vec<(Place, Arc<Moment>)>,
    /// When copies from and to it will be over.
    over: Vec<(Place, Arc<Moment>)>,
}

/// What is known of a rank.
struct RankState {
    /// Messages that it could copy.
    ready: VecDeque<u64>,
    /// The exchange that it waits for.
    waits_for: Option<u64>,
    asleep: bool,
    /// It sleeps because something that it wants back is being copied.
    withdraws: bool,
    ended: bool,
    heard: Instant,
    /// Exchanges that it has posted.
    posted: u64,
    step: u64,
}

#[derive(Default)]
struct State {
    lines: HashMap<Route, Line>,
    /// Those that have arrived are not here any more.
    transfers: HashMap<u64, Transfer>,
    exchanges: HashMap<u64, Exchange>,
    /// The number of the next transfer or exchange.
    next: u64,
    /// By members and by how often these were asked for.
    groups: HashMap<(Vec<usize>, usize), usize>,
    /// The rank whose loss came first.
    lost: Option<usize>,
    ranks: Vec<RankState>,
}

/// All ranks of a process.
pub(crate) struct World {
    state: Mutex<State>,
    /// One per rank.
    alarms: Vec<Condvar>,
    deadline: Duration,
}

impl World {
    pub(crate) fn new(ranks: usize, deadline: Duration) -> Self {
        let rank = || RankState {
            ready: VecDeque::new(),
            waits_for: None,
            asleep: false,
            withdraws: false,
            ended: false,
            heard: Instant::now(),
            posted: 0,
            step: 0,
        };
        let state = State { ranks: (0..ranks).map(|_| rank()).collect(), ..State::default() };
        Self { state: Mutex::new(state), alarms: (0..ranks).map(|_| Condvar::new()).collect(), deadline }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the group of `members` that is asked for the `count`-th time.
    pub(crate) fn group(&self, members: Vec<usize>, count: usize) -> usize {
        let mut state = self.lock();
        let next = state.groups.len() + 1;
        *state.groups.entry((members, count)).or_insert(next)
    }

    pub(crate) fn set_step(&self, me: usize, step: u64) {
        self.lock().ranks[me].step = step;
    }

    pub(crate) fn step(&self, me: usize) -> u64 {
        self.lock().ranks[me].step
    }

    /// The rank whose loss came first.
    pub(crate) fn lost(&self) -> Option<usize> {
        self.lock().lost
    }

    /// Tells everyone that `me` failed, unless another did before.
    pub(crate) fn fail(&self, me: usize) {
        let mut state = self.lock();
        state.lost.get_or_insert(me);
        self.wake_all(&mut state);
    }

    /// `me` will make no more calls.
    pub(crate) fn end(&self, me: usize) {
        let mut state = self.lock();
        state.ranks[me].ended = true;
        self.wake_all(&mut state);
    }

    fn wake(&self, state: &mut State, rank: usize) {
        // Taken back by whoever wakes: one signal per sleep.
        if std::mem::take(&mut state.ranks[rank].asleep) {
            self.alarms[rank].notify_one();
        }
    }

    fn wake_all(&self, state: &mut State) {
        (0..self.alarms.len()).for_each(|rank| self.wake(state, rank));
    }

    /// Starts an exchange and gives its number.
    ///
    /// # Safety
    /// All views are valid, those received for writing, until `wait` or `withdraw` of this number has returned.
    pub(crate) unsafe fn post(&self, me: usize, group: usize, sends: &[Posted], receives: &[Posted]) -> u64 {
        let (ready, failure) = match ready(sends.iter().chain(receives)) {
            Ok(ready) => (ready, None),
            Err(fault) => (Vec::new(), Some(Failure::Unmoved(fault))),
        };
        let mut state = self.lock();
        let own = &mut state.ranks[me];
        let call = own.posted;
        (own.heard, own.posted) = (Instant::now(), call + 1);
        let exchange = state.number();
        let left = sends.len() + receives.len();
        let transfers = Vec::with_capacity(left);
        state.exchanges.insert(exchange, Exchange { call, left, transfers, failure, ready, over: Vec::new() });
        if failure.is_some() {
            return exchange;
        }
        for part in sends {
            let route = Route { group, from: me, to: part.peer };
            self.add(&mut state, route, Side::Send, part.peer, End { rank: me, exchange, view: part.view });
        }
        for part in receives {
            let route = Route { group, from: part.peer, to: me };
            self.add(&mut state, route, Side::Receive, part.peer, End { rank: me, exchange, view: part.view });
        }
        exchange
    }

    /// One end of a message has come: it meets the other or stands in line for it.
    fn add(&self, state: &mut State, route: Route, side: Side, peer: usize, end: End) {
        let line = state.lines.entry(route).or_insert_with(|| Line { side, transfers: VecDeque::new() });
        let other = if line.side == side { None } else { line.transfers.pop_front() };
        let Some(id) = other else {
            let id = state.next;
            state.next += 1;
            line.side = side;
            line.transfers.push_back(id);
            state.transfers.insert(id, Transfer::Open { end, peer });
            state.note(end.exchange, id);
            return;
        };
        match state.transfers.remove(&id) {
            Some(Transfer::Open { end: first, .. }) => {
                let (from, to) = if side == Side::Send { (end, first) } else { (first, end) };
                self.meet(state, id, from, to);
            }
            Some(Transfer::Withdrawn { by }) => self.refuse(state, end, Failure::Lost(by)),
            // Messages in lines are in no other state.
            Some(Transfer::Ready { .. } | Transfer::Copying) | None => {}
        }
    }

    fn meet(&self, state: &mut State, id: u64, from: End, to: End) {
        if from.view.bytes != to.view.bytes {
            let (sent, expected) = (from.view.bytes, to.view.bytes);
            let failure = Failure::Unequal { from: from.rank, sent, to: to.rank, expected };
            self.refuse(state, from, failure);
            self.refuse(state, to, failure);
        } else if from.view.bytes <= SMALL || from.view.place != Place::Host || to.view.place != Place::Host {
            let (ready, free) = (state.ready(from), state.ready(to));
            // SAFETY: both ends are posted and neither can be withdrawn while the state is locked; whoever takes memory
            // of a GPU back waits for the moment that is noted.
            let copied = unsafe {
                let source = Held { view: from.view, until: ready.as_deref() };
                moving::copy(source, Held { view: to.view, until: free.as_deref() })
            };
            self.settle(state, [from, to], &copied);
        } else {
            state.transfers.insert(id, Transfer::Ready { from, to });
            for end in [from, to] {
                state.note(end.exchange, id);
                state.ranks[end.rank].ready.push_back(id);
                self.wake(state, end.rank);
            }
        }
    }

    /// A message was copied, or cannot be.
    fn settle(&self, state: &mut State, ends: [End; 2], copied: &Result<Option<Arc<Moment>>, Fault>) {
        for end in ends {
            match copied {
                Ok(over) => {
                    if let (Some(over), Some(exchange)) = (over, state.exchanges.get_mut(&end.exchange)) {
                        exchange.over.push((end.view.place, Arc::clone(over)));
                    }
                    self.arrived(state, end);
                }
                Err(fault) => self.refuse(state, end, Failure::Unmoved(*fault)),
            }
        }
    }

    fn refuse(&self, state: &mut State, end: End, failure: Failure) {
        if let Some(exchange) = state.exchanges.get_mut(&end.exchange) {
            exchange.failure.get_or_insert(failure);
        }
        self.wake(state, end.rank);
    }

    fn arrived(&self, state: &mut State, end: End) {
        let Some(exchange) = state.exchanges.get_mut(&end.exchange) else { return };
        exchange.left -= 1;
        if exchange.left == 0 {
            self.wake(state, end.rank);
        }
    }

    /// Blocks until all messages of an exchange have arrived; meanwhile copies whatever can be copied for this rank.
    pub(crate) fn wait(&self, me: usize, exchange: u64) -> Result<(), Failure> {
        let mut end = Instant::now().checked_add(self.deadline);
        let mut state = self.lock();
        state.ranks[me].waits_for = Some(exchange);
        let result = loop {
            match state.exchanges.get(&exchange) {
                Some(Exchange { failure: Some(failure), .. }) => break Err(*failure),
                Some(Exchange { left: 1.., .. }) => {}
                Some(Exchange { left: 0, .. }) | None => break Ok(()),
            }
            if let Some(id) = state.ranks[me].ready.pop_front() {
                state = self.carry(state, id);
                continue;
            }
            if let Some(lost) = state.lost.or_else(|| state.ended_peer(exchange)) {
                break Err(Failure::Lost(lost));
            }
            let now = Instant::now();
            let left = match end {
                Some(end) => end.saturating_duration_since(now),
                None => Duration::MAX,
            };
            if left.is_zero() {
                match state.culprit(me) {
                    Some(lost) => break Err(Failure::Lost(lost)),
                    // Everything is here and being copied.
                    None => end = now.checked_add(self.deadline),
                }
            }
            state.ranks[me].asleep = true;
            state = self.alarms[me].wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            state.ranks[me].asleep = false;
        };
        let own = &mut state.ranks[me];
        (own.waits_for, own.heard) = (None, Instant::now());
        match result {
            Ok(()) => {
                let over = state.exchanges.remove(&exchange).map(|e| e.over).unwrap_or_default();
                state.forget_copied(me);
                drop(state);
                over.iter().try_for_each(|(place, over)| moving::hold_up(*place, over)).map_err(Failure::Unmoved)
            }
            Err(Failure::Lost(rank)) => {
                // The first loss is everyone's: what follows from it has no other cause.
                let first = *state.lost.get_or_insert(rank);
                self.wake_all(&mut state);
                Err(Failure::Lost(first))
            }
            Err(other) => Err(other),
        }
    }

    /// Copies message `id` if nobody else does.
    fn carry<'a>(&'a self, mut state: MutexGuard<'a, State>, id: u64) -> MutexGuard<'a, State> {
        let Some(&Transfer::Ready { from, to }) = state.transfers.get(&id) else { return state };
        state.transfers.insert(id, Transfer::Copying);
        drop(state);
        // SAFETY: both ends are posted, and whoever wants to withdraw one waits until this is over. They are on the
        // host, where all is ready.
        let copied =
            unsafe { moving::copy(Held { view: from.view, until: None }, Held { view: to.view, until: None }) };
        let mut state = self.lock();
        state.transfers.remove(&id);
        self.settle(&mut state, [from, to], &copied);
        for end in [from, to] {
            if state.ranks[end.rank].withdraws {
                self.wake(&mut state, end.rank);
            }
        }
        state
    }

    /// Takes an exchange back: afterwards nobody uses its views. Does nothing if it is complete.
    pub(crate) fn withdraw(&self, me: usize, exchange: u64) {
        let mut state = self.lock();
        let Some(transfers) = state.exchanges.get(&exchange).map(|e| e.transfers.clone()) else { return };
        for id in &transfers {
            match state.transfers.get(id) {
                Some(Transfer::Open { .. }) => {
                    state.transfers.insert(*id, Transfer::Withdrawn { by: me });
                }
                Some(&Transfer::Ready { from, to }) => {
                    state.transfers.remove(id);
                    let other = if from.exchange == exchange { to } else { from };
                    self.refuse(&mut state, other, Failure::Lost(me));
                }
                Some(Transfer::Copying | Transfer::Withdrawn { .. }) | None => {}
            }
        }
        state.ranks[me].withdraws = true;
        while transfers.iter().any(|id| matches!(state.transfers.get(id), Some(Transfer::Copying))) {
            state.ranks[me].asleep = true;
            state = self.alarms[me].wait(state).unwrap_or_else(PoisonError::into_inner);
            state.ranks[me].asleep = false;
        }
        state.ranks[me].withdraws = false;
        let over = state.exchanges.remove(&exchange).map(|e| e.over).unwrap_or_default();
        drop(state);
        for (place, over) in over {
            // A GPU that fails here fails at the next call too.
            let _ = moving::hold_up(place, &over);
        }
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// From when on the memory of an end may be touched.
    fn ready(&self, end: End) -> Option<Arc<Moment>> {
        let ready = &self.exchanges.get(&end.exchange)?.ready;
        ready.iter().find(|(place, _)| same_order(*place, end.view.place)).map(|(_, moment)| Arc::clone(moment))
    }

    fn note(&mut self, exchange: u64, transfer: u64) {
        if let Some(exchange) = self.exchanges.get_mut(&exchange) {
            exchange.transfers.push(transfer);
        }
    }

    /// Others may have copied what this rank could have.
    fn forget_copied(&mut self, rank: usize) {
        let ready = &mut self.ranks[rank].ready;
        while ready.front().is_some_and(|id| !matches!(self.transfers.get(id), Some(Transfer::Ready { .. }))) {
            ready.pop_front();
        }
    }

    /// Ranks that must still come for an exchange, in the order in which they were named.
    fn absent(&self, exchange: u64) -> impl Iterator<Item = usize> {
        let transfers = self.exchanges.get(&exchange).map_or(&[][..], |e| &e.transfers);
        transfers.iter().filter_map(|id| match self.transfers.get(id) {
            Some(Transfer::Open { peer, .. }) => Some(*peer),
            _ => None,
        })
    }

    fn ended_peer(&self, exchange: u64) -> Option<usize> {
        self.absent(exchange).find(|peer| self.ranks[*peer].ended)
    }

    /// Whom to blame that what `me` waits for does not come: see the top of this file.
    fn culprit(&self, me: usize) -> Option<usize> {
        let (mut seen, mut next) = (HashSet::new(), VecDeque::from([me]));
        let mut silent: Option<usize> = None;
        let mut missed: Option<(u64, usize)> = None;
        while let Some(rank) = next.pop_front() {
            if !seen.insert(rank) {
                continue;
            }
            let Some(exchange) = self.ranks[rank].waits_for else {
                silent = match silent {
                    Some(other) if self.ranks[other].heard <= self.ranks[rank].heard => silent,
                    _ => Some(rank),
                };
                continue;
            };
            let call = self.exchanges.get(&exchange).map_or(u64::MAX, |e| e.call);
            let first = self.absent(exchange).next();
            missed = [missed, first.map(|peer| (call, peer))].into_iter().flatten().min_by_key(|(call, _)| *call);
            next.extend(self.absent(exchange));
        }
        silent.or(missed.map(|(_, peer)| peer))
    }
}

/// Whether what is enqueued for one place is in order with what is enqueued for the other.
fn same_order(a: Place, b: Place) -> bool {
    match (a, b) {
        (Place::Host, Place::Host) | (Place::Nowhere, Place::Nowhere) => true,
        (Place::Cuda(a), Place::Cuda(b)) => (a.context, a.stream) == (b.context, b.stream),
        _ => false,
    }
}

/// The present moment of each place that messages have.
fn ready<'a>(parts: impl Iterator<Item = &'a Posted>) -> Result<Vec<(Place, Arc<Moment>)>, Fault> {
    let mut all: Vec<(Place, Arc<Moment>)> = Vec::new();
    for place in parts.map(|part| part.view.place) {
        if !all.iter().any(|(known, _)| same_order(*known, place))
            && let Some(moment) = moving::now(place)?
        {
            all.push((place, moment));
        }
    }
    Ok(all)
}
