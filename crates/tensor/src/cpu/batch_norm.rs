//! Batch norm on the CPU: sums over rows in f64, block by block.

use super::elementwise::Convert;
use super::rowwise::{Blocks, Storage, by_dtype, span};
use super::share::Shared;
use super::{Cpu, host, host_mut, scratch};
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::batch_norm::{BatchNormKernels, BatchNormSaved, Normaliser};
use crate::ops::norm::NormNumbers;

const OP: &str = "batch norm";

/// Adds to two sums per column over all rows: `add(row, first sums, second sums)`.
fn column_sums(
    cpu: Cpu,
    x: &Matrix,
    sums: &mut Matrix,
    add: impl Fn(usize, &mut [f64], &mut [f64]) + Sync + Send,
) -> Result<()> {
    let (rows, cols) = x.shape();
    let blocks = Blocks::few(rows, cols);
    let mut partial = scratch::batch_norm(x)?;
    let shared = Shared::new(host_mut::<f64>(OP, "partial sums", &mut partial)?);
    blocks.each(|number, rows| {
        // SAFETY: each block has sums of its own.
        let (a, b) = unsafe { shared.part(span(&(number..number + 1), 2 * cols)) }.split_at_mut(cols);
        cpu.isa.run(
            #[inline(always)]
            || {
                for row in rows {
                    add(row, a, b);
                }
            },
        );
    });
    let partial = host::<f64>(OP, "partial sums", &partial)?;
    for (k, sum) in host_mut::<f64>(OP, "sums", sums)?.iter_mut().enumerate() {
        *sum = partial.chunks_exact(2 * cols).map(|p| p[k]).sum();
    }
    Ok(())
}

impl BatchNormKernels for Cpu {
    fn moment_sums(&self, x: &Matrix, shift: &Matrix, sums: &mut Matrix) -> Result<()> {
        let cols = x.cols();
        by_dtype!(x.dtype(), T => {
            let (values, shift) = (host::<T>(OP, "x", x)?, host::<<T as Storage>::C>(OP, "shift", shift)?);
            column_sums(*self, x, sums, #[inline(always)] |row, a, b| {
                for ((x, s), (a, b)) in values[row * cols..][..cols].iter().zip(shift).zip(a.iter_mut().zip(b)) {
                    let x = x.widen() - s.widen();
                    *a += x;
                    *b += x * x;
                }
            })
        })
    }

    fn normalise(&self, x: &Matrix, by: &Normaliser<'_>, norm: &NormNumbers<'_>, y: &mut Matrix) -> Result<()> {
        let (rows, cols) = y.shape();
        by_dtype!(x.dtype(), T => {
            let (x, y) = (host::<T>(OP, "x", x)?, Shared::new(host_mut::<T>(OP, "y", y)?));
            let (mean, scale) = (host(OP, "mean", by.mean)?, host(OP, "scale", by.scale)?);
            let (w, b) = (host(OP, "weight", norm.weight)?, host(OP, "bias", norm.bias)?);
            Blocks::new(rows, cols).each(|_, rows| {
                // SAFETY: blocks of rows are disjoint.
                let y = unsafe { y.part(span(&rows, cols)) };
                let x = &x[span(&rows, cols)];
                self.isa.run(#[inline(always)] || {
                    for (y, x) in y.chunks_exact_mut(cols.max(1)).zip(x.chunks_exact(cols.max(1))) {
                        normalise_row(y, x, [mean, scale, w, b]);
                    }
                });
            });
            Ok(())
        })
    }

    fn batch_norm_sums(&self, x: &Matrix, by: &Normaliser<'_>, dy: &Matrix, sums: &mut Matrix) -> Result<()> {
        let cols = x.cols();
        dy.expect(OP, "dy", x.rows(), cols)?;
        by_dtype!(x.dtype(), T => {
            let (values, dy) = (host::<T>(OP, "x", x)?, host::<T>(OP, "dy", dy)?);
            let mean = host::<<T as Storage>::C>(OP, "mean", by.mean)?;
            let scale = host::<<T as Storage>::C>(OP, "scale", by.scale)?;
            column_sums(*self, x, sums, #[inline(always)] |row, a, b| {
                let (x, dy) = (&values[row * cols..][..cols], &dy[row * cols..][..cols]);
                for (((x, dy), (m, s)), (a, b)) in x.iter().zip(dy).zip(mean.iter().zip(scale)).zip(a.iter_mut().zip(b)) {
                    let dy = dy.widen();
                    *a += dy;
                    *b += dy * ((x.load() - *m) * *s).widen();
                }
            })
        })
    }

    fn batch_norm_dx(&self, saved: &BatchNormSaved<'_>, g: &mut Matrix, plus: Option<&Matrix>) -> Result<()> {
        let BatchNormSaved { x, by, weight, means } = *saved;
        let (rows, cols) = g.shape();
        by_dtype!(x.dtype(), T => {
            let (x, g) = (host::<T>(OP, "x", x)?, Shared::new(host_mut::<T>(OP, "gradient", g)?));
            let (mean, scale) = (host(OP, "mean", by.mean)?, host(OP, "scale", by.scale)?);
            let w = host(OP, "weight", weight)?;
            let (a, b) = host(OP, "means", means)?.split_at(cols);
            let plus = plus.map(|m| host::<T>(OP, "gradient", m)).transpose()?;
            Blocks::new(rows, cols).each(|_, rows| {
                // SAFETY: blocks of rows are disjoint.
                let g = unsafe { g.part(span(&rows, cols)) };
                self.isa.run(#[inline(always)] || {
                    for (row, g) in rows.zip(g.chunks_exact_mut(cols.max(1))) {
                        let at = row * cols..(row + 1) * cols;
                        dx_row(g, &x[at.clone()], [mean, scale, w, a, b]);
                        if let Some(plus) = plus {
                            for (g, p) in g.iter_mut().zip(&plus[at]) {
                                *g = T::store(g.load() + p.load());
                            }
                        }
                    }
                });
            });
            Ok(())
        })
    }
}

#[inline(always)]
fn normalise_row<T: Storage>(y: &mut [T], x: &[T], [mean, scale, w, b]: [&[T::C]; 4]) {
    for (((y, x), (m, s)), (w, b)) in y.iter_mut().zip(x).zip(mean.iter().zip(scale)).zip(w.iter().zip(b)) {
        *y = T::store((x.load() - *m) * *s * *w + *b);
    }
}

#[inline(always)]
fn dx_row<T: Storage>(g: &mut [T], x: &[T], [mean, scale, w, a, b]: [&[T::C]; 5]) {
    let columns = mean.iter().zip(scale).zip(w).zip(a.iter().zip(b));
    for ((g, x), (((m, s), w), (a, b))) in g.iter_mut().zip(x).zip(columns) {
        let normal = (x.load() - *m) * *s;
        *g = T::store((g.load() - *a - normal * *b) * *s * *w);
    }
}
