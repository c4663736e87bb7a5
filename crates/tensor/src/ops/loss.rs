//! Losses of rows, with their gradients made in the same pass.
//!
//! A loss is Σ weight·loss(row) over the listed rows, divided by a given total, so that ranks which hold different rows
//! agree on the denominator. Forward also writes the gradient of the logits (zero for rows that are not listed);
//! backward multiplies it by the gradient of the loss, which is usually 1, and so costs nothing.
//!
//! * [`softmax_cross_entropy`]: one class of many, with label smoothing ε as in PyTorch: the target is (1 − ε) for the
//!   label plus ε/C for every class. A negative label is unknown and does not count.
//! * [`binary_cross_entropy`]: many labels at once, each yes or no with its own logit. A target that is NaN or negative
//!   is unknown and does not count.
//! * [`mean_squared_error`]: numbers, each with its own output, as PyTorch's `mse_loss`. A target that is NaN is
//!   unknown and does not count.

use std::rc::Rc;

use crate::dry::{Work, WorkKind};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::kernels;
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::tape::{Backward, Factor, Grads, Tape, Var};

const OP: &str = "loss";

/// The rows that a loss counts, increasing, with their weights.
#[derive(Clone, Debug)]
pub struct LossRows {
    rows: Rc<[u32]>,
    /// 1 where there are none.
    weights: Option<Rc<[f32]>>,
}

impl LossRows {
    /// Rows of equal weight.
    pub fn new(rows: impl Into<Rc<[u32]>>) -> Result<Self> {
        Self::build(rows.into(), None)
    }

    /// Rows with a weight each.
    pub fn weighted(rows: impl Into<Rc<[u32]>>, weights: impl Into<Rc<[f32]>>) -> Result<Self> {
        Self::build(rows.into(), Some(weights.into()))
    }

    fn build(rows: Rc<[u32]>, weights: Option<Rc<[f32]>>) -> Result<Self> {
        if let Some(at) = rows.windows(2).position(|w| w[0] >= w[1]) {
            let problem = format!("row {} is listed before row {}: rows must increase", rows[at], rows[at + 1]);
            return Err(Error::Argument { op: OP, problem });
        }
        match &weights {
            Some(w) if w.len() != rows.len() => {
                Err(Error::Shape { op: OP, what: "weights", got: (w.len(), 1), expected: (rows.len(), 1) })
            }
            _ => Ok(Self { rows, weights }),
        }
    }

    /// The rows.
    pub fn rows(&self) -> &[u32] {
        &self.rows
    }

    /// Their weights, if they differ.
    pub fn weights(&self) -> Option<&[f32]> {
        self.weights.as_deref()
    }

    /// Whether both are the same list, not only equal ones.
    pub fn is(&self, other: &Self) -> bool {
        let same = match (&self.weights, &other.weights) {
            (Some(own), Some(others)) => Rc::ptr_eq(own, others),
            (own, others) => own.is_none() && others.is_none(),
        };
        same && Rc::ptr_eq(&self.rows, &other.rows)
    }

    /// Both, as a device that copies them wants them.
    #[cfg(feature = "cuda")]
    pub(crate) fn shared(&self) -> (&Rc<[u32]>, Option<&Rc<[f32]>>) {
        (&self.rows, self.weights.as_ref())
    }

    /// The sum of the weights of rows whose label is known: what this rank adds to the total of a
    /// [`softmax_cross_entropy`].
    pub fn total(&self, labels: &[i64]) -> f64 {
        let known = |row: u32| labels.get(row as usize).is_some_and(|label| *label >= 0);
        let weight = |k: usize| self.weights.as_ref().map_or(1.0, |w| f64::from(w[k]));
        self.rows.iter().enumerate().filter(|(_, row)| known(**row)).map(|(k, _)| weight(k)).sum()
    }

    /// Fails if a row is not there.
    fn check(&self, rows: usize) -> Result<()> {
        match self.rows.last() {
            Some(last) if *last as usize >= rows => {
                Err(Error::Argument { op: OP, problem: format!("row {last} counts, but there are {rows} rows") })
            }
            _ => Ok(()),
        }
    }
}

/// What a loss is computed from.
pub struct LossOperands<'a> {
    /// A row per node.
    pub logits: &'a Matrix,
    /// What they should be.
    pub target: Target<'a>,
    /// The rows that count.
    pub rows: &'a LossRows,
    /// Divides the sum.
    pub total: f64,
}

/// What logits should be.
pub enum Target<'a> {
    /// A class per row of the logits, negative if unknown.
    Class {
        /// The classes.
        labels: &'a Rc<[i64]>,
        /// The part of the target that is spread over all classes.
        smoothing: f64,
    },
    /// A number between 0 and 1 per logit, in the compute type; NaN or negative if unknown.
    Each(&'a Matrix),
    /// A number per output, in the compute type; NaN if unknown.
    Value(&'a Matrix),
}

kernels! {
    /// What a backend does for losses.
    pub trait LossKernels {
        /// Overwrites `loss` (1 × 1, in the compute type) and, where it is given, the gradient of the logits.
        fn loss(operands: &LossOperands<'_>, loss: &mut Matrix, gradient: Option<&mut Matrix>) -> Result<()> {
            |dry|
            let (rows, logits) = (operands.rows.rows().len(), operands.logits);
            let read = rows * logits.cols() * logits.dtype().size();
            // The gradient of rows that do not count is zero.
            let written = loss.bytes() + gradient.map_or(0, |g| g.bytes());
            dry.tell(Work::new("loss", logits.dtype(), WorkKind::Stream { read, written, rows }))
        }
    }
}

/// Cross-entropy of the softmax of `logits`, whose rows have the classes `labels`.
pub fn softmax_cross_entropy(
    tape: &mut Tape,
    logits: &Var,
    labels: &Rc<[i64]>,
    rows: &LossRows,
    smoothing: f64,
    total: f64,
) -> Result<Var> {
    let (n, classes) = logits.value().shape();
    if labels.len() != n {
        return Err(Error::Shape { op: OP, what: "labels", got: (labels.len(), 1), expected: (n, 1) });
    }
    if !(0.0..=1.0).contains(&smoothing) {
        return Err(Error::Argument { op: OP, problem: format!("label smoothing of {smoothing}: expected 0 to 1") });
    }
    rows.check(n)?;
    let label = |row: u32| usize::try_from(labels[row as usize]).ok();
    if let Some(row) = rows.rows().iter().find(|row| label(**row).is_some_and(|l| l >= classes)) {
        let problem = format!("row {row} has label {}, but there are {classes} classes", labels[*row as usize]);
        return Err(Error::Argument { op: OP, problem });
    }
    record(tape, logits, Target::Class { labels, smoothing }, rows, total)
}

/// Binary cross-entropy of the logistic function of each logit, against the target of the same place.
pub fn binary_cross_entropy(
    tape: &mut Tape,
    logits: &Var,
    targets: &Matrix,
    rows: &LossRows,
    total: f64,
) -> Result<Var> {
    record(tape, logits, Target::Each(targets), rows, total)
}

/// The squared difference of each output and the target of the same place.
pub fn mean_squared_error(
    tape: &mut Tape,
    outputs: &Var,
    targets: &Matrix,
    rows: &LossRows,
    total: f64,
) -> Result<Var> {
    record(tape, outputs, Target::Value(targets), rows, total)
}

fn record(tape: &mut Tape, logits: &Var, target: Target<'_>, rows: &LossRows, total: f64) -> Result<Var> {
    let (device, x) = (tape.device().clone(), logits.value());
    if let Target::Each(targets) | Target::Value(targets) = target {
        targets.expect(OP, "targets", x.rows(), x.cols())?;
        rows.check(x.rows())?;
    }
    let mut loss = device.uninit(OP, 1, 1, x.dtype().compute(), Tag::Activations)?;
    let mut gradient = match tape.wants(&[logits]) {
        true => Some(device.uninit(OP, x.rows(), x.cols(), x.dtype(), Tag::Activations)?),
        false => None,
    };
    let operands = LossOperands { logits: x, target, rows, total };
    device.backend().loss(&operands, &mut loss, gradient.as_mut())?;
    Ok(tape.push(&[logits], loss, || LossBackward { gradient }))
}

/// Σ factor·loss: a loss again.
pub fn sum_of_losses(tape: &mut Tape, factors: &[f64], losses: &[&Var]) -> Result<Var> {
    let (Some(first), true) = (losses.first(), losses.len() == factors.len()) else {
        let problem = format!("{} losses with {} factors", losses.len(), factors.len());
        return Err(Error::Argument { op: OP, problem });
    };
    let (device, dtype) = (tape.device().clone(), first.value().dtype());
    let mut sum = device.zeros(OP, 1, 1, dtype, Tag::Activations)?;
    for (factor, loss) in factors.iter().zip(losses) {
        let mut part = device.uninit(OP, 1, 1, dtype, Tag::Activations)?;
        device.backend().combine(*factor, loss.value(), None, &mut part)?;
        device.backend().add(&mut sum, &part)?;
    }
    Ok(tape.push(losses, sum, || SumBackward { factors: factors.to_vec(), dtype }))
}

struct SumBackward {
    factors: Vec<f64>,
    dtype: DType,
}

impl Backward for SumBackward {
    fn backward(self: Box<Self>, grads: &mut Grads<'_>) -> Result<()> {
        let of_sum = match grads.factor(OP, 0)? {
            Factor::Nothing => return Ok(()),
            Factor::One => 1.0,
            Factor::Number(x) => x,
        };
        let device = grads.device().clone();
        self.factors.iter().enumerate().try_for_each(|(k, factor)| {
            let slope = device.upload(1, 1, &[of_sum * factor], Tag::Workspace)?;
            grads.put(k, device.convert(OP, &slope, self.dtype)?)
        })
    }
}

struct LossBackward {
    gradient: Option<Matrix>,
}

impl Backward for LossBackward {
    fn backward(self: Box<Self>, grads: &mut Grads<'_>) -> Result<()> {
        let (factor, Some(mut gradient)) = (grads.factor(OP, 0)?, self.gradient) else { return Ok(()) };
        match factor {
            Factor::Nothing => return Ok(()),
            Factor::Number(x) if x != 1.0 => grads.device().backend().scale(x, &mut gradient)?,
            Factor::One | Factor::Number(_) => {}
        }
        grads.put(0, gradient)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::gradcheck::{check, numbers};
    use crate::ops::tests::{Case, agrees_with_f64, f64s, gradients, upload};

    fn labels(rows: usize, classes: usize) -> Rc<[i64]> {
        (0..rows).map(|k| (k * 7 % (classes + 1)) as i64 - 1).collect()
    }

    fn some_rows(rows: usize) -> LossRows {
        let list: Vec<u32> = (0..rows as u32).filter(|k| k % 3 != 1).collect();
        let weights: Vec<f32> = list.iter().map(|k| 0.5 + (k % 4) as f32).collect();
        LossRows::weighted(list, weights).unwrap()
    }

    #[test]
    fn a_sum_of_losses_is_a_loss() {
        let device = Device::cpu();
        let inputs = [upload(&device, 1, (9, 4), 1.0), upload(&device, 2, (9, 4), 1.0)];
        let sum = |tape: &mut Tape, x: &[Var]| {
            let mut one = |x: &Var| softmax_cross_entropy(tape, x, &labels(9, 4), &some_rows(9), 0.1, 3.0);
            let (a, b) = (one(&x[0])?, one(&x[1])?);
            sum_of_losses(tape, &[0.5, 2.0], &[&a, &b])
        };
        check(&device, &inputs, &[], sum).unwrap();
        let mut tape = Tape::new(&device);
        let vars: Vec<Var> = inputs.iter().map(|m| tape.leaf(m.clone())).collect();
        let loss = sum(&mut tape, &vars).unwrap();
        tape.start_from(&loss);
        let found = tape.backward(Vec::new(), &vars.iter().collect::<Vec<_>>(), |_| Ok(())).unwrap();
        assert!(found.iter().all(Option::is_some));
        assert!(sum_of_losses(&mut Tape::new(&device), &[1.0], &[]).is_err());
    }

    #[test]
    fn backward_that_starts_from_a_loss_multiplies_by_one() {
        let device = Device::cpu();
        fn given(loss: &Var, x: f64) -> Vec<(Var, Matrix)> {
            let seed = loss.value().device().upload(1, 1, &[x], Tag::Workspace).unwrap();
            vec![(loss.clone(), seed)]
        }
        let gradient = |start: fn(&mut Tape, &Var) -> Vec<(Var, Matrix)>| {
            let mut tape = Tape::new(&device);
            let x = tape.leaf(upload(&device, 1, (9, 4), 1.0));
            let loss = softmax_cross_entropy(&mut tape, &x, &labels(9, 4), &some_rows(9), 0.1, 3.0).unwrap();
            let outputs = start(&mut tape, &loss);
            f64s(tape.backward(outputs, &[&x], |_| Ok(())).unwrap()[0].as_ref().unwrap())
        };
        let one = gradient(|_, loss| given(loss, 1.0));
        let start = |tape: &mut Tape, loss: &Var| {
            tape.start_from(loss);
            Vec::new()
        };
        assert_eq!(one, gradient(start));
        let both = gradient(|tape, loss| {
            tape.start_from(loss);
            given(loss, 2.0)
        });
        assert!(one.iter().zip(&both).all(|(x, three)| (3.0 * x - three).abs() < 1e-12));
        let mut tape = Tape::new(&device);
        let x = tape.leaf(upload(&device, 1, (1, 1), 1.0));
        let y = crate::ops::product::product(&mut tape, &x, 0.0, &x).unwrap();
        tape.start_from(&y);
        assert!(tape.backward(Vec::new(), &[&x], |_| Ok(())).is_err(), "not a loss");
    }

    gradients!(|device| {
        for (n, c) in [(6, 4), (5, 1), (9, 40), (0, 3)] {
            for smoothing in [0.0, 0.1] {
                let x = upload(&device, 1, (n, c), 3.0);
                check(&device, &[x], &[], |tape, x| {
                    softmax_cross_entropy(tape, &x[0], &labels(n, c), &some_rows(n), smoothing, 2.5)
                })
                .unwrap();
            }
            let targets = device.upload(n, c, &targets(n * c), Tag::Activations).unwrap();
            let x = upload(&device, 1, (n, c), 3.0);
            check(&device, &[x], &[], |tape, x| binary_cross_entropy(tape, &x[0], &targets, &some_rows(n), 2.5))
                .unwrap();
            let x = upload(&device, 1, (n, c), 3.0);
            check(&device, &[x], &[], |tape, x| mean_squared_error(tape, &x[0], &targets, &some_rows(n), 2.5)).unwrap();
        }
    });

    /// Zeros, ones, parts and both kinds of unknown.
    fn targets(len: usize) -> Vec<f64> {
        (0..len).map(|k| [0.0, 1.0, 0.3, f64::NAN, -1.0, 1.0, 0.0][k % 7]).collect()
    }

    #[test]
    fn equals_the_definition() {
        let device = Device::cpu();
        let (n, c, smoothing, total) = (11, 5, 0.2, 3.0);
        let x: Vec<f64> = numbers(1, n * c).iter().map(|x| 30.0 * x).collect();
        let mut tape = Tape::new(&device);
        let logits = tape.leaf(device.upload(n, c, &x, Tag::Activations).unwrap());
        let (labels, rows) = (labels(n, c), some_rows(n));
        let loss = softmax_cross_entropy(&mut tape, &logits, &labels, &rows, smoothing, total).unwrap();
        let mut expected = 0.0;
        for (row, weight) in rows.rows().iter().zip(rows.weights().unwrap()) {
            let (row, Ok(label)) = (*row as usize, usize::try_from(labels[*row as usize])) else { continue };
            let x = &x[row * c..][..c];
            let lse = x.iter().map(|x| x.exp()).sum::<f64>().ln();
            for (k, x) in x.iter().enumerate() {
                let target = smoothing / c as f64 + if k == label { 1.0 - smoothing } else { 0.0 };
                expected += f64::from(*weight) * target * (lse - x) / total;
            }
        }
        assert!((f64s(loss.value())[0] - expected).abs() < 1e-12 * expected);

        let each = targets(n * c);
        let targets = device.upload(n, c, &each, Tag::Activations).unwrap();
        let loss = binary_cross_entropy(&mut tape, &logits, &targets, &rows, total).unwrap();
        let mut expected = 0.0;
        for (row, weight) in rows.rows().iter().zip(rows.weights().unwrap()) {
            for k in *row as usize * c..(*row as usize + 1) * c {
                if each[k] >= 0.0 {
                    let softplus = |x: f64| if x > 0.0 { x + (-x).exp().ln_1p() } else { x.exp().ln_1p() };
                    let both = each[k] * softplus(-x[k]) + (1.0 - each[k]) * softplus(x[k]);
                    expected += f64::from(*weight) * both / total;
                }
            }
        }
        assert!((f64s(loss.value())[0] - expected).abs() < 1e-12 * expected);

        let loss = mean_squared_error(&mut tape, &logits, &targets, &rows, total).unwrap();
        let mut expected = 0.0;
        for (row, weight) in rows.rows().iter().zip(rows.weights().unwrap()) {
            let known = (*row as usize * c..(*row as usize + 1) * c).filter(|k| !each[*k].is_nan());
            expected += known.map(|k| f64::from(*weight) * (x[k] - each[k]).powi(2) / total).sum::<f64>();
        }
        assert!((f64s(loss.value())[0] - expected).abs() < 1e-12 * expected);
    }

    fn case(n: usize, c: usize) -> Case {
        Case::new(vec![(n, c)], vec![], move |tape, x, _| {
            let rows = some_rows(n);
            let softmax = softmax_cross_entropy(tape, &x[0], &labels(n, c), &rows, 0.1, n as f64)?;
            let device = tape.device().clone();
            let targets = device.upload(n, c, &targets(n * c), Tag::Activations)?;
            let targets = device.convert("test", &targets, x[0].value().dtype().compute())?;
            let binary = binary_cross_entropy(tape, &x[0], &targets, &rows, n as f64)?;
            Ok(vec![softmax, binary, mean_squared_error(tape, &x[0], &targets, &rows, n as f64)?])
        })
    }

    agrees_with_f64!([(3, 2), (3000, 40), (700, 350)].map(|(n, c)| (case(n, c), 1e-6, 1e-2)), case(5000, 40));

    #[test]
    fn ranks_add_up_to_the_whole() {
        let device = Device::cpu();
        let (n, c, cut) = (10, 4, 3);
        let (x, labels) = (numbers(1, n * c), labels(n, c));
        let loss = |from: usize, to: usize| {
            let mut tape = Tape::new(&device);
            let logits = device.upload(to - from, c, &x[from * c..to * c], Tag::Activations).unwrap();
            let logits = tape.leaf(logits);
            let rows = LossRows::new((0..(to - from) as u32).collect::<Vec<_>>()).unwrap();
            let total = LossRows::new((0..n as u32).collect::<Vec<_>>()).unwrap().total(&labels);
            f64s(
                softmax_cross_entropy(&mut tape, &logits, &labels[from..to].into(), &rows, 0.0, total).unwrap().value(),
            )[0]
        };
        assert!((loss(0, n) - loss(0, cut) - loss(cut, n)).abs() < 1e-14);
    }

    #[test]
    fn bad_rows_and_labels_are_refused() {
        let device = Device::cpu();
        assert!(LossRows::new(vec![1, 1]).is_err() && LossRows::new(vec![2, 1]).is_err());
        assert!(LossRows::weighted(vec![1, 2], vec![1.0]).is_err());
        let mut tape = Tape::new(&device);
        let logits = tape.leaf(upload(&device, 1, (3, 2), 1.0));
        let one = LossRows::new(vec![1]).unwrap();
        let mut run = |labels: &[i64], rows: &LossRows, s| {
            softmax_cross_entropy(&mut tape, &logits, &labels.into(), rows, s, 1.0)
        };
        assert!(run(&[0, 1], &one, 0.0).is_err(), "labels for two rows");
        assert!(run(&[0, 1, 0], &LossRows::new(vec![3]).unwrap(), 0.0).is_err(), "no such row");
        assert!(run(&[0, 1, 0], &one, 1.5).is_err(), "smoothing");
        let e = run(&[0, 2, 0], &one, 0.0).unwrap_err().to_string();
        assert!(e.contains("row 1 has label 2"), "{e}");
        assert!(run(&[0, 1, 2], &one, 0.0).is_ok(), "a label that does not count");
    }

    #[test]
    fn the_gradient_of_a_scaled_loss_is_scaled() {
        let device = Device::cpu();
        let run = |factor: f32| {
            let mut tape = Tape::new(&device);
            let logits = tape.leaf(device.upload(2, 2, &[0.5f32, 1.0, -1.0, 2.0], Tag::Activations).unwrap());
            let rows = LossRows::new(vec![0, 1]).unwrap();
            let loss = softmax_cross_entropy(&mut tape, &logits, &[0, 1].into(), &rows, 0.0, 2.0).unwrap();
            let seed = device.upload(1, 1, &[factor], Tag::Activations).unwrap();
            f64s(&tape.backward(vec![(loss, seed)], &[&logits], |_| Ok(())).unwrap().remove(0).unwrap())
        };
        for (one, four) in run(1.0).iter().zip(run(4.0)) {
            assert_eq!(4.0 * one, four);
        }
    }
}
