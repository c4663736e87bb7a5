//! An epoch of a stage: all chunks forward, then all of them back, then one update.

use std::collections::VecDeque;
use std::time::Instant;

use graphweft_model::{Mode, Total};
use graphweft_parallel::{Across, Flight};
use graphweft_tensor::{Error as Computation, Matrix, Tag, Tape, Var};

use super::Stage;
use super::guard::number;
use crate::config::Guard;
use crate::epochs::learner::{Learner, Phases, Report};
use crate::error::{Error, Result};
use crate::ranks::gradients::Buckets;

type Computed<T> = std::result::Result<T, Computation>;

/// The account of what moves.
const OP: &str = "stage";
/// States that may be on their way to the next stage.
const UNDER_WAY: usize = 2;

/// A chunk between forward and backward.
pub(super) struct Passed {
    pub(super) chunk: usize,
    pub(super) tape: Tape,
    pub(super) inputs: Vec<Var>,
    /// The state for the next stage, or the logits; in the end the loss.
    pub(super) outputs: Vec<Var>,
}

/// Under which name states move, and what a pass is for.
#[derive(Clone, Copy)]
pub(super) struct Account {
    pub(super) op: &'static str,
    pub(super) mode: Mode,
    pub(super) epoch: u64,
}

impl Stage {
    /// Learns from all nodes once.
    ///
    /// # Errors
    /// [`Error::NotFinite`] and [`Error::Diverged`], to all stages alike and before anything is changed.
    pub(super) fn learn_chunks(
        &mut self,
        learner: &mut Learner,
        epoch: u64,
        lr: f64,
        phase: Phases<'_>,
    ) -> Result<Report> {
        self.rank.set_epoch(epoch);
        let (start, order) = (Instant::now(), self.order(epoch));
        let refreshed = self.refresh(learner, epoch)?;
        let guard = self.look(learner, epoch, &order)?;
        if refreshed || guard.is_some() {
            phase("exact", start);
        }
        if let Some(seen) = guard.filter(|seen| self.settings.guard == Guard::Stop && seen.is_much()) {
            return Err(Error::Diverged { epoch, seen });
        }
        self.graph.begin(&order, if self.settings.scale { Across::Twice } else { Across::Once });
        let (passed, own) = self.forward(learner, &order, epoch, phase)?;
        let loss = self.rank.sum(Total::Loss, &[own])?[0];
        if !loss.is_finite() {
            return Err(Error::NotFinite { epoch, place: "the loss".into() });
        }
        self.backward(passed, phase)?;
        let start = Instant::now();
        let gradient_norm = self.gradient_norm(learner, epoch)?;
        learner.descend(lr, gradient_norm)?;
        self.rank.device().backend().wait()?;
        phase("update", start);
        Ok(Report { loss, gradient_norm, guard })
    }

    /// Takes all chunks through this stage's layers, in this order; `done` is given each with what it began with, its
    /// account, and when that was.
    pub(super) fn pass(
        &self,
        learner: &Learner,
        order: &[usize],
        account: Account,
        mut done: impl FnMut(Passed, Instant) -> Result<()>,
    ) -> Result<()> {
        let (device, Account { op, mode, epoch }) = (self.rank.device(), account);
        let ask = |turn: usize| -> Result<Option<Flight>> {
            let (Some(chunk), Some(before)) = (order.get(turn), &self.before) else { return Ok(None) };
            self.ask(op, before, self.graph.rows(*chunk).len())
        };
        let (mut arriving, mut leaving) = (ask(0)?, VecDeque::new());
        for (turn, &chunk) in order.iter().enumerate() {
            let state = arriving.map_or(Ok(Vec::new()), Flight::wait)?;
            arriving = ask(turn + 1)?;
            let start = Instant::now();
            let mut tape = match mode {
                Mode::Train => Tape::new(device),
                Mode::Evaluate => Tape::without_gradients(device),
            };
            let inputs: Vec<Var> = state.into_iter().map(|m| tape.leaf(m)).collect();
            let context = learner.context_of(&self.chunks[chunk], mode, epoch);
            let outputs = learner.through(&mut tape, &context, inputs.clone())?;
            let state: Vec<Matrix> = outputs.iter().map(|var| var.value().clone()).collect();
            done(Passed { chunk, tape, inputs, outputs }, start)?;
            if let Some(after) = &self.after {
                leave(&mut leaving, self.send(op, after, state)?)?;
            }
        }
        Ok(leaving.into_iter().try_for_each(|flight| flight.wait().map(drop))?)
    }

    /// All chunks in this order; also gives the loss of this rank's rows, on the last stage.
    fn forward(&self, learner: &Learner, order: &[usize], epoch: u64, phase: Phases<'_>) -> Result<(Vec<Passed>, f64)> {
        let (mut all, mut sum) = (Vec::with_capacity(order.len()), 0.0);
        self.pass(learner, order, Account { op: OP, mode: Mode::Train, epoch }, |mut passed, start| {
            if let Some(end) = &self.end {
                let logits = passed.outputs.swap_remove(0);
                let loss = end.chunks[passed.chunk].loss(&mut passed.tape, &logits)?;
                sum += number(loss.value())?;
                passed.outputs = vec![loss];
            }
            self.rank.device().backend().wait()?;
            phase("forward", start);
            all.push(passed);
            Ok(())
        })?;
        Ok((all, sum))
    }

    /// All chunks in the opposite order; gradients of parameters are summed over the ways of the stage once they are
    /// complete.
    fn backward(&self, mut passed: Vec<Passed>, phase: Phases<'_>) -> Result<()> {
        let device = self.rank.device();
        let ask = |next: Option<&Passed>| -> Result<Option<Flight>> {
            let (Some(next), Some(after)) = (next, &self.after) else { return Ok(None) };
            self.ask(OP, after, self.graph.rows(next.chunk).len())
        };
        let (mut arriving, mut leaving) = (ask(passed.last())?, VecDeque::new());
        let mut buckets = Buckets::new(&self.ways);
        while let Some(Passed { mut tape, inputs, outputs, .. }) = passed.pop() {
            let gradients = match arriving {
                Some(flight) => flight.wait()?,
                None => {
                    // After the last stage there is the loss alone.
                    outputs.iter().for_each(|loss| tape.start_from(loss));
                    Vec::new()
                }
            };
            arriving = ask(passed.last())?;
            let (start, last) = (Instant::now(), passed.is_empty());
            let found = tape.backward(
                outputs.into_iter().zip(gradients).collect(),
                &inputs.iter().collect::<Vec<_>>(),
                |parameter| if last { buckets.add(parameter) } else { Ok(()) },
            )?;
            // A matrix that nobody has used, such as h⁰ before the last layer alone, has no gradient.
            let of_input = |(found, input): (Option<Matrix>, &Var)| match found {
                Some(gradient) => Ok(gradient),
                None => {
                    let m = input.value();
                    device.zeros(OP, m.rows(), m.cols(), m.dtype(), Tag::Exchange)
                }
            };
            let gradients = found.into_iter().zip(&inputs).map(of_input).collect::<Computed<Vec<Matrix>>>()?;
            device.backend().wait()?;
            phase("backward", start);
            if let Some(before) = &self.before {
                leave(&mut leaving, self.send(OP, before, gradients)?)?;
            }
        }
        leaving.into_iter().try_for_each(|flight| flight.wait().map(drop))?;
        Ok(buckets.finish()?)
    }

    /// The length of all gradients of all stages.
    fn gradient_norm(&self, learner: &Learner, epoch: u64) -> Result<f64> {
        let (own, place) = match learner.gradient_norm() {
            Ok(norm) if self.speaks() => (norm * norm, String::new()),
            Ok(_) => (0.0, String::new()),
            Err(Computation::NotFinite { what }) => (f64::NAN, what),
            Err(other) => return Err(other.into()),
        };
        let all = self.rank.sum(Total::Metrics, &[own])?[0];
        if !all.is_finite() {
            // The rank that leads says for all which parameter it was.
            let named = self.rank.gather("metrics", place.clone().into_bytes())?;
            let first = named.iter().find(|place| !place.is_empty()).map(|place| String::from_utf8_lossy(place).into());
            return Err(Error::NotFinite { epoch, place: first.unwrap_or(place) });
        }
        Ok(all.sqrt())
    }
}

/// Lets a state go, once those before the last few have arrived.
fn leave(under_way: &mut VecDeque<Flight>, next: Option<Flight>) -> Result<()> {
    under_way.extend(next);
    if under_way.len() > UNDER_WAY
        && let Some(first) = under_way.pop_front()
    {
        first.wait()?;
    }
    Ok(())
}
