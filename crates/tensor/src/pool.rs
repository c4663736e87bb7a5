//! Memory blocks that are kept for the next request.
//!
//! Training asks for the same sizes in every step. Fresh pages cost a fault each, which for large temporaries is as dear as the
//! computation; so a freed block waits for the next request of about its size. To keep resident memory near the accounted
//! peak, idle blocks are given back as soon as everything held would exceed the peak by more than a twentieth, and by more than
//! what is too little to matter: on small graphs, pages that come and go would take a tenth of the time.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use crate::ledger::Ledger;

/// A request may be met by an idle block up to this much larger.
const FIT: f64 = 1.125;
/// Devices may give so many bytes where fewer are asked for.
pub(crate) const LEAST: usize = 64;
/// Held memory may exceed the accounted peak by this factor before idle blocks are given back.
const SLACK: f64 = 1.05;
/// It may always exceed it by so many bytes.
const SPARE: u64 = 32 << 20;

/// Idle blocks by capacity.
pub(crate) struct Pool<B> {
    idle: RefCell<BTreeMap<usize, Vec<B>>>,
    waiting: Cell<usize>,
    /// Blocks that were freed while work is [recorded](Pool::set_apart): they belong to the recording.
    apart: RefCell<Option<BTreeMap<usize, Vec<B>>>>,
}

impl<B> Default for Pool<B> {
    fn default() -> Self {
        Self { idle: RefCell::default(), waiting: Cell::new(0), apart: RefCell::default() }
    }
}

impl<B> Pool<B> {
    /// An idle block of at least `bytes`, if there is one of about that size.
    pub(crate) fn take(&self, bytes: usize) -> Option<B> {
        let largest = ((bytes as f64 * FIT) as usize).max(bytes).max(LEAST);
        let first = |of: &BTreeMap<usize, Vec<B>>| of.range(bytes..=largest).next().map(|(capacity, _)| *capacity);
        let idle = first(&self.idle.borrow());
        // The smallest, wherever it is: work that is recorded gets the blocks that it had before.
        match &mut *self.apart.borrow_mut() {
            Some(apart) if first(apart).is_some_and(|a| idle.is_none_or(|i| a <= i)) => remove(apart, first(apart)?),
            _ => self.remove(idle?),
        }
    }

    /// From now on, blocks that are freed are kept apart, to be used again by those who ask meanwhile, and by nobody else.
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

    /// Gives idle blocks back, largest first, while a fresh block of `wanted` bytes (already in the ledger) would take the
    /// memory held too far above the peak.
    pub(crate) fn trim(&self, ledger: &Ledger) {
        let peak = ledger.peak().total();
        let allowed = ((peak as f64 * SLACK) as u64).max(peak + SPARE);
        let live = ledger.now().total();
        while live + self.waiting.get() as u64 > allowed {
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
        let pool = Pool::default();
        pool.put(1000, 'a');
        assert_eq!(pool.take(1001), None);
        assert_eq!(pool.take(500), None, "half a block would be wasted");
        assert_eq!(pool.take(950), Some('a'));
        assert_eq!(pool.take(950), None);
    }

    #[test]
    fn idle_blocks_go_when_they_would_exceed_the_peak_by_a_twentieth() {
        let (pool, ledger) = (Pool::default(), Ledger::default());
        ledger.add(Tag::Activations, 1000 << 20);
        ledger.remove(Tag::Activations, 1000 << 20);
        pool.put(600 << 20, 'a');
        pool.put(700 << 20, 'b');
        pool.trim(&ledger);
        assert_eq!((pool.take(700 << 20), pool.take(600 << 20)), (None, Some('a')), "1300 idle MiB were over 1050");
    }

    #[test]
    fn what_is_little_may_stay() {
        let (pool, ledger) = (Pool::default(), Ledger::default());
        ledger.add(Tag::Activations, 1 << 20);
        pool.put(31 << 20, 'a');
        pool.trim(&ledger);
        assert_eq!(pool.take(31 << 20), Some('a'));
        pool.put(33 << 20, 'b');
        pool.trim(&ledger);
        assert_eq!(pool.take(33 << 20), None);
    }

    #[test]
    fn the_smallest_blocks_come_back_too() {
        let pool = Pool::default();
        // As a GPU gives them, and as a processor does.
        for capacity in [1, LEAST] {
            pool.put(capacity, 'a');
            assert_eq!((pool.take(0), pool.take(0)), (Some('a'), None));
        }
        pool.put(LEAST, 'b');
        assert_eq!((pool.take(LEAST + 1), pool.take(8)), (None, Some('b')));
    }

    #[test]
    fn what_is_set_apart_stays_apart() {
        let pool = Pool::default();
        pool.put(98, 'c');
        pool.put(100, 'a');
        pool.put(200, 'b');
        pool.set_apart();
        assert_eq!(pool.take(100), Some('a'));
        pool.put(100, 'a');
        assert_eq!(pool.take(100), Some('a'), "again, by who asks meanwhile");
        pool.put(100, 'a');
        assert_eq!(pool.take(190), Some('b'));
        assert_eq!(pool.take(95), Some('c'), "the smallest, as if nothing was apart");
        pool.put(98, 'c');
        assert_eq!(pool.end_apart(), [(98, 'c'), (100, 'a')]);
        assert!(!pool.sets_apart());
        pool.put(200, 'b');
        assert_eq!((pool.take(100), pool.take(200)), (None, Some('b')));
    }

    #[test]
    fn a_cleared_pool_has_nothing() {
        let pool = Pool::default();
        assert!(!pool.clear());
        pool.put(600, 'a');
        assert!(pool.clear());
        assert_eq!(pool.take(600), None);
    }
}
