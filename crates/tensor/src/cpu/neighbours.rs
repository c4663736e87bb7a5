//! What kernels over the neighbours of nodes share: how portions run, and how rows are fetched ahead of their use.

use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
use std::ops::Range;

use super::parallel::each_apart;
use crate::adjacency::{Direction, Portion};

/// How many edges ahead rows are prefetched.
pub(super) const AHEAD: usize = 24;
/// Edges per block, where several are taken at a time.
pub(super) const FOUR: usize = 4;

/// Runs `rows` over all portions, then `merge` over the hubs, whose pieces are merged in order.
pub(super) fn run(
    direction: &Direction,
    rows: &(dyn Fn(usize, &Portion) + Sync),
    merge: &(dyn Fn(usize, Range<usize>) + Sync),
) {
    let (all, hubs) = (&direction.portions.all, &direction.portions.hubs);
    each_apart(all.len(), &|number| rows(number, &all[number]));
    each_apart(hubs.len(), &|k| merge(hubs[k].0, hubs[k].1.clone()));
}

/// Asks for the cache lines of some elements, which need not be valid, into the L2 cache only. A core tracks some two
/// dozen misses of its L1 cache and twice as many of its L2: rows that are asked for here do not stand in the way of
/// the loads of rows that are there already.
#[inline(always)]
pub(super) fn prefetch<T>(start: *const T, elements: usize) {
    let bytes = elements * size_of::<T>();
    let mut at = 0;
    while at < bytes {
        // SAFETY: a hint, which never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(start.cast::<i8>().wrapping_add(at)) };
        at += 64;
    }
}
