//! Operations on the rows of one chunk: destinations are its own, sources are its own and those of other chunks that it
//! needs.
//!
//! Where several ranks share a stage, each has a part of every chunk, and the operation is that of an exact strategy
//! between them: over all nodes that the chunk's edges touch, each with the rank that has it. Those of other chunks
//! have no edges there; they are added before the operation and left out after it.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use graphweft_graph::Csr;
use graphweft_model::{Aggregation, Attend, EdgeWeight, GraphOps, Membership, OwnRows, Score, TokensAttend, Total};
use graphweft_tensor::ops::many_rows::ManyRows;
use graphweft_tensor::ops::rows::{RowIndex, gather, scatter};
use graphweft_tensor::{Backward, Device, Error, Grads, Ids, Matrix, Reduce, Result, Tag, Tape, Var};

use super::Sharing;
use super::tables::{Call, Sources, Tables};
use crate::gathered::{Ends, Gathered};
use crate::layout::Layout;
use crate::strategy::spread;

const OP: &str = "pipeline";

/// The edges into a chunk's rows, and where their sources are.
pub(super) struct Chunk {
    edges: Edges,
    ids: Ids,
    /// Rows of the sources' operand that this rank has, of each of `chunks`.
    sources: ManyRows,
    /// The chunk's own rows among these.
    own: Range<usize>,
    /// The chunks that sources are in, this one among them.
    chunks: Vec<usize>,
}

/// Who computes with them.
enum Edges {
    /// This rank alone.
    Own(Box<Gathered>),
    /// The ranks of a stage together; this rank's rows of the chunk are those of the list.
    Shared(Rc<dyn GraphOps>, Rc<RowIndex>),
}

/// What one rank of a stage has of the nodes that a chunk's edges touch.
#[derive(Default)]
struct Touched {
    nodes: Vec<u32>,
    own: Range<usize>,
    /// The chunks that they are in, in the order of `nodes`, and of each: how many rows of it this rank has, and which
    /// these are.
    chunks: Vec<usize>,
    rows: Vec<(usize, Vec<u32>)>,
}

impl Chunk {
    /// The chunk whose number is the rank of `layout`, as `stage` shares it. Rank `way` of the stage has the rows
    /// `cuts[k]..cuts[k + 1]` with k = `chunk`·ways + `way` of every chunk.
    pub(super) fn new(
        device: &Device,
        layout: &Layout,
        cuts: &[usize],
        stage: Option<&Sharing<'_>>,
        edge_features: impl Fn(&[u64]) -> Result<Option<Matrix>>,
    ) -> Result<Self> {
        let (way, ways) = stage.map_or((0, 1), |stage| (stage.link.rank(), stage.link.size()));
        let needed: Vec<Vec<u32>> = (0..layout.ranks())
            .map(|chunk| if chunk == layout.rank() { Vec::new() } else { layout.needed_of(chunk) })
            .collect();
        let mut touched: Vec<Touched> = (0..ways).map(|way| touched(layout.rank(), &needed, cuts, way, ways)).collect();
        let (edges, ids) = match stage {
            None => {
                let nodes = &touched[0].nodes;
                let edges = alone(device, layout, nodes, edge_features(layout.edges())?)?;
                let ids = edges.ids().clone();
                (Edges::Own(Box::new(edges)), ids)
            }
            Some(Sharing { link, strategy }) => {
                let mut ranges = vec![0];
                ranges.extend(touched.iter().scan(0, |end, t| {
                    *end += t.nodes.len();
                    Some(*end)
                }));
                let nodes: Vec<u32> = touched.iter().flat_map(|t| &t.nodes).copied().collect();
                let shared = layout.among(&nodes, ranges, way);
                let own = &touched[way].own;
                let rows = RowIndex::new(device, touched[way].nodes.len(), own.clone().map(|k| k as u32).collect())?;
                let start = shared.own().start;
                let ids = shared.ids(start + own.start..start + own.end);
                let features = edge_features(shared.edges())?;
                (Edges::Shared(spread(strategy, &shared, link, features)?, Rc::new(rows)), ids)
            }
        };
        let Touched { own, chunks, rows, .. } = std::mem::take(&mut touched[way]);
        Ok(Self { edges, ids, sources: ManyRows::new(device, rows)?, own, chunks })
    }

    pub(super) fn rows(&self) -> usize {
        self.own.len()
    }

    /// The rows of all sources that this rank has, of what `rows` gives of every chunk.
    pub(super) fn assemble(&self, own: &Matrix, rows: impl FnMut(usize) -> Result<Matrix>) -> Result<Matrix> {
        let device = own.device();
        let from = self.chunks.iter().copied().map(rows).collect::<Result<Vec<Matrix>>>()?;
        let mut all = device.uninit(OP, self.sources.len(), own.cols(), own.dtype(), Tag::Activations)?;
        device.backend().gather_many(&from.iter().collect::<Vec<_>>(), &self.sources, &mut all)?;
        Ok(all)
    }

    /// The chunks that sources are in.
    pub(super) fn sources(&self) -> Sources<'_> {
        Sources { chunks: &self.chunks, rows: &self.sources }
    }

    /// Attention, where `bring` makes the rows of all sources of the chunk's own.
    pub(super) fn attend(&self, tape: &mut Tape, layer: u32, a: Attend<'_>, bring: Bring<'_>) -> Result<Var> {
        if a.tokens.is_some() {
            return Err(refused("virtual nodes"));
        }
        let (ops, own) = match &self.edges {
            Edges::Own(edges) => return edges.attend(tape, a, None, Some(bring)),
            Edges::Shared(ops, own) => (ops, own),
        };
        let out = match a.score {
            Score::Dot { q, kv } => {
                let (q, kv) = (&scatter(tape, q, own)?, &bring(tape, kv)?);
                ops.attend(tape, layer, Attend { score: Score::Dot { q, kv }, ..a })?
            }
            Score::Gat { l, r, z, slope } => {
                let z = &bring(tape, z)?;
                ops.attend(tape, layer, Attend { score: Score::Gat { l, r, z, slope }, ..a })?
            }
            Score::Gatv2 { l, r, value, a: weight, slope } => {
                let (l, r) = (&scatter(tape, l, own)?, &bring(tape, r)?);
                ops.attend(tape, layer, Attend { score: Score::Gatv2 { l, r, value, a: weight, slope }, ..a })?
            }
        };
        gather(tape, &out, own)
    }

    /// Aggregation, as above.
    pub(super) fn aggregate(
        &self,
        tape: &mut Tape,
        layer: u32,
        x: &Var,
        how: Aggregation,
        weight: EdgeWeight<'_>,
        bring: Bring<'_>,
    ) -> Result<Var> {
        match &self.edges {
            Edges::Own(edges) => edges.aggregate(tape, x, how, weight, Some(bring)),
            Edges::Shared(ops, own) => {
                let x = bring(tape, x)?;
                let out = ops.aggregate(tape, layer, &x, how, weight)?;
                gather(tape, &out, own)
            }
        }
    }
}

/// Makes the rows of all sources of a chunk's own.
pub(super) type Bring<'a> = &'a dyn Fn(&mut Tape, &Var) -> Result<Var>;

/// The nodes of rank `way` that edges into `chunk` touch, given what is needed of every other one. Chunks are ranges of
/// rows, and what is needed of each is in order: so are all of them, as the sources of an edge list must be.
fn touched(chunk: usize, needed: &[Vec<u32>], cuts: &[usize], way: usize, ways: usize) -> Touched {
    let mut all = Touched::default();
    for (other, needed) in needed.iter().enumerate() {
        let (rows, first) = (cuts[other * ways + way]..cuts[other * ways + way + 1], all.nodes.len());
        if other == chunk {
            all.nodes.extend(rows.clone().map(|row| row as u32));
            all.own = first..all.nodes.len();
        } else {
            let place = |row: usize| needed.partition_point(|k| (*k as usize) < row);
            all.nodes.extend(&needed[place(rows.start)..place(rows.end)]);
        }
        if all.nodes.len() > first {
            all.chunks.push(other);
            all.rows.push((rows.len(), all.nodes[first..].iter().map(|row| row - rows.start as u32).collect()));
        }
    }
    all
}

/// The edges of `layout`, from `nodes`.
fn alone(device: &Device, layout: &Layout, nodes: &[u32], edge_features: Option<Matrix>) -> Result<Gathered> {
    let mut place = vec![0u32; layout.total_rows()];
    for (k, row) in (0..).zip(nodes) {
        place[*row as usize] = k;
    }
    let indices: Vec<u32> = layout.csr().indices().iter().map(|row| place[*row as usize]).collect();
    let csr = Csr::from_valid(layout.csr().indptr().to_vec(), indices, nodes.len());
    let ids = Ids::Listed(nodes.iter().map(|row| layout.originals()[*row as usize]).collect());
    let degrees: Vec<u32> = nodes.iter().map(|row| layout.degrees()[*row as usize]).collect();
    let dst = Ends { ids: layout.ids(layout.own()), degrees: &layout.degrees()[layout.own()] };
    let rows = Gathered::new(device, csr, edge_features, dst, Ends { ids, degrees: &degrees })?;
    Ok(rows.with_relations(layout.relations().cloned()))
}

/// Operations on a chunk.
pub(super) struct ChunkOps {
    member: Member,
    number: usize,
    chunk: Rc<Chunk>,
    tables: Rc<RefCell<Tables>>,
}

impl ChunkOps {
    pub(super) fn new(number: usize, total: u64, chunk: &Rc<Chunk>, tables: &Rc<RefCell<Tables>>) -> Self {
        let member = Member { rows: chunk.rows(), total, ids: chunk.ids.clone() };
        Self { member, number, chunk: Rc::clone(chunk), tables: Rc::clone(tables) }
    }

    /// The rows of all sources, of which `x` has the chunk's own.
    fn bring(&self, tape: &mut Tape, call: Call, x: &Var) -> Result<Var> {
        let (number, value) = (self.number, x.value());
        let mut tables = self.tables.borrow_mut();
        if !tape.is_replaying() {
            tables.give(call, number, value)?;
        }
        if tables.chunks() == 1 {
            return Ok(x.clone());
        }
        let rows = |other| if other == number { Ok(value.clone()) } else { tables.rows(call, other, number) };
        let all = self.chunk.assemble(value, rows)?;
        let (chunk, tables) = (Rc::clone(&self.chunk), Rc::clone(&self.tables));
        Ok(tape.push(&[x], all, || BringBackward { number, call, chunk, tables }))
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
        let (device, mut tables, cols) = (grads.device().clone(), tables.borrow_mut(), g.cols());
        tables.add(call, number, &g, chunk.sources())?;
        let mut own = device.uninit(OP, chunk.own.len(), cols, g.dtype(), Tag::Activations)?;
        device.backend().copy_part(&g, chunk.own.start * cols, &mut own, 0, chunk.own.len() * cols)?;
        tables.take(call, number, &mut own)?;
        grads.put(0, own)
    }
}

impl GraphOps for ChunkOps {
    fn member(&self) -> &dyn Membership {
        &self.member
    }

    /// Rows of chunks that come later are those of an epoch before.
    fn repeats(&self) -> bool {
        false
    }

    fn attend(&self, tape: &mut Tape, layer: u32, a: Attend<'_>) -> Result<Var> {
        self.chunk.attend(tape, layer, a, &|tape, x| self.bring(tape, (layer, "attend"), x))
    }

    fn aggregate(&self, tape: &mut Tape, layer: u32, x: &Var, how: Aggregation, weight: EdgeWeight<'_>) -> Result<Var> {
        let bring = |tape: &mut Tape, x: &Var| self.bring(tape, (layer, "aggregate"), x);
        self.chunk.aggregate(tape, layer, x, how, weight, &bring)
    }
}

/// Some rows among all.
pub(super) struct Member {
    pub(super) rows: usize,
    pub(super) total: u64,
    pub(super) ids: Ids,
}

impl Membership for Member {
    fn own(&self) -> OwnRows<'_> {
        OwnRows { rows: self.rows, total: self.total, ids: &self.ids }
    }

    fn reduce(&self, total: Total, _: u32) -> Rc<dyn Reduce> {
        Rc::new(Refused(total))
    }

    fn tokens_attend(&self, _: &mut Tape, _: u32, _: TokensAttend<'_>) -> Result<Var> {
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

pub(super) fn refused(what: &str) -> Error {
    let problem = format!("a pipeline has one chunk of the rows at a time, but {what} needs all of them at once");
    Error::Argument { op: OP, problem }
}
