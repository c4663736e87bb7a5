//! An epoch of a stage: all chunks forward, then all of them back, then one update.

use std::collections::VecDeque;
use std::time::Instant;

use graphweft_model::{Mode, Total};
use graphweft_parallel::{Across, Flight};
use graphweft_tensor::{Error as Computation, Matrix, Tag, Tape, Var};

use super::Stage;
use super::guard::{Expected, number};
use crate::config::Guard;
use crate::error::{Error, Result};
use crate::learner::{Learner, Phases, Report};

type Computed<T> = std::result::Result<T, Computation>;

/// The account of what moves.
const OP: &str = "stage";
/// States that may be on their way to the next stage.
const UNDER_WAY: usize = 2;

/// A chunk between forward and backward.
struct Passed {
    chunk: usize,
    tape: Tape,
    inputs: Vec<Var>,
    /// The state for the next stage, or the loss.
    outputs: Vec<Var>,
}

impl Stage {
    /// Learns from all nodes once.
    ///
    /// # Errors
    /// [`Error::NotFinite`] and [`Error::Diverged`], to all stages alike and before anything is changed.
    pub(crate) fn learn(&mut self, learner: &mut Learner, epoch: u64, lr: f64, phase: Phases<'_>) -> Result<Report> {
        self.rank.set_epoch(epoch);
        let start = Instant::now();
        let refreshed = self.refresh(learner, epoch)?;
        let mut expected = self.expected(learner, epoch)?;
        if refreshed || expected.is_some() {
            phase("exact", start);
        }
        let order = self.order(epoch);
        let across = if self.settings.scale { Across::Twice } else { Across::Once };
        self.graph.begin(&order, across);
        let (passed, own) = self.forward(learner, &order, epoch, expected.as_mut(), phase)?;
        let loss = self.rank.sum(Total::Loss, &[own])?[0];
        if !loss.is_finite() {
            return Err(Error::NotFinite { epoch, place: "the loss".into() });
        }
        let guard = expected.map(|expected| self.verdict(&expected, loss)).transpose()?;
        if let Some(seen) = guard.filter(|seen| self.settings.guard == Guard::Stop && seen.is_much()) {
            return Err(Error::Diverged { epoch, seen });
        }
        self.backward(passed, phase)?;
        let start = Instant::now();
        let gradient_norm = self.gradient_norm(learner, epoch)?;
        learner.descend(lr, gradient_norm)?;
        self.rank.device().backend().wait()?;
        phase("update", start);
        Ok(Report { loss, gradient_norm, guard })
    }

    /// All chunks in this order; also gives the loss, on the last stage.
    fn forward(
        &self,
        learner: &Learner,
        order: &[usize],
        epoch: u64,
        mut expected: Option<&mut Expected>,
        phase: Phases<'_>,
    ) -> Result<(Vec<Passed>, f64)> {
        let (stage, device) = (self.rank.index(), self.rank.device());
        let ask = |turn: usize| -> Result<Option<Flight>> {
            let (Some(chunk), Some(state)) = (order.get(turn), &self.before) else { return Ok(None) };
            self.ask(OP, stage - 1, self.graph.rows(*chunk).len(), state)
        };
        let (mut arriving, mut leaving, mut passed, mut sum) = (ask(0)?, VecDeque::new(), Vec::new(), 0.0);
        for (turn, &chunk) in order.iter().enumerate() {
            let state = arriving.map_or(Ok(Vec::new()), Flight::wait)?;
            arriving = ask(turn + 1)?;
            let start = Instant::now();
            let mut tape = Tape::new(device);
            let inputs: Vec<Var> = state.into_iter().map(|m| tape.leaf(m)).collect();
            let step = learner.step_of(&self.chunks[chunk], Mode::Train, epoch);
            let mut outputs = learner.through(&mut tape, &step, inputs.clone())?;
            if let Some(end) = &self.end {
                let logits = outputs.swap_remove(0);
                if let Some(expected) = &mut expected {
                    self.compare(expected, chunk, logits.value())?;
                }
                outputs = vec![end.chunks[chunk].loss(&mut tape, &logits, learner.smoothing())?];
                sum += number(outputs[0].value())?;
            }
            device.backend().wait()?;
            phase("forward", start);
            if self.after.is_some() {
                let state = outputs.iter().map(|var| var.value().clone()).collect();
                leave(&mut leaving, self.send(OP, stage + 1, state)?)?;
            }
            passed.push(Passed { chunk, tape, inputs, outputs });
        }
        leaving.into_iter().try_for_each(|flight| flight.wait().map(drop))?;
        Ok((passed, sum))
    }

    /// All chunks in the opposite order.
    fn backward(&self, mut passed: Vec<Passed>, phase: Phases<'_>) -> Result<()> {
        let (stage, device) = (self.rank.index(), self.rank.device());
        let ask = |next: Option<&Passed>| -> Result<Option<Flight>> {
            let (Some(next), Some(state)) = (next, &self.after) else { return Ok(None) };
            self.ask(OP, stage + 1, self.graph.rows(next.chunk).len(), state)
        };
        let (mut arriving, mut leaving) = (ask(passed.last())?, VecDeque::new());
        while let Some(Passed { tape, inputs, outputs, .. }) = passed.pop() {
            let gradients = match arriving {
                Some(flight) => flight.wait()?,
                None => {
                    let one = device.upload(1, 1, &[1.0f64], Tag::Workspace)?;
                    let one = |loss: &Var| device.convert("loss", &one, loss.value().dtype());
                    outputs.iter().map(one).collect::<Computed<Vec<Matrix>>>()?
                }
            };
            arriving = ask(passed.last())?;
            let start = Instant::now();
            let found = tape.backward(
                outputs.into_iter().zip(gradients).collect(),
                &inputs.iter().collect::<Vec<_>>(),
                |_| Ok(()),
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
            if self.before.is_some() {
                leave(&mut leaving, self.send(OP, stage - 1, gradients)?)?;
            }
        }
        Ok(leaving.into_iter().try_for_each(|flight| flight.wait().map(drop))?)
    }

    /// The length of all gradients of all stages.
    fn gradient_norm(&self, learner: &Learner, epoch: u64) -> Result<f64> {
        let (own, place) = match learner.gradient_norm() {
            Ok(norm) => ([norm * norm, 0.0], String::new()),
            Err(Computation::NotFinite { what }) => ([0.0, 1.0], what),
            Err(other) => return Err(other.into()),
        };
        let all = self.rank.sum(Total::Metrics, &own)?;
        if all[1] > 0.0 {
            // The rank that leads says for all which parameter it was.
            let named = self.rank.gather("metrics", place.clone().into_bytes())?;
            let first = named.iter().find(|place| !place.is_empty()).map(|place| String::from_utf8_lossy(place).into());
            return Err(Error::NotFinite { epoch, place: first.unwrap_or(place) });
        }
        Ok(all[0].sqrt())
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
