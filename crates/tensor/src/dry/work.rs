//! What a kernel has to do: all that its duration depends on.

use serde::{Deserialize, Serialize};

use super::reuse::Reuse;
use crate::dtype::DType;

/// One call of one kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Work {
    /// The kernel.
    pub op: &'static str,
    /// Type of the elements that it goes through.
    pub dtype: DType,
    /// Whether random masks are computed on the way.
    pub dropout: bool,
    /// How much there is to do.
    pub kind: WorkKind,
}

impl Work {
    /// A call without random masks.
    pub fn new(op: &'static str, dtype: DType, kind: WorkKind) -> Self {
        Self { op, dtype, dropout: false, kind }
    }
}

/// Names of kernels that others look for.
impl Work {
    /// Numbers of the host go to the device.
    pub const UPLOAD: &str = "upload";
    /// The host reads what is on the device.
    pub const DOWNLOAD: &str = "download";
    /// The host asks for the lengths of gradients: a step's forward and backward pass are over.
    pub const SQUARE_SUMS: &str = "square sums";
}

/// How much there is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkKind {
    /// A product of dense matrices, m × k and k × n.
    Gemm {
        /// Rows of the result.
        m: usize,
        /// Columns of the result.
        n: usize,
        /// What is summed over.
        k: usize,
    },
    /// A pass over the edges of a graph.
    Edges {
        /// Which.
        pass: Pass,
        /// Edges.
        edges: usize,
        /// Rows that are made, in whose order edges are visited.
        rows: usize,
        /// Of their edges, groups of four and what is left of a row: how they are taken.
        fours: usize,
        /// Rows of the table that edges read at random.
        sources: usize,
        /// Bytes of such a row.
        row: usize,
        /// How soon they are read again; nothing if that is not known.
        reuse: Option<Reuse>,
        /// Columns of the values that move along an edge.
        width: usize,
        /// Heads that share these columns; 1 for an aggregation.
        heads: usize,
    },
    /// Matrices from end to end, in bytes.
    Stream {
        /// Read.
        read: usize,
        /// Written.
        written: usize,
        /// Pieces that lie apart: rows.
        rows: usize,
    },
}

/// A pass over edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pass {
    /// From sources to destinations.
    Forward,
    /// Backward, in the order of destinations.
    ByDestination,
    /// Backward, in the order of sources.
    BySource,
}
