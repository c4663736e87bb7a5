//! Batch normalisation over all rows of all ranks.
//!
//! The moments of a column are sums over rows, so ranks agree on them by adding a few numbers: the same functions serve
//! one rank and many, and only the [`Reduce`] differs. Forward adds count, Σ(x − s) and Σ(x − s)² of each column;
//! backward Σ dy and Σ dy ∘ x̂. Both are sums in f64 around a shift s that all ranks know (the running mean, say, or
//! zeros), so that a mean far from zero does not swallow the variance.
//!
//! With x̂ = (x − μ)/σ and y = x̂ ∘ w + b: dx = w/σ ∘ (dy − Σ dy/n − x̂ ∘ Σ(dy ∘ x̂)/n) with sums over all ranks; dw =
//! Σ dy ∘ x̂ and db = Σ dy with sums over this rank's rows, as gradients of parameters are before ranks add them up.

use std::rc::Rc;

use crate::cpu::scratch;
use crate::device::Device;
use crate::dry::present;
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::kernels;
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::ops::norm::{Norm, NormNumbers};
use crate::reduce::Reduce;
use crate::tape::{Backward, Grads, Tape, Var};

const OP: &str = "batch norm";

/// What backward has beside the gradient of the output.
pub struct BatchNormSaved<'a> {
    /// The input.
    pub x: &'a Matrix,
    /// What it was normalised by.
    pub by: &'a Normaliser<'a>,
    /// 1 × d.
    pub weight: &'a Matrix,
    /// Σ dy and Σ dy ∘ x̂ of each column, divided by the number of rows: 1 × 2d.
    pub means: &'a Matrix,
}

kernels! {
    /// What a backend does for batch norm.
    pub trait BatchNormKernels {
        /// Overwrites `sums` (1 × 2d, f64) with Σ(x − shift) and Σ(x − shift)² of each column; `shift` is 1 × d.
        fn moment_sums(x: &Matrix, shift: &Matrix, sums: &mut Matrix) -> Result<()> {
            |dry|
            let _sums = dry.within(|| scratch::batch_norm(x))?;
            dry.stream("batch norm moments", &[x], &[sums])
        }

        /// `y = (x − μ)/σ ∘ w + b`.
        fn normalise(x: &Matrix, by: &Normaliser<'_>, norm: &NormNumbers<'_>, y: &mut Matrix) -> Result<()> {
            |dry| dry.stream("batch norm", &[x], &[y])
        }

        /// Overwrites `sums` (1 × 2d, f64) with Σ dy and Σ dy ∘ x̂ of each column.
        fn batch_norm_sums(x: &Matrix, by: &Normaliser<'_>, dy: &Matrix, sums: &mut Matrix) -> Result<()> {
            |dry|
            let _sums = dry.within(|| scratch::batch_norm(x))?;
            dry.stream("batch norm sums", &[x, dy], &[sums])
        }

        /// Turns the gradient of the output in `g` into that of the input, plus `plus`.
        fn batch_norm_dx(saved: &BatchNormSaved<'_>, g: &mut Matrix, plus: Option<&Matrix>) -> Result<()> {
            |dry| dry.stream("batch norm dx", &present([Some(saved.x), Some(g), plus]), &[g])
        }
    }
}

/// μ and 1/σ of each column.
pub struct Normaliser<'a> {
    /// 1 × d.
    pub mean: &'a Matrix,
    /// 1 × d.
    pub scale: &'a Matrix,
}

/// The moments of columns over the rows of all ranks.
#[derive(Clone, Debug)]
pub struct Moments {
    /// Rows.
    pub count: f64,
    /// 1 × d.
    pub mean: Vec<f64>,
    /// 1 × d, of the rows themselves: n in the denominator.
    pub variance: Vec<f64>,
}

impl Moments {
    /// The moments of `x` around `shift`, a number per column that is the same on all ranks.
    pub fn of(x: &Matrix, shift: &[f64], reduce: &dyn Reduce) -> Result<Self> {
        let (device, d) = (x.device(), x.cols());
        let shift_matrix = row(device, shift, x.dtype().compute())?;
        shift_matrix.expect(OP, "shift", 1, d)?;
        let mut sums = device.uninit(OP, 1, 2 * d, DType::F64, Tag::Workspace)?;
        device.backend().moment_sums(x, &shift_matrix, &mut sums)?;
        // One message: the sums, and the count after them.
        let mut message = sums.to_vec::<f64>()?;
        message.push(x.rows() as f64);
        let mut message = device.upload(1, 2 * d + 1, &message, Tag::Workspace)?;
        reduce.sum(&mut message)?;
        let sums = message.to_vec::<f64>()?;
        let count = sums[2 * d];
        // The shift as the kernel saw it, rounded to the type it computes in.
        let shift = device.convert(OP, &shift_matrix, DType::F64)?.to_vec::<f64>()?;
        let mean = |k: usize| sums[k] / count.max(1.0);
        Ok(Self {
            count,
            mean: (0..d).map(|k| shift[k] + mean(k)).collect(),
            variance: (0..d).map(|k| (sums[d + k] / count.max(1.0) - mean(k) * mean(k)).max(0.0)).collect(),
        })
    }

    /// The variance with n − 1 in the denominator, which PyTorch's running variance collects.
    pub fn unbiased_variance(&self) -> Vec<f64> {
        let factor = self.count / (self.count - 1.0).max(1.0);
        self.variance.iter().map(|v| v * factor).collect()
    }
}

/// Normalises the columns of `x` by moments that were computed from it (on all ranks); `reduce` adds up what backward
/// needs.
pub fn batch_norm(tape: &mut Tape, x: &Var, norm: &Norm, moments: &Moments, reduce: Rc<dyn Reduce>) -> Result<Var> {
    let of_batch = Some(OfBatch { rows: moments.count, reduce });
    normalise(tape, x, norm, &moments.mean, &moments.variance, of_batch)
}

/// Normalises the columns of `x` by given moments that do not depend on it: for evaluation, with running moments.
pub fn fixed_norm(tape: &mut Tape, x: &Var, norm: &Norm, mean: &[f64], variance: &[f64]) -> Result<Var> {
    normalise(tape, x, norm, mean, variance, None)
}

/// Where moments come from: a batch of so many rows, on ranks that add up so.
struct OfBatch {
    rows: f64,
    reduce: Rc<dyn Reduce>,
}

fn normalise(
    tape: &mut Tape,
    x: &Var,
    norm: &Norm,
    mean: &[f64],
    variance: &[f64],
    of_batch: Option<OfBatch>,
) -> Result<Var> {
    let (rows, cols) = x.value().shape();
    let [weight, bias] = norm.on(tape, OP, cols)?;
    let (device, dtype) = (tape.device().clone(), x.value().dtype());
    let scale: Vec<f64> = variance.iter().map(|v| 1.0 / (v + norm.epsilon).sqrt()).collect();
    let (mean, scale) = (row(&device, mean, dtype.compute())?, row(&device, &scale, dtype.compute())?);
    mean.expect(OP, "mean", 1, cols)?;
    scale.expect(OP, "variance", 1, cols)?;
    let mut y = device.uninit(OP, rows, cols, dtype, Tag::Activations)?;
    let numbers = NormNumbers { weight: weight.value(), bias: bias.value(), epsilon: norm.epsilon };
    let by = Normaliser { mean: &mean, scale: &scale };
    device.backend().normalise(x.value(), &by, &numbers, &mut y)?;
    Ok(tape.push(&[x, &weight, &bias], y, || BatchNormBackward {
        x: x.value().clone(),
        mean,
        scale,
        weight: weight.value().clone(),
        of_batch,
    }))
}

/// A number per column, on the device.
fn row(device: &Device, values: &[f64], dtype: DType) -> Result<Matrix> {
    device.convert(OP, &device.upload(1, values.len(), values, Tag::Workspace)?, dtype)
}

struct BatchNormBackward {
    x: Matrix,
    mean: Matrix,
    scale: Matrix,
    weight: Matrix,
    of_batch: Option<OfBatch>,
}

impl Backward for BatchNormBackward {
    fn backward(self: Box<Self>, grads: &mut Grads<'_>) -> Result<()> {
        // Ranks wait for each other in the sum below. None is missing: a loss gives a gradient, of zeros if need be, to
        // all rows of a rank, and all ranks walk the same tape.
        let Some(mut g) = grads.own_output(OP, 0)? else { return Ok(()) };
        let (device, d) = (grads.device().clone(), self.x.cols());
        let by = Normaliser { mean: &self.mean, scale: &self.scale };
        let mut sums = device.uninit(OP, 1, 2 * d, DType::F64, Tag::Workspace)?;
        device.backend().batch_norm_sums(&self.x, &by, &g, &mut sums)?;
        let own = sums.to_vec::<f64>()?;
        let gradient = |of: &[f64]| -> Result<Matrix> {
            let mut m = device.uninit(OP, 1, d, self.weight.dtype(), Tag::Gradients)?;
            device.backend().convert(&mut m, &device.upload(1, d, of, Tag::Workspace)?)?;
            Ok(m)
        };
        grads.put(1, gradient(&own[d..])?)?;
        grads.put(2, gradient(&own[..d])?)?;

        let means = match &self.of_batch {
            Some(OfBatch { rows, reduce }) => {
                reduce.sum(&mut sums)?;
                sums.to_vec::<f64>()?.iter().map(|s| s / rows.max(1.0)).collect()
            }
            None => vec![0.0; 2 * d],
        };
        let means = row(&device, &means, self.weight.dtype())?;
        let plus = grads.take(0);
        let saved = BatchNormSaved { x: &self.x, by: &by, weight: &self.weight, means: &means };
        device.backend().batch_norm_dx(&saved, &mut g, plus.as_ref())?;
        grads.put(0, g)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::ops::residual::residual;
    use crate::ops::tests::*;
    use crate::reduce::Alone;

    fn alone(tape: &mut Tape, x: &Var, norm: &Norm) -> Result<Var> {
        let moments = Moments::of(x.value(), &vec![0.3; x.value().cols()], &Alone)?;
        batch_norm(tape, x, norm, &moments, Rc::new(Alone))
    }

    gradients!(|device| {
        for shape in [(5, 3), (9, 17), (0, 3), (3, 0)] {
            let norm = norm(&device, shape.1);
            let parameters = [norm.weight.clone(), norm.bias.clone()];
            let x = upload(&device, 1, shape, 2.0);
            check(&device, std::slice::from_ref(&x), &parameters, |tape, x| alone(tape, &x[0], &norm)).unwrap();
            check(&device, &[x], &parameters, |tape, x| {
                let y = fixed_norm(tape, &x[0], &norm, &vec![0.1; shape.1], &vec![0.7; shape.1])?;
                residual(tape, &x[0], &y, None)
            })
            .unwrap();
        }
    });

    fn case(shape: Shape) -> Case {
        Case::new(vec![shape], vec![(1, shape.1), (1, shape.1)], |tape, x, p| {
            Ok(vec![alone(tape, &x[0], &Norm::new(p[0].clone(), p[1].clone()))?])
        })
    }

    agrees_with_f64!([(3, 7), (2000, 40), (600, 128)].map(|shape| (case(shape), 3e-6, 2e-2)), case((3000, 100)));

    #[test]
    fn a_mean_far_from_zero_does_not_swallow_the_variance() {
        let device = Device::cpu();
        let x: Vec<f32> = (0..1000).map(|k| 1e4 + (k % 2) as f32).collect();
        let x = device.upload(1000, 1, &x, Tag::Activations).unwrap();
        for shift in [0.0, 9999.0] {
            let moments = Moments::of(&x, &[shift], &Alone).unwrap();
            assert!((moments.variance[0] - 0.25).abs() < 1e-6, "{}", moments.variance[0]);
            assert!((moments.mean[0] - 10000.5).abs() < 1e-9);
        }
    }

    /// Adds what the other rank said, which ran before: two ranks played one after the other.
    struct Other(RefCell<Vec<Vec<f64>>>);

    impl Reduce for Other {
        fn sum(&self, m: &mut Matrix) -> Result<()> {
            let other = self.0.borrow_mut().remove(0);
            let sum: Vec<f64> = m.to_vec::<f64>()?.iter().zip(other).map(|(a, b)| a + b).collect();
            let device = m.device().clone();
            device.backend().upload(m, bytemuck::cast_slice(&sum))
        }
    }

    /// Only listens.
    #[derive(Default)]
    struct Listen(RefCell<Vec<Vec<f64>>>);

    impl Reduce for Listen {
        fn sum(&self, m: &mut Matrix) -> Result<()> {
            self.0.borrow_mut().push(m.to_vec()?);
            Ok(())
        }
    }

    #[test]
    fn two_ranks_equal_one() {
        let device = Device::cpu();
        let (d, cut) = (6, 5);
        let all = crate::gradcheck::numbers(1, 12 * d);
        let seed = crate::gradcheck::numbers(2, 12 * d);
        let part = |x: &[f64], rows: std::ops::Range<usize>| {
            device.upload(rows.len(), d, &x[rows.start * d..rows.end * d], Tag::Activations).unwrap()
        };
        let run = |rows: std::ops::Range<usize>, moments: &Moments, reduce: Rc<dyn Reduce>| {
            let norm = norm(&device, d);
            let mut tape = Tape::new(&device);
            let x = tape.leaf(part(&all, rows.clone()));
            let y = batch_norm(&mut tape, &x, &norm, moments, reduce).unwrap();
            let value = f64s(y.value());
            let dx = tape.backward(vec![(y, part(&seed, rows))], &[&x], |_| Ok(())).unwrap().remove(0).unwrap();
            (value, f64s(&dx), f64s(&norm.weight.take_grad().unwrap()), f64s(&norm.bias.take_grad().unwrap()))
        };
        let shift = vec![0.0; d];
        let whole = run(0..12, &Moments::of(&part(&all, 0..12), &shift, &Alone).unwrap(), Rc::new(Alone));

        let listen = Listen::default();
        Moments::of(&part(&all, cut..12), &shift, &listen).unwrap();
        let moments = Moments::of(&part(&all, 0..cut), &shift, &Other(listen.0)).unwrap();
        let listen = Rc::new(Listen::default());
        let ears: Rc<dyn Reduce> = Rc::clone(&listen) as _;
        let second = run(cut..12, &moments, ears);
        let first = run(0..cut, &moments, Rc::new(Other(RefCell::new(listen.0.take()))));

        let near = |a: &[f64], b: &[f64]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12);
        assert!(near(&first.0, &whole.0[..cut * d]) && near(&second.0, &whole.0[cut * d..]), "outputs");
        assert!(near(&first.1, &whole.1[..cut * d]), "gradient of the input, from both ranks' sums");
        let sum = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a + b).collect::<Vec<_>>();
        assert!(near(&sum(&first.2, &second.2), &whole.2), "weight");
        assert!(near(&sum(&first.3, &second.3), &whole.3), "bias");
    }

    #[test]
    fn moments_must_fit() {
        let device = Device::cpu();
        let x = upload(&device, 1, (2, 5), 1.0);
        assert!(Moments::of(&x, &[0.0; 4], &Alone).is_err());
        let mut tape = Tape::new(&device);
        let x = tape.leaf(x);
        assert!(fixed_norm(&mut tape, &x, &norm(&device, 5), &[0.0; 4], &[1.0; 5]).is_err());
    }
}
