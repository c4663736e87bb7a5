//! All rows through all layers at once, stage after stage: exact. Scores, history and the guard's view come from it.

use std::rc::Rc;

use graphweft_model::{Context, Features, Mode, Total};
use graphweft_parallel::Flight;
use graphweft_tensor::ops::bag::Bag;
use graphweft_tensor::{DType, Matrix, Tag, Tape, Var};

use super::{History, Stage};
use crate::epochs::learner::Learner;
use crate::epochs::source::TakeOutputs;
use crate::error::{Error, Result};
use crate::run::checkpoint::Scores;
use crate::task::metrics::{Logits, Metric};

/// The account of what moves.
const OP: &str = "exact";

impl Stage {
    /// One pass without dropout; the logits of this rank's rows, in the order of chunks, on the last stage.
    pub(super) fn exact(&self, learner: &Learner) -> Result<Option<Matrix>> {
        let rows = self.graph.originals().len();
        let state = match &self.before {
            Some(before) => self.ask(OP, before, rows)?.map_or(Ok(Vec::new()), Flight::wait)?,
            None => Vec::new(),
        };
        let mut tape = Tape::without_gradients(self.rank.device());
        let state: Vec<Var> = state.into_iter().map(|m| tape.constant(m)).collect();
        let context = Context {
            ops: self.graph.all_rows(),
            features: self.features()?,
            positional: self.positional()?,
            types: self.types.clone(),
            ..learner.context_of(&self.chunks[0], Mode::Evaluate, 0)
        };
        let mut state: Vec<Matrix> =
            learner.through(&mut tape, &context, state)?.iter().map(|var| var.value().clone()).collect();
        match &self.after {
            None => Ok(state.pop()),
            Some(after) => {
                self.send(OP, after, state)?.map_or(Ok(Vec::new()), Flight::wait)?;
                Ok(None)
            }
        }
    }

    /// The features of all rows, for the time of a pass: chunks keep theirs.
    fn features(&self) -> Result<Features> {
        if let [only] = &self.chunks[..] {
            return Ok(only.features.clone());
        }
        let (mut dense, mut sparse) = (Vec::new(), Vec::new());
        for chunk in &self.chunks {
            match &chunk.features {
                Features::Dense(m) => dense.push(m),
                Features::Sparse(bag) => sparse.push(&**bag),
            }
        }
        let is_sparse = dense.is_empty();
        Ok(if is_sparse { Features::Sparse(Rc::new(Bag::stack(&sparse)?)) } else { Features::Dense(stack(&dense)?) })
    }

    /// Their positional encodings, likewise.
    fn positional(&self) -> Result<Option<Matrix>> {
        let all: Vec<&Matrix> = self.chunks.iter().filter_map(|chunk| chunk.positional.as_ref()).collect();
        if all.is_empty() { Ok(None) } else { stack(&all).map(Some) }
    }

    /// Makes history, where it is due: with the parameters of now, or, where a run goes on, with those of then. Says
    /// whether it was.
    pub(super) fn refresh(&mut self, learner: &Learner, epoch: u64) -> Result<bool> {
        // The only chunk has no history.
        if self.graph.count() == 1 {
            return Ok(false);
        }
        let lasts = |history: &History| self.settings.refresh_every.min(history.epoch);
        let due = self.history.as_ref().is_none_or(|history| epoch >= history.epoch + lasts(history));
        if due {
            self.history = Some(History { epoch, model: learner.model()?, made: false });
        }
        let Some(history) = &mut self.history else { return Ok(false) };
        if std::mem::replace(&mut history.made, true) {
            return Ok(false);
        }
        let now = if due { None } else { Some(learner.model()?) };
        if now.is_some() {
            learner.load_model(&history.model)?;
        }
        self.graph.remember(|| self.exact(learner))?;
        now.map_or(Ok(()), |now| learner.load_model(&now))?;
        Ok(true)
    }

    /// The scores of all three parts, on all stages.
    pub(super) fn exact_scores(&self, learner: &Learner, metric: &'static Metric, epoch: u64) -> Result<Scores> {
        let logits = self.exact(learner)?;
        // Four scores, and how many nodes have none: all stages must hear of that.
        let mut own = [0.0; 5];
        if let (Some(end), Some(logits)) = (&self.end, logits) {
            let reduce = self.ways.reduce(Total::Metrics);
            let scoring = end.whole.scoring(metric, self.rank.device(), &*reduce);
            let found = match scoring.scores(&Logits::of(&logits)?, &end.whole.parts, epoch) {
                Ok(s) => [s.train, s.valid, s.test, s.valid_loss, 0.0],
                Err(Error::NotScored { nodes }) => [0.0, 0.0, 0.0, 0.0, nodes as f64],
                Err(e) => return Err(e),
            };
            if self.speaks() {
                own = found;
            }
        }
        let all = self.rank.sum(Total::Metrics, &own)?;
        if all[4] > 0.0 {
            return Err(Error::NotScored { nodes: all[4] as u64 });
        }
        Ok(Scores { epoch, train: all[0], valid: all[1], test: all[2], valid_loss: all[3] })
    }

    /// Gives the logits of all nodes to `take`, where the rank that leads is.
    pub(super) fn exact_outputs(&self, learner: &Learner, take: TakeOutputs<'_>) -> Result<()> {
        // Only the last stage has something to send.
        let (ids, rows) = match self.exact(learner)? {
            Some(logits) => {
                let rows = self.rank.device().convert("predict", &logits, DType::F32)?.to_vec::<f32>()?;
                (bytemuck::cast_slice(self.graph.originals()).to_vec(), bytemuck::cast_slice(&rows).to_vec())
            }
            None => (Vec::new(), Vec::new()),
        };
        let (ids, rows) = (self.rank.gather("metrics", ids)?, self.rank.gather("metrics", rows)?);
        if !self.rank.leads() {
            return Ok(());
        }
        let ids: Vec<u64> = bytemuck::pod_collect_to_vec(&ids.concat());
        let rows: Vec<f32> = bytemuck::pod_collect_to_vec(&rows.concat());
        let cols = self.shape.classes;
        let mut all = vec![0.0f32; ids.len() * cols];
        for (row, id) in rows.chunks_exact(cols.max(1)).zip(ids) {
            all[id as usize * cols..][..cols].copy_from_slice(row);
        }
        take(cols, &mut std::iter::once(Ok(all)))
    }
}

/// Matrices of the same width, one below the other.
fn stack(all: &[&Matrix]) -> Result<Matrix> {
    let (device, cols, dtype) = (all[0].device(), all[0].cols(), all[0].dtype());
    let mut stacked = device.uninit(OP, all.iter().map(|m| m.rows()).sum(), cols, dtype, Tag::Graph)?;
    let mut at = 0;
    for m in all {
        device.backend().copy_part(m, 0, &mut stacked, at, m.rows() * cols)?;
        at += m.rows() * cols;
    }
    Ok(stacked)
}
