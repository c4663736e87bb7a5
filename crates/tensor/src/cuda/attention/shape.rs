//! What attention's kernels are compiled for: the shape of heads and lanes, types, score and extras.

use super::OP;
use crate::cuda::compile::Defines;
use crate::cuda::numbers::number;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::ops::attention::{Attention, Score};
use crate::ops::edge_values::EdgeTail;

/// Threads of a block.
pub(super) const THREADS: usize = 128;
pub(super) const WARP: usize = 32;
/// Bytes of the widest load.
const LOAD: usize = 16;
/// Columns that a lane has of a row at most, where heads are not wider than that takes.
const LANE_COLUMNS: usize = 16;
/// How the lanes of a warp share the columns of a row; see attention.cuh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cuda) struct Shape {
    pub(super) heads: usize,
    pub(super) width: usize,
    tail: usize,
    vec: usize,
    parts: usize,
    chunks: usize,
    side: usize,
    slots: usize,
}

impl Shape {
    /// For elements of `size` bytes, with so many numbers behind a head.
    pub(in crate::cuda) fn new(heads: usize, width: usize, tail: usize, size: usize) -> Self {
        let vec = (1 << (width | tail).trailing_zeros()).min(LOAD / size);
        let vectors = width / vec;
        let parts = vectors.next_power_of_two().min(WARP);
        let chunks = vectors.div_ceil(parts);
        let side = heads.next_power_of_two().min(WARP / parts);
        let mut slots = 1;
        // A lane serves more heads as long as they fit into it and into a word of dropout bits, and none is left over
        // by that.
        while side * slots < heads && 2 * side * slots <= WARP && 2 * slots * chunks * vec <= LANE_COLUMNS {
            if heads.is_multiple_of(side * slots) && !heads.is_multiple_of(2 * side * slots) {
                break;
            }
            slots *= 2;
        }
        Self { heads, width, tail, vec, parts, chunks, side, slots }
    }

    /// Rows or edges that a warp serves at a time.
    pub(super) fn teams(&self) -> usize {
        WARP / (self.parts * self.side)
    }

    /// Blocks that share the heads.
    pub(super) fn tiles(&self) -> usize {
        self.heads.div_ceil(self.side * self.slots)
    }

    /// Registers that a lane needs for its columns of a row.
    fn registers(&self, storage: DType) -> usize {
        self.slots * (self.chunks * self.vec + self.tail.div_ceil(self.parts)) * storage.compute().size() / 4
    }

    fn defines(&self, storage: DType) -> Defines {
        Defines::of(storage)
            .with("HEADS", self.heads)
            .with("WIDTH", self.width)
            .with("VEC", self.vec)
            .with("PARTS", self.parts)
            .with("CHUNKS", self.chunks)
            .with("SIDE", self.side)
            .with("SLOTS", self.slots)
            .with("THREADS", THREADS)
    }
}

/// The types of the operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cuda) struct Types {
    pub(in crate::cuda) out: DType,
    pub(in crate::cuda) value: DType,
    pub(in crate::cuda) dst: DType,
    pub(in crate::cuda) src: DType,
}

impl Types {
    pub(super) fn new(a: &Attention<'_>) -> Result<Self> {
        use DType::{Bf16, F32, F64};
        let refused = |what, m: &Matrix| Err(Error::Type { op: OP, what, got: m.dtype() });
        match a.score {
            Score::Dot { q, kv } => match (q.dtype(), kv.dtype()) {
                (F64, F64) | (F32, F32 | Bf16) | (Bf16, Bf16) => {
                    Ok(Self { out: q.dtype(), value: kv.dtype(), dst: q.dtype(), src: kv.dtype() })
                }
                _ => refused("kv", kv),
            },
            Score::Gat { l, r, z, .. } => match (l.dtype(), z.dtype()) {
                (F64, F64) | (F32, F32 | Bf16) if r.dtype() == l.dtype() => {
                    Ok(Self { out: z.dtype(), value: z.dtype(), dst: l.dtype(), src: l.dtype() })
                }
                _ => refused("z", z),
            },
            Score::Gatv2 { l, r, .. } => match (l.dtype(), r.dtype()) {
                (F64, F64) | (F32, F32 | Bf16) | (Bf16, Bf16) => {
                    Ok(Self { out: l.dtype(), value: r.dtype(), dst: l.dtype(), src: r.dtype() })
                }
                _ => refused("r", r),
            },
        }
    }

    pub(super) fn compute(&self) -> DType {
        self.out.compute()
    }

    /// Bytes of the smallest element of a row.
    pub(super) fn smallest(&self) -> usize {
        self.out.size().min(self.value.size())
    }
}

/// What features of edges are for.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::cuda) struct Tails {
    /// Numbers behind a head.
    pub(in crate::cuda) width: usize,
    /// Whether edges have features for them.
    pub(in crate::cuda) given: bool,
    /// Features that stand inside of a LeakyReLU.
    pub(in crate::cuda) inside: usize,
    /// Features that are numbers, and columns of categories.
    pub(in crate::cuda) columns: [usize; 2],
}

impl Tails {
    pub(super) fn of(a: &Attention<'_>) -> Self {
        let of = |edges: &EdgeTail| {
            let columns = [edges.columns.dense(), edges.columns.categories().len()];
            let (given, behind) = (edges.rows.is_some(), matches!(a.score, Score::Dot { .. }));
            let inside = if given && !behind { edges.columns.width() } else { 0 };
            Self { width: a.tail(), given: given && behind, inside, columns }
        };
        a.edges.map(of).unwrap_or_default()
    }
}

/// What the kernels are compiled for, beside the shape.
#[derive(Clone, Copy, Debug)]
pub(in crate::cuda) struct Variant {
    /// 0 dot products, 1 GAT, 2 GATv2.
    pub(in crate::cuda) score: usize,
    pub(in crate::cuda) types: Types,
    /// GATv2's values are not the sources' operand.
    pub(in crate::cuda) own_values: bool,
    /// 0 none, 1 per edge, 2 from features.
    pub(in crate::cuda) bias: usize,
    pub(in crate::cuda) features: usize,
    pub(in crate::cuda) tails: Tails,
    pub(in crate::cuda) dropout: bool,
}

/// Which passes a source has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cuda) enum Passes {
    Forward,
    Backward,
}

impl Variant {
    /// Edges in flight and blocks per multiprocessor. What is in flight hides latency, and so do warps, which share the
    /// registers: these numbers were the best of many on an H200, for 8 heads of 16 columns over R-MAT graphs of 17 and
    /// 49 million edges.
    fn tuning(&self, shape: &Shape, passes: Passes) -> (usize, usize) {
        let registers = shape.registers(self.types.out);
        let unroll = match (registers, passes) {
            (0..=4, _) | (5..=8, Passes::Forward) => 2,
            _ => 1,
        };
        let blocks = match self {
            _ if registers > 8 || self.bias == 2 || self.tails.given || self.tails.inside > 0 => 1,
            Self { score: 2, .. } => 6,
            Self { dropout: false, bias: 0, .. } => 8,
            _ => 7,
        };
        (unroll.min(WARP / shape.teams()), blocks)
    }

    pub(in crate::cuda) fn defines(&self, heads: usize, width: usize, passes: Passes) -> Defines {
        let Types { out, value, dst, src } = self.types;
        let shape = Shape::new(heads, width, self.tails.width, self.types.smallest());
        let (unroll, blocks) = self.tuning(&shape, passes);
        shape
            .defines(out)
            .with("UNROLL", unroll)
            .with("MIN_BLOCKS", blocks)
            .with("SCORE", self.score)
            .with("OUT_TYPE", number(out))
            .with("VALUE_TYPE", number(value))
            .with("DST_TYPE", number(dst))
            .with("SRC_TYPE", number(src))
            .with("OWN_VALUES", self.own_values.into())
            .with("BIAS", self.bias)
            .with("FEATURE_COUNT", self.features)
            .with("TAIL", self.tails.width)
            .with("EDGES", self.tails.given.into())
            .with("TERM", self.tails.inside)
            .with("EDGE_NUMBERS", self.tails.columns[0])
            .with("EDGE_CATEGORIES", self.tails.columns[1])
            .with("DROPOUT", self.dropout.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_cover_every_column() {
        for heads in 1..=40 {
            for (width, size) in (1..=130).chain([160, 255, 256, 512]).flat_map(|w| [(w, 2), (w, 4), (w, 8)]) {
                let s = Shape::new(heads, width, 0, size);
                let what = format!("{s:?} of {size} bytes");
                assert!(s.vec * size <= LOAD && width % s.vec == 0 && s.vec * s.parts * s.chunks >= width, "{what}");
                assert!(s.parts.is_power_of_two() && s.side.is_power_of_two() && s.parts * s.side <= WARP, "{what}");
                assert!(s.tiles() * s.side * s.slots >= heads && (s.side * s.slots).is_power_of_two(), "{what}");
                assert!(s.side * s.slots <= WARP, "{what}: one word of dropout bits");
            }
        }
    }

    #[test]
    fn the_usual_shapes_leave_no_lane_idle() {
        for (heads, width, size, teams) in [(8, 16, 2, 2), (8, 16, 4, 1), (4, 8, 2, 8), (1, 128, 2, 2), (32, 8, 2, 1)] {
            let s = Shape::new(heads, width, 0, size);
            assert_eq!(s.vec * s.parts * s.chunks, width);
            assert_eq!((s.teams(), s.tiles(), heads % (s.side * s.slots)), (teams, 1, 0), "{s:?}");
        }
    }
}
