//! From logs to times: every message goes through the ports of its two ranks.
//!
//! Each rank has a port out and a port in for its own node, and each node one of both for all other nodes, which its
//! ranks share. A message starts when it was posted, the messages posted before it by the same rank to the same side
//! have left, and both ports are free; it keeps both busy for bytes/β and arrives α after that. A wait ends when what
//! is received has arrived and what is sent has left.
//!
//! Messages are started in the order of time: first every rank goes on until it waits for something that has not been
//! started; then, of the first messages in line at all ports, the one that can start earliest does (of several, the one
//! that was posted first, then that of the lowest rank, then the one inside the node). What follows from it is posted
//! later than it starts, so nothing could have come before it: the times are a function of the logs and the network.

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
    let ranks: Vec<Rank<'_, C>> = logs.iter().map(|log| Rank::new(log.as_ref())).collect();
    let nodes = ranks.len().checked_sub(1).map_or(0, |last| network.node(last) + 1);
    let mut world = World { ranks, nodes: vec![Ports::default(); nodes], lines: HashMap::new(), network, cost };
    (0..logs.len()).for_each(|rank| world.go_on(rank));
    while let Some((next, side)) = world.next() {
        world.start(next, side);
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
    /// What the ranks of a node share.
    nodes: Vec<Ports>,
    /// By group, sender and receiver.
    lines: HashMap<(u64, usize, usize), Line>,
    network: &'a Network,
    cost: F,
}

struct Rank<'a, C> {
    /// What it has still to do.
    log: &'a [Event<C>],
    times: Times,
    /// Messages that have not left, by [`Side`].
    out: [VecDeque<Leaving>; 2],
    /// For its own node.
    ports: Ports,
    exchanges: HashMap<u64, Exchange>,
}

/// When they are free.
#[derive(Clone, Copy, Debug, Default)]
struct Ports {
    out: f64,
    r#in: f64,
}

/// Where a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// To a rank of the same node.
    Inside,
    /// To another node.
    Between,
}

const SIDES: [Side; 2] = [Side::Inside, Side::Between];

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
        let (out, exchanges) = (SIDES.map(|_| VecDeque::new()), HashMap::new());
        Self { log, times: Times::default(), out, ports: Ports::default(), exchanges }
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
                    for transfer in sends {
                        let side = side(self.network, me, transfer.peer);
                        let leaving = Leaving { transfer: *transfer, exchange: *exchange, posted };
                        rank.out[side as usize].push_back(leaving);
                    }
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
    fn earliest(&self, rank: usize, side: Side) -> Option<(f64, f64)> {
        let Leaving { transfer, posted, .. } = self.ranks[rank].out[side as usize].front()?;
        let free_in = self.ports(transfer.peer, side).map_or(0.0, |ports| ports.r#in);
        let free_out = self.ports(rank, side).map_or(0.0, |ports| ports.out);
        Some((posted.max(free_out).max(free_in), *posted))
    }

    /// The ports of a rank; none of one that is not there.
    fn ports(&self, rank: usize, side: Side) -> Option<Ports> {
        match side {
            Side::Inside => self.ranks.get(rank).map(|rank| rank.ports),
            Side::Between => self.nodes.get(self.network.node(rank)).copied(),
        }
    }

    fn ports_mut(&mut self, rank: usize, side: Side) -> Option<&mut Ports> {
        match side {
            Side::Inside => self.ranks.get_mut(rank).map(|rank| &mut rank.ports),
            Side::Between => self.nodes.get_mut(self.network.node(rank)),
        }
    }

    /// The rank whose message starts next, and where that goes.
    fn next(&self) -> Option<(usize, Side)> {
        let lines = (0..self.ranks.len()).flat_map(|rank| SIDES.map(|side| (rank, side)));
        let lines = lines.filter_map(|(rank, side)| Some((self.earliest(rank, side)?, (rank, side))));
        lines.min_by(|(a, _), (b, _)| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))).map(|(_, line)| line)
    }

    /// The first message in line at a rank starts.
    fn start(&mut self, from: usize, side: Side) {
        let Some((start, _)) = self.earliest(from, side) else { return };
        let Some(Leaving { transfer: Transfer { peer, group, bytes }, exchange, .. }) =
            self.ranks[from].out[side as usize].pop_front()
        else {
            return;
        };
        let wire = self.network.wire(from, peer);
        let left = start + bytes as f64 / wire.bandwidth;
        if let Some(ports) = self.ports_mut(from, side) {
            ports.out = left;
        }
        if let Some(ports) = self.ports_mut(peer, side) {
            ports.r#in = left;
        }
        self.ranks[from].settle(exchange, left);
        if let Some(to) = self.ranks.get_mut(peer) {
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

fn side(network: &Network, from: usize, to: usize) -> Side {
    if network.node(from) == network.node(to) { Side::Inside } else { Side::Between }
}

#[cfg(test)]
mod tests;
