//! Operands laid out for the tiles.

use std::ops::Range;

use half::bf16;

use super::tile::{COLS, Right};

/// A cache line; a row of a panel is two of them.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u32; 16]);

/// A weight [out, in] as the right side of a product.
#[derive(Clone, Copy)]
pub(super) enum Small<'a, C> {
    /// Itself: what a gradient of the output is multiplied by.
    Weight(&'a [C]),
    /// Its transpose: what an input is multiplied by.
    Transposed(&'a [C]),
}

/// A small right side in panels of 32 columns, each row by row, the last one filled up with zeros.
pub(super) struct Panels {
    lines: Vec<Line>,
    k: usize,
}

impl Panels {
    /// k × n numbers.
    pub(super) fn single(b: Small<'_, f32>, k: usize, n: usize) -> Self {
        match b {
            Small::Weight(w) => Self::new(k, n, |t, j| w[t * n + j].to_bits()),
            Small::Transposed(w) => Self::new(k, n, |t, j| w[j * k + t].to_bits()),
        }
    }

    /// k × n numbers, k even, as k/2 × n pairs.
    pub(super) fn pairs(b: Small<'_, f32>, k: usize, n: usize) -> Self {
        let two = |low: f32, high: f32| pair(bf16::from_f32(low), bf16::from_f32(high));
        match b {
            Small::Weight(w) => Self::new(k / 2, n, |t, j| two(w[2 * t * n + j], w[(2 * t + 1) * n + j])),
            Small::Transposed(w) => Self::new(k / 2, n, |t, j| two(w[j * k + 2 * t], w[j * k + 2 * t + 1])),
        }
    }

    fn new(k: usize, n: usize, element: impl Fn(usize, usize) -> u32) -> Self {
        let mut lines = vec![Line([0; 16]); n.div_ceil(COLS) * k * 2];
        for j in 0..n {
            let first = j / COLS * k * 2 + j % COLS / 16;
            for t in 0..k {
                lines[first + 2 * t].0[j % 16] = element(t, j);
            }
        }
        Self { lines, k }
    }

    pub(super) fn right(&self) -> Right {
        Right { start: self.lines.as_ptr().cast(), row: COLS, panel: COLS * self.k }
    }
}

/// Two bf16 as one 32-bit element, the first in the low half.
#[inline(always)]
fn pair(low: bf16, high: bf16) -> u32 {
    u32::from(low.to_bits()) | u32::from(high.to_bits()) << 16
}

/// Rows 2t and 2t + 1 of some columns, element by element in pairs; a missing last row counts as zero.
#[inline(always)]
pub(super) fn interleave(to: &mut Vec<u32>, from: &[bf16], width: usize, columns: Range<usize>) {
    let n = columns.len();
    to.resize(from.len().div_ceil(2 * width) * n, 0);
    for (to, rows) in to.chunks_exact_mut(n).zip(from.chunks(2 * width)) {
        let (a, b) = rows.split_at(width);
        let a = &a[columns.clone()];
        if b.is_empty() {
            to.iter_mut().zip(a).for_each(|(to, x)| *to = pair(*x, bf16::ZERO));
        } else {
            to.iter_mut().zip(a).zip(&b[columns.clone()]).for_each(|((to, x), y)| *to = pair(*x, *y));
        }
    }
}
