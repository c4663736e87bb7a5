//! What kernels over the neighbours of nodes share: how tasks run, and how rows are fetched ahead of their use.

use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
use std::ops::Range;

use rayon::prelude::*;

use crate::adjacency::{Direction, Task};

/// How many edges ahead rows are prefetched.
pub(super) const AHEAD: usize = 8;
/// How many where an edge costs little more than fetching its row, into the L2 cache.
pub(super) const FAR_AHEAD: usize = 24;
/// Edges per block, where several are taken at a time.
pub(super) const FOUR: usize = 4;

/// Runs `rows` over all tasks, then `merge` over the hubs, whose pieces are merged in order.
pub(super) fn run(
    direction: &Direction,
    rows: impl Fn(usize, &Task) + Sync + Send,
    merge: impl Fn(usize, Range<usize>) + Sync,
) {
    direction.tasks.all.par_iter().enumerate().with_max_len(1).for_each(|(number, task)| rows(number, task));
    direction.tasks.hubs.par_iter().with_max_len(1).for_each(|(row, pieces)| merge(*row, pieces.clone()));
}

/// Asks for the cache lines of some elements; they need not be valid.
#[inline(always)]
pub(super) fn prefetch<T>(start: *const T, elements: usize) {
    prefetch_to::<_MM_HINT_T0, T>(start, elements);
}

/// The same into the L2 cache only. A core tracks some two dozen misses of its L1 cache and twice as many of its L2: rows that
/// are asked for here do not stand in the way of the loads of rows that are there already.
#[inline(always)]
pub(super) fn prefetch_far<T>(start: *const T, elements: usize) {
    prefetch_to::<_MM_HINT_T1, T>(start, elements);
}

#[inline(always)]
fn prefetch_to<const HINT: i32, T>(start: *const T, elements: usize) {
    let bytes = elements * size_of::<T>();
    let mut at = 0;
    while at < bytes {
        // SAFETY: a hint, which never faults.
        unsafe { _mm_prefetch::<HINT>(start.cast::<i8>().wrapping_add(at)) };
        at += 64;
    }
}
