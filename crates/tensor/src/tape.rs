//! The tape: what was computed, in order, and the way back.
//!
//! A node is pushed when an operation runs; backward visits the nodes once, last to first. There is no topological sort
//! and no lock, and the order of every sum of gradients is the order of the tape: the same bits every time.
//!
//! Memory follows ownership. A [`Var`] holds its value; an operation that needs a value in backward saves it in its
//! node; a value that nobody holds is freed at once. A node is dropped, with what it saved, as soon as its backward has
//! run.

use std::rc::Rc;

use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ledger::Tag;
use crate::matrix::Matrix;
use crate::ops::Write;
use crate::ops::activation::Activated;
use crate::parameter::Parameter;

/// A value on the tape. Cheap to clone; dropping the last clone frees the value unless some operation saved it.
#[derive(Clone, Debug)]
pub struct Var {
    value: Matrix,
    /// Where gradients for it are collected; `None` for constants.
    slot: Option<usize>,
    /// How to have the value again without keeping it.
    made_from: Option<Activated>,
}

impl Var {
    fn new(value: Matrix, slot: Option<usize>) -> Self {
        Self { value, slot, made_from: None }
    }

    /// Says that the value is an activation of something that the tape keeps: operations may save that instead.
    pub(crate) fn made_from(self, source: Activated) -> Self {
        Self { made_from: Some(source), ..self }
    }

    /// What an operation saves that needs the value in backward and can apply an activation on the way.
    pub(crate) fn to_save(&self) -> Activated {
        self.made_from.clone().unwrap_or_else(|| Activated::itself(self.value.clone()))
    }

    /// The value.
    pub fn value(&self) -> &Matrix {
        &self.value
    }

    /// Whether a gradient is wanted.
    pub fn needs_grad(&self) -> bool {
        self.slot.is_some()
    }
}

/// The backward half of an operation, with what it saved.
pub trait Backward {
    /// Reads the gradients of the operation's outputs from `grads` and adds to those of its inputs.
    fn backward(self: Box<Self>, grads: &mut Grads<'_>) -> Result<()>;
}

/// The backward half of an operation with one output: `f` is called with the gradient of that and adds to those of the
/// inputs. It is not called where nothing depended on the output.
pub fn one_output(f: impl FnOnce(Matrix, &mut Grads<'_>) -> Result<()>) -> impl Backward {
    OneOutput(f)
}

struct OneOutput<F>(F);

impl<F: FnOnce(Matrix, &mut Grads<'_>) -> Result<()>> Backward for OneOutput<F> {
    fn backward(self: Box<Self>, grads: &mut Grads<'_>) -> Result<()> {
        match grads.output(0) {
            Some(g) => self.0(g, grads),
            None => Ok(()),
        }
    }
}

enum Node {
    Op {
        inputs: Vec<Option<usize>>,
        outputs: Vec<usize>,
        op: Box<dyn Backward>,
    },
    /// Without a slot, its gradient is zero.
    Parameter {
        slot: Option<usize>,
        parameter: Rc<Parameter>,
    },
}

/// Records operations on one device. See the top of this file for how.
pub struct Tape {
    device: Device,
    nodes: Vec<Node>,
    slots: usize,
    recording: bool,
    replaying: bool,
    /// Where the gradient is 1 to begin with.
    loss: Option<usize>,
}

impl Tape {
    /// An empty tape.
    pub fn new(device: &Device) -> Self {
        Self { device: device.clone(), nodes: Vec::new(), slots: 0, recording: true, replaying: false, loss: None }
    }

    /// A tape that computes and records nothing, for evaluation.
    pub fn without_gradients(device: &Device) -> Self {
        Self { recording: false, ..Self::new(device) }
    }

    /// The device everything runs on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Whether a [checkpoint](Tape::checkpoint)'s segment is being computed again: what happens once a step, such as an
    /// update of running moments, has happened already.
    pub fn is_replaying(&self) -> bool {
        self.replaying
    }

    /// A value without gradient.
    pub fn constant(&self, value: Matrix) -> Var {
        Var::new(value, None)
    }

    /// A value whose gradient [`Tape::backward`] returns.
    pub fn leaf(&mut self, value: Matrix) -> Var {
        let slot = self.new_slot();
        Var::new(value, slot)
    }

    /// A parameter, recorded where it is used first: backward reaches this node when its gradient is complete.
    pub fn parameter(&mut self, parameter: &Rc<Parameter>) -> Var {
        if !self.recording {
            return self.constant(parameter.value());
        }
        let slot = if parameter.has_effect() { self.new_slot() } else { None };
        self.nodes.push(Node::Parameter { slot, parameter: Rc::clone(parameter) });
        Var::new(parameter.value(), slot)
    }

    fn new_slot(&mut self) -> Option<usize> {
        self.recording.then(|| {
            self.slots += 1;
            self.slots - 1
        })
    }

    /// Whether an operation on these inputs must be recorded. Ask before saving anything.
    pub fn wants(&self, inputs: &[&Var]) -> bool {
        self.recording && inputs.iter().any(|v| v.needs_grad())
    }

    /// Records an operation with one output.
    pub fn push<B: Backward + 'static>(&mut self, inputs: &[&Var], output: Matrix, op: impl FnOnce() -> B) -> Var {
        let [var] = self.push_many(inputs, [output], op);
        var
    }

    /// Records an operation with several outputs. `op` is only called if some input needs a gradient.
    pub fn push_many<B: Backward + 'static, const K: usize>(
        &mut self,
        inputs: &[&Var],
        outputs: [Matrix; K],
        op: impl FnOnce() -> B,
    ) -> [Var; K] {
        if !self.wants(inputs) {
            return outputs.map(|value| Var::new(value, None));
        }
        let vars = outputs.map(|value| Var::new(value, self.new_slot()));
        let outputs = vars.iter().filter_map(|v| v.slot).collect();
        self.nodes.push(Node::Op { inputs: inputs.iter().map(|v| v.slot).collect(), outputs, op: Box::new(op()) });
        vars
    }

    /// Says that the gradient of `loss`, of which there is one, is 1: backward begins there, and nothing has to be
    /// multiplied.
    pub fn start_from(&mut self, loss: &Var) {
        self.loss = loss.slot;
    }

    /// Walks back from `outputs` with the given gradients and returns those of `leaves`. Gradients of parameters are
    /// added to the parameters; `done` hears of each when it is complete.
    pub fn backward(
        mut self,
        outputs: Vec<(Var, Matrix)>,
        leaves: &[&Var],
        mut done: impl FnMut(&Rc<Parameter>) -> Result<()>,
    ) -> Result<Vec<Option<Matrix>>> {
        let device = self.device.clone();
        let mut slots: Vec<Option<Matrix>> = (0..self.slots).map(|_| None).collect();
        for (var, grad) in outputs {
            if let Some(slot) = var.slot {
                add_to(&mut slots[slot], grad)?;
            }
        }
        while let Some(node) = self.nodes.pop() {
            match node {
                Node::Parameter { slot, parameter } => {
                    let grad = match slot {
                        Some(slot) => slots[slot].take(),
                        None => Some(zeros_like(&parameter.value())?),
                    };
                    if let Some(grad) = grad {
                        add_to(&mut parameter.grad_mut(), grad)?;
                    }
                    done(&parameter)?;
                }
                Node::Op { inputs, outputs, op } => {
                    let received: Vec<_> = outputs.iter().map(|&slot| slots[slot].take()).collect();
                    let one = outputs.iter().position(|slot| Some(*slot) == self.loss);
                    if one.is_some() || received.iter().any(Option::is_some) {
                        let (slots, done) = (&mut slots, &mut done);
                        let mut grads = Grads { device: &device, slots, inputs: &inputs, received, one, done };
                        op.backward(&mut grads)?;
                        if grads.one.is_some() {
                            let problem = "it starts from what is not a loss".into();
                            return Err(Error::Argument { op: "backward", problem });
                        }
                    }
                }
            }
        }
        Ok(leaves.iter().map(|v| v.slot.and_then(|slot| slots[slot].take())).collect())
    }

    /// Runs `segment` without recording its inside; backward runs it again with recording, from the saved inputs.
    /// Between the two only the inputs are kept.
    ///
    /// `segment` must compute the same both times: randomness is counter-based, so it does.
    pub fn checkpoint(
        &mut self,
        inputs: &[&Var],
        segment: impl Fn(&mut Self, &[Var]) -> Result<Vec<Var>> + 'static,
    ) -> Result<Vec<Var>> {
        if !self.recording {
            let inputs: Vec<Var> = inputs.iter().map(|v| (*v).clone()).collect();
            return segment(self, &inputs);
        }
        let saved: Vec<Matrix> = inputs.iter().map(|v| v.value.clone()).collect();
        let mut quiet = Self { replaying: self.replaying, ..Self::without_gradients(&self.device) };
        let constants: Vec<Var> = saved.iter().map(|m| quiet.constant(m.clone())).collect();
        let outputs = segment(&mut quiet, &constants)?;
        drop(constants);
        // Parameters inside need gradients even where no input does, so this node is always recorded.
        let vars: Vec<Var> = outputs.into_iter().map(|v| Var::new(v.value, self.new_slot())).collect();
        let op = Checkpoint { saved, segment: Box::new(segment) };
        self.nodes.push(Node::Op {
            inputs: inputs.iter().map(|v| v.slot).collect(),
            outputs: vars.iter().filter_map(|v| v.slot).collect(),
            op: Box::new(op),
        });
        Ok(vars)
    }
}

/// The gradient of one number.
pub(crate) enum Factor {
    /// Nothing depends on it.
    Nothing,
    One,
    Number(f64),
}

/// The gradients that one operation's backward sees.
pub struct Grads<'a> {
    device: &'a Device,
    slots: &'a mut [Option<Matrix>],
    inputs: &'a [Option<usize>],
    received: Vec<Option<Matrix>>,
    /// The output to whose gradient 1 is to be added.
    one: Option<usize>,
    /// Hears of parameters whose gradient is complete.
    done: &'a mut dyn FnMut(&Rc<Parameter>) -> Result<()>,
}

impl Grads<'_> {
    /// The device everything runs on.
    pub fn device(&self) -> &Device {
        self.device
    }

    /// Takes the gradient of output `k`; `None` if nothing depended on it or there is no such output.
    pub fn output(&mut self, k: usize) -> Option<Matrix> {
        self.received.get_mut(k)?.take()
    }

    /// The gradient of output `k`, which is one number. Only where it is not known to be 1 is it read.
    pub(crate) fn factor(&mut self, op: &'static str, k: usize) -> Result<Factor> {
        let found = match self.output(k) {
            Some(dy) => Some(self.device.convert(op, &dy, DType::F64)?.to_vec::<f64>()?[0]),
            None => None,
        };
        Ok(match (found, self.one.take_if(|one| *one == k).is_some()) {
            (None, false) => Factor::Nothing,
            (None, true) => Factor::One,
            (Some(x), one) => Factor::Number(x + f64::from(u8::from(one))),
        })
    }

    /// The same, with memory of its own: for a kernel that overwrites it in place.
    pub fn own_output(&mut self, op: &'static str, k: usize) -> Result<Option<Matrix>> {
        self.output(k).map(|grad| self.own(op, grad)).transpose()
    }

    /// A gradient with memory of its own: a copy, if somebody else has it too.
    pub fn own(&self, op: &'static str, grad: Matrix) -> Result<Matrix> {
        if grad.is_unique() { Ok(grad) } else { self.device.copy(op, &grad) }
    }

    /// Whether the gradient of input `k` is wanted.
    pub fn wants(&self, k: usize) -> bool {
        self.inputs[k].is_some()
    }

    /// Takes what was collected for input `k` so far, for a kernel that adds to it in place; give it back with
    /// [`Grads::put`]. `None` where nothing was collected yet or where it is shared and must not be written.
    pub fn take(&mut self, k: usize) -> Option<Matrix> {
        let slot = self.inputs[k]?;
        self.slots[slot].take_if(|m| m.is_unique())
    }

    /// What was collected for input `k` so far, for a kernel to add to; or new memory of that shape, for it to set. To
    /// be given back with [`Grads::put`].
    pub fn begin(
        &mut self,
        op: &'static str,
        k: usize,
        rows: usize,
        cols: usize,
        dtype: DType,
    ) -> Result<(Matrix, Write)> {
        match self.take(k) {
            Some(collected) => Ok((collected, Write::Add)),
            None => Ok((self.device.uninit(op, rows, cols, dtype, Tag::Activations)?, Write::Set)),
        }
    }

    /// Takes what was collected for input `k` so far, shared or not.
    fn collected(&mut self, k: usize) -> Option<Matrix> {
        self.slots[self.inputs[k]?].take()
    }

    /// Sets the gradient of input `k`, of which [`Grads::take`] has returned the previous part, or adds to what could
    /// not be taken.
    pub fn put(&mut self, k: usize, grad: Matrix) -> Result<()> {
        match self.inputs[k] {
            Some(slot) => add_to(&mut self.slots[slot], grad),
            None => Ok(()),
        }
    }
}

/// The gradient of what nothing depends on.
fn zeros_like(value: &Matrix) -> Result<Matrix> {
    value.device().zeros("gradient", value.rows(), value.cols(), value.dtype(), Tag::Gradients)
}

/// Adds `grad` to what a slot holds, in place where one of the two is not shared.
fn add_to(slot: &mut Option<Matrix>, grad: Matrix) -> Result<()> {
    *slot = Some(match slot.take() {
        None => grad,
        Some(mut sum) if sum.is_unique() => {
            sum.device().clone().backend().add(&mut sum, &grad)?;
            sum
        }
        Some(sum) => {
            let device = sum.device().clone();
            let mut grad = if grad.is_unique() { grad } else { device.copy("add", &grad)? };
            device.backend().add(&mut grad, &sum)?;
            grad
        }
    });
    Ok(())
}

type Segment = Box<dyn Fn(&mut Tape, &[Var]) -> Result<Vec<Var>>>;

struct Checkpoint {
    saved: Vec<Matrix>,
    segment: Segment,
}

impl Backward for Checkpoint {
    fn backward(self: Box<Self>, grads: &mut Grads<'_>) -> Result<()> {
        let mut tape = Tape { replaying: true, ..Tape::new(grads.device) };
        // An input that was a constant is one again: nothing is computed for its gradient.
        let again = |(k, m)| if grads.wants(k) { tape.leaf(m) } else { tape.constant(m) };
        let inputs: Vec<Var> = self.saved.into_iter().enumerate().map(again).collect();
        let outputs = (self.segment)(&mut tape, &inputs)?;
        // What was collected for the inputs so far goes in first, so that everything is added in the order of a tape
        // that kept the segment: the same bits.
        let mut received: Vec<(Var, Matrix)> =
            inputs.iter().enumerate().filter_map(|(k, v)| grads.collected(k).map(|g| (v.clone(), g))).collect();
        received.extend(outputs.into_iter().enumerate().filter_map(|(k, v)| grads.output(k).map(|g| (v, g))));
        let leaves: Vec<&Var> = inputs.iter().collect();
        let found = tape.backward(received, &leaves, &mut *grads.done)?;
        for (k, grad) in found.into_iter().enumerate() {
            if let Some(grad) = grad {
                grads.put(k, grad)?;
            }
        }
        Ok(())
    }
}
