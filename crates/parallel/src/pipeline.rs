//! `pipeline`: chunk after chunk of the graph through some layers of a model (GNNPipe). Approximate.
//!
//! Ranks are stages: each has some consecutive layers and all rows, in chunks. Chunks follow one another through the
//! stages, in an order that may be drawn anew every epoch; all go forward, then all come back the other way round. A
//! rank sends a chunk's state to the next stage and its gradient to the one before, and nothing else: 2·(S − 1)·N rows
//! an epoch, however many edges are cut.
//!
//! Several ranks may [share](Sharing) a stage: each then has a part of every chunk, an exact strategy moves what edges
//! inside a chunk and from other chunks need between them, and each sends its own rows to the rank of the same place in
//! the next stage.
//!
//! An operation over edges needs rows of other chunks. What it is given of the sources' operand (kv, z, r or x) is kept
//! in a [table](tables) for every operation of a layer:
//!
//! * *fresh* rows, of chunks that came earlier in this epoch, are as exact as the chunk's own. Gradients go back to
//!   them: since chunks come back in the opposite order, those of a chunk are complete before its own backward;
//! * *historical* rows, of chunks that come later, are those of the last [snapshot](Pipeline::remember), taken while
//!   all rows went through the layers at once. They are constants.
//!
//! An edge between chunks is fresh half of the time if the order is drawn, so its gradient may be counted
//! [twice](Pipeline::begin). Which rows are fresh depends on the order alone, so what is computed again in backward
//! sees what it saw the first time. With one chunk there are no others, and everything is exact.
//!
//! A stage holds, per operation, N rows fresh until they have come back, and N rows of history. Where the operand is
//! kept for backward anyway, such as the input of a layer that is computed again, fresh rows cost nothing more: rows
//! are shared, not copied.

mod all_rows;
mod chunk;
mod stages;
mod tables;

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use graphweft_graph::Csr;
use graphweft_graph::partition::Partition;
use graphweft_model::GraphOps;
use graphweft_tensor::{Device, Ids, Matrix, Result};

use crate::layout::Layout;
use crate::link::Link;
use crate::strategy::Strategy;
use all_rows::AllRows;
use chunk::{Chunk, ChunkOps};
use tables::Tables;

pub use stages::{Settings, Stages, Within};

/// A graph in chunks, as a rank of a stage works on them.
pub struct Pipeline {
    chunks: Vec<Rc<Chunk>>,
    /// The first of this rank's rows of every chunk, and the number of all.
    ranges: Vec<usize>,
    originals: Rc<[u64]>,
    /// Nodes of the graph.
    total: u64,
    tables: Rc<RefCell<Tables>>,
}

/// Ranks that share a stage.
pub struct Sharing<'a> {
    /// Between them.
    pub link: &'a Link,
    /// What they do together: an exact strategy.
    pub strategy: Strategy,
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
    /// Prepares `graph`, which has original ids. A chunk is as many parts of `partition` as ranks share the stage, each
    /// of which has one of them. `edge_features` makes a row for each of these edges, by their positions in the graph;
    /// `relations` has a number for each edge of the graph.
    ///
    /// # Errors
    /// If the partition is of another graph, or the strategy is not for these ranks.
    pub fn new(
        device: &Device,
        graph: &Csr<u32>,
        partition: &Partition,
        sharing: Option<&Sharing<'_>>,
        relations: Option<&[u16]>,
        edge_features: impl Fn(&[u64]) -> Result<Option<Matrix>>,
    ) -> Result<Self> {
        let (way, ways) = sharing.map_or((0, 1), |sharing| (sharing.link.rank(), sharing.link.size()));
        let parts = partition.num_parts();
        let count = parts.div_ceil(ways);
        let cut = |k: usize| partition.ranges()[k * parts / (count * ways)] as usize;
        let cuts: Vec<usize> = (0..=count * ways).map(cut).collect();
        let (mut chunks, mut ranges, mut originals) = (Vec::with_capacity(count), vec![0], Vec::new());
        for number in 0..count {
            let layout = Layout::new(graph, partition, count, number)?.with_relations(relations);
            let own = number * ways + way;
            originals.extend(&layout.originals()[cuts[own]..cuts[own + 1]]);
            ranges.push(originals.len());
            chunks.push(Rc::new(Chunk::new(device, &layout, &cuts, sharing, &edge_features)?));
        }
        let tables = Rc::new(RefCell::new(Tables::new(count)));
        Ok(Self { chunks, ranges, originals: originals.into(), total: partition.num_nodes() as u64, tables })
    }

    /// How many chunks there are.
    pub fn count(&self) -> usize {
        self.chunks.len()
    }

    /// This rank's rows of a chunk among all its rows.
    pub fn rows(&self, chunk: usize) -> Range<usize> {
        self.ranges[chunk]..self.ranges[chunk + 1]
    }

    /// Original ids of this rank's rows, chunk after chunk.
    pub fn originals(&self) -> &Rc<[u64]> {
        &self.originals
    }

    /// Operations on this rank's rows of a chunk.
    pub fn chunk(&self, chunk: usize) -> Rc<dyn GraphOps> {
        Rc::new(ChunkOps::new(chunk, self.total, &self.chunks[chunk], &self.tables))
    }

    /// Operations on all rows of this rank at once, exact. Without gradients.
    pub fn all_rows(&self) -> Rc<dyn GraphOps> {
        let ids = Ids::Listed(Rc::clone(&self.originals));
        Rc::new(AllRows::new(&self.chunks, ids, self.total, &self.tables))
    }

    /// Runs `pass`, which takes all rows through the layers at once: what its operations are given becomes history.
    pub fn remember<T>(&self, pass: impl FnOnce() -> T) -> T {
        self.tables.borrow_mut().begin_history();
        let result = pass();
        self.tables.borrow_mut().end_history();
        result
    }

    /// Begins an epoch in which chunks come in this order.
    pub fn begin(&self, order: &[usize], across: Across) {
        self.tables.borrow_mut().begin(order, across);
    }
}

#[cfg(test)]
mod tests;
