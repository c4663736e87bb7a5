//! Gather and scatter of rows on the CPU.

use num_traits::Zero;

use super::rowwise::{Blocks, Storage, by_dtype, span};
use super::share::Shared;
use super::{Cpu, Isa, host, host_mut};
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::ops::many_rows::ManyRows;
use crate::ops::rows::{Groups, RowIndex, RowKernels};

const OP: &str = "rows";

impl RowKernels for Cpu {
    fn gather_rows(&self, x: &Matrix, index: &RowIndex, y: &mut Matrix) -> Result<()> {
        let (cols, rows, index) = (x.cols(), index.num_rows(), index.index());
        x.expect(OP, "x", rows, cols)?;
        y.expect(OP, "y", index.len(), cols)?;
        by_dtype!(x.dtype(), T => {
            pick(host::<T>(OP, "x", x)?, index, host_mut::<T>(OP, "y", y)?, cols);
            Ok(())
        })
    }

    fn scatter_rows(&self, x: &Matrix, index: &RowIndex, y: &mut Matrix, write: Write) -> Result<()> {
        let (rows, cols) = y.shape();
        x.expect(OP, "x", index.index().len(), cols)?;
        y.expect(OP, "y", index.num_rows(), cols)?;
        let groups = index.groups();
        by_dtype!(x.dtype(), T => {
            let (x, y) = (host::<T>(OP, "x", x)?, Shared::new(host_mut::<T>(OP, "y", y)?));
            Blocks::new(rows, cols).each(|_, rows| {
                // SAFETY: blocks of rows are disjoint.
                let y = unsafe { y.part(span(&rows, cols)) };
                self.isa.run(#[inline(always)] || scatter_block(x, groups, y, rows, cols, write));
            });
            Ok(())
        })
    }

    fn gather_many(&self, from: &[&Matrix], list: &ManyRows, y: &mut Matrix) -> Result<()> {
        let (cols, dtype) = (y.cols(), y.dtype());
        list.expect(from.iter().map(|m| Some(*m)), cols, dtype)?;
        y.expect(OP, "y", list.len(), cols)?;
        by_dtype!(dtype, T => {
            let y = host_mut::<T>(OP, "y", y)?;
            for (from, part) in from.iter().zip(list.parts()) {
                let rows = &list.rows()[part.entries.clone()];
                pick(host::<T>(OP, "from", from)?, rows, &mut y[span(&part.entries, cols)], cols);
            }
            Ok(())
        })
    }

    fn scatter_many(&self, x: &Matrix, list: &ManyRows, to: &mut [Option<Matrix>]) -> Result<()> {
        let (cols, dtype) = (x.cols(), x.dtype());
        list.expect(to.iter().map(Option::as_ref), cols, dtype)?;
        x.expect(OP, "x", list.len(), cols)?;
        by_dtype!(dtype, T => {
            let x = host::<T>(OP, "x", x)?;
            for (to, part) in to.iter_mut().zip(list.parts()).filter_map(|(to, part)| Some((to.as_mut()?, part))) {
                let rows = &list.rows()[part.entries.clone()];
                put(self.isa, &x[span(&part.entries, cols)], rows, host_mut::<T>(OP, "to", to)?, cols);
            }
            Ok(())
        })
    }
}

/// `y[k] = x[index[k]]`.
fn pick<T: Storage>(x: &[T], index: &[u32], y: &mut [T], cols: usize) {
    let y = Shared::new(y);
    Blocks::new(index.len(), cols).each(|_, rows| {
        // SAFETY: blocks of rows are disjoint.
        let y = unsafe { y.part(span(&rows, cols)) };
        for (y, i) in y.chunks_exact_mut(cols.max(1)).zip(&index[rows]) {
            y.copy_from_slice(&x[*i as usize * cols..][..cols]);
        }
    });
}

/// `y[index[k]] += x[k]`, where no row is listed twice.
fn put<T: Storage>(isa: Isa, x: &[T], index: &[u32], y: &mut [T], cols: usize) {
    let y = Shared::new(y);
    Blocks::new(index.len(), cols).each(|_, rows| {
        let x = &x[span(&rows, cols)];
        isa.run(
            #[inline(always)]
            || {
                for (x, i) in x.chunks_exact(cols.max(1)).zip(&index[rows]) {
                    let start = *i as usize * cols;
                    // SAFETY: every row is listed once.
                    let y = unsafe { y.part(start..start + cols) };
                    for (y, x) in y.iter_mut().zip(x) {
                        *y = T::store(y.load() + x.load());
                    }
                }
            },
        );
    });
}

#[inline(always)]
fn scatter_block<T: Storage>(
    x: &[T],
    groups: &Groups,
    y: &mut [T],
    rows: std::ops::Range<usize>,
    cols: usize,
    write: Write,
) {
    if write == Write::Set {
        y.fill(T::zeroed());
    }
    let mut sum = vec![T::C::zero(); cols];
    for (target, positions) in groups.within(rows.clone()) {
        let y = &mut y[(target - rows.start) * cols..][..cols];
        for (sum, y) in sum.iter_mut().zip(&*y) {
            *sum = y.load();
        }
        for k in positions {
            for (sum, x) in sum.iter_mut().zip(&x[*k as usize * cols..][..cols]) {
                *sum = *sum + x.load();
            }
        }
        for (y, sum) in y.iter_mut().zip(&sum) {
            *y = T::store(*sum);
        }
    }
}
