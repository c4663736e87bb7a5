//! Dropout on the CPU: masks of some rows at a time, made in the first-level cache and used at once.

use std::ops::Range;

use super::elementwise::Real;
use super::rowwise::{Blocks, Storage, by_dtype, span};
use super::share::Shared;
use super::{Cpu, host, host_mut};
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::dropout::{DropoutKernels, RowDropout};
use crate::random::{Dropout, GROUP, IdsView, LOT};

const OP: &str = "dropout";
/// Calls of the generator per refill: enough that narrow rows fill whole lots, few enough for the first-level cache.
const REFILL: usize = 8 * LOT;

/// A dropout of rows that threads can share.
#[derive(Clone, Copy)]
pub(super) struct Drop<'a> {
    dropout: Dropout,
    ids: IdsView<'a>,
}

impl<'a> Drop<'a> {
    /// `None` if nothing is dropped.
    pub(super) fn new(d: Option<&'a RowDropout>) -> Option<Self> {
        d.filter(|d| d.dropout.is_active()).map(|d| Self { dropout: d.dropout, ids: d.ids.view() })
    }

    /// The factor of an element with this number.
    #[inline(always)]
    pub(super) fn factor<T: Storage>(&self, bits: u16) -> T::C {
        T::C::of(self.dropout.factor(bits))
    }
}

/// Calls of the generator that are made side by side: the row (counted from the first that is held) and the group of
/// each.
struct Lot {
    rows: [u64; LOT],
    groups: [u64; LOT],
}

/// The masks of consecutive rows.
pub(super) struct Masks<'a> {
    drop: Drop<'a>,
    cols: usize,
    /// Groups of eight columns in a row; the last may be longer than the row.
    groups: usize,
    lots: Vec<Lot>,
    bits: Vec<u64>,
    /// The rows that `bits` holds.
    held: Range<usize>,
    /// The end of all rows.
    end: usize,
}

impl<'a> Masks<'a> {
    /// For rows of `cols` columns up to `end`.
    pub(super) fn new(drop: Drop<'a>, cols: usize, end: usize) -> Self {
        let groups = cols.div_ceil(GROUP).max(1);
        let lots = ((REFILL / groups).max(1) * groups).div_ceil(LOT);
        let call = |lot: usize, k: usize| lot * LOT + k;
        let lots: Vec<_> = (0..lots)
            .map(|lot| Lot {
                rows: std::array::from_fn(|k| (call(lot, k) / groups) as u64),
                groups: std::array::from_fn(|k| (call(lot, k) % groups) as u64),
            })
            .collect();
        Self { drop, cols, groups, bits: vec![0; 2 * LOT * lots.len()], lots, held: 0..0, end }
    }

    /// Whose masks these are.
    #[inline(always)]
    pub(super) fn drop(&self) -> Drop<'a> {
        self.drop
    }

    /// The numbers of row `row`, a column each. Rows are asked for in order.
    #[inline(always)]
    pub(super) fn row(&mut self, row: usize) -> &[u16] {
        if !self.held.contains(&row) {
            self.refill(row);
        }
        // Eight 16-bit numbers a group: in memory in this order, as all processors that we run on are little-endian.
        let bits: &[u16] = bytemuck::cast_slice(&self.bits);
        &bits[(row - self.held.start) * self.groups * GROUP..][..self.cols]
    }

    #[inline(always)]
    fn refill(&mut self, first: usize) {
        let Drop { dropout, ids } = self.drop;
        self.held = first..self.end.min(first + self.lots.len() * LOT / self.groups);
        let last = self.held.end.saturating_sub(1);
        // Calls beyond the last row fill up a lot; what they find is not used.
        for (lot, bits) in self.lots.iter().zip(self.bits.as_chunks_mut().0) {
            dropout.row_bits(&ids.many(first, &lot.rows, last), &lot.groups, bits);
        }
    }
}

impl DropoutKernels for Cpu {
    fn dropout(&self, d: &RowDropout, x: &Matrix, y: &mut Matrix) -> Result<()> {
        let (rows, cols) = x.shape();
        y.expect(OP, "y", rows, cols)?;
        let Some(drop) = Drop::new(Some(d)) else { return super::elementwise::convert(y, x) };
        by_dtype!(x.dtype(), T => {
            let (x, y) = (host::<T>(OP, "x", x)?, Shared::new(host_mut::<T>(OP, "y", y)?));
            Blocks::new(rows, cols).each(|_, rows| {
                // SAFETY: blocks of rows are disjoint.
                let y = unsafe { y.part(span(&rows, cols)) };
                self.isa.run(#[inline(always)] || {
                    let mut masks = Masks::new(drop, cols, rows.end);
                    for (row, y) in rows.zip(y.chunks_exact_mut(cols.max(1))) {
                        for ((y, x), b) in y.iter_mut().zip(&x[row * cols..][..cols]).zip(masks.row(row)) {
                            *y = T::store(x.load() * drop.factor::<T>(*b));
                        }
                    }
                });
            });
            Ok(())
        })
    }

    fn dropout_in_place(&self, d: &RowDropout, m: &mut Matrix) -> Result<()> {
        let (rows, cols) = m.shape();
        let Some(drop) = Drop::new(Some(d)) else { return Ok(()) };
        by_dtype!(m.dtype(), T => {
            let m = Shared::new(host_mut::<T>(OP, "m", m)?);
            Blocks::new(rows, cols).each(|_, rows| {
                // SAFETY: blocks of rows are disjoint.
                let m = unsafe { m.part(span(&rows, cols)) };
                self.isa.run(#[inline(always)] || {
                    let mut masks = Masks::new(drop, cols, rows.end);
                    for (row, m) in rows.zip(m.chunks_exact_mut(cols.max(1))) {
                        for (x, b) in m.iter_mut().zip(masks.row(row)) {
                            *x = T::store(x.load() * drop.factor::<T>(*b));
                        }
                    }
                });
            });
            Ok(())
        })
    }
}
