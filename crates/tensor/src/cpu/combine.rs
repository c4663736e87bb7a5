//! Sums with coefficients and moved columns, on the CPU.

use std::ops::Range;

use super::elementwise::{GRAIN, Real};
use super::parallel::each_chunk;
use super::rowwise::{Blocks, Storage, by_dtype, span};
use super::share::Shared;
use super::{Cpu, host, host_mut};
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::ops::combine::{CombineKernels, Patch, Term};

const OP: &str = "combine";

impl CombineKernels for Cpu {
    fn combine(&self, a: f64, x: &Matrix, other: Option<Term<'_>>, to: &mut Matrix) -> Result<()> {
        x.expect(OP, "x", to.rows(), to.cols())?;
        by_dtype!(x.dtype(), T => {
            let x = host::<T>(OP, "x", x)?;
            let other = other.map(|term| host::<T>(OP, "y", term.y).map(|y| (term.b, y))).transpose()?;
            let to = host_mut::<T>(OP, "result", to)?;
            each_chunk(to, GRAIN, &|k, to| {
                let x = &x[k * GRAIN..][..to.len()];
                let other = other.map(|(b, y)| Added { b, y: &y[k * GRAIN..][..x.len()] });
                self.isa.run(#[inline(always)] || combine(a, x, other, to));
            });
            Ok(())
        })
    }

    fn scale(&self, a: f64, m: &mut Matrix) -> Result<()> {
        by_dtype!(m.dtype(), T => {
            each_chunk(host_mut::<T>(OP, "matrix", m)?, GRAIN, &|_, m| {
                self.isa.run(#[inline(always)] || scale(a, m));
            });
            Ok(())
        })
    }

    fn copy_patch(&self, from: &Matrix, to: &mut Matrix, patch: Patch, write: Write) -> Result<()> {
        patch.check(from, to)?;
        let (from_cols, to_cols) = (from.cols(), to.cols());
        let Patch { from: [from_row, from_col], to: [to_row, to_col], size: [rows, count] } = patch;
        let shifted = |rows: &Range<usize>, by: usize| rows.start + by..rows.end + by;
        by_dtype!(from.dtype(), T => {
            let (from, to) = (host::<T>(OP, "source", from)?, Shared::new(host_mut::<T>(OP, "target", to)?));
            Blocks::new(rows, count).each(|_, rows| {
                // SAFETY: blocks of rows are disjoint.
                let to = unsafe { to.part(span(&shifted(&rows, to_row), to_cols)) };
                let from = &from[span(&shifted(&rows, from_row), from_cols)];
                for (to, from) in to.chunks_exact_mut(to_cols.max(1)).zip(from.chunks_exact(from_cols.max(1))) {
                    let (to, from) = (&mut to[to_col..][..count], &from[from_col..][..count]);
                    match write {
                        Write::Set => to.copy_from_slice(from),
                        Write::Add => {
                            for (to, from) in to.iter_mut().zip(from) {
                                *to = T::store(to.load() + from.load());
                            }
                        }
                    }
                }
            });
            Ok(())
        })
    }
}

/// b·y.
#[derive(Clone, Copy)]
struct Added<'a, T> {
    b: f64,
    y: &'a [T],
}

#[inline(always)]
fn combine<T: Storage>(a: f64, x: &[T], other: Option<Added<'_, T>>, to: &mut [T]) {
    let a = T::C::of(a);
    match other {
        None => {
            for (to, x) in to.iter_mut().zip(x) {
                *to = T::store(a * x.load());
            }
        }
        Some(Added { b, y }) => {
            let b = T::C::of(b);
            for (to, (x, y)) in to.iter_mut().zip(x.iter().zip(y)) {
                *to = T::store(a * x.load() + b * y.load());
            }
        }
    }
}

#[inline(always)]
fn scale<T: Storage>(a: f64, m: &mut [T]) {
    let a = T::C::of(a);
    for x in m {
        *x = T::store(a * x.load());
    }
}
