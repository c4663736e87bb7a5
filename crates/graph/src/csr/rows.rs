//! Building rows in parallel: the one primitive behind every transformation.

use std::ops::Range;

use rayon::prelude::*;

use super::{Csr, NodeId};

/// Pieces per thread: enough for stealing to even out rows of unequal cost.
const PIECES_PER_THREAD: usize = 16;

/// Cuts rows with these offsets into at most `pieces` ranges of about equal (edges + rows).
pub(crate) fn balanced(indptr: &[u64], pieces: usize) -> Vec<Range<usize>> {
    let rows = indptr.len() - 1;
    let cost = |row: usize| indptr[row] + row as u64;
    let total = cost(rows);
    let pieces = pieces.clamp(1, rows.max(1)) as u64;
    let mut ranges = Vec::with_capacity(pieces as usize);
    let mut start = 0;
    for piece in 1..=pieces {
        let target = (u128::from(total) * u128::from(piece) / u128::from(pieces)) as u64;
        let (mut lo, mut hi) = (start, rows);
        while lo < hi {
            let mid = lo + (hi - lo) / 2;
            if cost(mid) < target { lo = mid + 1 } else { hi = mid }
        }
        let end = if piece == pieces { rows } else { lo };
        if end > start {
            ranges.push(start..end);
            start = end;
        }
    }
    ranges
}

/// How many pieces to cut work into on the current pool.
pub(crate) fn pieces() -> usize {
    rayon::current_num_threads() * PIECES_PER_THREAD
}

/// Turns row lengths (in `indptr[1..]`, with `indptr[0] = 0`) into offsets.
pub(super) fn prefix_sum(indptr: &mut [u64]) {
    let mut sum = 0;
    for x in indptr {
        sum += *x;
        *x = sum;
    }
}

/// Builds a CSR row by row: row i is what `entries(i)` gives, which is asked for twice.
pub(crate) fn collect<I: NodeId, E: Iterator<Item = I>>(
    num_dst: usize,
    num_src: usize,
    entries: impl Fn(usize) -> E + Sync,
) -> Csr<I> {
    let fill = |i: usize, row: &mut [I]| row.iter_mut().zip(entries(i)).for_each(|(slot, id)| *slot = id);
    build(num_dst, num_src, |i| entries(i).count(), fill)
}

/// Builds a CSR row by row: `length(i)` entries in row i, written by `fill(i, row)`, both called once per row.
pub(crate) fn build<I: NodeId>(
    num_dst: usize,
    num_src: usize,
    length: impl Fn(usize) -> usize + Sync,
    fill: impl Fn(usize, &mut [I]) + Sync,
) -> Csr<I> {
    let mut indptr = vec![0u64; num_dst + 1];
    indptr[1..].par_iter_mut().enumerate().with_min_len(1024).for_each(|(i, x)| *x = length(i) as u64);
    prefix_sum(&mut indptr);
    let mut indices = vec![I::new(0); indptr[num_dst] as usize];
    let ranges = balanced(&indptr, pieces());
    split(&mut indices, &indptr, &ranges).into_par_iter().zip(&ranges).for_each(|(mut out, range)| {
        for i in range.clone() {
            let (row, rest) = out.split_at_mut((indptr[i + 1] - indptr[i]) as usize);
            fill(i, row);
            out = rest;
        }
    });
    Csr::from_valid(indptr, indices, num_src)
}

/// Cuts `data` at the row boundaries of `ranges`, which follow one another.
pub(crate) fn split<'a, T>(mut data: &'a mut [T], indptr: &[u64], ranges: &[Range<usize>]) -> Vec<&'a mut [T]> {
    ranges
        .iter()
        .map(|r| {
            let (head, tail) = std::mem::take(&mut data).split_at_mut((indptr[r.end] - indptr[r.start]) as usize);
            data = tail;
            head
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::balanced;

    #[test]
    fn ranges_cover_rows_once_and_share_edges() {
        let indptr: Vec<u64> = vec![0, 0, 100, 101, 102, 103, 200, 200];
        for pieces in 1..10 {
            let ranges = balanced(&indptr, pieces);
            assert!(ranges.len() <= pieces);
            assert_eq!(ranges.first().unwrap().start, 0);
            assert_eq!(ranges.last().unwrap().end, 7);
            assert!(ranges.windows(2).all(|w| w[0].end == w[1].start));
        }
        assert_eq!(balanced(&indptr, 2), [0..3, 3..7]);
        assert!(balanced(&[0], 4).is_empty());
    }
}
