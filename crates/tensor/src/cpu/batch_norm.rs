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
    for (k, sum) in host_mut::<f64>(OP, "sums", sums)?.iter_mut().enumerate().take(2 * cols) {
        *sum = partial.chunks_exact(2 * cols).map(|p| p[k]).sum();
    }
    Ok(())
}

impl BatchNormKernels for Cpu {
    fn moment_sums(&self, x: &Matrix, shift: &Matrix, sums: &mut Matrix) -> Result<()> {
        let cols = x.cols();
        sums.expect(OP, "sums", 1, 2 * cols + 1)?;
        by_dtype!(x.dtype(), T => {
            let (values, shift) = (host::<T>(OP, "x", x)?, host::<<T as Storage>::C>(OP, "shift", shift)?);
            column_sums(*self, x, sums, #[inline(always)] |row, a, b| {
                for ((x, s), (a, b)) in values[row * cols..][..cols].iter().zip(shift).zip(a.iter_mut().zip(b)) {
                    let x = x.widen() - s.widen();
                    *a += x;
                    *b += x * x;
                }
            })
        })?;
        host_mut::<f64>(OP, "sums", sums)?[2 * cols] = x.rows() as f64;
        Ok(())
    }

    fn settle_moments(&self, sums: &Matrix, shift: &Matrix, moments: &mut Matrix) -> Result<()> {
        let cols = moments.cols();
        moments.expect(OP, "moments", 2, cols)?;
        let (first, second, count) = halves(sums, cols)?;
        by_dtype!(shift.dtype(), T => {
            let shift = host::<T>(OP, "shift", shift)?;
            let (means, variances) = host_mut::<f64>(OP, "moments", moments)?.split_at_mut(cols);
            let columns = means.iter_mut().zip(variances).zip(shift).zip(first.iter().zip(second));
            for (((mean, variance), shift), (first, second)) in columns {
                let off = first / count.max(1.0);
                *mean = shift.widen() + off;
                *variance = (second / count.max(1.0) - off * off).max(0.0);
            }
            Ok(())
        })
    }

    fn follow_moments(&self, sums: &Matrix, moments: &Matrix, momentum: f64, running: &mut Matrix) -> Result<()> {
        let cols = running.cols();
        moments.expect(OP, "moments", 2, cols)?;
        let (.., count) = halves(sums, cols)?;
        if count > 0.0 {
            let unbiased = count / (count - 1.0).max(1.0);
            let (means, variances) = host::<f64>(OP, "moments", moments)?.split_at(cols);
            let batch = means.iter().copied().chain(variances.iter().map(|v| v * unbiased));
            for (old, new) in host_mut::<f64>(OP, "running moments", running)?.iter_mut().zip(batch) {
                *old += momentum * (new - *old);
            }
        }
        Ok(())
    }

    fn normaliser(&self, moments: &Matrix, epsilon: f64, mean: &mut Matrix, scale: &mut Matrix) -> Result<()> {
        let cols = mean.cols();
        moments.expect(OP, "moments", 2, cols)?;
        let (means, variances) = host::<f64>(OP, "moments", moments)?.split_at(cols);
        by_dtype!(mean.dtype(), T => {
            for (to, x) in host_mut::<T>(OP, "mean", mean)?.iter_mut().zip(means) {
                *to = T::narrow(*x);
            }
            for (to, x) in host_mut::<T>(OP, "scale", scale)?.iter_mut().zip(variances) {
                *to = T::narrow(1.0 / (x + epsilon).sqrt());
            }
            Ok(())
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

    fn batch_norm_shares(&self, sums: &Matrix, first: usize, counted: Option<&Matrix>, to: &mut Matrix) -> Result<()> {
        let count = match counted {
            Some(m) => host::<f64>(OP, "sums", m)?.last().map_or(1.0, |count| count.max(1.0)),
            None => 1.0,
        };
        sums.expect_part(OP, first, to.cols())?;
        let sums = &host::<f64>(OP, "sums", sums)?[first..];
        by_dtype!(to.dtype(), T => {
            for (to, sum) in host_mut::<T>(OP, "shares", to)?.iter_mut().zip(sums) {
                *to = T::narrow(sum / count);
            }
            Ok(())
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

/// Both sums of each column, and the number of rows.
fn halves(sums: &Matrix, cols: usize) -> Result<(&[f64], &[f64], f64)> {
    sums.expect(OP, "sums", 1, 2 * cols + 1)?;
    let all = host::<f64>(OP, "sums", sums)?;
    Ok((&all[..cols], &all[cols..2 * cols], all[2 * cols]))
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
