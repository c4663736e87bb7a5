//! Rows that are drawn around what an encoder says, as in a VGAE of Kipf and Welling: half of the columns are means μ,
//! half are logarithms l of deviations, of which none counts more than `MOST`. z = μ + ε∘e^l, and the divergence from
//! N(0, 1) is −½ Σ (1 + 2l − μ² − e^{2l}).

use graphweft_tensor::cpu::{host, host_mut};
use graphweft_tensor::ops::combine::{columns, combine};
use graphweft_tensor::ops::custom::{GpuKernel, Kernel, custom};
use graphweft_tensor::ops::product::product;
use graphweft_tensor::{DType, Matrix, Result, Tag, Tape, Var, one_output};

use super::distance::each;
use super::row_sums;

/// The largest logarithm of a deviation.
const MOST: f64 = 10.0;
/// The halves for GPUs of the kernels here.
const GPU: &str = include_str!("variational.cu");

/// Drawn rows, with how far each is from a normal distribution: a column.
pub struct Drawn {
    /// z.
    pub rows: Var,
    /// The divergence of each row.
    pub divergence: Var,
}

/// Draws rows by `noise`, which has half as many columns as `outputs`.
pub fn draw(tape: &mut Tape, outputs: &Var, noise: &Matrix) -> Result<Drawn> {
    let half = outputs.value().cols() / 2;
    let means = columns(tape, outputs, 0..half)?;
    let logs = columns(tape, outputs, half..2 * half)?;
    let deviations = exponential(tape, &logs)?;
    let noise = tape.constant(noise.clone());
    let moved = product(tape, &deviations, 0.0, &noise)?;
    let rows = combine(tape, 1.0, &means, 1.0, &moved)?;
    let squares = [product(tape, &means, 0.0, &means)?, product(tape, &deviations, 0.0, &deviations)?];
    let squares = combine(tape, 0.5, &squares[0], 0.5, &squares[1])?;
    let parts = shifted(tape, &squares, &logs)?;
    Ok(Drawn { rows, divergence: row_sums(tape, &parts)? })
}

/// The means alone: what is scored, and what is predicted.
pub fn means(tape: &mut Tape, outputs: &Var) -> Result<Var> {
    columns(tape, outputs, 0..outputs.value().cols() / 2)
}

/// squares − l − ½.
fn shifted(tape: &mut Tape, squares: &Var, logs: &Var) -> Result<Var> {
    let (rows, cols) = logs.value().shape();
    let device = tape.device().clone();
    let half = device.upload_from(rows, cols, Tag::Workspace, || vec![0.5f64; rows * cols])?;
    let half = tape.constant(device.convert("variational", &half, logs.value().dtype())?);
    let logs = combine(tape, 1.0, logs, 1.0, &half)?;
    combine(tape, 1.0, squares, -1.0, &logs)
}

/// e^min(x, most).
fn exponential(tape: &mut Tape, x: &Var) -> Result<Var> {
    let value = x.value();
    let y = custom(&Exponential, &[value], value.rows(), value.cols())?;
    let saved = [value.clone(), y.clone()];
    Ok(tape.push(&[x], y, || {
        one_output(move |dy, grads| {
            let [x, y] = saved;
            grads.put(0, custom(&Slope, &[&x, &y, &dy], dy.rows(), dy.cols())?)
        })
    }))
}

struct Exponential;

impl Kernel for Exponential {
    fn name(&self) -> &'static str {
        "exponential"
    }

    fn compute(&self, from: &[&Matrix], to: &mut Matrix) -> Result<()> {
        each(self.name(), from, to, |[x, _]| x.min(MOST).exp())
    }

    fn gpu(&self) -> Option<GpuKernel> {
        // SAFETY: one operand of the result's size, and a number.
        Some(unsafe { GpuKernel::new(GPU, "exponential_up_to") }.number(MOST))
    }
}

/// dy·e^x, and 0 above the limit.
struct Slope;

impl Kernel for Slope {
    fn name(&self) -> &'static str {
        "exponential backward"
    }

    fn compute(&self, from: &[&Matrix], to: &mut Matrix) -> Result<()> {
        let op = self.name();
        if to.dtype() == DType::F64 {
            let [x, y, dy] = [host::<f64>(op, "x", from[0])?, host(op, "y", from[1])?, host(op, "dy", from[2])?];
            for (k, to) in host_mut::<f64>(op, "dx", to)?.iter_mut().enumerate() {
                *to = if x[k] <= MOST { y[k] * dy[k] } else { 0.0 };
            }
            return Ok(());
        }
        let [x, y, dy] = [host::<f32>(op, "x", from[0])?, host(op, "y", from[1])?, host(op, "dy", from[2])?];
        for (k, to) in host_mut::<f32>(op, "dx", to)?.iter_mut().enumerate() {
            *to = if f64::from(x[k]) <= MOST { y[k] * dy[k] } else { 0.0 };
        }
        Ok(())
    }

    fn gpu(&self) -> Option<GpuKernel> {
        // SAFETY: three operands of the result's size, and a number.
        Some(unsafe { GpuKernel::new(GPU, "exponential_up_to_backward") }.number(MOST))
    }
}

#[cfg(test)]
mod tests {
    use graphweft_tensor::gradcheck::{check, numbers};
    use graphweft_tensor::{Device, Tag};

    use super::*;

    #[test]
    fn rows_and_divergence_are_those_of_the_formulas_with_their_gradients() {
        follow_the_formulas(&Device::cpu());
    }

    #[cfg(feature = "cuda")]
    #[test]
    #[ignore = "needs a GPU"]
    fn rows_and_divergence_are_right_on_a_gpu() {
        follow_the_formulas(&Device::with_backend(Box::new(graphweft_tensor::cuda::Cuda::new(0).unwrap())));
    }

    fn follow_the_formulas(device: &Device) {
        let (x, noise) = (numbers(1, 24), numbers(2, 12));
        let up = |cols, values: &[f64]| device.upload(4, cols, values, Tag::Activations).unwrap();
        let (outputs, drawn_by) = (up(6, &x), up(3, &noise));
        let mut tape = Tape::without_gradients(device);
        let var = tape.constant(outputs.clone());
        let Drawn { rows, divergence } = draw(&mut tape, &var, &drawn_by).unwrap();
        let (rows, divergence) = (rows.value().to_vec::<f64>().unwrap(), divergence.value().to_vec::<f64>().unwrap());
        for row in 0..4 {
            let (mean, log) = x[6 * row..6 * row + 6].split_at(3);
            let of = |c: usize| -0.5 * (1.0 + 2.0 * log[c] - mean[c] * mean[c] - (2.0 * log[c]).exp());
            assert!((divergence[row] - (0..3).map(of).sum::<f64>()).abs() < 1e-12);
            for c in 0..3 {
                assert!((rows[3 * row + c] - mean[c] - noise[3 * row + c] * log[c].exp()).abs() < 1e-12);
            }
        }
        check(device, std::slice::from_ref(&outputs), &[], |tape, x| Ok(draw(tape, &x[0], &drawn_by)?.rows)).unwrap();
        check(device, &[outputs], &[], |tape, x| Ok(draw(tape, &x[0], &drawn_by)?.divergence)).unwrap();
    }
}
