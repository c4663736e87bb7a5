//! Layer norm on the CPU, with the residual connection before it where there is one. A row is read once: its sums, then
//! its output come from the first-level cache.

use num_traits::{Float, One, Zero};

use super::dropout::{Drop, Masks};
use super::elementwise::Real;
use super::residual::add_row;
use super::rowwise::{Blocks, Storage, by_dtype, dot, span, sum};
use super::share::Shared;
use super::{Cpu, host, host_mut, scratch};
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::norm::{BranchSum, Dropped, NormGrads, NormKernels, NormNumbers, NormSaved, NormTarget};

const OP: &str = "layer norm";

impl NormKernels for Cpu {
    fn layer_norm(&self, x: &Matrix, norm: &NormNumbers<'_>, y: &mut Matrix, stats: &mut Matrix) -> Result<()> {
        by_dtype!(y.dtype(), T => forward::<T>(*self, x, norm, NormTarget { sum: None, y, stats }))
    }

    fn layer_norm_backward(&self, saved: &NormSaved<'_>, to: NormGrads<'_>) -> Result<()> {
        let NormGrads { g, plus, dropped, dw, db } = to;
        by_dtype!(g.dtype(), T => backward::<T>(*self, saved, g, plus, dropped, [dw, db]))
    }
}

/// Normalises `x`; or, given branches, their sum, which is written too.
pub(super) fn forward<T: Storage>(cpu: Cpu, x: &Matrix, norm: &NormNumbers<'_>, to: NormTarget<'_>) -> Result<()> {
    let NormTarget { sum: add, y, stats } = to;
    let (rows, cols) = y.shape();
    let x = host::<T>(OP, "x", x)?;
    let drop = add.as_ref().and_then(|sum| Drop::new(sum.branches.dropout));
    let add = match add {
        Some(BranchSum { branches, to }) => {
            Some((host::<T>(OP, "z", branches.z)?, Shared::new(host_mut::<T>(OP, "sum", to)?)))
        }
        None => None,
    };
    let (w, b) = (host::<T::C>(OP, "weight", norm.weight)?, host::<T::C>(OP, "bias", norm.bias)?);
    let y = Shared::new(host_mut::<T>(OP, "y", y)?);
    let stats = Shared::new(host_mut::<T::C>(OP, "stats", stats)?);
    let (epsilon, width) = (T::C::of(norm.epsilon), T::C::of(cols as f64));

    Blocks::new(rows, cols).each(|_, rows| {
        // SAFETY: blocks of rows are disjoint.
        let (y, stats) = unsafe { (y.part(span(&rows, cols)), stats.part(span(&rows, 2))) };
        let mut buffer = vec![T::C::zero(); cols];
        cpu.isa.run(
            #[inline(always)]
            || {
                let mut masks = drop.map(|d| Masks::new(d, cols, rows.end));
                for ((row, y), stats) in rows.zip(y.chunks_exact_mut(cols.max(1))).zip(stats.chunks_exact_mut(2)) {
                    let at = row * cols..(row + 1) * cols;
                    let mut source = &x[at.clone()];
                    if let Some((z, to)) = &add {
                        // SAFETY: as above.
                        let to = unsafe { to.part(at.clone()) };
                        add_row(to, source, &z[at], masks.as_mut(), row);
                        source = to;
                    }
                    for (to, x) in buffer.iter_mut().zip(source) {
                        *to = x.load();
                    }
                    let mean = sum(&buffer, |x| x) / width;
                    let variance = sum(&buffer, |x| (x - mean) * (x - mean)) / width;
                    let scale = T::C::one() / (variance + epsilon).sqrt();
                    (stats[0], stats[1]) = (mean, scale);
                    for ((y, x), (w, b)) in y.iter_mut().zip(&buffer).zip(w.iter().zip(b)) {
                        *y = T::store((*x - mean) * scale * *w + *b);
                    }
                }
            },
        );
    });
    Ok(())
}

fn backward<T: Storage>(
    cpu: Cpu,
    saved: &NormSaved<'_>,
    g: &mut Matrix,
    plus: Option<&Matrix>,
    dropped: Option<Dropped<'_>>,
    [dw, db]: [&mut Matrix; 2],
) -> Result<()> {
    let (rows, cols) = g.shape();
    saved.x.expect(OP, "saved", rows, cols)?;
    let (x, stats) = (host::<T>(OP, "saved", saved.x)?, host::<T::C>(OP, "stats", saved.stats)?);
    let w = host::<T::C>(OP, "weight", saved.weight)?;
    let plus = plus.map(|m| host::<T>(OP, "gradient", m)).transpose()?;
    let drop = dropped.as_ref().and_then(|dropped| Drop::new(Some(dropped.dropout)));
    let dropped =
        dropped.map(|dropped| host_mut::<T>(OP, "dropped gradient", dropped.to)).transpose()?.map(Shared::new);
    let blocks = Blocks::few(rows, cols);
    let mut partial = scratch::layer_norm_backward(g)?;
    let sums = Shared::new(host_mut::<T::C>(OP, "partial sums", &mut partial)?);
    let g = Shared::new(host_mut::<T>(OP, "gradient", g)?);
    let width = T::C::of(cols as f64);

    blocks.each(|number, rows| {
        // SAFETY: blocks of rows, and their sums, are disjoint.
        let (g, sums) = unsafe { (g.part(span(&rows, cols)), sums.part(span(&(number..number + 1), 2 * cols))) };
        let (dw, db) = sums.split_at_mut(cols);
        let (mut normal, mut h) = (vec![T::C::zero(); cols], vec![T::C::zero(); cols]);
        cpu.isa.run(
            #[inline(always)]
            || {
                let mut masks = drop.map(|d| Masks::new(d, cols, rows.end));
                for (row, g) in rows.zip(g.chunks_exact_mut(cols.max(1))) {
                    let at = row * cols..(row + 1) * cols;
                    let (mean, scale) = (stats[2 * row], stats[2 * row + 1]);
                    for ((n, h), (x, (g, w))) in
                        normal.iter_mut().zip(&mut h).zip(x[at.clone()].iter().zip(g.iter().zip(w)))
                    {
                        *n = (x.load() - mean) * scale;
                        *h = g.load() * *w;
                    }
                    for ((g, n), (dw, db)) in g.iter().zip(&normal).zip(dw.iter_mut().zip(db.iter_mut())) {
                        let g = g.load();
                        *dw = *dw + g * *n;
                        *db = *db + g;
                    }
                    let (a, b) = (sum(&h, |h| h) / width, dot(&h, &normal) / width);
                    match plus {
                        None => {
                            for (g, (h, n)) in g.iter_mut().zip(h.iter().zip(&normal)) {
                                *g = T::store((*h - a - *n * b) * scale);
                            }
                        }
                        Some(plus) => {
                            for ((g, (h, n)), p) in g.iter_mut().zip(h.iter().zip(&normal)).zip(&plus[at.clone()]) {
                                *g = T::store((*h - a - *n * b) * scale + p.load());
                            }
                        }
                    }
                    if let (Some(to), Some(masks)) = (&dropped, &mut masks) {
                        // SAFETY: as above.
                        let to = unsafe { to.part(at) };
                        let drop = masks.drop();
                        for ((to, g), b) in to.iter_mut().zip(g.iter()).zip(masks.row(row)) {
                            *to = T::store(g.load() * drop.factor::<T>(*b));
                        }
                    }
                }
            },
        );
    });
    let partial = host::<T::C>(OP, "partial sums", &partial)?;
    let total = |at: usize| partial.chunks_exact((2 * cols).max(1)).fold(T::C::zero(), |s, p| s + p[at]);
    for (first, to) in [(0, dw), (cols, db)] {
        host_mut::<T::C>(OP, "gradient", to)?.iter_mut().enumerate().for_each(|(k, x)| *x = total(first + k));
    }
    Ok(())
}
