//! Scores that are distances: γ − ‖q − z‖. The root is of the sum of squares and [`TINY`]: its slope is finite where
//! both rows are the same.

use graphweft_tensor::cpu::{host, host_mut};
use graphweft_tensor::ops::combine::combine;
use graphweft_tensor::ops::custom::{GpuKernel, Kernel, custom};
use graphweft_tensor::ops::product::product;
use graphweft_tensor::{DType, Error, Matrix, Result, Tape, Var, one_output};

use super::{LANES, OP, row_sums};

/// Added to sums of squares.
const TINY: f64 = 1e-12;
/// The halves for GPUs of the kernels here.
const GPU: &str = include_str!("distance.cu");

#[derive(Clone, Copy)]
pub(super) struct Distance {
    /// What distances are subtracted from.
    pub(super) margin: f64,
}

impl Distance {
    /// The score of each query with the partner in the same row.
    pub(super) fn scores(self, tape: &mut Tape, query: &Var, partners: &Var) -> Result<Var> {
        let apart = combine(tape, 1.0, query, -1.0, partners)?;
        let squares = product(tape, &apart, 0.0, &apart)?;
        let sums = row_sums(tape, &squares)?;
        let x = sums.value();
        let y = custom(&Root { margin: self.margin }, &[x], x.rows(), x.cols())?;
        let saved = [x.clone(), y.clone()];
        Ok(tape.push(&[&sums], y, || {
            one_output(move |dy, grads| {
                let dx = custom(&Slope, &[&saved[0], &dy], dy.rows(), dy.cols())?;
                grads.put(0, dx)
            })
        }))
    }

    pub(super) fn add(sum: f64, query: &[f64], partner: &[f64]) -> f64 {
        query.iter().zip(partner).fold(sum, |sum, (a, b)| sum + (a - b) * (a - b))
    }

    pub(super) fn add_lanes(sums: &mut [f64; LANES], queries: &[[f64; LANES]], partner: &[f64]) {
        for (column, x) in queries.iter().zip(partner) {
            sums.iter_mut().zip(column).for_each(|(sum, q)| *sum += (q - x) * (q - x));
        }
    }

    pub(super) fn finish(self, sum: f64) -> f64 {
        self.margin - (sum + TINY).sqrt()
    }
}

/// γ − √(x + tiny).
struct Root {
    margin: f64,
}

impl Kernel for Root {
    fn name(&self) -> &'static str {
        "distance"
    }

    fn compute(&self, from: &[&Matrix], to: &mut Matrix) -> Result<()> {
        let distance = Distance { margin: self.margin };
        each(self.name(), from, to, |[x, _]| distance.finish(x))
    }

    fn gpu(&self) -> Option<GpuKernel> {
        // SAFETY: one operand of the result's size, and two numbers.
        Some(unsafe { GpuKernel::new(GPU, "distance") }.number(self.margin).number(TINY))
    }
}

/// −dy / 2√(x + tiny).
struct Slope;

impl Kernel for Slope {
    fn name(&self) -> &'static str {
        "distance backward"
    }

    fn compute(&self, from: &[&Matrix], to: &mut Matrix) -> Result<()> {
        each(self.name(), from, to, |[x, dy]| -0.5 * dy / (x + TINY).sqrt())
    }

    fn gpu(&self) -> Option<GpuKernel> {
        // SAFETY: two operands of the result's size, and a number.
        Some(unsafe { GpuKernel::new(GPU, "distance_backward") }.number(TINY))
    }
}

/// Overwrites `to` with a function of each element of one or two matrices.
pub(super) fn each(op: &'static str, from: &[&Matrix], to: &mut Matrix, f: impl Fn([f64; 2]) -> f64) -> Result<()> {
    let (first, second) = (from[0], from[from.len() - 1]);
    if to.dtype() == DType::F64 {
        let (x, y) = (host::<f64>(op, "x", first)?, host::<f64>(op, "dy", second)?);
        let all = host_mut::<f64>(op, "to", to)?.iter_mut().zip(x.iter().zip(y));
        all.for_each(|(to, (x, y))| *to = f([*x, *y]));
        return Ok(());
    }
    let (x, y) = (host::<f32>(op, "x", first)?, host::<f32>(op, "dy", second)?);
    let all = host_mut::<f32>(op, "to", to)?.iter_mut().zip(x.iter().zip(y));
    all.for_each(|(to, (x, y))| *to = f([f64::from(*x), f64::from(*y)]) as f32);
    Ok(())
}

/// Distances to all nodes would need a matrix of their differences.
pub(super) fn no_scores_of_all() -> Result<Var> {
    let problem = "distances are of pairs: they are learned by negatives that are drawn, not from all nodes".into();
    Err(Error::Argument { op: OP, problem })
}
