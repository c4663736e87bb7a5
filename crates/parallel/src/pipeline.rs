//! `pipeline`: chunk after chunk of the graph through some layers of a model (GNNPipe). Approximate.
//!
//! Ranks are stages: each has some consecutive layers and all rows, in chunks. Pipeline follow one another through the stages, in an
//! order that may be drawn anew every epoch; all go forward, then all come back the other way round. A rank sends a chunk's state to
//! the next stage and its gradient to the one before, and nothing else: 2·(S − 1)·N rows an epoch, however many edges are cut.
//!
//! An operation over edges needs rows of other chunks. What it is given of the sources' operand (kv, z, r or x) is kept in a
//! [table](tables) for every operation of a layer:
//!
//! * *fresh* rows, of chunks that came earlier in this epoch, are as exact as the chunk's own. Gradients go back to them: since
//!   chunks come back in the opposite order, those of a chunk are complete before its own backward;
//! * *historical* rows, of chunks that come later, are those of the last [snapshot](Pipeline::remember), taken while all rows went
//!   through the layers at once. They are constants.
//!
//! An edge between chunks is fresh half of the time if the order is drawn, so its gradient may be counted [twice](Pipeline::begin).
//! Which rows are fresh depends on the order alone, so a layer that is computed again in backward sees what it saw the first time.
//! With one chunk there are no others, and everything is exact.
//!
//! A stage holds, per operation, N rows fresh until they have come back, and N rows of history. Where the operand is the layer's
//! input, which is kept for computing the layer again anyway, fresh rows cost nothing more: rows are shared, not copied.

mod chunk;
mod tables;
mod whole;

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use graphweft_graph::Csr;
use graphweft_graph::partition::Partition;
use graphweft_model::GraphOps;
use graphweft_tensor::ops::rows::RowIndex;
use graphweft_tensor::{Device, Matrix, Result};

use crate::layout::Layout;
use crate::local::Local;
use chunk::{Chunk, ChunkOps};
use tables::Tables;
use whole::Whole;

/// A graph in chunks, as a stage works on them.
pub struct Pipeline {
    chunks: Vec<Rc<Chunk>>,
    /// The first row of every chunk, and the number of nodes.
    ranges: Vec<usize>,
    originals: Arc<[u64]>,
    whole: Rc<Whole>,
    tables: Rc<RefCell<Tables>>,
}

/// How gradients of edges between chunks count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Across {
    /// As they are.
    Once,
    /// Twice: they are seen half of the time.
    Twice,
}

impl Pipeline {
    /// Prepares `graph`, which has original ids, with a chunk for every part of `partition`. `edge_features` makes a row for each of
    /// these edges, by their positions in the graph.
    ///
    /// # Errors
    /// If the partition is of another graph.
    pub fn new(
        device: &Device,
        graph: &Csr<u32>,
        partition: &Partition,
        edge_features: impl Fn(&[u64]) -> Result<Option<Matrix>>,
    ) -> Result<Self> {
        let count = partition.num_parts();
        let all = Layout::new(graph, partition, 1, 0)?;
        let ranges: Vec<usize> = partition.ranges().iter().map(|row| *row as usize).collect();
        let mut chunks = Vec::with_capacity(count);
        for number in 0..count {
            let layout = Layout::new(graph, partition, count, number)?;
            let features = edge_features(layout.edges())?;
            chunks.push(Rc::new(Chunk::new(device, &layout, features)?));
        }
        let split = |rows: &Range<usize>| {
            let index = rows.clone().map(|row| row as u32).collect();
            RowIndex::new(device, all.total_rows(), index)
        };
        let split = ranges.windows(2).map(|w| split(&(w[0]..w[1]))).collect::<Result<Vec<RowIndex>>>()?;
        let local = Local::renumbered(device, &all, edge_features(all.edges())?)?;
        let tables = Rc::new(RefCell::new(Tables::new(count)));
        let whole = Rc::new(Whole::new(local, split, Rc::clone(&tables)));
        Ok(Self { chunks, ranges, originals: Arc::clone(all.originals()), whole, tables })
    }

    /// How many chunks there are.
    pub fn count(&self) -> usize {
        self.chunks.len()
    }

    /// The rows of a chunk among all.
    pub fn rows(&self, chunk: usize) -> Range<usize> {
        self.ranges[chunk]..self.ranges[chunk + 1]
    }

    /// Original ids of all rows, chunk after chunk.
    pub fn originals(&self) -> &Arc<[u64]> {
        &self.originals
    }

    /// Operations on the rows of a chunk.
    pub fn chunk(&self, chunk: usize) -> Rc<dyn GraphOps> {
        let total = self.originals.len() as u64;
        Rc::new(ChunkOps::new(chunk, total, &self.chunks[chunk], &self.tables))
    }

    /// Operations on all rows at once, exact.
    pub fn whole(&self) -> Rc<dyn GraphOps> {
        Rc::clone(&self.whole) as Rc<dyn GraphOps>
    }

    /// Runs `pass`, which takes all rows through the layers at once: what its operations are given becomes history.
    pub fn remember<T>(&self, pass: impl FnOnce() -> T) -> T {
        self.tables.borrow_mut().remember(true);
        let result = pass();
        self.tables.borrow_mut().remember(false);
        result
    }

    /// Begins an epoch in which chunks come in this order.
    pub fn begin(&self, order: &[usize], across: Across) {
        self.tables.borrow_mut().begin(order, across);
    }

    /// Columns of what operations on chunks were given in this epoch, all together.
    pub fn operand_width(&self) -> usize {
        self.tables.borrow().width()
    }
}

#[cfg(test)]
mod tests;
