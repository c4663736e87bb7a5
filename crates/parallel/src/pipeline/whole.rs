//! All rows at once: exact, and where history comes from.

use std::cell::RefCell;
use std::rc::Rc;

use graphweft_model::{Aggregation, Attend, EdgeWeight, GraphOps, Membership, Score};
use graphweft_tensor::ops::rows::RowIndex;
use graphweft_tensor::{Result, Tag, Tape, Var};

use super::tables::{Call, Tables};
use crate::local::Local;

/// Operations on all rows; what they are given is kept, chunk by chunk, when that is asked for.
pub(super) struct Whole {
    local: Local,
    /// The rows of every chunk.
    chunks: Vec<RowIndex>,
    tables: Rc<RefCell<Tables>>,
}

impl Whole {
    pub(super) fn new(local: Local, chunks: Vec<RowIndex>, tables: Rc<RefCell<Tables>>) -> Self {
        Self { local, chunks, tables }
    }

    fn note(&self, call: Call, x: &Var) -> Result<()> {
        let mut tables = self.tables.borrow_mut();
        // Nobody reads the history of the only chunk.
        if !tables.is_remembering() || self.chunks.len() == 1 {
            return Ok(());
        }
        let (x, device) = (x.value(), x.value().device());
        for (chunk, rows) in self.chunks.iter().enumerate() {
            let mut kept = device.uninit("pipeline", rows.index().len(), x.cols(), x.dtype(), Tag::Activations)?;
            device.backend().gather_rows(x, rows, &mut kept)?;
            tables.keep(call, chunk, kept);
        }
        Ok(())
    }
}

impl GraphOps for Whole {
    fn member(&self) -> &dyn Membership {
        self.local.member()
    }

    fn attend(&self, tape: &mut Tape, layer: u32, a: Attend<'_>) -> Result<Var> {
        let (Score::Dot { kv: x, .. } | Score::Gat { z: x, .. } | Score::Gatv2 { r: x, .. }) = a.score;
        self.note((layer, "attend"), x)?;
        self.local.attend(tape, layer, a)
    }

    fn attend_with_tokens(&self, tape: &mut Tape, layer: u32, a: Attend<'_>, tokens: &Var) -> Result<Var> {
        self.local.attend_with_tokens(tape, layer, a, tokens)
    }

    fn aggregate(&self, tape: &mut Tape, layer: u32, x: &Var, how: Aggregation, weight: EdgeWeight<'_>) -> Result<Var> {
        self.note((layer, "aggregate"), x)?;
        self.local.aggregate(tape, layer, x, how, weight)
    }
}
