//! Operations on the rows of one chunk: destinations are its own, sources are its own and those of other chunks that it needs.

use std::cell::RefCell;
use std::rc::Rc;

use graphweft_graph::Csr;
use graphweft_model::{Aggregation, Attend, EdgeWeight, GraphOps, Membership, Total};
use graphweft_tensor::ops::rows::RowIndex;
use graphweft_tensor::{Backward, Device, Dropout, Error, Grads, Ids, Matrix, Reduce, Result, Tag, Tape, Var};

use super::tables::{Call, Tables};
use crate::at_hand::AtHand;
use crate::layout::Layout;

const OP: &str = "pipeline";

/// The edges into a chunk's rows, and where their sources are.
pub(super) struct Chunk {
    edges: AtHand,
    sources: usize,
    /// The chunk's own rows among the sources.
    own: RowIndex,
    others: Vec<Other>,
}

/// What a chunk needs of another one.
struct Other {
    chunk: usize,
    /// Rows of that one.
    take: RowIndex,
    /// Where they stand among the sources.
    put: RowIndex,
}

impl Chunk {
    /// The chunk whose number is the rank of `layout`.
    pub(super) fn new(device: &Device, layout: &Layout, edge_features: Option<Matrix>) -> Result<Self> {
        let number = layout.rank();
        // Pipeline are ranges of rows, and what is needed of each is in order: so are all sources, as those of an edge list must be.
        let (mut place, mut sources) = (vec![0u32; layout.total_rows()], Vec::new());
        let (mut own, mut others) = (0..0, Vec::new());
        for chunk in 0..layout.ranks() {
            let rows = layout.rows_of(chunk);
            let first = sources.len();
            if chunk == number {
                sources.extend(rows.clone().map(|row| row as u32));
                own = first..sources.len();
            } else {
                sources.extend(layout.needed_of(chunk));
                if sources.len() > first {
                    let take: Vec<u32> = sources[first..].iter().map(|row| row - rows.start as u32).collect();
                    others.push((chunk, rows.len(), take, first..sources.len()));
                }
            }
            for (k, row) in (first as u32..).zip(&sources[first..]) {
                place[*row as usize] = k;
            }
        }
        let indices: Vec<u32> = layout.csr().indices().iter().map(|row| place[*row as usize]).collect();
        let csr = Csr::from_valid(layout.csr().indptr().to_vec(), indices, sources.len());
        let ids = Ids::Listed(sources.iter().map(|row| layout.originals()[*row as usize]).collect());
        let degrees: Vec<u32> = sources.iter().map(|row| layout.degrees()[*row as usize]).collect();
        let dst = (layout.ids(layout.own()), &layout.degrees()[layout.own()]);
        let edges = AtHand::new(device, csr, edge_features, dst, (ids, &degrees))?;
        let among = |places: std::ops::Range<usize>| {
            RowIndex::new(device, sources.len(), places.map(|place| place as u32).collect())
        };
        let other = |(chunk, rows, take, places)| -> Result<Other> {
            Ok(Other { chunk, take: RowIndex::new(device, rows, take)?, put: among(places)? })
        };
        let others = others.into_iter().map(other).collect::<Result<_>>()?;
        Ok(Self { edges, sources: sources.len(), own: among(own)?, others })
    }
}

/// Operations on a chunk.
pub(super) struct ChunkOps {
    member: Member,
    chunk: Rc<Chunk>,
    tables: Rc<RefCell<Tables>>,
}

impl ChunkOps {
    pub(super) fn new(number: usize, total: u64, chunk: &Rc<Chunk>, tables: &Rc<RefCell<Tables>>) -> Self {
        let member = Member { number, rows: chunk.edges.rows(), total, ids: chunk.edges.ids().clone() };
        Self { member, chunk: Rc::clone(chunk), tables: Rc::clone(tables) }
    }

    /// The rows of all sources, of which `x` has the chunk's own.
    fn bring(&self, tape: &mut Tape, call: Call, x: &Var) -> Result<Var> {
        let (number, value, device) = (self.member.number, x.value(), tape.device().clone());
        let mut tables = self.tables.borrow_mut();
        if !tape.is_replaying() {
            tables.give(call, number, value)?;
        }
        if self.member.rows as u64 == self.member.total {
            return Ok(x.clone());
        }
        let chunk = &self.chunk;
        let new = |rows, tag| device.uninit(OP, rows, value.cols(), value.dtype(), tag);
        let mut all = new(chunk.sources, Tag::Activations)?;
        device.backend().scatter_rows(value, &chunk.own, &mut all, false)?;
        for other in &chunk.others {
            let rows = tables.rows(call, other.chunk, number)?;
            let mut needed = new(other.take.index().len(), Tag::Workspace)?;
            device.backend().gather_rows(&rows, &other.take, &mut needed)?;
            device.backend().scatter_rows(&needed, &other.put, &mut all, true)?;
        }
        drop(tables);
        let back = || BringBackward { number, call, chunk: Rc::clone(chunk), tables: Rc::clone(&self.tables) };
        Ok(tape.push(&[x], all, back))
    }
}

struct BringBackward {
    number: usize,
    call: Call,
    chunk: Rc<Chunk>,
    tables: Rc<RefCell<Tables>>,
}

impl Backward for BringBackward {
    fn backward(self: Box<Self>, grads: &mut Grads<'_>) -> Result<()> {
        let Some(g) = grads.output(0) else { return Ok(()) };
        let Self { number, call, chunk, tables } = *self;
        let (device, mut tables) = (grads.device().clone(), tables.borrow_mut());
        let picked = |index: &RowIndex, tag| -> Result<Matrix> {
            let mut some = device.uninit(OP, index.index().len(), g.cols(), g.dtype(), tag)?;
            device.backend().gather_rows(&g, index, &mut some)?;
            Ok(some)
        };
        for other in chunk.others.iter().filter(|other| tables.is_fresh(other.chunk, number)).collect::<Vec<_>>() {
            tables.add(call, other.chunk, &picked(&other.put, Tag::Workspace)?, &other.take)?;
        }
        let mut own = picked(&chunk.own, Tag::Activations)?;
        if let Some(from_others) = tables.take(call, number) {
            device.backend().add(&mut own, &from_others)?;
        }
        grads.put(0, own)
    }
}

impl GraphOps for ChunkOps {
    fn member(&self) -> &dyn Membership {
        &self.member
    }

    fn attend(&self, tape: &mut Tape, layer: u32, a: Attend<'_>) -> Result<Var> {
        self.chunk.edges.attend(tape, a, Some(&|tape, x| self.bring(tape, (layer, "attend"), x)))
    }

    fn attend_with_tokens(&self, _: &mut Tape, _: u32, _: Attend<'_>, _: &Var) -> Result<Var> {
        Err(refused("virtual nodes"))
    }

    fn aggregate(&self, tape: &mut Tape, layer: u32, x: &Var, how: Aggregation, weight: EdgeWeight<'_>) -> Result<Var> {
        self.chunk.edges.aggregate(tape, x, how, weight, Some(&|tape, x| self.bring(tape, (layer, "aggregate"), x)))
    }
}

/// A chunk among all.
struct Member {
    number: usize,
    rows: usize,
    total: u64,
    ids: Ids,
}

impl Membership for Member {
    fn rows(&self) -> usize {
        self.rows
    }

    fn total_rows(&self) -> u64 {
        self.total
    }

    fn ids(&self) -> &Ids {
        &self.ids
    }

    fn reduce(&self, total: Total, _: u32) -> Rc<dyn Reduce> {
        Rc::new(Refused(total))
    }

    fn tokens_attend(&self, _: &mut Tape, _: u32, _: usize, _: &Var, _: &Var, _: Option<Dropout>) -> Result<Var> {
        Err(refused("virtual nodes"))
    }
}

/// Sums over all rows, of which a chunk knows only its own.
struct Refused(Total);

impl Reduce for Refused {
    fn sum(&self, _: &mut Matrix) -> Result<()> {
        Err(refused(match self.0 {
            Total::Global => "attention to all nodes",
            Total::Moments => "batch normalisation",
            _ => "a sum over all rows",
        }))
    }
}

fn refused(what: &str) -> Error {
    let problem = format!("a pipeline has one chunk of the rows at a time, but {what} needs all of them at once");
    Error::Argument { op: OP, problem }
}
