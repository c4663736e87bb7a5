//! Gather and scatter of rows on the CPU.

use num_traits::Zero;

use super::rowwise::{Blocks, Storage, by_dtype, span};
use super::share::Shared;
use super::{Cpu, host, host_mut};
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::rows::{Groups, RowIndex, RowKernels};

const OP: &str = "rows";

impl RowKernels for Cpu {
    fn gather_rows(&self, x: &Matrix, index: &RowIndex, y: &mut Matrix) -> Result<()> {
        let (cols, rows, index) = (x.cols(), index.num_rows(), index.whole()?);
        x.expect(OP, "x", rows, cols)?;
        y.expect(OP, "y", index.len(), cols)?;
        by_dtype!(x.dtype(), T => {
            let (x, y) = (host::<T>(OP, "x", x)?, Shared::new(host_mut::<T>(OP, "y", y)?));
            Blocks::new(index.len(), cols).each(|_, rows| {
                // SAFETY: blocks of rows are disjoint.
                let y = unsafe { y.part(span(&rows, cols)) };
                for (y, i) in y.chunks_exact_mut(cols.max(1)).zip(&index[rows]) {
                    y.copy_from_slice(&x[*i as usize * cols..][..cols]);
                }
            });
            Ok(())
        })
    }

    fn scatter_rows(&self, x: &Matrix, index: &RowIndex, y: &mut Matrix, add: bool) -> Result<()> {
        let (rows, cols) = y.shape();
        x.expect(OP, "x", index.len(), cols)?;
        y.expect(OP, "y", index.num_rows(), cols)?;
        let groups = index.groups();
        by_dtype!(x.dtype(), T => {
            let (x, y) = (host::<T>(OP, "x", x)?, Shared::new(host_mut::<T>(OP, "y", y)?));
            Blocks::new(rows, cols).each(|_, rows| {
                // SAFETY: blocks of rows are disjoint.
                let y = unsafe { y.part(span(&rows, cols)) };
                self.isa.run(#[inline(always)] || scatter_block(x, groups, y, rows, cols, add));
            });
            Ok(())
        })
    }
}

#[inline(always)]
fn scatter_block<T: Storage>(
    x: &[T],
    groups: &Groups,
    y: &mut [T],
    rows: std::ops::Range<usize>,
    cols: usize,
    add: bool,
) {
    if !add {
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
