//! What was sent, by purpose; and, where somebody wants to know, when.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use std::time::Instant;

use crate::communicator::{Communicator, Label, Message, Pending, of_inner};
use crate::error::Result;

/// What one rank sent under one [`Label`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Payload to other ranks; what a rank sends to itself is not counted.
    pub bytes: u64,
    /// Exchanges in which something went to another rank.
    pub calls: u64,
}

/// What one rank sent, by label; a table when it is displayed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts(BTreeMap<Label, Count>);

impl Counts {
    /// All labels under which something was sent, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&Label, &Count)> {
        self.0.iter()
    }

    /// The sum over the labels that `which` takes.
    pub fn total(&self, which: impl Fn(&Label) -> bool) -> Count {
        self.0
            .iter()
            .filter(|(label, _)| which(label))
            .fold(Count::default(), |sum, (_, c)| Count { bytes: sum.bytes + c.bytes, calls: sum.calls + c.calls })
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.0.keys().map(|label| label.op.len()).max().unwrap_or(0).max("operation".len());
        writeln!(f, "{:width$}  {:9}  {:>5}  {:>9}  {:>15}", "operation", "traffic", "layer", "calls", "bytes")?;
        for (label, count) in &self.0 {
            let traffic = format!("{:?}", label.traffic).to_lowercase();
            let (op, layer) = (label.op, label.layer);
            writeln!(f, "{op:width$}  {traffic:9}  {layer:>5}  {:>9}  {:>15}", count.calls, count.bytes)?;
        }
        let all = self.total(|_| true);
        write!(f, "{:width$}  {:9}  {:>5}  {:>9}  {:>15}", "all", "", "", all.calls, all.bytes)
    }
}

/// One exchange with other ranks, by the clock of the host.
#[derive(Clone, Copy, Debug)]
pub struct Exchange {
    /// What it was for.
    pub label: Label,
    /// When it began.
    pub posted: Instant,
    /// When its rank had nothing else to do.
    pub waiting: Instant,
    /// When it was over.
    pub over: Instant,
    /// Bytes to other ranks.
    pub sent: u64,
    /// Bytes from other ranks.
    pub received: u64,
}

/// A rank's account, shared by all groups that were split from a [`Metered`] communicator.
#[derive(Clone, Debug, Default)]
pub struct Account {
    counts: Rc<RefCell<Counts>>,
    to_peers: Rc<RefCell<BTreeMap<usize, u64>>>,
    noted: Rc<RefCell<Noted>>,
}

/// Exchanges, and how many more are noted.
#[derive(Debug, Default)]
struct Noted {
    room: usize,
    all: Vec<Exchange>,
}

impl Account {
    /// What was sent since the last reset.
    pub fn snapshot(&self) -> Counts {
        self.counts.borrow().clone()
    }

    /// Bytes that went to each other rank since the last reset. Ranks have the numbers of the first, undivided
    /// communicator.
    pub fn sent_to(&self) -> BTreeMap<usize, u64> {
        self.to_peers.borrow().clone()
    }

    /// Starts again from nothing.
    pub fn reset(&self) {
        self.counts.borrow_mut().0.clear();
        self.to_peers.borrow_mut().clear();
    }

    /// From now on, notes exchanges with other ranks, so many at most.
    pub fn note(&self, most: usize) {
        self.noted.borrow_mut().room = most;
    }

    /// Those that were over since the last time, in the order in which they were.
    pub fn take_noted(&self) -> Vec<Exchange> {
        std::mem::take(&mut self.noted.borrow_mut().all)
    }

    /// Whether there is room for one more, which it then takes.
    fn has_room(&self) -> bool {
        let room = &mut self.noted.borrow_mut().room;
        let has = *room > 0;
        *room -= usize::from(has);
        has
    }
}

/// An exchange under way that is noted when it is over.
struct Watched {
    pending: Box<dyn Pending>,
    noted: Rc<RefCell<Noted>>,
    exchange: Exchange,
}

impl Pending for Watched {
    fn wait(self: Box<Self>) -> Result<()> {
        let Self { pending, noted, exchange } = *self;
        let waiting = Instant::now();
        pending.wait()?;
        noted.borrow_mut().all.push(Exchange { waiting, over: Instant::now(), ..exchange });
        Ok(())
    }
}

/// Counts what goes through another communicator.
pub struct Metered {
    inner: Rc<dyn Communicator>,
    account: Account,
    /// What the members of a group are called in the undivided communicator; nothing where this is that.
    members: Option<Rc<[usize]>>,
}

impl Metered {
    /// Counts what `inner` sends, into an account of its own.
    pub fn new(inner: Rc<dyn Communicator>) -> Self {
        Self { inner, account: Account::default(), members: None }
    }

    /// Where it is counted.
    pub fn account(&self) -> Account {
        self.account.clone()
    }

    /// The number of `peer` in the undivided communicator.
    fn undivided(&self, peer: usize) -> usize {
        self.members.as_ref().and_then(|members| members.get(peer).copied()).unwrap_or(peer)
    }
}

impl Communicator for Metered {
    of_inner!(rank, size, set_step, added);

    unsafe fn post(&self, label: Label, sends: &[Message], receives: &[Message]) -> Result<Box<dyn Pending>> {
        let posted = Instant::now();
        // SAFETY: as promised by the caller.
        let pending = unsafe { self.inner.post(label, sends, receives) }?;
        let own = self.rank();
        let others = |messages: &[Message]| -> (usize, u64) {
            let bytes = messages.iter().filter(|m| m.peer != own).map(|m| m.view.bytes as u64);
            (bytes.clone().count(), bytes.sum())
        };
        let ((to, sent), (from, received)) = (others(sends), others(receives));
        if to > 0 {
            let mut counts = self.account.counts.borrow_mut();
            let count = counts.0.entry(label).or_default();
            count.calls += 1;
            count.bytes += sent;
            let mut to_peers = self.account.to_peers.borrow_mut();
            for message in sends.iter().filter(|m| m.peer != own) {
                *to_peers.entry(self.undivided(message.peer)).or_default() += message.view.bytes as u64;
            }
        }
        if to + from == 0 || !self.account.has_room() {
            return Ok(pending);
        }
        let exchange = Exchange { label, posted, waiting: posted, over: posted, sent, received };
        Ok(Box::new(Watched { pending, noted: Rc::clone(&self.account.noted), exchange }))
    }

    fn split(&self, members: &[usize]) -> Result<Rc<dyn Communicator>> {
        let inner = self.inner.split(members)?;
        let members = members.iter().map(|member| self.undivided(*member)).collect();
        Ok(Rc::new(Self { inner, account: self.account.clone(), members: Some(members) }))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Traffic, Type, View, threads};

    const SUM: Label = Label { op: "gradients", traffic: Traffic::Gradients, layer: 3 };
    const ROWS: Label = Label { op: "attend", traffic: Traffic::Rows, layer: 1 };

    fn options(ranks: usize) -> threads::Options {
        threads::Options { ranks, threads: 1, deadline: Duration::from_secs(20) }
    }

    #[test]
    fn exchanges_with_others_are_noted_as_long_as_there_is_room() {
        let noted = threads::run(options(2), |comm| {
            let metered = Metered::new(comm);
            let account = metered.account();
            metered.barrier(ROWS)?;
            let before = account.take_noted().len();
            account.note(3);
            let (mut mine, mut theirs) = ([1u8; 5], [0u8; 5]);
            let (view, room) = (View::host_mut(&mut mine, Type::Bytes), View::host_mut(&mut theirs, Type::Bytes));
            let peer = 1 - metered.rank();
            let mut all = Vec::new();
            for _ in 0..2 {
                let (to, from) = ([Message { peer, view }], [Message { peer, view: room }]);
                // SAFETY: the arrays outlive the exchange and nothing else touches them.
                unsafe { metered.post(SUM, &to, &from)?.wait()? };
                all.extend(account.take_noted());
            }
            // Nothing goes to another rank.
            let own = [Message { peer: metered.rank(), view: view.part(0, 2) }];
            let to_own = [Message { peer: metered.rank(), view: room.part(0, 2) }];
            // SAFETY: as above.
            unsafe { metered.post(ROWS, &own, &to_own)?.wait()? };
            metered.barrier(ROWS)?;
            metered.barrier(ROWS)?;
            all.extend(account.take_noted());
            Ok::<_, crate::Error>((before, all))
        })
        .unwrap();
        for (before, all) in noted {
            assert_eq!((before, all.len()), (0, 3), "what is asked for, and no more");
            for exchange in &all[..2] {
                assert_eq!((exchange.label, exchange.sent, exchange.received), (SUM, 5, 5));
                assert!(exchange.posted <= exchange.waiting && exchange.waiting <= exchange.over);
            }
            assert_eq!(all[2].label, ROWS);
        }
    }

    #[test]
    fn only_what_others_get_counts_and_groups_share_the_account() {
        let counts = threads::run(options(3), |comm| {
            let metered = Metered::new(comm);
            let account = metered.account();
            let group = metered.split(&[2, 0, 1])?;
            let (mut sum, mut own) = ([1.0f64; 5], [0u8; 7]);
            let (view, here) = (View::host_mut(&mut sum, Type::F64), View::host_mut(&mut own, Type::Bytes));
            let to_itself = [Message { peer: metered.rank(), view: here.part(0, 3) }];
            let from_itself = [Message { peer: metered.rank(), view: here.part(3, 3) }];
            // SAFETY: the arrays outlive the exchanges and nothing else touches them.
            unsafe {
                metered.all_reduce(SUM, view)?;
                group.all_reduce(SUM, view)?;
                metered.post(ROWS, &to_itself, &from_itself)?.wait()?;
            }
            let first = (account.snapshot(), metered.rank(), account.sent_to());
            account.reset();
            group.barrier(ROWS)?;
            Ok::<_, crate::Error>((first, account.snapshot()))
        })
        .unwrap();
        for ((first, own, to), second) in counts {
            let others: Vec<usize> = (0..3).filter(|rank| *rank != own).collect();
            assert_eq!(to.keys().copied().collect::<Vec<_>>(), others, "groups call ranks by their first numbers");
            assert_eq!(to.values().sum::<u64>(), 2 * 2 * 40);
            assert_eq!(first.iter().collect::<Vec<_>>(), [(&SUM, &Count { bytes: 2 * 2 * 40, calls: 2 })]);
            assert_eq!(second.iter().collect::<Vec<_>>(), [(&ROWS, &Count { bytes: 2, calls: 1 })]);
            assert_eq!(first.total(|label| label.traffic == Traffic::Rows), Count::default());
            let table = first.to_string();
            assert_eq!(table.lines().count(), 3, "{table}");
            let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
            assert_eq!(row, ["gradients", "gradients", "3", "2", "160"]);
        }
    }
}
