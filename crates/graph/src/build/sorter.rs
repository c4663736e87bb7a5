//! Sorting more keys than fit in memory.
//!
//! Keys gather in a buffer of fixed size. A full buffer is sorted in parallel and appended to one temporary file as a
//! run; at the end the runs are merged through a heap, each read ahead by its share of the same budget. One file holds
//! all runs, so that their number is not limited by open files.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;

use bytemuck::Pod;
use graphweft_base::Result;
use rayon::prelude::*;

use super::Scratch;

/// Keys handed on at a time.
const BLOCK: usize = 1 << 16;
/// Bytes read ahead of a run: not less than a disk reads anyway, not more than pays.
const READ_AHEAD: std::ops::RangeInclusive<usize> = 4 << 10..=4 << 20;

pub(crate) struct Sorter<K> {
    scratch: Scratch,
    /// Keys that may be in memory.
    capacity: usize,
    buffer: Vec<K>,
    /// Which keys are one: only the smallest of them is kept.
    same: Option<fn(K, K) -> bool>,
    file: Option<File>,
    /// Where each run ends in the file, in keys.
    ends: Vec<u64>,
}

impl<K: Pod + Ord + Send + Sync> Sorter<K> {
    /// A sorter that uses about `memory` bytes.
    pub(crate) fn new(scratch: &Scratch, memory: usize, same: Option<fn(K, K) -> bool>) -> Self {
        let capacity = (memory / size_of::<K>()).max(1024);
        Self { scratch: scratch.clone(), capacity, buffer: Vec::new(), same, file: None, ends: Vec::new() }
    }

    /// Appends the keys that `keys` yields.
    pub(crate) fn extend(&mut self, keys: impl IntoIterator<Item = K>) -> Result<()> {
        for key in keys {
            if self.buffer.len() == self.buffer.capacity() {
                self.make_room()?;
            }
            self.buffer.push(key);
        }
        Ok(())
    }

    /// Grows the buffer, or empties it where it may not grow.
    fn make_room(&mut self) -> Result<()> {
        let held = self.buffer.len();
        if held >= self.capacity {
            return self.spill();
        }
        let target = (held * 2).clamp(1024, self.capacity);
        self.buffer.reserve_exact(target - held);
        Ok(())
    }

    fn sort(&mut self) {
        self.buffer.par_sort_unstable();
        if let Some(same) = self.same {
            self.buffer.dedup_by(|b, a| same(*a, *b));
        }
    }

    fn spill(&mut self) -> Result<()> {
        self.sort();
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(self.scratch.file()?),
        };
        file.write_all(bytemuck::cast_slice(&self.buffer)).map_err(|e| self.scratch.failed(e))?;
        self.ends.push(self.ends.last().copied().unwrap_or(0) + self.buffer.len() as u64);
        self.buffer.clear();
        Ok(())
    }

    /// Keys held, in memory and in runs.
    pub(crate) fn len(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0) + self.buffer.len() as u64
    }

    /// Hands on all keys in ascending order, in blocks. `passed(n)` hears how many keys were looked at.
    pub(crate) fn drain(mut self, passed: impl Fn(u64), mut out: impl FnMut(&[K]) -> Result<()>) -> Result<()> {
        if self.file.is_none() {
            self.sort();
            return self.buffer.chunks(BLOCK).try_for_each(|block| {
                passed(block.len() as u64);
                out(block)
            });
        }
        if !self.buffer.is_empty() {
            self.spill()?;
        }
        self.buffer = Vec::new();
        self.merge(passed, out)
    }

    fn merge(self, passed: impl Fn(u64), mut out: impl FnMut(&[K]) -> Result<()>) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let share = self.capacity * size_of::<K>() / self.ends.len().max(1);
        let ahead = share.clamp(*READ_AHEAD.start(), *READ_AHEAD.end()) / size_of::<K>();
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let mut runs: Vec<Run<'_, K>> =
            starts.zip(&self.ends).map(|(at, &end)| Run::new(file, at, end, ahead)).collect();
        let failed = |e| self.scratch.failed(e);

        let mut heap = BinaryHeap::with_capacity(runs.len());
        for (r, run) in runs.iter_mut().enumerate() {
            if let Some(key) = run.next().map_err(failed)? {
                heap.push(Reverse((key, r)));
            }
        }
        let mut block: Vec<K> = Vec::with_capacity(BLOCK);
        let mut last: Option<K> = None;
        let mut seen = 0;
        while let Some(mut top) = heap.peek_mut() {
            let Reverse((key, r)) = *top;
            seen += 1;
            let repeated = self.same.zip(last).is_some_and(|(same, last)| same(last, key));
            if !repeated {
                block.push(key);
                last = Some(key);
            }
            match runs[r].next().map_err(failed)? {
                Some(next) => *top = Reverse((next, r)),
                None => {
                    PeekMut::pop(top);
                }
            }
            if block.len() == BLOCK {
                passed(std::mem::take(&mut seen));
                out(&block)?;
                block.clear();
            }
        }
        passed(seen);
        out(&block)
    }
}

/// A sorted run in the file, read ahead.
struct Run<'a, K> {
    file: &'a File,
    at: u64,
    end: u64,
    ahead: usize,
    buffer: Vec<K>,
    next: usize,
}

impl<'a, K: Pod> Run<'a, K> {
    fn new(file: &'a File, at: u64, end: u64, ahead: usize) -> Self {
        Self { file, at, end, ahead, buffer: Vec::new(), next: 0 }
    }

    #[inline]
    fn next(&mut self) -> std::io::Result<Option<K>> {
        if self.next == self.buffer.len() && !self.refill()? {
            return Ok(None);
        }
        self.next += 1;
        Ok(Some(self.buffer[self.next - 1]))
    }

    #[cold]
    fn refill(&mut self) -> std::io::Result<bool> {
        let keys = self.ahead.min((self.end - self.at) as usize);
        self.buffer.resize(keys, K::zeroed());
        self.file.read_exact_at(bytemuck::cast_slice_mut(&mut self.buffer), self.at * size_of::<K>() as u64)?;
        self.at += keys as u64;
        self.next = 0;
        Ok(keys > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sorts `keys` with a buffer of `memory` bytes.
    fn sorted(keys: &[u64], memory: usize, same: Option<fn(u64, u64) -> bool>) -> (Vec<u64>, usize) {
        let scratch = Scratch::new(std::env::temp_dir());
        let mut sorter = Sorter::new(&scratch, memory, same);
        sorter.extend(keys.iter().copied()).unwrap();
        let runs = sorter.ends.len();
        let mut out = Vec::new();
        sorter
            .drain(
                |_| {},
                |block| {
                    out.extend_from_slice(block);
                    Ok(())
                },
            )
            .unwrap();
        (out, runs)
    }

    #[test]
    fn many_runs_give_what_one_sort_gives() {
        // Repeated values that fall into different runs.
        let keys: Vec<u64> = (0..200_000u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 47).collect();
        let mut expected = keys.clone();
        expected.sort_unstable();
        let (all, runs) = sorted(&keys, 64 << 10, None);
        assert!(runs > 20, "only {runs} runs");
        assert_eq!(all, expected);
        assert_eq!(sorted(&keys, 64 << 20, None), (expected.clone(), 0));

        expected.dedup();
        let same: fn(u64, u64) -> bool = |a, b| a == b;
        assert_eq!(sorted(&keys, 64 << 10, Some(same)).0, expected);
        assert_eq!(sorted(&keys, 64 << 20, Some(same)).0, expected);
    }

    #[test]
    fn nothing_sorts_to_nothing() {
        assert_eq!(sorted(&[], 0, None).0, Vec::<u64>::new());
    }
}
