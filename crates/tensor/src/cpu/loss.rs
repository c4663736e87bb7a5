//! Losses on the CPU: one pass over the logits, loss and gradient of a row together.

use num_traits::{Float, One, Zero};

use super::activation::Smooth;
use super::elementwise::{Convert, Real};
use super::rowwise::{Blocks, Storage, by_dtype, max, span, sum};
use super::share::Shared;
use super::{Cpu, host, host_mut};
use crate::error::Result;
use crate::matrix::Matrix;
use crate::ops::loss::{LossKernels, LossOperands, Target};

const OP: &str = "loss";

impl LossKernels for Cpu {
    fn loss(&self, operands: &LossOperands<'_>, loss: &mut Matrix, gradient: Option<&mut Matrix>) -> Result<()> {
        by_dtype!(operands.logits.dtype(), T => run::<T>(*self, operands, loss, gradient))
    }
}

/// A [`Target`] in the memory of the host.
#[derive(Clone, Copy)]
enum Expected<'a, C> {
    Class(&'a [i64], f64),
    Each(&'a [C]),
    Value(&'a [C]),
}

fn run<T: Storage<C: Smooth>>(
    cpu: Cpu,
    operands: &LossOperands<'_>,
    loss: &mut Matrix,
    gradient: Option<&mut Matrix>,
) -> Result<()> {
    let (rows, cols) = operands.logits.shape();
    let logits = host::<T>(OP, "logits", operands.logits)?;
    let expected = match operands.target {
        Target::Class { labels, smoothing } => Expected::Class(labels, smoothing),
        Target::Each(targets) => Expected::Each(host::<T::C>(OP, "targets", targets)?),
        Target::Value(targets) => Expected::Value(host::<T::C>(OP, "targets", targets)?),
    };
    let gradient = gradient.map(|g| host_mut::<T>(OP, "gradient", g)).transpose()?.map(Shared::new);
    let (listed, weights, total) = (operands.rows.rows(), operands.rows.weights(), operands.total);

    let partial = Blocks::new(rows, cols).map(|rows| {
        // SAFETY: blocks of rows are disjoint.
        let mut gradient = gradient.map(|g| unsafe { g.part(span(&rows, cols)) });
        if let Some(g) = &mut gradient {
            g.fill(T::zeroed());
        }
        let at = |row: usize| listed.partition_point(|r| (*r as usize) < row);
        let mut row_buffer = vec![T::C::zero(); cols];
        cpu.isa.run(
            #[inline(always)]
            || {
                let mut loss = 0.0;
                for k in at(rows.start)..at(rows.end) {
                    let row = listed[k] as usize;
                    let weight = weights.map_or(1.0, |w| f64::from(w[k])) / total;
                    for (to, x) in row_buffer.iter_mut().zip(&logits[row * cols..][..cols]) {
                        *to = x.load();
                    }
                    let to = gradient.as_mut().map(|g| &mut g[(row - rows.start) * cols..][..cols]);
                    loss += weight
                        * match expected {
                            Expected::Class(labels, smoothing) => {
                                let Ok(label) = usize::try_from(labels[row]) else { continue };
                                one_class::<T>(&mut row_buffer, label, smoothing, weight, to)
                            }
                            Expected::Each(targets) => {
                                each::<T>(&mut row_buffer, &targets[row * cols..][..cols], weight, to)
                            }
                            Expected::Value(targets) => {
                                value::<T>(&mut row_buffer, &targets[row * cols..][..cols], weight, to)
                            }
                        };
                }
                loss
            },
        )
    });
    host_mut::<T::C>(OP, "loss", loss)?[0] = T::C::of(partial.iter().sum::<f64>());
    Ok(())
}

/// The loss of one row, with x in `row`, which is overwritten.
#[inline(always)]
fn one_class<T: Storage<C: Smooth>>(
    row: &mut [T::C],
    label: usize,
    smoothing: f64,
    weight: f64,
    gradient: Option<&mut [T]>,
) -> f64 {
    // log Σ eˣ and Σ x with the largest x taken out: no overflow, no cancellation.
    let most = max(row);
    for x in row.iter_mut() {
        *x = *x - most;
    }
    let (at_label, all) = (row[label].widen(), sum(row, |x| x).widen());
    for x in row.iter_mut() {
        *x = x.exp_negative();
    }
    let total = sum(row, |x| x);
    let spread = smoothing / row.len() as f64;
    if let Some(gradient) = gradient {
        let (factor, spread) = (T::C::of(weight), T::C::of(spread));
        let inverse = T::C::one() / total;
        for (g, x) in gradient.iter_mut().zip(&*row) {
            *g = T::store((*x * inverse - spread) * factor);
        }
        let at = row[label] * inverse - spread - T::C::of(1.0 - smoothing);
        gradient[label] = T::store(at * factor);
    }
    let lse = total.widen().ln();
    lse - (1.0 - smoothing) * at_label - spread * all
}

/// The same for a target per logit.
#[inline(always)]
fn each<T: Storage<C: Smooth>>(row: &mut [T::C], targets: &[T::C], weight: f64, gradient: Option<&mut [T]>) -> f64 {
    let (zero, one) = (T::C::zero(), T::C::one());
    if let Some(gradient) = gradient {
        let factor = T::C::of(weight);
        for ((g, x), t) in gradient.iter_mut().zip(&*row).zip(targets) {
            let e = (-x.abs()).exp_negative();
            let logistic = if *x >= zero { one } else { e } / (one + e);
            *g = T::store(if *t >= zero { (logistic - *t) * factor } else { zero });
        }
    }
    for (x, t) in row.iter_mut().zip(targets) {
        let loss = (if *x > zero { *x } else { zero }) - *x * *t + (-x.abs()).exp_negative().ln_one_plus();
        *x = if *t >= zero { loss } else { zero };
    }
    sum(row, |x| x).widen()
}

/// The same for a number per output.
#[inline(always)]
fn value<T: Storage<C: Smooth>>(row: &mut [T::C], targets: &[T::C], weight: f64, gradient: Option<&mut [T]>) -> f64 {
    for (x, t) in row.iter_mut().zip(targets) {
        *x = if t.is_nan() { T::C::zero() } else { *x - *t };
    }
    if let Some(gradient) = gradient {
        let factor = T::C::of(2.0 * weight);
        for (g, difference) in gradient.iter_mut().zip(&*row) {
            *g = T::store(*difference * factor);
        }
    }
    sum(row, |x| x * x).widen()
}
