//! Compressed sparse rows by destination, and what can be done to them.
//!
//! Row *i* lists the sources *j* of the edges *j → i*, in ascending order; parallel edges are repeated entries. Offsets
//! are `u64`, node ids `u32` unless the graph has more than 2³² nodes. Rows and columns may differ in number: the shard
//! of a rank has its own nodes as destinations and its own plus remote nodes as sources.
//!
//! Every transformation is parallel and gives the same bytes for any number of threads: work is cut by rows, each row
//! is written by one thread, and rows are sorted. One file per transformation.

mod any;
mod edges;
mod loops;
mod merge;
mod permute;
pub(crate) mod rows;
mod subgraph;
mod symmetrise;
mod transpose;
mod typed;

use std::fmt;
use std::ops::Range;

use graphweft_base::{Position, Problem};
use rayon::prelude::*;

use crate::buf::Buf;
use crate::npy::Element;

pub use any::AnyCsr;
pub use loops::SelfLoops;
pub use permute::{Permutation, PermutationError};
pub use subgraph::Subgraph;
pub use typed::TypedCsr;

/// Edges that are looked at before pages are given back: 64 MiB of narrow ids.
const LOT_EDGES: usize = 1 << 24;

/// A node id as stored in a CSR: `u32`, or `u64` for graphs with more than 2³² nodes.
pub trait NodeId: Element + Ord + std::hash::Hash + fmt::Debug + fmt::Display + Into<u64> {
    /// The most nodes that ids of this type can name.
    const CAPACITY: u64;

    /// The id of node `i`. `i` must be below [`NodeId::CAPACITY`].
    fn new(i: usize) -> Self;

    /// This id as an index.
    fn index(self) -> usize;
}

impl NodeId for u32 {
    const CAPACITY: u64 = 1 << 32;

    fn new(i: usize) -> Self {
        debug_assert!((i as u64) < Self::CAPACITY);
        i as Self
    }

    fn index(self) -> usize {
        self as usize
    }
}

impl NodeId for u64 {
    const CAPACITY: u64 = Self::MAX;

    fn new(i: usize) -> Self {
        i as Self
    }

    fn index(self) -> usize {
        self as usize
    }
}

/// Why arrays do not form a CSR, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum CsrError {
    #[error("indptr is empty: it needs one offset more than there are rows")]
    NoOffsets,
    #[error("indptr[0] is {0}, expected 0")]
    FirstOffset(u64),
    #[error("indptr[{row}] = {end} is below indptr[{}] = {start}", row - 1)]
    Decreasing { row: usize, start: u64, end: u64 },
    #[error("indptr ends at {last}, but there are {edges} indices")]
    LastOffset { last: u64, edges: usize },
    #[error("indices[{edge}] = {source_id} in row {row}: there are only {num_src} nodes")]
    OutOfRange { edge: usize, row: usize, source_id: u64, num_src: usize },
    #[error("row {row} is not sorted at indices[{edge}]")]
    Unsorted { edge: usize, row: usize },
}

impl CsrError {
    /// The array at fault.
    pub fn array(&self) -> &'static str {
        match self {
            Self::NoOffsets | Self::FirstOffset(_) | Self::Decreasing { .. } | Self::LastOffset { .. } => "indptr",
            Self::OutOfRange { .. } | Self::Unsorted { .. } => "indices",
        }
    }

    /// The element at fault, of the array that the message names.
    pub fn position(&self) -> Option<Position> {
        match self {
            Self::FirstOffset(_) => Some(Position::Element(0)),
            Self::Decreasing { row, .. } => Some(Position::element(*row)),
            Self::OutOfRange { edge, .. } | Self::Unsorted { edge, .. } => Some(Position::element(*edge)),
            Self::NoOffsets | Self::LastOffset { .. } => None,
        }
    }
}

impl From<CsrError> for Problem {
    fn from(e: CsrError) -> Self {
        e.position().map_or_else(|| e.to_string().into(), |at| Self::at(at, e.to_string()))
    }
}

/// A directed graph (or a rectangular block of one), by destination.
///
/// ```
/// use graphweft_graph::Csr;
/// // 0 → 1, 2 → 1, 1 → 2
/// let g = Csr::<u32>::new(vec![0, 0, 2, 3], vec![0, 2, 1], 3)?;
/// assert_eq!(g.row(1), [0, 2]);
/// assert_eq!(g.symmetrise().row(0), [1]);
/// # Ok::<(), graphweft_graph::CsrError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Csr<I: NodeId = u32> {
    indptr: Buf<u64>,
    indices: Buf<I>,
    num_src: usize,
}

impl<I: NodeId> Csr<I> {
    /// A CSR from its arrays, checked in parallel: offsets ascend from 0 to the number of indices, ids are below
    /// `num_src`, rows are sorted.
    ///
    /// # Errors
    /// The first violation in row order.
    pub fn new(indptr: impl Into<Buf<u64>>, indices: impl Into<Buf<I>>, num_src: usize) -> Result<Self, CsrError> {
        let g = Self { indptr: indptr.into(), indices: indices.into(), num_src };
        g.check()?;
        Ok(g)
    }

    /// The graph whose row i lists the sources of the edges into i, in any order.
    ///
    /// # Errors
    /// If a source is out of range.
    pub fn from_rows(rows: impl IntoIterator<Item = Vec<I>>, num_src: usize) -> Result<Self, CsrError> {
        let (mut indptr, mut indices) = (vec![0], Vec::new());
        for mut row in rows {
            row.sort_unstable();
            indices.extend(row);
            indptr.push(indices.len() as u64);
        }
        Self::new(indptr, indices, num_src)
    }

    /// A CSR from arrays that are known to be valid (built here, or read from a folder validated before).
    ///
    /// Invalid arrays cannot cause undefined behaviour, but panics and wrong results: kernels work on
    /// [`Csr::into_bounded`].
    pub fn from_valid(indptr: impl Into<Buf<u64>>, indices: impl Into<Buf<I>>, num_src: usize) -> Self {
        let g = Self { indptr: indptr.into(), indices: indices.into(), num_src };
        debug_assert_eq!(g.check(), Ok(()));
        g
    }

    /// A CSR from arrays whose elements nobody has looked at yet: whoever maps them checks them before they are handed
    /// out.
    pub(crate) fn mapped(indptr: impl Into<Buf<u64>>, indices: impl Into<Buf<I>>, num_src: usize) -> Self {
        Self { indptr: indptr.into(), indices: indices.into(), num_src }
    }

    /// The same arrays in memory, with every offset and id in range. Nothing that happens to a file later can change
    /// that: what kernels look up without asking comes from here. Rows need not be sorted.
    ///
    /// # Errors
    /// The first violation.
    pub fn into_bounded(self) -> Result<Self, CsrError> {
        let g = Self { indptr: self.indptr.into_owned(), indices: self.indices.into_owned(), num_src: self.num_src };
        g.check_offsets()?;
        // Nothing but a maximum, which goes as fast as memory does.
        let most = |ids: &[I]| ids.iter().copied().fold(None, |most: Option<I>, id| most.max(Some(id)));
        let largest = g.indices.par_chunks(LOT_EDGES).map(most).max().flatten();
        match largest {
            Some(id) if id.index() >= g.num_src => Err(g.check().err().unwrap_or(CsrError::OutOfRange {
                edge: 0,
                row: 0,
                source_id: id.into(),
                num_src: g.num_src,
            })),
            _ => Ok(g),
        }
    }

    /// Whether the arrays form a CSR. Pages of a mapped file that is larger than a lot are given back on the way: it
    /// need not fit into memory.
    pub(crate) fn check(&self) -> Result<(), CsrError> {
        self.check_offsets()?;
        let mut first = 0;
        while first < self.num_dst() {
            let full = self.indptr[first] + LOT_EDGES as u64;
            let end = first + 1 + self.indptr[first + 1..self.num_dst()].partition_point(|start| *start < full);
            let bad = (first..end).into_par_iter().find_map_first(|row| self.check_row(row));
            if let Some(bad) = bad {
                return Err(bad);
            }
            if end < self.num_dst() {
                self.indices.release();
            }
            first = end;
        }
        Ok(())
    }

    fn check_offsets(&self) -> Result<(), CsrError> {
        let indptr = &self.indptr[..];
        let (Some(&first), Some(&last)) = (indptr.first(), indptr.last()) else {
            return Err(CsrError::NoOffsets);
        };
        if first != 0 {
            return Err(CsrError::FirstOffset(first));
        }
        let down = indptr.par_windows(2).position_first(|w| w[1] < w[0]);
        if let Some(row) = down {
            return Err(CsrError::Decreasing { row: row + 1, start: indptr[row], end: indptr[row + 1] });
        }
        match last == self.indices.len() as u64 {
            true => Ok(()),
            false => Err(CsrError::LastOffset { last, edges: self.indices.len() }),
        }
    }

    fn check_row(&self, row: usize) -> Option<CsrError> {
        let start = self.indptr[row] as usize;
        let ids = self.row(row);
        let out = ids.iter().position(|id| id.index() >= self.num_src);
        let out =
            out.map(|k| CsrError::OutOfRange { edge: start + k, row, source_id: ids[k].into(), num_src: self.num_src });
        let unsorted = || ids.windows(2).position(|w| w[1] < w[0]);
        out.or_else(|| unsorted().map(|k| CsrError::Unsorted { edge: start + k + 1, row }))
    }

    /// Rows: the nodes that edges point to.
    pub fn num_dst(&self) -> usize {
        self.indptr.len() - 1
    }

    /// Columns: the nodes that edges come from. Equal to [`Csr::num_dst`] for a whole graph.
    pub fn num_src(&self) -> usize {
        self.num_src
    }

    /// Stored entries: a symmetric graph counts each undirected edge twice.
    pub fn num_edges(&self) -> usize {
        self.indices.len()
    }

    /// The offsets of the rows.
    pub fn indptr(&self) -> &Buf<u64> {
        &self.indptr
    }

    /// The sources of all edges, row after row.
    pub fn indices(&self) -> &Buf<I> {
        &self.indices
    }

    /// The entries of row `i`, as positions in [`Csr::indices`].
    pub fn edges_of(&self, i: usize) -> Range<usize> {
        self.indptr[i] as usize..self.indptr[i + 1] as usize
    }

    /// The sources of the edges into `i`, ascending.
    pub fn row(&self, i: usize) -> &[I] {
        &self.indices[self.edges_of(i)]
    }

    /// The number of edges into `i`.
    pub fn degree(&self, i: usize) -> usize {
        (self.indptr[i + 1] - self.indptr[i]) as usize
    }

    /// The largest number of edges into one node.
    pub fn max_degree(&self) -> usize {
        (0..self.num_dst()).into_par_iter().map(|i| self.degree(i)).max().unwrap_or(0)
    }

    /// Bytes of the two arrays, mapped or not.
    pub fn bytes(&self) -> u64 {
        (self.indptr.len() * 8 + self.indices.len() * size_of::<I>()) as u64
    }

    /// Cuts the rows into at most `pieces` ranges of about equal work, where a row costs its edges plus one.
    pub fn balanced_rows(&self, pieces: usize) -> Vec<Range<usize>> {
        rows::balanced(&self.indptr, pieces)
    }

    /// Whether each edge j → i stands beside an edge i → j, equally often.
    pub fn is_symmetric(&self) -> bool {
        self.num_src == self.num_dst()
            && (0..self.num_dst()).into_par_iter().all(|i| {
                self.row(i).chunk_by(|a, b| a == b).all(|same| {
                    let back = self.row(same[0].index());
                    let me = I::new(i);
                    let first = back.partition_point(|&x| x < me);
                    back[first..].iter().take_while(|&&x| x == me).count() == same.len()
                })
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kernels_get_is_in_range_whatever_was_claimed() {
        let raw = |indptr: &[u64], indices: &[u32]| Csr::mapped(indptr.to_vec(), indices.to_vec(), 3);
        assert!(raw(&[0, 2, 3], &[2, 0, 1]).into_bounded().is_ok(), "not sorted, but in range");
        let out = CsrError::OutOfRange { edge: 2, row: 1, source_id: 3, num_src: 3 };
        assert_eq!(raw(&[0, 2, 3], &[0, 1, 3]).into_bounded(), Err(out));
        assert!(raw(&[0, 2, 3], &[1, 0, 3]).into_bounded().is_err(), "also where something else is found first");
        for bad in [&[0, 4, 3][..], &[0, 2, 4], &[1, 2, 3], &[0, u64::MAX, 3], &[]] {
            assert!(raw(bad, &[0, 1, 2]).into_bounded().is_err(), "{bad:?}");
        }
    }
}
