//! Optimizers: Adam, AdamW and SGD, the whole list of parameters in one parallel pass.
//!
//! A training step is: [`gradient_norm`] (which also finds numbers that are not finite, and says where),
//! [`clip_factor`], then [`Optimizer::step`], which multiplies gradients by the factor as it reads them: clipping costs
//! no pass of its own.
//!
//! Formulas are PyTorch's. Adam: m ← β₁m + (1 − β₁)g, v ← β₂v + (1 − β₂)g², p ← p − lr·m̂/(√v̂ + ε) with m̂ = m/(1 −
//! β₁ᵗ) and v̂ = v/(1 − β₂ᵗ). SGD: b ← μb + g, p ← p − lr·b. Weight decay λ is part of the gradient (g + λp), or, for
//! AdamW, p shrinks by 1 − lr·λ before the step.

use std::rc::Rc;

use crate::device::Device;
use crate::dry::{Work, WorkKind};
use crate::error::{Error, Result};
use crate::kernels::kernels;
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::parameter::Parameter;

const OP: &str = "optimizer";

/// How parameters follow their gradients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// Adam, or AdamW by its decay.
    Adam {
        /// β₁ and β₂.
        betas: (f64, f64),
        /// ε.
        epsilon: f64,
        /// Weight decay.
        decay: Decay,
    },
    /// Gradient descent.
    Sgd {
        /// μ.
        momentum: f64,
        /// λ, part of the gradient.
        weight_decay: f64,
    },
}

/// Where weight decay acts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decay {
    /// On the parameter itself: AdamW.
    Decoupled(f64),
    /// As part of the gradient: an L2 penalty.
    Penalty(f64),
}

impl Rule {
    /// AdamW with PyTorch's β and ε.
    pub fn adam_w(weight_decay: f64) -> Self {
        Self::Adam { betas: (0.9, 0.999), epsilon: 1e-8, decay: Decay::Decoupled(weight_decay) }
    }

    /// Adam with an L2 penalty, and PyTorch's β and ε.
    pub fn adam(weight_decay: f64) -> Self {
        Self::Adam { betas: (0.9, 0.999), epsilon: 1e-8, decay: Decay::Penalty(weight_decay) }
    }

    /// The same for parameters on which weight decay does not act.
    pub(crate) fn without_decay(self) -> Self {
        match self {
            Self::Adam { betas, epsilon, .. } => Self::Adam { betas, epsilon, decay: Decay::Penalty(0.0) },
            Self::Sgd { momentum, .. } => Self::Sgd { momentum, weight_decay: 0.0 },
        }
    }

    /// Names of the matrices that it keeps for each parameter, as PyTorch names them.
    fn state(self) -> &'static [&'static str] {
        match self {
            Self::Adam { .. } => &["exp_avg", "exp_avg_sq"],
            Self::Sgd { momentum: 0.0, .. } => &[],
            Self::Sgd { .. } => &["momentum_buffer"],
        }
    }
}

/// One step for all parameters.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The rule.
    pub rule: Rule,
    /// Learning rate.
    pub lr: f64,
    /// The number of this step, from 1.
    pub number: u64,
    /// Multiplies the gradients.
    pub scale: f64,
}

/// One parameter in a step.
pub struct Slot<'a> {
    /// Its value.
    pub value: &'a mut Matrix,
    /// Its gradient.
    pub gradient: &'a Matrix,
    /// What the rule keeps for it.
    pub state: &'a mut [Matrix],
    /// Whether weight decay acts on it.
    pub decays: bool,
}

kernels! {
    /// What a backend does for optimizers.
    pub trait OptimizerKernels {
        /// Moves all parameters by one step.
        fn step(step: &Step, slots: &mut [Slot<'_>]) -> Result<()> {
            |dry|
            let Some(dtype) = slots.first().map(|slot| slot.value.dtype()) else { return Ok(()) };
            let kept = |slot: &Slot<'_>| slot.value.bytes() + slot.state.iter().map(Matrix::bytes).sum::<usize>();
            let written = slots.iter().map(kept).sum();
            let read = written + slots.iter().map(|slot| slot.gradient.bytes()).sum::<usize>();
            dry.tell(Work::new("optimizer", dtype, WorkKind::Stream { read, written, rows: slots.len() }))
        }

        /// Σ x² of each matrix, in f64; not finite if some x is not.
        fn square_sums(matrices: &[&Matrix]) -> Result<Vec<f64>> {
            |dry|
            dry.stream(Work::SQUARE_SUMS, matrices, &[])?;
            Ok(vec![0.0; matrices.len()])
        }
    }
}

/// A rule with what it remembers of each parameter.
pub struct Optimizer {
    rule: Rule,
    steps: u64,
    entries: Vec<(Rc<Parameter>, Vec<Matrix>)>,
}

impl Optimizer {
    /// Starts with zeros, counted as [`Tag::Optimizer`].
    pub fn new(rule: Rule, parameters: &[Rc<Parameter>]) -> Result<Self> {
        let zeros = |p: &Rc<Parameter>| -> Result<Vec<Matrix>> {
            let value = p.value();
            let new = |_: &&str| value.device().zeros(OP, value.rows(), value.cols(), value.dtype(), Tag::Optimizer);
            rule.state().iter().map(new).collect()
        };
        let entries = parameters.iter().map(|p| Ok((Rc::clone(p), zeros(p)?))).collect::<Result<_>>()?;
        Ok(Self { rule, steps: 0, entries })
    }

    /// Takes the gradients of all parameters, times `scale`, and moves the parameters. Those without a gradient stay.
    pub fn step(&mut self, lr: f64, scale: f64) -> Result<()> {
        let step = Step { scale, ..self.next(lr) };
        self.steps += 1;
        self.with_gradients(|device, _, slots| device.backend().step(&step, slots))
    }

    /// The same as the end of [captured](crate::Device::capture) work, which is told [which step](Optimizer::next) it
    /// is whenever it is [done](crate::Captured::step). Gradients longer than `clip`, if that is more than 0, are
    /// shortened. Where the loss, in f64, or a gradient is not finite, nothing moves. Gives the parameters that it
    /// would move.
    ///
    /// # Errors
    /// If nothing is captured.
    pub fn capture(&mut self, clip: f64, loss: &Matrix) -> Result<Vec<Rc<Parameter>>> {
        let (rule, mut moved) = (self.rule, Vec::new());
        self.with_gradients(|device, parameters, slots| {
            let none = || Error::Argument { op: OP, problem: "nothing is recorded".into() };
            moved = parameters;
            device.backend().capture().ok_or_else(none)?.update(rule, clip, loss, slots)
        })?;
        Ok(moved)
    }

    /// The step that comes next, with gradients as they are.
    pub fn next(&self, lr: f64) -> Step {
        Step { rule: self.rule, lr, number: self.steps + 1, scale: 1.0 }
    }

    /// A captured step has moved the parameters.
    pub fn has_stepped(&mut self) {
        self.steps += 1;
    }

    /// Takes the gradients of all parameters; `work` is for the device that has them.
    fn with_gradients(
        &mut self,
        work: impl FnOnce(&Device, Vec<Rc<Parameter>>, &mut [Slot<'_>]) -> Result<()>,
    ) -> Result<()> {
        let (mut taken, mut parameters) = (Vec::new(), Vec::new());
        for (parameter, state) in &mut self.entries {
            if let Some(gradient) = parameter.take_grad() {
                let value = parameter.value_mut();
                gradient.expect(OP, "gradient", value.rows(), value.cols())?;
                taken.push((value, gradient, state, parameter.decays()));
                parameters.push(Rc::clone(parameter));
            }
        }
        let Some(device) = taken.first().map(|(value, ..)| value.device().clone()) else { return Ok(()) };
        let mut slots: Vec<Slot<'_>> = taken
            .iter_mut()
            .map(|(value, gradient, state, decays)| {
                let (state, decays) = (state.as_mut_slice(), *decays);
                Slot { value: &mut *value, gradient, state, decays }
            })
            .collect();
        work(&device, parameters, &mut slots)
    }

    /// How many steps were made.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// What it remembers, for a checkpoint: `<parameter>.<name>`.
    pub fn state(&self) -> Vec<(String, Matrix)> {
        let names = self.rule.state();
        let named = |(p, state): &(Rc<Parameter>, Vec<Matrix>)| {
            names.iter().zip(state).map(|(name, m)| (format!("{}.{name}", p.name()), m.clone())).collect::<Vec<_>>()
        };
        self.entries.iter().flat_map(named).collect()
    }

    /// Goes on from a checkpoint: `find` gives what [`Optimizer::state`] had under a name.
    pub fn restore(&mut self, steps: u64, mut find: impl FnMut(&str) -> Result<Matrix>) -> Result<()> {
        for (p, state) in &mut self.entries {
            for (name, m) in self.rule.state().iter().zip(state) {
                let found = find(&format!("{}.{name}", p.name()))?;
                found.expect(OP, "saved state", m.rows(), m.cols())?;
                m.device().clone().backend().convert(m, &found)?;
            }
        }
        self.steps = steps;
        Ok(())
    }
}

/// The length of all gradients together, the same for any number of threads.
///
/// # Errors
/// [`Error::NotFinite`] names the first parameter whose gradient has a number that is not finite.
pub fn gradient_norm(parameters: &[Rc<Parameter>]) -> Result<f64> {
    let gradients: Vec<(&Parameter, Matrix)> = parameters.iter().filter_map(|p| p.grad().map(|g| (&**p, g))).collect();
    let Some((_, first)) = gradients.first() else { return Ok(0.0) };
    let matrices: Vec<&Matrix> = gradients.iter().map(|(_, g)| g).collect();
    let sums = first.device().backend().square_sums(&matrices)?;
    length(gradients.iter().map(|(p, _)| *p), &sums)
}

/// The same where Σ x² of the gradient of each of these parameters is known.
///
/// # Errors
/// As of [`gradient_norm`].
pub fn length<'a>(parameters: impl Iterator<Item = &'a Parameter>, square_sums: &[f64]) -> Result<f64> {
    if let Some((p, _)) = parameters.zip(square_sums).find(|(_, sum)| !sum.is_finite()) {
        return Err(Error::NotFinite { what: format!("the gradient of {}", p.name()) });
    }
    Ok(square_sums.iter().sum::<f64>().sqrt())
}

/// All gradients in one row, as ranks sum them; nothing if there are none.
pub fn side_by_side<'a>(gradients: impl Iterator<Item = &'a Matrix> + Clone) -> Result<Option<Matrix>> {
    let size = |g: &Matrix| g.rows() * g.cols();
    let Some(first) = gradients.clone().next() else { return Ok(None) };
    let (device, total) = (first.device(), gradients.clone().map(size).sum());
    let mut row = device.uninit("gradients", 1, total, first.dtype(), Tag::Gradients)?;
    let mut at = 0;
    for gradient in gradients {
        device.backend().copy_part(gradient, 0, &mut row, at, size(gradient))?;
        at += size(gradient);
    }
    Ok(Some(row))
}

/// What gradients of length `norm` are multiplied by to be no longer than `limit`, as PyTorch's `clip_grad_norm_`.
pub fn clip_factor(norm: f64, limit: f64) -> f64 {
    (limit / (norm + 1e-6)).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::{Cpu, Isa};
    use crate::device::Device;
    use crate::dry::tests::takes_as_much;
    use crate::dtype::DType;
    use crate::gradcheck::numbers;
    use crate::ops::tests::f64s;

    const RULES: [Rule; 5] = [
        Rule::Adam { betas: (0.9, 0.999), epsilon: 1e-8, decay: Decay::Decoupled(0.1) },
        Rule::Adam { betas: (0.8, 0.99), epsilon: 1e-6, decay: Decay::Penalty(0.1) },
        Rule::Sgd { momentum: 0.0, weight_decay: 0.0 },
        Rule::Sgd { momentum: 0.9, weight_decay: 0.0 },
        Rule::Sgd { momentum: 0.5, weight_decay: 0.2 },
    ];
    const SHAPES: [(usize, usize); 4] = [(3, 5), (1, 1), (300, 257), (0, 4)];

    fn parameters(device: &Device, dtype: DType) -> Vec<Rc<Parameter>> {
        let new = |(k, (rows, cols)): (usize, &(usize, usize))| {
            let m = device.upload(*rows, *cols, &numbers(k as u64 + 1, rows * cols), Tag::Parameters).unwrap();
            Parameter::new(format!("p{k}"), device.convert("test", &m, dtype).unwrap())
        };
        SHAPES.iter().enumerate().map(new).collect()
    }

    fn give_gradients(parameters: &[Rc<Parameter>], step: u64) {
        for (k, p) in parameters.iter().enumerate() {
            let (value, seed) = (p.value(), 100 * step + k as u64);
            let x = numbers(seed, value.rows() * value.cols());
            let g = value.device().upload(value.rows(), value.cols(), &x, Tag::Gradients).unwrap();
            p.set_grad(Some(value.device().convert("test", &g, value.dtype()).unwrap()));
        }
    }

    fn run(device: &Device, rule: Rule, dtype: DType) -> Vec<Vec<f64>> {
        let parameters = parameters(device, dtype);
        let mut optimizer = Optimizer::new(rule, &parameters).unwrap();
        for step in 1..=3 {
            give_gradients(&parameters, step);
            optimizer.step(0.1, 0.5).unwrap();
        }
        parameters.iter().map(|p| f64s(&p.value())).collect()
    }

    /// One number at a time, as the formulas stand.
    fn by_hand(rule: Rule, mut p: f64, gradients: [f64; 3]) -> f64 {
        let (lr, mut m, mut v) = (0.1, 0.0, 0.0);
        for (g, t) in gradients.into_iter().zip(1..) {
            let mut g = 0.5 * g;
            match rule {
                Rule::Adam { betas: (b1, b2), epsilon, decay } => {
                    match decay {
                        Decay::Decoupled(x) => p -= lr * x * p,
                        Decay::Penalty(x) => g += x * p,
                    }
                    m = b1 * m + (1.0 - b1) * g;
                    v = b2 * v + (1.0 - b2) * g * g;
                    p -= lr * (m / (1.0 - b1.powi(t))) / ((v / (1.0 - b2.powi(t))).sqrt() + epsilon);
                }
                Rule::Sgd { momentum, weight_decay } => {
                    m = momentum * m + g + weight_decay * p;
                    p -= lr * m;
                }
            }
        }
        p
    }

    #[test]
    fn steps_follow_the_formulas() {
        let device = Device::cpu();
        for rule in RULES {
            for (k, found) in run(&device, rule, DType::F64).iter().enumerate() {
                let n = found.len();
                let (start, g) = (numbers(k as u64 + 1, n), [1, 2, 3].map(|step| numbers(100 * step + k as u64, n)));
                for (at, found) in found.iter().enumerate() {
                    let expected = by_hand(rule, start[at], [g[0][at], g[1][at], g[2][at]]);
                    assert!((found - expected).abs() < 1e-12, "{rule:?} parameter {k} element {at}");
                }
            }
        }
    }

    #[test]
    fn every_instruction_set_agrees_with_f64() {
        for rule in RULES {
            takes_as_much(&format!("{rule:?}"), |device| run(device, rule, DType::F32));
            let exact = run(&Device::cpu(), rule, DType::F64);
            for isa in [Isa::Portable, Isa::Avx2, Isa::Avx512] {
                let found = run(&Device::with_backend(Box::new(Cpu::with_isa(isa))), rule, DType::F32);
                for (x, e) in found.iter().flatten().zip(exact.iter().flatten()) {
                    // Adam divides by the size of the gradient: where that nearly cancels, its rounding shows.
                    assert!((x - e).abs() < 1e-3, "{rule:?} {isa}: {x} {e}");
                }
            }
        }
    }

    #[cfg(feature = "cuda")]
    #[test]
    #[ignore = "needs a GPU"]
    fn a_gpu_agrees_with_f64() {
        let device = crate::ops::tests::gpu();
        for rule in RULES {
            let exact = run(&Device::cpu(), rule, DType::F64);
            for (dtype, tolerance) in [(DType::F64, 1e-12), (DType::F32, 1e-3)] {
                let found = run(&device, rule, dtype);
                for (x, e) in found.iter().flatten().zip(exact.iter().flatten()) {
                    assert!((x - e).abs() < tolerance, "{rule:?} {dtype}: {x} {e}");
                }
            }
        }
        let parameters = parameters(&device, DType::F32);
        give_gradients(&parameters, 1);
        let all = parameters.iter().flat_map(|p| f64s(&p.grad().unwrap()));
        let expected = all.map(|x| x * x).sum::<f64>().sqrt();
        assert!((gradient_norm(&parameters).unwrap() - expected).abs() < 1e-9 * expected);
    }

    #[test]
    fn the_same_bits_for_any_number_of_threads() {
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let device = Device::cpu();
                let parameters = parameters(&device, DType::F32);
                give_gradients(&parameters, 1);
                (run(&device, RULES[0], DType::F32), gradient_norm(&parameters).unwrap())
            })
        };
        let one = run(1);
        assert!(one == run(2) && one == run(3));
    }

    #[test]
    fn the_norm_is_of_all_gradients_and_clipping_makes_it_the_limit() {
        let device = Device::cpu();
        let parameters = parameters(&device, DType::F64);
        assert_eq!(gradient_norm(&parameters).unwrap(), 0.0, "no gradients yet");
        give_gradients(&parameters, 1);
        let all = parameters.iter().flat_map(|p| f64s(&p.grad().unwrap()));
        let expected = all.map(|x| x * x).sum::<f64>().sqrt();
        let norm = gradient_norm(&parameters).unwrap();
        assert!((norm - expected).abs() < 1e-9);
        assert!((norm * clip_factor(norm, 2.0) - 2.0).abs() < 1e-5);
        assert_eq!(clip_factor(1.0, 2.0), 1.0);
    }

    #[test]
    fn a_number_that_is_not_finite_is_reported_with_its_parameter() {
        let device = Device::cpu();
        for bad in [f32::NAN, f32::INFINITY] {
            let parameters = parameters(&device, DType::F32);
            give_gradients(&parameters, 1);
            let mut g = parameters[2].grad().unwrap().to_vec::<f32>().unwrap();
            g[70_000] = bad;
            parameters[2].set_grad(Some(device.upload(300, 257, &g, Tag::Gradients).unwrap()));
            let e = gradient_norm(&parameters).unwrap_err().to_string();
            assert!(e.contains("p2"), "{e}");
        }
    }

    #[test]
    fn a_restored_optimizer_goes_on_as_if_nothing_happened() {
        let device = Device::cpu();
        for rule in RULES {
            let whole = run(&device, rule, DType::F32);
            let parameters = parameters(&device, DType::F32);
            let mut first = Optimizer::new(rule, &parameters).unwrap();
            give_gradients(&parameters, 1);
            first.step(0.1, 0.5).unwrap();
            let (steps, saved) = (first.steps(), first.state());
            drop(first);
            let mut second = Optimizer::new(rule, &parameters).unwrap();
            let find = |name: &str| Ok(saved.iter().find(|(n, _)| n == name).unwrap().1.clone());
            second.restore(steps, find).unwrap();
            for step in 2..=3 {
                give_gradients(&parameters, step);
                second.step(0.1, 0.5).unwrap();
            }
            assert_eq!(whole, parameters.iter().map(|p| f64s(&p.value())).collect::<Vec<_>>());
        }
    }

    #[test]
    fn state_is_counted_and_a_missing_gradient_moves_nothing() {
        let device = Device::cpu();
        let parameters = parameters(&device, DType::F32);
        let elements: usize = SHAPES.iter().map(|(r, c)| r * c).sum();
        let mut optimizer = Optimizer::new(Rule::adam_w(0.1), &parameters).unwrap();
        assert_eq!(device.ledger().now().of(Tag::Optimizer), 8 * elements as u64);
        give_gradients(&parameters[1..], 1);
        let before = f64s(&parameters[0].value());
        optimizer.step(0.1, 1.0).unwrap();
        assert_eq!(f64s(&parameters[0].value()), before);
        assert!(parameters.iter().all(|p| p.grad().is_none()), "gradients were taken");
    }

    #[test]
    fn a_value_that_is_still_in_use_is_not_overwritten() {
        let device = Device::cpu();
        let parameters = parameters(&device, DType::F32);
        let mut optimizer = Optimizer::new(Rule::adam(0.0), &parameters).unwrap();
        give_gradients(&parameters, 1);
        let held = parameters[0].value();
        assert!(optimizer.step(0.1, 1.0).is_err());
        drop(held);
    }
}
