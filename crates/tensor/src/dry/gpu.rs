//! What kernels of a GPU take beside their operands, for rehearsals of runs there: lists of the work on a graph, and
//! room for what pieces of long rows come to before it is added up.
//!
//! Sums over rows, which take a few MiB whatever the graph, are rehearsed as on the CPU.

use std::rc::Rc;

use graphweft_graph::Csr;

use crate::adjacency::Direction;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::Result;
use crate::ledger::Tag;
use crate::matrix::Matrix;

/// Edges that a warp takes of a row at most.
pub(crate) const PIECE: usize = 256;
/// Pieces that are merged at a time.
pub(crate) const GROUP: u32 = 32;
/// Bytes of an entry of a list.
pub(crate) const ENTRY: usize = 16;

/// Pieces of rows with more edges than [`PIECE`], and the bytes of all lists.
pub(crate) fn lists(csr: &Csr<u32>) -> (usize, usize) {
    let (mut entries, mut pieces) = (0, 0);
    for row in 0..csr.num_dst() {
        let count = csr.edges_of(row).len().div_ceil(PIECE).max(1);
        entries += count;
        if count > 1 {
            let groups = if count > GROUP as usize { count.div_ceil(GROUP as usize) } else { 0 };
            (pieces, entries) = (pieces + count, entries + 1 + groups);
        }
    }
    (pieces, entries * ENTRY)
}

/// Room for `size` numbers of each piece.
pub(super) fn pieces(device: &Device, direction: &Direction, size: usize, dtype: DType) -> Result<Matrix> {
    device.uninit("pieces", listed(device, direction), size, dtype, Tag::Workspace)
}

/// How many pieces there are; the lists are counted from the first call on, as long as the graph is there.
pub(super) fn listed(device: &Device, direction: &Direction) -> usize {
    let (pieces, _) = direction.listed.get_or_init(|| {
        let (pieces, bytes) = lists(&direction.csr);
        (pieces, Rc::new(device.charge(Tag::Graph, bytes as u64)))
    });
    *pieces
}
