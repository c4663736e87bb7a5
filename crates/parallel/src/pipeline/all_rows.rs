//! All rows at once: exact, and where history comes from.
//!
//! The edges are those of the chunks, one after another, with the rows of the others as they are now: there is no other
//! copy of the graph. Without gradients.

use std::cell::RefCell;
use std::rc::Rc;

use graphweft_model::{Aggregation, Attend, EdgeWeight, GraphOps, Membership, Score};
use graphweft_tensor::{Ids, Matrix, Result, Tag, Tape, Var};

use super::chunk::{Bring, Chunk, Member, refused};
use super::tables::{Call, Tables};

const OP: &str = "pipeline";

/// Operations on all rows of this rank; what they are given is kept, chunk by chunk, when that is asked for.
pub(super) struct AllRows {
    member: Member,
    chunks: Vec<Rc<Chunk>>,
    tables: Rc<RefCell<Tables>>,
}

/// What an operation is given.
#[derive(Clone, Copy)]
struct Operands<'a> {
    /// The sources' operand.
    x: &'a Var,
    /// The destinations', where that is another.
    more: Option<&'a Var>,
}

impl AllRows {
    /// `ids` are those of this rank's rows, chunk after chunk.
    pub(super) fn new(chunks: &[Rc<Chunk>], ids: Ids, total: u64, tables: &Rc<RefCell<Tables>>) -> Self {
        let member = Member { rows: chunks.iter().map(|chunk| chunk.rows()).sum(), total, ids };
        Self { member, chunks: chunks.to_vec(), tables: Rc::clone(tables) }
    }

    /// The rows of `x`, chunk by chunk.
    fn pieces(&self, x: &Matrix) -> Result<Vec<Matrix>> {
        let (device, cols) = (x.device(), x.cols());
        let mut start = 0;
        let piece = |chunk: &Rc<Chunk>| {
            let mut piece = device.uninit(OP, chunk.rows(), cols, x.dtype(), Tag::Activations)?;
            device.backend().copy_part(x, start, &mut piece, 0, chunk.rows() * cols)?;
            start += chunk.rows() * cols;
            Ok(piece)
        };
        self.chunks.iter().map(piece).collect()
    }

    /// What `made` makes of every chunk, one below the other. It is given the chunk, its rows of the operands, and how
    /// to bring those of all its sources.
    fn each(
        &self,
        tape: &mut Tape,
        call: Call,
        operands: Operands<'_>,
        made: impl Fn(&mut Tape, &Chunk, Operands<'_>, Bring<'_>) -> Result<Var>,
    ) -> Result<Var> {
        let Operands { x, more } = operands;
        if let [only] = &self.chunks[..] {
            return made(tape, only, operands, &|_, x| Ok(x.clone()));
        }
        let rows = self.pieces(x.value())?;
        let more = more.map(|more| self.pieces(more.value())).transpose()?;
        let mut tables = self.tables.borrow_mut();
        if tables.is_remembering() {
            rows.iter().enumerate().for_each(|(chunk, rows)| tables.keep(call, chunk, rows.clone()));
        }
        drop(tables);
        let (device, mut out, mut at) = (tape.device().clone(), None, 0);
        for (k, chunk) in self.chunks.iter().enumerate() {
            let (x, more) = (tape.constant(rows[k].clone()), more.as_ref().map(|more| tape.constant(more[k].clone())));
            let bring = |tape: &mut Tape, x: &Var| {
                Ok(tape.constant(chunk.assemble(x.value(), |other| Ok(rows[other].clone()))?))
            };
            let part = made(tape, chunk, Operands { x: &x, more: more.as_ref() }, &bring)?;
            let part = part.value();
            let (cols, dtype) = (part.cols(), part.dtype());
            let mut all = match out.take() {
                Some(all) => all,
                None => device.uninit(OP, self.member.rows, cols, dtype, Tag::Activations)?,
            };
            device.backend().copy_part(part, 0, &mut all, at, chunk.rows() * cols)?;
            at += chunk.rows() * cols;
            out = Some(all);
        }
        let none = || refused("an operation without chunks");
        Ok(tape.constant(out.ok_or_else(none)?))
    }
}

impl GraphOps for AllRows {
    fn member(&self) -> &dyn Membership {
        &self.member
    }

    fn attend(&self, tape: &mut Tape, layer: u32, a: Attend<'_>) -> Result<Var> {
        let operands = match a.score {
            Score::Dot { q, kv } => Operands { x: kv, more: Some(q) },
            Score::Gat { z, .. } => Operands { x: z, more: None },
            Score::Gatv2 { l, r, .. } => Operands { x: r, more: Some(l) },
        };
        self.each(tape, (layer, "attend"), operands, |tape, chunk, Operands { x, more }, bring| {
            let score = match (a.score, more) {
                (Score::Dot { .. }, Some(q)) => Score::Dot { q, kv: x },
                (Score::Gatv2 { value, a, slope, .. }, Some(l)) => Score::Gatv2 { l, r: x, value, a, slope },
                (Score::Gat { l, r, slope, .. }, _) => Score::Gat { l, r, z: x, slope },
                (other, None) => other,
            };
            chunk.attend(tape, layer, Attend { score, ..a }, bring)
        })
    }

    fn aggregate(&self, tape: &mut Tape, layer: u32, x: &Var, how: Aggregation, weight: EdgeWeight<'_>) -> Result<Var> {
        self.each(tape, (layer, "aggregate"), Operands { x, more: None }, |tape, chunk, Operands { x, .. }, bring| {
            chunk.aggregate(tape, layer, x, how, weight, bring)
        })
    }
}
