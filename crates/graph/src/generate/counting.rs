//! A symmetric CSR from draws that can be repeated, without ever holding a list of edges.
//!
//! Counter-based randomness makes the draws replayable, so they are made twice: once to count the entries of each row,
//! once to put them in place. Then rows are sorted, repeated entries dropped and the gaps closed, all in place. Besides
//! the CSR only a fixed buffer is needed.
//!
//! Entries arrive in random order, and incrementing a random counter per entry would miss the cache and the TLB each
//! time (and, with threads, need an atomic operation that waits for the miss). So work goes in rounds of two steps:
//! threads make pieces of the draws and sort each piece into buckets by destination; then each bucket, a contiguous
//! range of rows, is taken by one thread, which reads its share of all pieces in sequence and touches only its own
//! rows. No atomics, no locks, and the result does not depend on the threads, because rows are sorted at the end.

use std::ops::Range;

use graphweft_base::progress::{Phase, Progress, Unit};
use graphweft_base::{Error, Result};
use rayon::prelude::*;

use crate::csr::{Csr, SelfLoops, rows};

/// Undirected edges that can be listed again and again, any part at any time.
pub(super) trait Draws: Sync {
    /// Nodes that edges may name.
    fn num_nodes(&self) -> u64;

    /// The number of draws. Not every draw must give an edge.
    fn len(&self) -> u64;

    /// Gives the edges of some draws to `edge`, the ends of each in any order. `draws` starts at a multiple of
    /// [`PIECE`].
    fn list(&self, draws: Range<u64>, edge: impl FnMut(u32, u32));
}

/// Draws per piece: an unsorted and a sorted copy of the entries stay in a core's own cache.
pub(super) const PIECE: u64 = 1 << 14;
/// Pieces per round: enough for any number of threads, and for each bucket to find a worthwhile share.
const PIECES: u64 = 256;
/// Buckets per graph: more would make the shares of a piece too short to read and write in sequence.
const BUCKETS: u32 = 64;

/// Bytes that [`symmetric_csr`] needs at its peak.
pub(super) fn peak_bytes(nodes: u64, draws: u64, loops: SelfLoops) -> u128 {
    let entries = 2 * u128::from(draws) + if loops == SelfLoops::Add { u128::from(nodes) } else { 0 };
    // Per draw in a round: the edge as drawn, and an entry for each of its ends.
    let buffers = u128::from(PIECES.min(draws.div_ceil(PIECE)) * PIECE * 3 * size_of::<Entry>() as u64);
    8 * (u128::from(nodes) + 1) + 4 * entries + buffers
}

/// The simple graph of the draws: each edge both ways and once, edges from a node to itself dropped; one such edge on
/// every node if `loops` are to be added.
pub(super) fn symmetric_csr(draws: &impl Draws, loops: SelfLoops, progress: &dyn Progress) -> Result<Csr<u32>> {
    let n = usize::try_from(draws.num_nodes()).map_err(|_| too_large(draws))?;
    let mut rounds = Rounds::new(draws, n);

    // While counting, indptr[i + 1] is the length of row i; while placing, where its next entry goes; then, its end.
    let mut indptr = zeroed::<u64>(n + 1).ok_or_else(|| too_large(draws))?;
    if loops == SelfLoops::Add {
        indptr[1..].par_iter_mut().for_each(|length| *length = 1);
    }
    let mut counts: Vec<&mut [u64]> = indptr[1..].chunks_mut(rounds.width()).collect();
    rounds.run("counting edges", progress, &mut counts, |counts, first, entries| {
        for entry in entries {
            counts[entry.to as usize - first] += 1;
        }
    });

    let total = starts_from_lengths(&mut indptr[1..]);
    let mut indices = usize::try_from(total).ok().and_then(zeroed::<u32>).ok_or_else(|| too_large(draws))?;
    let mut buckets = Bucket::split(&mut indptr[1..], &mut indices, rounds.width(), total);
    if loops == SelfLoops::Add {
        buckets.par_iter_mut().for_each(Bucket::add_loops);
    }
    rounds.run("placing edges", progress, &mut buckets, |bucket, first, entries| {
        for entry in entries {
            bucket.place(entry.to as usize - first, entry.from);
        }
    });
    drop(rounds);

    let phase = progress.start("sorting rows", n as u64, Unit::Items);
    sort_and_merge(&mut indptr, &mut indices, phase.as_ref());
    Ok(Csr::from_valid(indptr, indices, n))
}

fn too_large(draws: &impl Draws) -> Error {
    Error::Memory {
        what: format!("a graph of {} nodes from {} draws", draws.num_nodes(), draws.len()),
        needed: u64::try_from(peak_bytes(draws.num_nodes(), draws.len(), SelfLoops::Add)).unwrap_or(u64::MAX),
        available: graphweft_base::room::memory().unwrap_or(0),
        remedy: "ask for fewer nodes or a smaller degree".into(),
    }
}

/// Zeros that cost no memory until they are written to, or `None` if they cannot be had.
fn zeroed<T: bytemuck::Zeroable>(len: usize) -> Option<Vec<T>> {
    bytemuck::allocation::try_zeroed_vec(len).ok()
}

/// Turns the lengths of rows into their starts and returns the sum.
fn starts_from_lengths(rows: &mut [u64]) -> u64 {
    let mut sum = 0;
    for row in rows {
        sum += std::mem::replace(row, sum);
    }
    sum
}

/// An edge as seen from one of its ends.
#[derive(Clone, Copy, Default)]
struct Entry {
    to: u32,
    from: u32,
}

/// The entries of some consecutive draws, by bucket.
#[derive(Default)]
struct Piece {
    drawn: Vec<Entry>,
    sorted: Vec<Entry>,
    ends: Vec<usize>,
}

impl Piece {
    fn fill(&mut self, draws: &impl Draws, range: Range<u64>, shift: u32, buckets: usize) {
        let mut counts = [0usize; BUCKETS as usize];
        self.drawn.clear();
        draws.list(range, |u, v| {
            if u != v {
                counts[(u >> shift) as usize] += 1;
                counts[(v >> shift) as usize] += 1;
                self.drawn.push(Entry { to: u, from: v });
            }
        });
        let mut next = [0usize; BUCKETS as usize];
        for bucket in 1..buckets {
            next[bucket] = next[bucket - 1] + counts[bucket - 1];
        }
        self.sorted.resize(2 * self.drawn.len(), Entry::default());
        for &Entry { to, from } in &self.drawn {
            for entry in [Entry { to, from }, Entry { to: from, from: to }] {
                let slot = &mut next[(entry.to >> shift) as usize];
                self.sorted[*slot] = entry;
                *slot += 1;
            }
        }
        self.ends.clear();
        self.ends.extend_from_slice(&next[..buckets]);
    }

    fn bucket(&self, b: usize) -> &[Entry] {
        let start = if b == 0 { 0 } else { self.ends[b - 1] };
        &self.sorted[start..self.ends[b]]
    }
}

/// All draws, round by round, bucket by bucket.
struct Rounds<'a, D> {
    draws: &'a D,
    shift: u32,
    buckets: usize,
    pieces: Vec<Piece>,
}

impl<'a, D: Draws> Rounds<'a, D> {
    fn new(draws: &'a D, n: usize) -> Self {
        let bits = usize::BITS - n.saturating_sub(1).leading_zeros();
        let shift = bits.saturating_sub(BUCKETS.ilog2());
        let pieces = PIECES.min(draws.len().div_ceil(PIECE)) as usize;
        Self { draws, shift, buckets: n.div_ceil(1 << shift), pieces: (0..pieces).map(|_| Piece::default()).collect() }
    }

    /// Rows per bucket.
    fn width(&self) -> usize {
        1 << self.shift
    }

    /// Makes all draws and gives each target its entries: `apply(target, first row of its bucket, entries)`.
    fn run<T: Send>(
        &mut self,
        phase: &str,
        progress: &dyn Progress,
        targets: &mut [T],
        apply: impl Fn(&mut T, usize, &[Entry]) + Sync,
    ) {
        let (draws, shift, buckets, width) = (self.draws, self.shift, self.buckets, self.width());
        let all = draws.len();
        let phase = progress.start(phase, all, Unit::Items);
        let mut done = 0;
        while done < all {
            let round = (PIECES * PIECE).min(all - done);
            let used = round.div_ceil(PIECE) as usize;
            self.pieces[..used].par_iter_mut().enumerate().for_each(|(k, piece)| {
                let start = done + k as u64 * PIECE;
                piece.fill(draws, start..(start + PIECE).min(all), shift, buckets);
            });
            let pieces = &self.pieces[..used];
            targets.par_iter_mut().enumerate().for_each(|(b, target)| {
                pieces.iter().for_each(|piece| apply(target, b * width, piece.bucket(b)));
            });
            done += round;
            phase.add(round);
        }
    }
}

/// The rows of one bucket while entries are put in place.
struct Bucket<'a> {
    /// Where the next entry of each row goes, counted over the whole graph.
    next: &'a mut [u64],
    /// The entries of these rows.
    entries: &'a mut [u32],
    /// The first row, and the position of its first entry.
    first: usize,
    base: u64,
}

impl<'a> Bucket<'a> {
    fn split(next: &'a mut [u64], mut entries: &'a mut [u32], width: usize, total: u64) -> Vec<Self> {
        let mut bases: Vec<u64> = next.iter().step_by(width).copied().collect();
        bases.push(total);
        let mut buckets = Vec::with_capacity(bases.len());
        for (b, next) in next.chunks_mut(width).enumerate() {
            let (own, rest) = std::mem::take(&mut entries).split_at_mut((bases[b + 1] - bases[b]) as usize);
            buckets.push(Self { next, entries: own, first: b * width, base: bases[b] });
            entries = rest;
        }
        buckets
    }

    #[inline]
    fn place(&mut self, row: usize, from: u32) {
        let next = &mut self.next[row];
        self.entries[(*next - self.base) as usize] = from;
        *next += 1;
    }

    fn add_loops(&mut self) {
        for row in 0..self.next.len() {
            self.place(row, (self.first + row) as u32);
        }
    }
}

/// Sorts each row, drops repeated entries and closes the gaps.
fn sort_and_merge(indptr: &mut [u64], indices: &mut Vec<u32>, phase: &dyn Phase) {
    let ranges = rows::balanced(indptr, rows::pieces());
    let bases: Vec<u64> = ranges.iter().map(|r| indptr[r.start]).collect();
    let parts = rows::split(indices, indptr, &ranges);
    let mut ends = &mut indptr[1..];
    let ends: Vec<&mut [u64]> = ranges
        .iter()
        .map(|r| {
            let (own, rest) = std::mem::take(&mut ends).split_at_mut(r.len());
            ends = rest;
            own
        })
        .collect();

    // Each part is compacted by itself; from here on its ends count from its own start.
    let work: Vec<(&mut [u32], &mut [u64])> = parts.into_iter().zip(ends).collect();
    let kept: Vec<usize> = work
        .into_par_iter()
        .zip(&bases)
        .map(|((entries, ends), base)| {
            let (mut start, mut kept) = (0, 0);
            for end in ends.iter_mut() {
                let stop = (*end - base) as usize;
                entries[start..stop].sort_unstable();
                let row = kept;
                for k in start..stop {
                    let id = entries[k];
                    if kept == row || entries[kept - 1] != id {
                        entries[kept] = id;
                        kept += 1;
                    }
                }
                start = stop;
                *end = kept as u64;
            }
            phase.add(ends.len() as u64);
            kept
        })
        .collect();

    let mut total = 0usize;
    for ((range, &base), &kept) in ranges.iter().zip(&bases).zip(&kept) {
        indices.copy_within(base as usize..base as usize + kept, total);
        indptr[range.start + 1..=range.end].par_iter_mut().for_each(|end| *end += total as u64);
        total += kept;
    }
    indices.truncate(total);
    indices.shrink_to_fit();
}
