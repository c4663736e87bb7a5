//! The end of rows on the CPU: a row is read once and finished in the first-level cache.

use half::bf16;
use num_traits::{One, Zero};

use super::activation::{Smooth, apply, slope, specialise};
use super::dropout::{Drop, Masks};
use super::elementwise::Real;
use super::rowwise::{Blocks, Storage, by_dtype, span};
use super::share::Shared;
use super::{Cpu, host, host_mut, scratch};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::ops::activation::Activation;
use crate::ops::epilogue::{Ending, EpilogueGrads, EpilogueKernels};

const OP: &str = "epilogue";

impl EpilogueKernels for Cpu {
    fn epilogue(&self, ending: &Ending<'_>, x: &Matrix, y: &mut Matrix, pre: Option<&mut Matrix>) -> Result<()> {
        match (x.dtype(), y.dtype()) {
            (DType::F32, DType::F32) => forward::<f32, f32>(*self, ending, x, y, pre),
            (DType::F64, DType::F64) => forward::<f64, f64>(*self, ending, x, y, pre),
            (DType::Bf16, DType::Bf16) => forward::<bf16, bf16>(*self, ending, x, y, pre),
            (DType::Bf16, DType::F32) => forward::<bf16, f32>(*self, ending, x, y, pre),
            (_, got) => Err(Error::Type { op: OP, what: "y", got }),
        }
    }

    fn epilogue_backward(&self, ending: &Ending<'_>, saved: Option<&Matrix>, to: EpilogueGrads<'_>) -> Result<()> {
        let EpilogueGrads { g, db } = to;
        by_dtype!(g.dtype(), T => backward::<T>(*self, ending, saved, g, db))
    }

    fn spread_groups(&self, dy: &Matrix, groups: usize, dx: &mut Matrix) -> Result<()> {
        let (rows, cols) = dy.shape();
        dx.expect(OP, "dx", rows, groups * cols)?;
        by_dtype!(dy.dtype(), T => {
            let (dy, dx) = (host::<T>(OP, "dy", dy)?, Shared::new(host_mut::<T>(OP, "dx", dx)?));
            let share = 1.0 / groups as f64;
            Blocks::new(rows, groups * cols).each(|_, rows| {
                // SAFETY: blocks of rows are disjoint.
                let dx = unsafe { dx.part(span(&rows, groups * cols)) };
                self.isa.run(#[inline(always)] || spread(&dy[span(&rows, cols)], dx, groups, cols, share));
            });
            Ok(())
        })
    }
}

#[inline(always)]
fn spread<T: Storage>(dy: &[T], dx: &mut [T], groups: usize, cols: usize, share: f64) {
    let share = T::C::of(share);
    for (dy, dx) in dy.chunks_exact(cols.max(1)).zip(dx.chunks_exact_mut((groups * cols).max(1))) {
        for dx in dx.chunks_exact_mut(cols.max(1)) {
            for (dx, dy) in dx.iter_mut().zip(dy) {
                *dx = T::store(dy.load() * share);
            }
        }
    }
}

fn forward<T: Storage<C: Smooth>, Y: Storage<C = T::C>>(
    cpu: Cpu,
    ending: &Ending<'_>,
    x: &Matrix,
    y: &mut Matrix,
    pre: Option<&mut Matrix>,
) -> Result<()> {
    let ((rows, cols), groups) = (y.shape(), ending.groups);
    x.expect(OP, "x", rows, groups * cols)?;
    let x = host::<T>(OP, "x", x)?;
    let plus = ending.plus.map(|m| host::<T>(OP, "plus", m)).transpose()?;
    let bias = ending.bias.map(|m| host::<T::C>(OP, "bias", m)).transpose()?;
    let y = Shared::new(host_mut::<Y>(OP, "y", y)?);
    let pre = pre.map(|m| host_mut::<Y>(OP, "pre", m)).transpose()?.map(Shared::new);
    let (drop, activation, share) = (Drop::new(ending.dropout), ending.activation, T::C::of(1.0 / groups as f64));
    Blocks::new(rows, groups * cols).each(|_, rows| {
        // SAFETY: blocks of rows are disjoint.
        let y = unsafe { y.part(span(&rows, cols)) };
        let mut row_sum = vec![T::C::zero(); cols];
        cpu.isa.run(
            #[inline(always)]
            || {
                let mut masks = drop.map(|d| Masks::new(d, cols, rows.end));
                for (row, y) in rows.zip(y.chunks_exact_mut(cols.max(1))) {
                    let at = row * cols..(row + 1) * cols;
                    let mut pieces = x[row * groups * cols..][..groups * cols].chunks_exact(cols.max(1));
                    for (sum, x) in row_sum.iter_mut().zip(pieces.next().unwrap_or_default()) {
                        *sum = x.load();
                    }
                    for piece in pieces {
                        for (sum, x) in row_sum.iter_mut().zip(piece) {
                            *sum = *sum + x.load();
                        }
                    }
                    if groups > 1 {
                        row_sum.iter_mut().for_each(|sum| *sum = *sum * share);
                    }
                    if let Some(plus) = plus {
                        for (sum, x) in row_sum.iter_mut().zip(&plus[at.clone()]) {
                            *sum = *sum + x.load();
                        }
                    }
                    if let Some(bias) = bias {
                        for (sum, b) in row_sum.iter_mut().zip(bias) {
                            *sum = *sum + *b;
                        }
                    }
                    if let Some(pre) = &pre {
                        // SAFETY: as above.
                        let pre = unsafe { pre.part(at) };
                        for (to, sum) in pre.iter_mut().zip(&row_sum) {
                            *to = Y::store(*sum);
                        }
                    }
                    specialise!(
                        activation,
                        for sum in &mut row_sum {
                            *sum = apply(activation, *sum);
                        }
                    );
                    match &mut masks {
                        None => {
                            for (y, sum) in y.iter_mut().zip(&row_sum) {
                                *y = Y::store(*sum);
                            }
                        }
                        Some(masks) => {
                            let drop = masks.drop();
                            for ((y, sum), b) in y.iter_mut().zip(&row_sum).zip(masks.row(row)) {
                                *y = Y::store(*sum * drop.factor::<Y>(*b));
                            }
                        }
                    }
                }
            },
        );
    });
    Ok(())
}

fn backward<T: Storage<C: Smooth>>(
    cpu: Cpu,
    ending: &Ending<'_>,
    saved: Option<&Matrix>,
    g: &mut Matrix,
    db: Option<&mut Matrix>,
) -> Result<()> {
    let (rows, cols) = g.shape();
    let saved =
        saved.map(|m| m.expect(OP, "saved", rows, cols).and_then(|()| host::<T>(OP, "saved", m))).transpose()?;
    let (drop, activation) = (Drop::new(ending.dropout), ending.activation);
    // What is saved of an activation that finds its slope in the output has gone through the dropout.
    let unscale = match ending.dropout {
        Some(d) if !activation.saves_input() => T::C::of(d.dropout.unscale()),
        _ => T::C::one(),
    };
    let blocks = Blocks::few(rows, cols);
    let wide = usize::from(db.is_some()) * cols;
    let mut partial = scratch::epilogue_backward(g, db.as_deref())?;
    let sums = Shared::new(host_mut::<T::C>(OP, "partial sums", &mut partial)?);
    let g = Shared::new(host_mut::<T>(OP, "gradient", g)?);
    blocks.each(|number, rows| {
        // SAFETY: blocks of rows, and their sums, are disjoint.
        let (g, sums) = unsafe { (g.part(span(&rows, cols)), sums.part(span(&(number..number + 1), wide))) };
        let mut buffer = vec![T::C::zero(); cols];
        cpu.isa.run(
            #[inline(always)]
            || {
                let mut masks = drop.map(|d| Masks::new(d, cols, rows.end));
                for (row, g) in rows.zip(g.chunks_exact_mut(cols.max(1))) {
                    for (to, g) in buffer.iter_mut().zip(g.iter()) {
                        *to = g.load();
                    }
                    if let Some(masks) = &mut masks {
                        let drop = masks.drop();
                        for (to, b) in buffer.iter_mut().zip(masks.row(row)) {
                            *to = *to * drop.factor::<T>(*b);
                        }
                    }
                    if let Some(saved) = saved {
                        let saved = &saved[row * cols..(row + 1) * cols];
                        specialise!(
                            activation,
                            for (to, x) in buffer.iter_mut().zip(saved) {
                                *to = *to * slope(activation, x.load() * unscale);
                            }
                        );
                    }
                    for (sum, x) in sums.iter_mut().zip(&buffer) {
                        *sum = *sum + *x;
                    }
                    for (g, x) in g.iter_mut().zip(&buffer) {
                        *g = T::store(*x);
                    }
                }
            },
        );
    });
    if let Some(db) = db {
        let partial = host::<T::C>(OP, "partial sums", &partial)?;
        let db = host_mut::<T::C>(OP, "bias gradient", db)?;
        db.fill(T::C::zero());
        for part in partial.chunks_exact(cols.max(1)) {
            db.iter_mut().zip(part).for_each(|(sum, x)| *sum = *sum + *x);
        }
    }
    Ok(())
}
