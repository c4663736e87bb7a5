//! What is lost by old rows: a forward pass of chunks beside an exact one, with the same parameters. Both are without
//! dropout: at a rate of a half its noise alone changes more predictions than old rows do.

use std::fmt;

use graphweft_model::{Mode, Total};
use graphweft_parallel::Across;
use graphweft_tensor::{DType, Matrix, Tape};
use serde::{Deserialize, Serialize};

use super::learn::Account;
use super::{End, Stage};
use crate::epochs::learner::Learner;
use crate::error::Result;
use crate::task::Supervision;
use crate::task::metrics::Logits;

/// The account of what moves.
const OP: &str = "guard";

/// Losses further apart than this, by the smaller of the two, are too far apart. This and the next are well above what
/// was seen in runs that came to the same scores as exact ones: 0.66, and 15 %, most of it in the first epochs
/// (benches/pipeline).
const LOSS: f64 = 1.0;
/// Of small losses nobody minds that they differ.
const SMALL: f64 = 0.1;
/// So many predictions may change.
const CHANGED: f64 = 0.2;

/// How far a forward pass in chunks is from an exact one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Divergence {
    /// The loss that chunks come to.
    pub loss: f64,
    /// The loss that all rows come to at once.
    pub exact_loss: f64,
    /// The share of predictions that differ.
    pub changed: f64,
}

impl Divergence {
    /// Whether the run learns something else than it is scored by.
    pub fn is_much(&self) -> bool {
        let apart = (self.loss - self.exact_loss).abs();
        self.changed > CHANGED || apart > LOSS * self.loss.min(self.exact_loss).max(SMALL)
    }
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { loss, exact_loss, changed } = self;
        let of = if self.is_much() {
            "pipeline has diverged from exact training"
        } else {
            "pipeline is near exact training"
        };
        write!(f, "{of}: loss {loss:.4}, exactly {exact_loss:.4}; {:.1} % of predictions differ", 100.0 * changed)
    }
}

impl Stage {
    /// What chunks in this order come to beside an exact pass, in the epochs in which that is looked at.
    pub(super) fn look(&self, learner: &Learner, epoch: u64, order: &[usize]) -> Result<Option<Divergence>> {
        let every = self.settings.guard_every;
        if every == 0 || !epoch.is_multiple_of(every) {
            return Ok(None);
        }
        let exact = self.exact(learner)?;
        let expected = match (&self.end, &exact) {
            (Some(end), Some(logits)) => predictions(end, logits)?,
            _ => Vec::new(),
        };
        let per_row = expected.len() / self.graph.originals().len().max(1);
        let loss_of = |supervision: &Supervision, logits: &Matrix| {
            let mut tape = Tape::without_gradients(self.rank.device());
            let logits = tape.constant(logits.clone());
            number(supervision.loss(&mut tape, &logits)?.value())
        };
        let (mut loss, mut changed) = (0.0, 0);
        self.graph.begin(order, Across::Once);
        self.pass(learner, order, Account { op: OP, mode: Mode::Evaluate, epoch }, |passed, _| {
            let (Some(end), Some(logits)) = (&self.end, passed.outputs.first()) else { return Ok(()) };
            let found = predictions(end, logits.value())?;
            let before = &expected[self.graph.rows(passed.chunk).start * per_row..][..found.len()];
            changed += found.iter().zip(before).filter(|(a, b)| a != b).count();
            loss += loss_of(&end.chunks[passed.chunk], logits.value())?;
            Ok(())
        })?;
        let exact_loss = match (&self.end, &exact) {
            (Some(end), Some(logits)) => loss_of(&end.whole, logits)?,
            _ => 0.0,
        };
        let all = self.rank.sum(Total::Metrics, &[loss, exact_loss, changed as f64, expected.len() as f64])?;
        Ok(Some(Divergence { loss: all[0], exact_loss: all[1], changed: all[2] / all[3].max(1.0) }))
    }
}

/// What each row says, as far as that is one thing or another.
fn predictions(end: &End, logits: &Matrix) -> Result<Vec<u32>> {
    let (rows, logits) = (logits.rows(), Logits::of(logits)?);
    let mut all = Vec::new();
    (0..rows).for_each(|row| end.whole.task().decide(logits.row(row), &mut all));
    Ok(all)
}

/// The only number of a matrix.
pub(super) fn number(m: &Matrix) -> Result<f64> {
    Ok(m.device().convert("loss", m, DType::F64)?.to_vec::<f64>()?.first().copied().unwrap_or(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_losses_and_few_changes_are_not_much() {
        let of = |loss, exact_loss, changed| Divergence { loss, exact_loss, changed };
        assert!(!of(1.0, 1.2, 0.05).is_much() && !of(0.001, 0.01, 0.0).is_much());
        assert!(of(1.0, 1.2, 0.3).is_much() && of(0.5, 1.2, 0.0).is_much() && of(1.2, 0.5, 0.0).is_much());
        assert!(of(1.0, 1.2, 0.3).to_string().contains("30.0 %"));
    }
}
