//! Residual connections on the CPU.

use super::dropout::{Drop, Masks};
use super::norm;
use super::rowwise::{Blocks, Storage, by_dtype, span};
use super::share::Shared;
use super::{Cpu, host, host_mut};
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::norm::{BranchSum, NormNumbers, NormTarget};
use crate::ops::residual::{Branches, NormedSum, ResidualKernels};

const OP: &str = "residual";

impl ResidualKernels for Cpu {
    fn residual(&self, b: &Branches<'_>, sum: &mut Matrix) -> Result<()> {
        let (rows, cols) = sum.shape();
        let drop = Drop::new(b.dropout);
        by_dtype!(sum.dtype(), T => {
            let (x, z) = (host::<T>(OP, "x", b.x)?, host::<T>(OP, "z", b.z)?);
            let sum = Shared::new(host_mut::<T>(OP, "sum", sum)?);
            Blocks::new(rows, cols).each(|_, rows| {
                // SAFETY: blocks of rows are disjoint.
                let sum = unsafe { sum.part(span(&rows, cols)) };
                self.isa.run(#[inline(always)] || {
                    let mut masks = drop.map(|d| Masks::new(d, cols, rows.end));
                    for (row, sum) in rows.zip(sum.chunks_exact_mut(cols.max(1))) {
                        let at = row * cols..(row + 1) * cols;
                        add_row(sum, &x[at.clone()], &z[at], masks.as_mut(), row);
                    }
                });
            });
            Ok(())
        })
    }

    fn residual_norm(&self, b: &Branches<'_>, norm: &NormNumbers<'_>, to: NormedSum<'_>) -> Result<()> {
        let to = NormTarget { sum: Some(BranchSum { branches: b, to: to.sum }), y: to.y, stats: to.stats };
        by_dtype!(to.y.dtype(), T => norm::forward::<T>(*self, b.x, norm, to))
    }
}

/// `sum = x + dropout(z)` for one row.
#[inline(always)]
pub(super) fn add_row<T: Storage>(sum: &mut [T], x: &[T], z: &[T], masks: Option<&mut Masks<'_>>, row: usize) {
    let parts = sum.iter_mut().zip(x.iter().zip(z));
    match masks {
        None => {
            for (sum, (x, z)) in parts {
                *sum = T::store(x.load() + z.load());
            }
        }
        Some(masks) => {
            let drop = masks.drop();
            for ((sum, (x, z)), b) in parts.zip(masks.row(row)) {
                *sum = T::store(x.load() + z.load() * drop.factor::<T>(*b));
            }
        }
    }
}
