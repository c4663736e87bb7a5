//! From logs to times: every message goes through the ports of its two ranks.
//!
//! Each rank has a port out and a port in. A message starts when it was posted, the messages posted before it by the
//! same rank have left, and the receiver's port is free; it keeps both ports busy for bytes/β and arrives α after that.
//! A wait ends when what is received has arrived and what is sent has left.
//!
//! Messages are started in the order of time: first every rank goes on until it waits for something that has not been
//! started; then, of the first messages in line at all ports, the one that can start earliest does (of several, the one
//! that was posted first, then that of the lowest rank). What follows from it is posted later than it starts, so
//! nothing could have come before it: the times are a function of the logs and the network.

use std::collections::{HashMap, VecDeque};

use super::log::{Event, Transfer};
use super::network::Network;
use crate::error::{Error, Result};

/// A rank's clock at the end of its log, and what it showed on the way, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Times {
    /// All together.
    pub end: f64,
    /// Of that, computing.
    pub computing: f64,
    /// Of that, waiting for messages.
    pub waiting: f64,
}

/// The times of all ranks if they do what `logs` say on `network`, from a common start; `cost` are the seconds that a
/// rank computes.
///
/// # Errors
/// [`Error::Mismatch`] if a rank waits for what nobody sends.
pub fn replay<C>(
    logs: &[impl AsRef<[Event<C>]>],
    network: &Network,
    cost: impl Fn(usize, &C) -> f64,
) -> Result<Vec<Times>> {
    let ranks = logs.iter().map(|log| Rank::new(log.as_ref())).collect();
    let mut world = World { ranks, lines: HashMap::new(), network, cost };
    (0..logs.len()).for_each(|rank| world.go_on(rank));
    while let Some(next) = world.next() {
        world.start(next);
    }
    let stuck = world.ranks.iter().position(|rank| !rank.log.is_empty());
    if let Some(rank) = stuck {
        let problem = format!("rank {rank} waits for what nobody sends; a log ends where all exchanges are over");
        return Err(Error::Mismatch { step: 0, problem });
    }
    Ok(world.ranks.iter().map(|rank| rank.times).collect())
}

struct World<'a, C, F> {
    ranks: Vec<Rank<'a, C>>,
    /// By group, sender and receiver.
    lines: HashMap<(u64, usize, usize), Line>,
    network: &'a Network,
    cost: F,
}

struct Rank<'a, C> {
    /// What it has still to do.
    log: &'a [Event<C>],
    times: Times,
    /// Messages that have not left.
    out: VecDeque<Leaving>,
    /// When the ports are free.
    free_out: f64,
    free_in: f64,
    exchanges: HashMap<u64, Exchange>,
}

struct Leaving {
    transfer: Transfer,
    exchange: u64,
    posted: f64,
}

/// An exchange that was not waited for.
#[derive(Default)]
struct Exchange {
    /// Messages of which the times are not known.
    open: usize,
    /// The latest of the times that are.
    ready: f64,
}

/// What one rank sends another, in order.
#[derive(Default)]
struct Line {
    /// Arrivals that nobody has received.
    arrived: VecDeque<f64>,
    /// Exchanges that receive what has not arrived.
    expected: VecDeque<u64>,
}

impl<'a, C> Rank<'a, C> {
    fn new(log: &'a [Event<C>]) -> Self {
        let (out, exchanges) = (VecDeque::new(), HashMap::new());
        Self { log, times: Times::default(), out, free_out: 0.0, free_in: 0.0, exchanges }
    }

    /// One more time of an exchange is known.
    fn settle(&mut self, exchange: u64, time: f64) {
        let exchange = self.exchanges.entry(exchange).or_default();
        exchange.open = exchange.open.saturating_sub(1);
        exchange.ready = exchange.ready.max(time);
    }
}

impl<C, F: Fn(usize, &C) -> f64> World<'_, C, F> {
    /// Follows a rank's log as far as times are known.
    fn go_on(&mut self, me: usize) {
        while let Some((event, rest)) = self.ranks[me].log.split_first() {
            let rank = &mut self.ranks[me];
            match event {
                Event::Compute(what) => {
                    let seconds = (self.cost)(me, what);
                    rank.times.computing += seconds;
                    rank.times.end += seconds;
                }
                Event::Post { exchange, sends, receives } => {
                    let posted = rank.times.end;
                    let mut known = Exchange { open: sends.len(), ready: posted };
                    rank.out.extend(sends.iter().map(|transfer| Leaving {
                        transfer: *transfer,
                        exchange: *exchange,
                        posted,
                    }));
                    for transfer in receives {
                        let line = self.lines.entry((transfer.group, transfer.peer, me)).or_default();
                        match line.arrived.pop_front() {
                            Some(time) => known.ready = known.ready.max(time),
                            None => {
                                line.expected.push_back(*exchange);
                                known.open += 1;
                            }
                        }
                    }
                    rank.exchanges.insert(*exchange, known);
                }
                Event::Wait { exchange } => match rank.exchanges.get(exchange) {
                    Some(Exchange { open: 0, ready }) => {
                        let late = (ready - rank.times.end).max(0.0);
                        rank.times.waiting += late;
                        rank.times.end += late;
                        rank.exchanges.remove(exchange);
                    }
                    _ => return,
                },
            }
            self.ranks[me].log = rest;
        }
    }

    /// When the first message in line at a rank can start, and when it was posted.
    fn earliest(&self, rank: usize) -> Option<(f64, f64)> {
        let Rank { out, free_out, .. } = &self.ranks[rank];
        let Leaving { transfer, posted, .. } = out.front()?;
        let free_in = self.ranks.get(transfer.peer).map_or(0.0, |peer| peer.free_in);
        Some((posted.max(*free_out).max(free_in), *posted))
    }

    /// The rank whose message starts next.
    fn next(&self) -> Option<usize> {
        let lines = (0..self.ranks.len()).filter_map(|rank| Some((self.earliest(rank)?, rank)));
        lines.min_by(|(a, _), (b, _)| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))).map(|(_, rank)| rank)
    }

    /// The first message in line at a rank starts.
    fn start(&mut self, from: usize) {
        let Some((start, _)) = self.earliest(from) else { return };
        let Some(Leaving { transfer: Transfer { peer, group, bytes }, exchange, .. }) =
            self.ranks[from].out.pop_front()
        else {
            return;
        };
        let wire = self.network.wire(from, peer);
        let left = start + bytes as f64 / wire.bandwidth;
        self.ranks[from].free_out = left;
        self.ranks[from].settle(exchange, left);
        if let Some(to) = self.ranks.get_mut(peer) {
            to.free_in = left;
            let line = self.lines.entry((group, from, peer)).or_default();
            match line.expected.pop_front() {
                Some(exchange) => to.settle(exchange, left + wire.latency),
                None => line.arrived.push_back(left + wire.latency),
            }
            self.go_on(peer);
        }
        self.go_on(from);
    }
}

#[cfg(test)]
mod tests;
