//! What operations over edges were given, chunk by chunk: fresh, historical, and the gradients of what was fresh.

use std::collections::BTreeMap;

use graphweft_tensor::ops::many_rows::ManyRows;
use graphweft_tensor::{Error, Matrix, Result, Tag};

use super::Across;

const OP: &str = "pipeline";

/// An operation of a layer.
pub(super) type Call = (u32, &'static str);

/// The rows of one operand, by chunk.
#[derive(Default)]
struct Table {
    fresh: Vec<Option<Matrix>>,
    history: Vec<Option<Matrix>>,
    gradient: Vec<Option<Matrix>>,
}

/// All tables of a stage.
pub(super) struct Tables {
    calls: BTreeMap<Call, Table>,
    /// When each chunk comes in this epoch.
    turns: Vec<usize>,
    across: Across,
    remembering: bool,
}

/// Rows of several chunks.
#[derive(Clone, Copy)]
pub(super) struct Sources<'a> {
    /// Which chunks.
    pub(super) chunks: &'a [usize],
    /// Which rows of each.
    pub(super) rows: &'a ManyRows,
}

impl Tables {
    pub(super) fn new(chunks: usize) -> Self {
        let turns = (0..chunks).collect();
        Self { calls: BTreeMap::new(), turns, across: Across::Once, remembering: false }
    }

    /// How many chunks there are.
    pub(super) fn chunks(&self) -> usize {
        self.turns.len()
    }

    fn table(&mut self, call: Call) -> &mut Table {
        let chunks = self.chunks();
        self.calls.entry(call).or_insert_with(|| Table {
            fresh: vec![None; chunks],
            history: vec![None; chunks],
            gradient: vec![None; chunks],
        })
    }

    /// A new epoch: nothing is fresh, and no gradient waits.
    pub(super) fn begin(&mut self, order: &[usize], across: Across) {
        for (turn, chunk) in order.iter().enumerate() {
            self.turns[*chunk] = turn;
        }
        self.across = across;
        for table in self.calls.values_mut() {
            table.fresh.fill(None);
            table.gradient.fill(None);
        }
    }

    /// From now on what all rows give is kept. What was kept before is let go first.
    pub(super) fn begin_history(&mut self) {
        self.remembering = true;
        self.calls.values_mut().for_each(|table| table.history.fill(None));
    }

    /// It is kept no longer.
    pub(super) fn end_history(&mut self) {
        self.remembering = false;
    }

    pub(super) fn is_remembering(&self) -> bool {
        self.remembering
    }

    /// Keeps what a chunk gave as history.
    pub(super) fn keep(&mut self, call: Call, chunk: usize, rows: Matrix) {
        self.table(call).history[chunk] = Some(rows);
    }

    /// Keeps what a chunk has given in this epoch.
    ///
    /// # Errors
    /// If it has given something already: rows of two operations would be mixed up.
    pub(super) fn give(&mut self, call: Call, chunk: usize, rows: &Matrix) -> Result<()> {
        let slot = &mut self.table(call).fresh[chunk];
        if slot.is_some() {
            let problem =
                format!("layer {} of the model calls {} twice: give its layers numbers of their own", call.0, call.1);
            return Err(Error::Argument { op: OP, problem });
        }
        *slot = Some(rows.clone());
        Ok(())
    }

    /// Whether `chunk` comes before `other` in this epoch.
    fn is_fresh(&self, chunk: usize, other: usize) -> bool {
        self.turns[chunk] < self.turns[other]
    }

    /// The rows of `chunk` as `other` sees them.
    pub(super) fn rows(&mut self, call: Call, chunk: usize, other: usize) -> Result<Matrix> {
        let fresh = self.is_fresh(chunk, other);
        let table = self.table(call);
        let rows = if fresh { &table.fresh[chunk] } else { &table.history[chunk] };
        rows.clone().ok_or_else(|| {
            let which = if fresh { "fresh" } else { "historical" };
            let problem = format!("chunk {chunk} has no {which} rows for {} of layer {}", call.1, call.0);
            Error::Argument { op: OP, problem }
        })
    }

    /// Adds the gradients of sources of chunk `number`, which are listed by chunk, to those of chunks that are fresh
    /// to it.
    pub(super) fn add(&mut self, call: Call, number: usize, gradient: &Matrix, sources: Sources<'_>) -> Result<()> {
        let Sources { chunks, rows } = sources;
        let (device, cols, dtype) = (gradient.device().clone(), gradient.cols(), gradient.dtype());
        let fresh: Vec<bool> = chunks.iter().map(|chunk| self.is_fresh(*chunk, number)).collect();
        if !fresh.contains(&true) {
            return Ok(());
        }
        let table = self.table(call);
        let mut sums = Vec::with_capacity(chunks.len());
        for ((chunk, fresh), count) in chunks.iter().zip(&fresh).zip(rows.counts()) {
            // What is not fresh, such as the chunk's own, keeps what it has.
            let mut sum = if *fresh { table.gradient[*chunk].take() } else { None };
            if *fresh && sum.is_none() {
                sum = Some(device.zeros(OP, count, cols, dtype, Tag::Activations)?);
            }
            sums.push(sum);
        }
        device.backend().scatter_many(gradient, rows, &mut sums)?;
        for (chunk, sum) in chunks.iter().zip(sums).filter(|(_, sum)| sum.is_some()) {
            table.gradient[*chunk] = sum;
        }
        Ok(())
    }

    /// Adds the gradient of what `chunk` has given to `own`, which has that of its own edges. Nobody who comes later in
    /// backward has seen its rows: they are let go.
    pub(super) fn take(&mut self, call: Call, chunk: usize, own: &mut Matrix) -> Result<()> {
        let (across, table, device) = (self.across, self.table(call), own.device().clone());
        table.fresh[chunk] = None;
        let Some(found) = table.gradient[chunk].take() else { return Ok(()) };
        device.backend().add(own, &found)?;
        if across == Across::Twice {
            device.backend().add(own, &found)?;
        }
        Ok(())
    }
}
