//! All rows through all layers at once, stage after stage: exact. Scores, history and the guard's view come from it.

use std::sync::Arc;

use graphweft_model::{Mode, Total};
use graphweft_parallel::Flight;
use graphweft_tensor::{DType, Matrix, Tape, Var};

use super::{History, Stage};
use crate::checkpoint::Scores;
use crate::error::Result;
use crate::learner::Learner;
use crate::metrics::{Logits, Metric, Scoring};
use crate::run_dir::RunDir;

/// The account of what moves.
const OP: &str = "exact";

impl Stage {
    /// One pass; the logits, in the order of chunks, on the last stage.
    pub(super) fn exact(&self, learner: &Learner, mode: Mode, epoch: u64) -> Result<Option<Matrix>> {
        let (stage, rows) = (self.rank.index(), self.graph.originals().len());
        let state = match &self.before {
            Some(state) => self.ask(OP, stage - 1, rows, state)?.map_or(Ok(Vec::new()), Flight::wait)?,
            None => Vec::new(),
        };
        let mut tape = Tape::without_gradients(self.rank.device());
        let state: Vec<Var> = state.into_iter().map(|m| tape.constant(m)).collect();
        let step = learner.step_of(&self.whole, mode, epoch);
        let mut state: Vec<Matrix> =
            learner.through(&mut tape, &step, state)?.iter().map(|var| var.value().clone()).collect();
        if self.after.is_none() {
            return Ok(state.pop());
        }
        if let Some(flight) = self.send(OP, stage + 1, state)? {
            flight.wait()?;
        }
        Ok(None)
    }

    /// Makes history, where it is due: with the parameters of now, or, where a run goes on, with those of then. Says whether it was.
    pub(super) fn refresh(&mut self, learner: &Learner, epoch: u64) -> Result<bool> {
        // The only chunk has no history.
        if self.graph.count() == 1 {
            return Ok(false);
        }
        let every = self.settings.refresh_every;
        let due = self.history.as_ref().is_none_or(|history| epoch >= history.epoch + every);
        if due {
            self.history = Some(History { epoch, model: learner.model()?, made: false });
        }
        let Some(history) = &mut self.history else { return Ok(false) };
        if std::mem::replace(&mut history.made, true) {
            return Ok(false);
        }
        let (then, now) = (history.epoch, if due { None } else { Some(learner.model()?) });
        if now.is_some() {
            learner.load_model(&history.model)?;
        }
        self.graph.remember(|| self.exact(learner, Mode::Train, then))?;
        now.map_or(Ok(()), |now| learner.load_model(&now))?;
        Ok(true)
    }

    /// The scores of all three parts, on all stages.
    pub(crate) fn evaluate(&self, learner: &Learner, metric: Metric, epoch: u64) -> Result<Scores> {
        let logits = self.exact(learner, Mode::Evaluate, 0)?;
        let own = match (&self.end, logits) {
            (Some(end), Some(logits)) => {
                let reduce = self.whole.rank.reduce(Total::Metrics);
                let (truth, device) = (end.whole.truth(), self.rank.device());
                let scoring = Scoring { metric, truth, device, reduce: &*reduce };
                let s = scoring.scores(&Logits::of(&logits)?, &end.whole.parts, epoch)?;
                [s.train, s.valid, s.test, s.valid_loss]
            }
            _ => [0.0; 4],
        };
        let all = self.rank.sum(Total::Metrics, &own)?;
        Ok(Scores { epoch, train: all[0], valid: all[1], test: all[2], valid_loss: all[3] })
    }

    /// Writes the logits of all nodes, where the rank that leads is.
    pub(crate) fn predict(&self, learner: &Learner, dir: Option<&RunDir>) -> Result<()> {
        let own = match self.exact(learner, Mode::Evaluate, 0)? {
            Some(logits) => self.rank.device().convert("predict", &logits, DType::F32)?.to_vec::<f32>()?,
            None => Vec::new(),
        };
        let all = self.rank.gather("metrics", bytemuck::cast_slice(&own).to_vec())?;
        let Some(dir) = dir else { return Ok(()) };
        // Only the last stage has sent something.
        let found: Vec<f32> = bytemuck::pod_collect_to_vec(&all.concat());
        let (cols, originals) = (self.shape.classes, Arc::clone(self.graph.originals()));
        let mut rows = vec![0.0f32; originals.len() * cols];
        for (row, id) in found.chunks_exact(cols.max(1)).zip(originals.iter()) {
            rows[*id as usize * cols..][..cols].copy_from_slice(row);
        }
        dir.predictions(&rows, cols)
    }
}
