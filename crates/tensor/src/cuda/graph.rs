//! A graph on the GPU: its structure, and the work on it cut into items for warps.
//!
//! An item is a row, or a piece of at most [`PIECE`] edges of one. Pieces come first, in the order of the edges, and
//! leave partial results that are merged in that order: where a row has many, [`GROUP`] at a time. Whole rows follow,
//! by the magnitude of their degrees, long ones first, so that the warps of a block end at about the same time.

use std::cell::OnceCell;
use std::rc::Rc;

use bytemuck::{Pod, Zeroable};
use cudarc::driver::DriverError;
use cudarc::driver::sys::CUresult;
use graphweft_graph::Csr;

use super::{Cuda, CudaBlock, CudaMemory};
use crate::adjacency::{Adjacency, Direction};
use crate::backend::Memory;
use crate::device::{Charge, Device};
use crate::dry::gpu::{GROUP, PIECE};
use crate::error::{Error, Result};
use crate::ledger::Tag;

const OP: &str = "graph";
/// The row of a merge whose result is a piece again, as in edges.cuh.
const NO_ROW: u32 = u32::MAX;

/// Some edges of a row, as in edges.cuh.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
struct Item {
    row: u32,
    count: u32,
    begin: u64,
}

/// Pieces `first`, `first + stride`, … of one row, as in edges.cuh.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
struct Merge {
    row: u32,
    first: u32,
    count: u32,
    stride: u32,
}

/// The work on the rows of a CSR.
#[derive(Debug)]
struct Work {
    items: Vec<Item>,
    pieces: usize,
    groups: Vec<Merge>,
    rows: Vec<Merge>,
}

impl Work {
    /// `None` if there are more items than a number of 32 bits counts.
    fn new(csr: &Csr<u32>) -> Option<Self> {
        let (mut items, mut groups, mut rows) = (Vec::new(), Vec::new(), Vec::new());
        // Rows by the number of bits of their degree.
        let mut sizes = [0usize; PIECE.ilog2() as usize + 2];
        let magnitude = |degree: usize| (usize::BITS - degree.leading_zeros()) as usize;
        for row in 0..csr.num_dst() {
            let edges = csr.edges_of(row);
            if edges.len() <= PIECE {
                sizes[magnitude(edges.len())] += 1;
                continue;
            }
            let count = edges.len().div_ceil(PIECE);
            let size = edges.len().div_ceil(count);
            let first = u32::try_from(items.len()).ok()?;
            let (row, pieces) = (u32::try_from(row).ok()?, u32::try_from(count).ok()?);
            for k in 0..count {
                let begin = (edges.start + k * size).min(edges.end);
                let end = (begin + size).min(edges.end);
                items.push(Item { row, count: (end - begin) as u32, begin: begin as u64 });
            }
            if pieces > GROUP {
                let group = |k| Merge { row: NO_ROW, first: first + k, count: GROUP.min(pieces - k), stride: 1 };
                groups.extend((0..pieces).step_by(GROUP as usize).map(group));
                rows.push(Merge { row, first, count: pieces.div_ceil(GROUP), stride: GROUP });
            } else {
                rows.push(Merge { row, first, count: pieces, stride: 1 });
            }
        }
        let pieces = items.len();
        let total = pieces + sizes.iter().sum::<usize>();
        u32::try_from(total).ok()?;
        // Where the next row of each magnitude goes: the largest first.
        let mut places = sizes;
        let mut at = pieces;
        for (place, size) in places.iter_mut().zip(sizes).rev() {
            (*place, at) = (at, at + size);
        }
        items.resize(total, Item::zeroed());
        for row in 0..csr.num_dst() {
            let edges = csr.edges_of(row);
            if edges.len() <= PIECE {
                let place = &mut places[magnitude(edges.len())];
                items[*place] = Item { row: row as u32, count: edges.len() as u32, begin: edges.start as u64 };
                *place += 1;
            }
        }
        Some(Self { items, pieces, groups, rows })
    }
}

/// One direction of a graph on the GPU.
pub(super) struct Resident {
    indptr: CudaBlock,
    indices: CudaBlock,
    items: CudaBlock,
    groups: CudaBlock,
    rows: CudaBlock,
    /// How many items there are, and how many of them are pieces.
    pub(super) count: usize,
    pub(super) pieces: usize,
    merges: [usize; 2],
    /// From positions here to edges, in the transpose.
    map: OnceCell<CudaBlock>,
    _charge: Charge,
}

/// Where things are on the GPU.
pub(super) struct Places {
    pub(super) indptr: u64,
    pub(super) indices: u64,
    pub(super) items: u64,
}

impl Resident {
    pub(super) fn places(&self, cuda: &Cuda) -> Places {
        let stream = &cuda.stream;
        Places {
            indptr: self.indptr.place(stream),
            indices: self.indices.place(stream),
            items: self.items.place(stream),
        }
    }

    /// Lists of merges with their lengths, to be worked off one after the other.
    pub(super) fn merges(&self, cuda: &Cuda) -> impl Iterator<Item = (u64, usize)> {
        let places = [&self.groups, &self.rows].map(|list| list.place(&cuda.stream));
        places.into_iter().zip(self.merges).filter(|(_, count)| *count > 0)
    }
}

impl Cuda {
    /// A direction of a graph on the GPU, copied if it is asked for the first time. The bytes of the structure were
    /// counted when the adjacency was made.
    pub(super) fn resident(&self, device: &Device, direction: &Direction) -> Result<Rc<Resident>> {
        let wrong =
            || Error::Device { device: self.name(), problem: "the graph was prepared for another device".into() };
        if direction.resident.get().is_none() {
            let csr = &direction.csr;
            let Some(work) = Work::new(csr) else {
                return Err(Error::Argument { op: OP, problem: "more than 2³² pieces of rows".into() });
            };
            let lists = size_of_val(&work.items[..]) + size_of_val(&work.groups[..]) + size_of_val(&work.rows[..]);
            let resident = Resident {
                indptr: self.graph_list(device, csr.indptr())?,
                indices: self.graph_list(device, csr.indices())?,
                items: self.graph_list(device, &work.items)?,
                groups: self.graph_list(device, &work.groups)?,
                rows: self.graph_list(device, &work.rows)?,
                count: work.items.len(),
                pieces: work.pieces,
                merges: [work.groups.len(), work.rows.len()],
                map: OnceCell::new(),
                _charge: device.charge(Tag::Graph, lists as u64),
            };
            // The cell was empty just now, and a rank is one thread.
            let _ = direction.resident.set(Rc::new(resident));
        }
        let held = direction.resident.get().ok_or_else(wrong)?;
        Rc::clone(held).downcast::<Resident>().map_err(|_| wrong())
    }

    /// Where the map from positions of the transpose to edges is.
    pub(super) fn edge_map(&self, device: &Device, graph: &Adjacency, transpose: &Resident) -> Result<u64> {
        if transpose.map.get().is_none() {
            let _ = transpose.map.set(self.graph_list(device, graph.edges())?);
        }
        Ok(transpose.map.get().map_or(0, |map| map.place(&self.stream)))
    }

    fn graph_list<T: Pod>(&self, device: &Device, list: &[T]) -> Result<CudaBlock> {
        self.not_captured("a graph of the host")?;
        let bytes: &[u8] = bytemuck::cast_slice(list);
        let copy = match &self.host {
            // An empty list has a place too.
            Some(host) => {
                let loan = self.lent_copy(host, if bytes.is_empty() { &[0; 16] } else { bytes });
                loan.map(|loan| loan.map(|loan| CudaBlock(CudaMemory::Lent(loan))))
            }
            None => self.brought(bytes).map(Some),
        };
        match copy {
            Ok(Some(block)) => Ok(block),
            Ok(None) | Err(DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => {
                let (requested, usage) = (size_of_val(list) as u64, device.ledger().now());
                Err(Error::OutOfMemory { op: OP, device: self.name(), requested, usage })
            }
            Err(e) => Err(self.fail("copy the graph to the GPU")(e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dry::gpu::lists;

    fn csr(degrees: &[usize]) -> Csr<u32> {
        let indptr = std::iter::once(0).chain(degrees.iter().scan(0u64, |sum, d| {
            *sum += *d as u64;
            Some(*sum)
        }));
        Csr::new(indptr.collect::<Vec<_>>(), vec![0u32; degrees.iter().sum()], 1).unwrap()
    }

    #[test]
    fn items_cover_every_edge_once_and_every_row() {
        let degrees = [0, 1, PIECE, PIECE + 1, 3, 0, 40 * PIECE - 7, 64, PIECE - 1, 2 * PIECE, 2 * PIECE + 1];
        let csr = csr(&degrees);
        let work = Work::new(&csr).unwrap();
        let mut seen = vec![0; csr.num_edges()];
        let mut rows = vec![0; degrees.len()];
        for (at, item) in work.items.iter().enumerate() {
            assert!(item.count as usize <= PIECE);
            assert_eq!(at < work.pieces, degrees[item.row as usize] > PIECE);
            rows[item.row as usize] += 1;
            for e in item.begin..item.begin + u64::from(item.count) {
                assert!(csr.edges_of(item.row as usize).contains(&(e as usize)));
                seen[e as usize] += 1;
            }
        }
        assert!(seen.iter().all(|n| *n == 1));
        // What a rehearsal takes for it.
        let bytes = size_of_val(&work.items[..]) + size_of_val(&work.groups[..]) + size_of_val(&work.rows[..]);
        assert_eq!(lists(&csr), (work.pieces, bytes));
        assert!(rows.iter().zip(degrees).all(|(n, d)| *n == d.div_ceil(PIECE).max(1)));
        let whole: Vec<u32> =
            work.items[work.pieces..].iter().map(|i| i.count.checked_ilog2().map_or(0, |x| x + 1)).collect();
        assert!(whole.is_sorted_by(|a, b| a >= b));
    }

    #[test]
    fn merges_reach_every_piece_once_and_in_order() {
        let work = Work::new(&csr(&[40 * PIECE - 7, PIECE + 1, 7, 32 * PIECE, 33 * PIECE])).unwrap();
        let mut found: Vec<Vec<u32>> = Vec::new();
        for merge in &work.rows {
            let firsts = (0..merge.count).map(|k| merge.first + k * merge.stride);
            let pieces = firsts.flat_map(|first| {
                let group = work.groups.iter().find(|g| g.first == first && merge.stride > 1);
                (0..group.map_or(1, |g| g.count)).map(move |k| first + k)
            });
            found.push(pieces.collect());
        }
        let all: Vec<u32> = found.concat();
        assert!(all.iter().copied().eq(0..work.pieces as u32));
        assert_eq!(work.rows.iter().map(|m| m.row).collect::<Vec<_>>(), [0, 1, 3, 4]);
        assert!(work.groups.iter().all(|g| g.row == NO_ROW && g.count <= GROUP));
    }
}
