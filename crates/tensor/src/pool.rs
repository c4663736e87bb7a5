//! Memory blocks that are kept for the next request.
//!
//! Training asks for the same sizes in every step. Fresh pages cost a fault each, which for large temporaries is as
//! dear as the computation; so a freed block waits for the next request of about its size. To keep resident memory near
//! the accounted peak, idle blocks are given back as soon as everything held would exceed the peak by more than a
//! twentieth, and by more than what is too little to matter: on small graphs, pages that come and go would take a tenth
//! of the time. Before one is given back for a new one, a request may also have a block of up to twice its size: chunks
//! of a graph are not of one size, and would otherwise take turns at the same pages.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use crate::ledger::Ledger;

/// A request may be met by an idle block up to this much larger.
const FIT: f64 = 1.125;
/// The same where a fresh block would have another one given back.
const LOOSE: f64 = 2.0;
/// Devices may give so many bytes where fewer are asked for.
pub(crate) const LEAST: usize = 64;
/// Held memory may exceed the accounted peak by this factor before idle blocks are given back.
const SLACK: f64 = 1.05;
/// It may always exceed it by so many bytes.
const SPARE: u64 = 32 << 20;

/// Idle blocks by capacity.
pub(crate) struct Pool<B> {
    idle: RefCell<BTreeMap<usize, Vec<B>>>,
    /// Bytes of these.
    waiting: Cell<usize>,
    /// Bytes that blocks in use have beyond what was asked for.
    beyond: Cell<usize>,
    /// Blocks that were freed while work is [captured](Pool::set_apart): they belong to it.
    apart: RefCell<Option<BTreeMap<usize, Vec<B>>>>,
}

impl<B> Default for Pool<B> {
    fn default() -> Self {
        Self { idle: RefCell::default(), waiting: Cell::new(0), beyond: Cell::new(0), apart: RefCell::default() }
    }
}

impl<B> Pool<B> {
    /// An idle block of at least `bytes` (already in the ledger), if there is one of about that size.
    pub(crate) fn take(&self, bytes: usize, ledger: &Ledger) -> Option<B> {
        self.closest(bytes, FIT).or_else(|| {
            // With a fresh one, too much would be held; without, as much as now. What is captured has no choice.
            let (held, allowed) = (self.held(ledger), allowed(ledger));
            let is_better = held > allowed && held.saturating_sub(bytes as u64) <= allowed;
            if is_better || self.sets_apart() { self.closest(bytes, LOOSE) } else { None }
        })
    }

    fn closest(&self, bytes: usize, fit: f64) -> Option<B> {
        let largest = ((bytes as f64 * fit) as usize).max(bytes).max(LEAST);
        let first = |of: &BTreeMap<usize, Vec<B>>| of.range(bytes..=largest).next().map(|(capacity, _)| *capacity);
        let idle = first(&self.idle.borrow());
        // The smallest, wherever it is: work that is captured gets the blocks that it had before.
        match &mut *self.apart.borrow_mut() {
            Some(apart) if first(apart).is_some_and(|a| idle.is_none_or(|i| a <= i)) => remove(apart, first(apart)?),
            _ => self.remove(idle?),
        }
    }

    /// From now on, blocks that are freed are kept apart, to be used again by those who ask meanwhile, and by nobody
    /// else.
    pub(crate) fn set_apart(&self) {
        *self.apart.borrow_mut() = Some(BTreeMap::new());
    }

    /// Whether that is so.
    pub(crate) fn sets_apart(&self) -> bool {
        self.apart.borrow().is_some()
    }

    /// Ends that: the blocks, with their capacities.
    pub(crate) fn end_apart(&self) -> Vec<(usize, B)> {
        let apart = self.apart.take().unwrap_or_default();
        apart.into_iter().flat_map(|(capacity, blocks)| blocks.into_iter().map(move |b| (capacity, b))).collect()
    }

    /// Keeps a block of this capacity for later.
    pub(crate) fn put(&self, capacity: usize, block: B) {
        if let Some(apart) = &mut *self.apart.borrow_mut() {
            apart.entry(capacity).or_default().push(block);
            return;
        }
        self.waiting.set(self.waiting.get() + capacity);
        self.idle.borrow_mut().entry(capacity).or_default().push(block);
    }

    /// A block came into use that has so many bytes more than were asked for.
    pub(crate) fn lend(&self, beyond: usize) {
        self.beyond.set(self.beyond.get() + beyond);
    }

    /// It is in use no more.
    pub(crate) fn unlend(&self, beyond: usize) {
        self.beyond.set(self.beyond.get() - beyond);
    }

    /// Bytes that are in use or wait.
    fn held(&self, ledger: &Ledger) -> u64 {
        ledger.now().total() + (self.waiting.get() + self.beyond.get()) as u64
    }

    /// Gives idle blocks back, largest first, while a fresh block (already in the ledger) would take the memory held
    /// too far above the peak.
    pub(crate) fn trim(&self, ledger: &Ledger) {
        while self.held(ledger) > allowed(ledger) {
            let Some(capacity) = self.idle.borrow().keys().next_back().copied() else { break };
            self.remove(capacity);
        }
    }

    /// Gives all idle blocks back; whether there were any.
    pub(crate) fn clear(&self) -> bool {
        self.idle.borrow_mut().clear();
        self.waiting.replace(0) > 0
    }

    fn remove(&self, capacity: usize) -> Option<B> {
        let block = remove(&mut self.idle.borrow_mut(), capacity);
        if block.is_some() {
            self.waiting.set(self.waiting.get() - capacity);
        }
        block
    }
}

/// Bytes that may be held.
fn allowed(ledger: &Ledger) -> u64 {
    let peak = ledger.peak().total();
    ((peak as f64 * SLACK) as u64).max(peak + SPARE)
}

fn remove<B>(from: &mut BTreeMap<usize, Vec<B>>, capacity: usize) -> Option<B> {
    let blocks = from.get_mut(&capacity)?;
    let block = blocks.pop();
    if blocks.is_empty() {
        from.remove(&capacity);
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Tag;

    #[test]
    fn blocks_of_about_the_size_come_back_and_others_do_not() {
        let (pool, ledger) = (Pool::default(), Ledger::default());
        pool.put(1000, 'a');
        assert_eq!(pool.take(1001, &ledger), None);
        assert_eq!(pool.take(500, &ledger), None, "half a block would be wasted");
        assert_eq!(pool.take(950, &ledger), Some('a'));
        assert_eq!(pool.take(950, &ledger), None);
    }

    #[test]
    fn idle_blocks_go_when_they_would_exceed_the_peak_by_a_twentieth() {
        let (pool, ledger) = (Pool::default(), Ledger::default());
        ledger.add(Tag::Activations, 1000 << 20);
        ledger.remove(Tag::Activations, 1000 << 20);
        pool.put(600 << 20, 'a');
        pool.put(700 << 20, 'b');
        pool.trim(&ledger);
        assert_eq!(
            (pool.take(700 << 20, &ledger), pool.take(600 << 20, &ledger)),
            (None, Some('a')),
            "1300 idle MiB were over 1050"
        );
    }

    #[test]
    fn what_is_little_may_stay() {
        let (pool, ledger) = (Pool::default(), Ledger::default());
        ledger.add(Tag::Activations, 1 << 20);
        pool.put(31 << 20, 'a');
        pool.trim(&ledger);
        assert_eq!(pool.take(31 << 20, &ledger), Some('a'));
        pool.put(33 << 20, 'b');
        pool.trim(&ledger);
        assert_eq!(pool.take(33 << 20, &ledger), None);
    }

    #[test]
    fn a_loose_block_is_better_than_one_given_back_for_a_fresh_one() {
        let (pool, ledger) = (Pool::default(), Ledger::default());
        let ask = |mib: usize| {
            ledger.add(Tag::Activations, (mib << 20) as u64);
            pool.take(mib << 20, &ledger)
        };
        ledger.add(Tag::Activations, 400 << 20);
        pool.put(10 << 20, 'a');
        assert_eq!(ask(6), None, "406 MiB in use and 10 idle are no more than the 438 that may be held");
        ledger.remove(Tag::Activations, 6 << 20);
        pool.put(34 << 20, 'b');
        assert_eq!(ask(16), None, "more than twice as large");
        ledger.remove(Tag::Activations, 16 << 20);
        assert_eq!(pool.take(34 << 20, &ledger), Some('b'));
        pool.put(30 << 20, 'c');
        assert_eq!(ask(16), Some('c'));
        pool.lend(14 << 20);
        pool.put(20 << 20, 'd');
        // 416 MiB are in use, 14 are lent beyond that, 10 and 20 wait: of 448.
        pool.trim(&ledger);
        assert_eq!((pool.take(20 << 20, &ledger), pool.take(10 << 20, &ledger)), (None, Some('a')));
    }

    #[test]
    fn the_smallest_blocks_come_back_too() {
        let (pool, ledger) = (Pool::default(), Ledger::default());
        // As a GPU gives them, and as a processor does.
        for capacity in [1, LEAST] {
            pool.put(capacity, 'a');
            assert_eq!((pool.take(0, &ledger), pool.take(0, &ledger)), (Some('a'), None));
        }
        pool.put(LEAST, 'b');
        assert_eq!((pool.take(LEAST + 1, &ledger), pool.take(8, &ledger)), (None, Some('b')));
    }

    #[test]
    fn what_is_set_apart_stays_apart() {
        let (pool, ledger) = (Pool::default(), Ledger::default());
        pool.put(98, 'c');
        pool.put(100, 'a');
        pool.put(200, 'b');
        pool.set_apart();
        assert_eq!(pool.take(100, &ledger), Some('a'));
        pool.put(100, 'a');
        assert_eq!(pool.take(100, &ledger), Some('a'), "again, by who asks meanwhile");
        pool.put(100, 'a');
        assert_eq!(pool.take(190, &ledger), Some('b'));
        assert_eq!(pool.take(95, &ledger), Some('c'), "the smallest, as if nothing was apart");
        pool.put(98, 'c');
        assert_eq!(pool.end_apart(), [(98, 'c'), (100, 'a')]);
        assert!(!pool.sets_apart());
        pool.put(200, 'b');
        assert_eq!((pool.take(100, &ledger), pool.take(200, &ledger)), (None, Some('b')));
    }

    #[test]
    fn a_cleared_pool_has_nothing() {
        let (pool, ledger) = (Pool::default(), Ledger::default());
        assert!(!pool.clear());
        pool.put(600, 'a');
        assert!(pool.clear());
        assert_eq!(pool.take(600, &ledger), None);
    }
}
