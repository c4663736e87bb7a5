//! Writing disjoint rows of one matrix from several threads.

use std::marker::PhantomData;
use std::ops::Range;

/// A mutable slice that tasks write disjoint parts of.
///
/// Rayon splits slices into equal or given pieces; rows of tasks that follow a graph's degrees, with hubs cut out, are
/// neither.
#[derive(Clone, Copy)]
pub(super) struct Shared<'a, T> {
    start: *mut T,
    len: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: a `Shared` gives access only through `part`, whose callers promise disjoint ranges; so no two threads touch
// the same element, which is what `Send` and `Sync` of `&mut [T]` pieces would mean.
unsafe impl<T: Send> Send for Shared<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    pub(super) fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), slice: PhantomData }
    }

    /// The elements of `range`.
    ///
    /// # Safety
    /// While the result lives, no other part that overlaps `range` may exist.
    #[allow(clippy::mut_from_ref)]
    pub(super) unsafe fn part(&self, range: Range<usize>) -> &'a mut [T] {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: in bounds by the assertion, exclusive by the caller's promise, alive for 'a as the borrowed slice is.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }
}
