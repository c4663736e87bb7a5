//! What operations over edges were given: all rows of a stage as chunks see them, and the gradients of what was fresh.
//!
//! Chunks see one table for every operation. An epoch begins with history in it; each chunk that comes writes its own rows over
//! those, so that the next ones find fresh rows of the chunks before them and historical ones of the rest, by one list that never
//! changes. On the way back chunks leave in the opposite order, and where something is computed again, history returns to
//! the rows of those that have left: everybody sees what he saw the first time. Gradients of sources have a table too, in which rows
//! of chunks that were not fresh are left out.

use std::collections::BTreeMap;
use std::rc::Rc;

use graphweft_tensor::ops::rows::RowIndex;
use graphweft_tensor::{Device, Error, Matrix, Result, Tag};

use super::Across;
use super::chunk::Chunk;

const OP: &str = "pipeline";

/// An operation of a layer.
pub(super) type Call = (u32, &'static str);

/// The rows of one operand, of all chunks one below the other.
#[derive(Default)]
struct Table {
    history: Option<Matrix>,
    /// What the next chunk sees.
    seen: Option<Matrix>,
    /// Of what was fresh.
    gradient: Option<Matrix>,
    given: Vec<bool>,
    /// Whether there are gradients of a chunk.
    added: Vec<bool>,
    /// Chunks that have come back, whose rows are still to be seen.
    left: Vec<usize>,
    /// Chunks that have come back.
    back: usize,
}

/// All tables of a stage.
pub(super) struct Tables {
    calls: BTreeMap<Call, Table>,
    /// The first row of each chunk, and the number of all.
    ranges: Vec<usize>,
    /// When each chunk comes in this epoch.
    turns: Vec<usize>,
    across: Across,
    remembering: bool,
    /// Where the gradients of a chunk's sources go, for the chunk that is on its way back.
    fresh: Option<(usize, Rc<RowIndex>)>,
}

impl Tables {
    /// `ranges` has the first row of each chunk, and the number of all.
    pub(super) fn new(ranges: Vec<usize>) -> Self {
        let turns = (0..ranges.len() - 1).collect();
        Self { calls: BTreeMap::new(), ranges, turns, across: Across::Once, remembering: false, fresh: None }
    }

    /// How many chunks there are.
    pub(super) fn chunks(&self) -> usize {
        self.turns.len()
    }

    fn table(&mut self, call: Call) -> &mut Table {
        let chunks = self.chunks();
        self.calls.entry(call).or_insert_with(|| Table {
            given: vec![false; chunks],
            added: vec![false; chunks],
            ..Table::default()
        })
    }

    /// A new epoch: nothing is fresh, and no gradient waits.
    pub(super) fn begin(&mut self, order: &[usize], across: Across) {
        for (turn, chunk) in order.iter().enumerate() {
            self.turns[*chunk] = turn;
        }
        (self.across, self.fresh) = (across, None);
        for table in self.calls.values_mut() {
            (table.seen, table.gradient, table.back) = (None, None, 0);
            table.given.fill(false);
            table.added.fill(false);
            table.left.clear();
        }
    }

    /// From now on, or no longer, what all rows give is kept. What was kept before is let go first.
    pub(super) fn remember(&mut self, remembering: bool) {
        self.remembering = remembering;
        if remembering {
            self.calls.values_mut().for_each(|table| table.history = None);
        }
    }

    pub(super) fn is_remembering(&self) -> bool {
        self.remembering
    }

    /// Keeps what all chunks gave as history.
    pub(super) fn keep(&mut self, call: Call, rows: Matrix) {
        self.table(call).history = Some(rows);
    }

    /// Shows what a chunk gives in this epoch to those that come after it.
    ///
    /// # Errors
    /// If it has given something already: rows of two operations would be mixed up.
    pub(super) fn give(&mut self, call: Call, chunk: usize, rows: &Matrix) -> Result<()> {
        let (first, chunks) = (self.ranges[chunk], self.chunks());
        let table = self.table(call);
        if table.given[chunk] {
            let problem =
                format!("layer {} of the model calls {} twice: give its layers numbers of their own", call.0, call.1);
            return Err(Error::Argument { op: OP, problem });
        }
        if chunks > 1 {
            let mut seen = match table.seen.take() {
                Some(seen) => seen,
                None => {
                    let Some(history) = &table.history else { return Err(missing("historical", call)) };
                    let (rows, cols) = history.shape();
                    let mut seen = history.device().uninit(OP, rows, cols, history.dtype(), Tag::Activations)?;
                    seen.device().clone().backend().copy_part(history, 0, &mut seen, 0, rows * cols)?;
                    seen
                }
            };
            let cols = rows.cols();
            rows.device().backend().copy_part(rows, 0, &mut seen, first * cols, rows.rows() * cols)?;
            table.seen = Some(seen);
        }
        table.given[chunk] = true;
        Ok(())
    }

    /// Before something is computed again: rows of chunks that have come back are history again.
    pub(super) fn turn_back(&mut self, call: Call) -> Result<()> {
        let table = self.table(call);
        let left = std::mem::take(&mut table.left);
        let (Some(mut seen), Some(history)) = (table.seen.take(), table.history.clone()) else { return Ok(()) };
        let cols = seen.cols();
        for chunk in left {
            let (start, end) = (self.ranges[chunk] * cols, self.ranges[chunk + 1] * cols);
            history.device().backend().copy_part(&history, start, &mut seen, start, end - start)?;
        }
        self.table(call).seen = Some(seen);
        Ok(())
    }

    /// All rows as the chunk whose turn it is sees them.
    pub(super) fn seen(&mut self, call: Call) -> Result<&Matrix> {
        self.table(call).seen.as_ref().ok_or_else(|| missing("fresh", call))
    }

    /// Whether `chunk` comes before `other` in this epoch.
    fn is_fresh(&self, chunk: usize, other: usize) -> bool {
        self.turns[chunk] < self.turns[other]
    }

    /// Adds the gradients of the sources of chunk `number` to those of fresh rows.
    pub(super) fn add(&mut self, call: Call, number: usize, chunk: &Chunk, gradient: &Matrix) -> Result<()> {
        let device = gradient.device().clone();
        let fresh = self.fresh_of(&device, number, chunk)?;
        let others: Vec<usize> = chunk.others().filter(|other| self.is_fresh(*other, number)).collect();
        if others.is_empty() {
            return Ok(());
        }
        let table = self.table(call);
        let mut sum = match table.gradient.take() {
            Some(sum) => sum,
            None => device.zeros(OP, fresh.num_rows(), gradient.cols(), gradient.dtype(), Tag::Activations)?,
        };
        device.backend().scatter_rows(gradient, &fresh, &mut sum, true)?;
        table.gradient = Some(sum);
        others.into_iter().for_each(|other| table.added[other] = true);
        Ok(())
    }

    /// The same list for all operations of a chunk.
    fn fresh_of(&mut self, device: &Device, number: usize, chunk: &Chunk) -> Result<Rc<RowIndex>> {
        if let Some((_, list)) = self.fresh.as_ref().filter(|(of, _)| *of == number) {
            return Ok(Rc::clone(list));
        }
        // Two at a time are never needed.
        self.fresh = None;
        let list = Rc::new(chunk.fresh(device, |other| self.is_fresh(other, number))?);
        self.fresh = Some((number, Rc::clone(&list)));
        Ok(list)
    }

    /// Adds the gradient of what `chunk` has given to `own`, which has that of its own edges. Nobody who comes later in backward has
    /// seen its rows.
    pub(super) fn take(&mut self, call: Call, chunk: usize, own: &mut Matrix) -> Result<()> {
        let (across, first, chunks) = (self.across, self.ranges[chunk], self.chunks());
        let (device, (rows, cols)) = (own.device().clone(), own.shape());
        let table = self.table(call);
        if let Some(sums) = table.gradient.as_ref().filter(|_| table.added[chunk]) {
            let mut found = device.uninit(OP, rows, cols, own.dtype(), Tag::Activations)?;
            device.backend().copy_part(sums, first * cols, &mut found, 0, rows * cols)?;
            device.backend().add(own, &found)?;
            if across == Across::Twice {
                device.backend().add(own, &found)?;
            }
        }
        table.left.push(chunk);
        table.back += 1;
        if table.back == chunks {
            (table.seen, table.gradient) = (None, None);
        }
        Ok(())
    }
}

fn missing(which: &str, call: Call) -> Error {
    Error::Argument { op: OP, problem: format!("there are no {which} rows for {} of layer {}", call.1, call.0) }
}
