//! Batch normalisation over all rows of all ranks.
//!
//! The moments of a column are sums over rows, so ranks agree on them by adding a few numbers: the same functions serve
//! one rank and many, and only the [`Reduce`] differs. Forward adds count, Σ(x − s) and Σ(x − s)² of each column;
//! backward Σ dy and Σ dy ∘ x̂. Both are sums in f64 around a shift s that all ranks know (the running mean, say, or
//! zeros), so that a mean far from zero does not swallow the variance.
//!
//! With x̂ = (x − μ)/σ and y = x̂ ∘ w + b: dx = w/σ ∘ (dy − Σ dy/n − x̂ ∘ Σ(dy ∘ x̂)/n) with sums over all ranks; dw =
//! Σ dy ∘ x̂ and db = Σ dy with sums over this rank's rows, as gradients of parameters are before ranks add them up.

use std::cell::RefCell;
use std::rc::Rc;

use crate::cpu::scratch;
use crate::device::Device;
use crate::dry::present;
use crate::dtype::DType;
use crate::error::{Error, Result};
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
        /// Overwrites `sums` (1 × (2d + 1), f64) with Σ(x − shift) and Σ(x − shift)² of each column, and the number of
        /// rows after them; `shift` is 1 × d.
        fn moment_sums(x: &Matrix, shift: &Matrix, sums: &mut Matrix) -> Result<()> {
            |dry|
            let _sums = dry.within(|| scratch::batch_norm(x))?;
            dry.stream("batch norm moments", &[x], &[sums])
        }

        /// Overwrites `moments` (2 × d, f64) with the mean and the variance of each column, of which `sums` are the
        /// sums around `shift`.
        fn settle_moments(sums: &Matrix, shift: &Matrix, moments: &mut Matrix) -> Result<()> {
            |dry| dry.stream("batch norm moments", &[sums, shift], &[moments])
        }

        /// Moves running moments (2 × d, f64) a part `momentum` of the way towards `moments`, of which `sums` has the
        /// number of rows; n − 1 is in the denominator of the variance then. Nothing moves where there are no rows.
        fn follow_moments(sums: &Matrix, moments: &Matrix, momentum: f64, running: &mut Matrix) -> Result<()> {
            |dry| dry.stream("batch norm moments", &[sums, moments, running], &[running])
        }

        /// Overwrites `mean` and `scale` (1 × d) with the means of `moments` and 1/√(variance + ε).
        fn normaliser(moments: &Matrix, epsilon: f64, mean: &mut Matrix, scale: &mut Matrix) -> Result<()> {
            |dry| dry.stream("batch norm moments", &[moments], &[mean, scale])
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

        /// Overwrites `to` (1 × n) with n of `sums`, from number `first` on; divided by the number of rows where
        /// `counted`, sums of moments, has it.
        fn batch_norm_shares(sums: &Matrix, first: usize, counted: Option<&Matrix>, to: &mut Matrix) -> Result<()> {
            |dry| dry.stream("batch norm sums", &[to], &[to])
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

/// The moments of columns over the rows of all ranks. They are where the columns are: nobody waits for them.
#[derive(Clone, Debug)]
pub struct Moments {
    /// What they were made of, with the number of rows at the end: 1 × (2d + 1).
    sums: Matrix,
    /// Means, and variances of the rows themselves: n in the denominator. 2 × d.
    moments: Matrix,
}

impl Moments {
    /// The moments of `x` around `shift`, a number per column that is the same on all ranks; around 0 where there is
    /// none.
    pub fn of(x: &Matrix, shift: Option<&[f64]>, reduce: &dyn Reduce) -> Result<Self> {
        let (device, d, dtype) = (x.device(), x.cols(), x.dtype().compute());
        let shift = match shift {
            None => device.zeros(OP, 1, d, dtype, Tag::Workspace)?,
            Some(shift) => device.convert(OP, &device.upload(1, shift.len(), shift, Tag::Workspace)?, dtype)?,
        };
        shift.expect(OP, "shift", 1, d)?;
        // One message: the sums, and the count after them.
        let mut sums = device.uninit(OP, 1, 2 * d + 1, DType::F64, Tag::Workspace)?;
        device.backend().moment_sums(x, &shift, &mut sums)?;
        reduce.sum(&mut sums)?;
        let mut moments = device.uninit(OP, 2, d, DType::F64, Tag::Workspace)?;
        device.backend().settle_moments(&sums, &shift, &mut moments)?;
        Ok(Self { sums, moments })
    }

    /// How many rows there are. The host waits for it; so below.
    pub fn count(&self) -> Result<f64> {
        Ok(self.sums.to_vec::<f64>()?.last().copied().unwrap_or(0.0))
    }

    /// The mean of each column, then the variance with n in the denominator.
    pub fn numbers(&self) -> Result<[Vec<f64>; 2]> {
        halves(&self.moments)
    }
}

/// The two rows of a matrix.
fn halves(m: &Matrix) -> Result<[Vec<f64>; 2]> {
    let mut first = m.to_vec::<f64>()?;
    let second = first.split_off(m.cols());
    Ok([first, second])
}

/// Moments that follow those of batches, for evaluation: as PyTorch's running mean and variance, with n − 1 in the
/// denominator. What a batch has moves them when they are next asked for, unless it is [forgotten](Running::forget)
/// before.
#[derive(Debug)]
pub struct Running {
    momentum: f64,
    moments: RefCell<Matrix>,
    coming: RefCell<Option<Moments>>,
}

impl Running {
    /// Means of 0 and variances of 1; batches move them a part `momentum` of the way.
    pub fn new(device: &Device, cols: usize, momentum: f64) -> Result<Self> {
        let moments = [vec![0.0; cols], vec![1.0; cols]].concat();
        let moments = RefCell::new(device.upload(2, cols, &moments, Tag::Parameters)?);
        Ok(Self { momentum, moments, coming: RefCell::default() })
    }

    /// How many columns there are.
    pub fn cols(&self) -> usize {
        self.moments.borrow().cols()
    }

    /// A batch has these.
    pub fn follow(&self, moments: &Moments) -> Result<()> {
        self.settle()?;
        *self.coming.borrow_mut() = Some(moments.clone());
        Ok(())
    }

    /// Moves them by what the last batch has.
    pub fn settle(&self) -> Result<()> {
        let Some(Moments { sums, moments }) = self.coming.take() else { return Ok(()) };
        let running = &mut *self.moments.borrow_mut();
        let device = running.device().clone();
        device.backend().follow_moments(&sums, &moments, self.momentum, running)
    }

    /// The last batch does not count.
    pub fn forget(&self) {
        self.coming.take();
    }

    /// Means and variances.
    pub fn numbers(&self) -> Result<[Vec<f64>; 2]> {
        self.settle()?;
        halves(&self.moments.borrow())
    }

    /// Replaces both.
    ///
    /// # Errors
    /// If there are not as many as columns.
    pub fn set(&self, numbers: &[Vec<f64>; 2]) -> Result<()> {
        self.forget();
        let [mean, variance] = numbers;
        let running = &mut *self.moments.borrow_mut();
        let (cols, device) = (running.cols(), running.device().clone());
        if let Some(other) = numbers.iter().find(|numbers| numbers.len() != cols) {
            return Err(Error::Shape { op: OP, what: "moments", got: (1, other.len()), expected: (1, cols) });
        }
        device.backend().upload(running, bytemuck::cast_slice(&[&mean[..], variance].concat()))
    }
}

/// Normalises the columns of `x` by moments that were computed from it (on all ranks); `reduce` adds up what backward
/// needs.
pub fn batch_norm(tape: &mut Tape, x: &Var, norm: &Norm, moments: &Moments, reduce: Rc<dyn Reduce>) -> Result<Var> {
    let of_batch = Some(OfBatch { counted: moments.sums.clone(), reduce });
    normalise(tape, x, norm, &moments.moments, of_batch)
}

/// Normalises the columns of `x` by moments that do not depend on it: for evaluation.
pub fn fixed_norm(tape: &mut Tape, x: &Var, norm: &Norm, running: &Running) -> Result<Var> {
    running.settle()?;
    let moments = running.moments.borrow().clone();
    normalise(tape, x, norm, &moments, None)
}

/// Where moments come from: a batch of so many rows, on ranks that add up so.
struct OfBatch {
    /// Sums with the number of rows at the end.
    counted: Matrix,
    reduce: Rc<dyn Reduce>,
}

fn normalise(tape: &mut Tape, x: &Var, norm: &Norm, moments: &Matrix, of_batch: Option<OfBatch>) -> Result<Var> {
    let (rows, cols) = x.value().shape();
    let [weight, bias] = norm.on(tape, OP, cols)?;
    let (device, dtype) = (tape.device().clone(), x.value().dtype());
    moments.expect(OP, "moments", 2, cols)?;
    let column = || device.uninit(OP, 1, cols, dtype.compute(), Tag::Activations);
    let (mut mean, mut scale) = (column()?, column()?);
    device.backend().normaliser(moments, norm.epsilon, &mut mean, &mut scale)?;
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
        let (device, d, dtype) = (grads.device().clone(), self.x.cols(), self.weight.dtype());
        let by = Normaliser { mean: &self.mean, scale: &self.scale };
        let mut sums = device.uninit(OP, 1, 2 * d, DType::F64, Tag::Workspace)?;
        device.backend().batch_norm_sums(&self.x, &by, &g, &mut sums)?;
        for (input, first) in [(1, d), (2, 0)] {
            let mut gradient = device.uninit(OP, 1, d, dtype, Tag::Gradients)?;
            device.backend().batch_norm_shares(&sums, first, None, &mut gradient)?;
            grads.put(input, gradient)?;
        }
        let means = match &self.of_batch {
            Some(OfBatch { counted, reduce }) => {
                reduce.sum(&mut sums)?;
                let mut means = device.uninit(OP, 1, 2 * d, dtype, Tag::Workspace)?;
                device.backend().batch_norm_shares(&sums, 0, Some(counted), &mut means)?;
                means
            }
            None => device.zeros(OP, 1, 2 * d, dtype, Tag::Workspace)?,
        };
        let plus = grads.take(0);
        let saved = BatchNormSaved { x: &self.x, by: &by, weight: &self.weight, means: &means };
        device.backend().batch_norm_dx(&saved, &mut g, plus.as_ref())?;
        grads.put(0, g)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::residual::residual;
    use crate::ops::tests::*;
    use crate::reduce::Alone;

    fn alone(tape: &mut Tape, x: &Var, norm: &Norm) -> Result<Var> {
        let moments = Moments::of(x.value(), Some(&vec![0.3; x.value().cols()]), &Alone)?;
        batch_norm(tape, x, norm, &moments, Rc::new(Alone))
    }

    gradients!(|device| {
        for shape in [(5, 3), (9, 17), (0, 3), (3, 0)] {
            let norm = norm(&device, shape.1);
            let parameters = [norm.weight.clone(), norm.bias.clone()];
            let x = upload(&device, 1, shape, 2.0);
            check(&device, std::slice::from_ref(&x), &parameters, |tape, x| alone(tape, &x[0], &norm)).unwrap();
            check(&device, &[x], &parameters, |tape, x| {
                let running = Running::new(&device, shape.1, 0.1)?;
                running.set(&[vec![0.1; shape.1], vec![0.7; shape.1]])?;
                let y = fixed_norm(tape, &x[0], &norm, &running)?;
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
            let [mean, variance] = Moments::of(&x, Some(&[shift]), &Alone).unwrap().numbers().unwrap();
            assert!((variance[0] - 0.25).abs() < 1e-6, "{}", variance[0]);
            assert!((mean[0] - 10000.5).abs() < 1e-9);
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
        let whole = run(0..12, &Moments::of(&part(&all, 0..12), None, &Alone).unwrap(), Rc::new(Alone));

        let listen = Listen::default();
        Moments::of(&part(&all, cut..12), None, &listen).unwrap();
        let moments = Moments::of(&part(&all, 0..cut), None, &Other(listen.0)).unwrap();
        assert_eq!(moments.count().unwrap(), 12.0);
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
        assert!(Moments::of(&x, Some(&[0.0; 4]), &Alone).is_err());
        let mut tape = Tape::new(&device);
        let x = tape.leaf(x);
        let running = Running::new(&device, 4, 0.1).unwrap();
        assert!(fixed_norm(&mut tape, &x, &norm(&device, 5), &running).is_err());
        assert!(running.set(&[vec![0.0; 5], vec![0.0; 4]]).is_err());
    }

    fn running_moments_follow_batches_that_are_not_forgotten(device: &Device) {
        let running = Running::new(device, 2, 0.25).unwrap();
        let batch = |values: &[f32]| {
            let x = device.upload(values.len() / 2, 2, values, Tag::Activations).unwrap();
            Moments::of(&x, None, &Alone).unwrap()
        };
        assert_eq!(running.numbers().unwrap(), [[0.0; 2], [1.0; 2]]);
        running.follow(&batch(&[1.0, 2.0, 3.0, 6.0])).unwrap();
        let moved = running.numbers().unwrap();
        assert_eq!(moved, [[0.5, 1.0], [1.25, 2.75]], "means 2 and 4, variances 2 and 8 with n − 1");
        running.follow(&batch(&[8.0, 8.0, 8.0, 8.0])).unwrap();
        running.forget();
        running.follow(&batch(&[])).unwrap();
        assert_eq!(running.numbers().unwrap(), moved, "neither what is forgotten nor no rows");
        running.follow(&batch(&[9.0, -1.0])).unwrap();
        running.follow(&batch(&[])).unwrap();
        assert_eq!(running.numbers().unwrap(), [[2.625, 0.5], [0.9375, 2.0625]], "one row has no variance");
        running.set(&[vec![3.0, 4.0], vec![5.0, 6.0]]).unwrap();
        assert_eq!(running.numbers().unwrap(), [[3.0, 4.0], [5.0, 6.0]]);
    }

    on_every_device!(running_moments_follow_batches_that_are_not_forgotten);
}
