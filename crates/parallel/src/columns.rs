//! Rows for columns: from all columns of some rows to some columns of all rows, and back. Each is the other's backward.

use std::ops::Range;
use std::rc::Rc;

use graphweft_comm::Label;
use graphweft_tensor::ops::Write;
use graphweft_tensor::ops::combine::Patch;
use graphweft_tensor::{Backward, Error, Grads, Matrix, Result, Tag, Tape, Var};

use crate::link::{Flight, Link};

/// Which of some heads, or columns, every rank has.
#[derive(Debug)]
pub(crate) struct Shares {
    heads: usize,
    ranks: usize,
}

impl Shares {
    /// As even as it goes, in order.
    pub(crate) fn new(heads: usize, ranks: usize) -> Self {
        Self { heads, ranks }
    }

    /// The heads of a rank.
    pub(crate) fn of(&self, rank: usize) -> Range<usize> {
        rank * self.heads / self.ranks..(rank + 1) * self.heads / self.ranks
    }

    /// Their columns, of `cols` that all heads share equally.
    pub(crate) fn columns(&self, rank: usize, cols: usize) -> Range<usize> {
        let (heads, width) = (self.of(rank), cols.checked_div(self.heads).unwrap_or(0));
        heads.start * width..heads.end * width
    }
}

/// Ranks that exchange rows for columns.
#[derive(Clone)]
pub(crate) struct Exchange {
    pub(crate) link: Link,
    pub(crate) label: Label,
    /// Rows of every rank.
    pub(crate) counts: Rc<[usize]>,
    pub(crate) shares: Rc<Shares>,
}

impl Exchange {
    /// This rank's columns of all rows, from all columns of this rank's rows, for several operands at once. An operand
    /// may be several matrices side by side, such as keys and values: of each, the result has this rank's columns.
    pub(crate) fn split<const K: usize>(&self, tape: &mut Tape, operands: [(&Var, usize); K]) -> Result<[Var; K]> {
        let matrices = operands.map(|(x, blocks)| (x.value(), blocks));
        let all = array(self.send_columns(&matrices)?)?;
        let backward =
            || SplitBackward { exchange: self.clone(), shapes: operands.map(|(x, n)| (x.value().cols(), n)) };
        Ok(tape.push_many(&operands.map(|(x, _)| x), all, backward))
    }

    /// All `cols` columns of this rank's rows, from this rank's columns of all rows. They may be those of several
    /// matrices side by side.
    pub(crate) fn join(&self, tape: &mut Tape, y: &Var, cols: usize, blocks: usize) -> Result<Var> {
        let own = self.finish(self.send_rows(y.value(), cols, blocks)?, y.value(), cols, blocks)?;
        Ok(tape.push(&[y], own, || JoinBackward { exchange: self.clone(), blocks }))
    }

    fn send_columns(&self, operands: &[(&Matrix, usize)]) -> Result<Vec<Matrix>> {
        let (device, op) = (self.link.device(), self.label.op);
        let mut flights = Vec::with_capacity(operands.len());
        for &(m, blocks) in operands {
            let width = m.cols() / blocks;
            if width * blocks != m.cols() || !width.is_multiple_of(self.shares.heads.max(1)) {
                let problem = format!("{m:?} cannot be shared by {} heads", self.shares.heads);
                return Err(Error::Argument { op, problem });
            }
            let mut parts = Vec::with_capacity(self.link.size());
            let cut = |rank: usize, to: &mut Matrix, row: usize| {
                let share = self.shares.columns(rank, width);
                (0..blocks).try_for_each(|block| {
                    let (from, to_col) = (block * width + share.start, block * share.len());
                    let patch = Patch { from: [0, from], to: [row, to_col], size: [m.rows(), share.len()] };
                    device.backend().copy_patch(m, to, patch, Write::Set)
                })
            };
            let new = |rank: usize, rows: usize| {
                let cols = blocks * self.shares.columns(rank, width).len();
                device.uninit(op, rows, cols, m.dtype(), Tag::Exchange)
            };
            for rank in self.others() {
                let mut part = new(rank, m.rows())?;
                cut(rank, &mut part, 0)?;
                parts.push(part);
            }
            // This rank's rows of its own columns go to their place at once.
            let mut all = new(self.link.rank(), self.counts.iter().sum())?;
            cut(self.link.rank(), &mut all, self.first_own())?;
            flights.push(self.link.stack(self.label, parts, all, &self.counts)?);
        }
        flights.into_iter().map(Flight::wait_one).collect()
    }

    fn send_rows(&self, y: &Matrix, cols: usize, blocks: usize) -> Result<Flight> {
        let share = |rank| blocks * self.shares.columns(rank, cols / blocks).len();
        let shares: Vec<usize> = (0..self.link.size()).map(share).collect();
        self.link.unstack(self.label, y, &self.counts, self.counts[self.link.rank()], &shares)
    }

    /// Puts the columns of this rank's rows together: its own from `y`, the others' from what was sent.
    fn finish(&self, flight: Flight, y: &Matrix, cols: usize, blocks: usize) -> Result<Matrix> {
        let (device, op, rows) = (self.link.device(), self.label.op, self.counts[self.link.rank()]);
        let width = cols / blocks;
        let mut to = device.uninit(op, rows, cols, y.dtype(), Tag::Activations)?;
        let mut place = |rank: usize, from: &Matrix, row: usize| {
            let share = self.shares.columns(rank, width);
            (0..blocks).try_for_each(|block| {
                let (col, at) = (block * share.len(), block * width + share.start);
                let patch = Patch { from: [row, col], to: [0, at], size: [rows, share.len()] };
                device.backend().copy_patch(from, &mut to, patch, Write::Set)
            })
        };
        place(self.link.rank(), y, self.first_own())?;
        let parts = flight.wait()?;
        self.others().zip(&parts).try_for_each(|(rank, part)| place(rank, part, 0))?;
        Ok(to)
    }

    fn others(&self) -> impl Iterator<Item = usize> {
        let own = self.link.rank();
        (0..self.link.size()).filter(move |rank| *rank != own)
    }

    /// The first of this rank's rows among all.
    fn first_own(&self) -> usize {
        self.counts[..self.link.rank()].iter().sum()
    }
}

fn array<const K: usize>(all: Vec<Matrix>) -> Result<[Matrix; K]> {
    let problem = |all: Vec<Matrix>| Error::Argument { op: "exchange", problem: format!("{} operands", all.len()) };
    all.try_into().map_err(problem)
}

struct SplitBackward<const K: usize> {
    exchange: Exchange,
    /// Columns and blocks of every operand.
    shapes: [(usize, usize); K],
}

impl<const K: usize> Backward for SplitBackward<K> {
    fn backward(self: Box<Self>, grads: &mut Grads<'_>) -> Result<()> {
        let exchange = &self.exchange;
        let mut flights = Vec::with_capacity(K);
        for (k, (cols, blocks)) in self.shapes.into_iter().enumerate() {
            // None is missing on some ranks only: all walk the same tape.
            if let Some(g) = grads.output(k) {
                flights.push((k, exchange.send_rows(&g, cols, blocks)?, g, cols, blocks));
            }
        }
        for (k, flight, g, cols, blocks) in flights {
            grads.put(k, exchange.finish(flight, &g, cols, blocks)?)?;
        }
        Ok(())
    }
}

struct JoinBackward {
    exchange: Exchange,
    blocks: usize,
}

impl Backward for JoinBackward {
    fn backward(self: Box<Self>, grads: &mut Grads<'_>) -> Result<()> {
        let Some(g) = grads.output(0) else { return Ok(()) };
        let found = self.exchange.send_columns(&[(&g, self.blocks)])?;
        found.into_iter().try_for_each(|dy| grads.put(0, dy))
    }
}
