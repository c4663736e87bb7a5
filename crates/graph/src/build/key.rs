//! An edge packed into one integer whose order is the order of the CSR.

use bytemuck::Pod;

/// Destination, source and (in the wide form) where the edge stood in the input, most significant first.
pub(crate) trait Key: Pod + Ord + Send + Sync {
    /// Whether it says where the edge stood.
    const TAGGED: bool;

    fn pack(dst: u64, src: u64, tag: u64) -> Self;
    fn dst(self) -> u64;
    fn src(self) -> u64;
    fn tag(self) -> u64;

    /// Whether two edges are parallel.
    fn same_edge(a: Self, b: Self) -> bool {
        (a.dst(), a.src()) == (b.dst(), b.src())
    }
}

/// At most 2³² nodes, and nothing to carry.
impl Key for u64 {
    const TAGGED: bool = false;

    fn pack(dst: u64, src: u64, _: u64) -> Self {
        debug_assert!(dst < 1 << 32 && src < 1 << 32);
        dst << 32 | src
    }

    fn dst(self) -> u64 {
        self >> 32
    }

    fn src(self) -> u64 {
        self & 0xffff_ffff
    }

    fn tag(self) -> u64 {
        0
    }
}

/// 40 bits for each node, 48 for the tag.
impl Key for u128 {
    const TAGGED: bool = true;

    fn pack(dst: u64, src: u64, tag: u64) -> Self {
        debug_assert!(dst < WIDE_NODES && src < WIDE_NODES && tag < 1 << TAG_BITS);
        Self::from(dst) << (TAG_BITS + NODE_BITS) | Self::from(src) << TAG_BITS | Self::from(tag)
    }

    fn dst(self) -> u64 {
        (self >> (TAG_BITS + NODE_BITS)) as u64
    }

    fn src(self) -> u64 {
        (self >> TAG_BITS) as u64 & (WIDE_NODES - 1)
    }

    fn tag(self) -> u64 {
        self as u64 & ((1 << TAG_BITS) - 1)
    }
}

const NODE_BITS: u32 = 40;
const TAG_BITS: u32 = 48;

/// The most nodes that a packed edge can name.
pub(super) const WIDE_NODES: u64 = 1 << NODE_BITS;

/// Set in the tag of an edge that symmetrising added: it sorts behind all edges of the input with the same ends.
pub(super) const REVERSED: u64 = 1 << (TAG_BITS - 1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_edges_sort_by_destination_source_and_origin() {
        let (a, b) = (WIDE_NODES - 1, WIDE_NODES - 2);
        let key = <u128 as Key>::pack(a, b, REVERSED | 5);
        assert_eq!((key.dst(), key.src(), key.tag()), (a, b, REVERSED | 5));
        assert!(<u128 as Key>::pack(1, 2, 9) < <u128 as Key>::pack(1, 2, REVERSED));
        assert!(<u128 as Key>::pack(1, 2, 9) < <u128 as Key>::pack(1, 3, 0));
        assert!(<u64 as Key>::pack(1, u64::from(u32::MAX), 0) < <u64 as Key>::pack(2, 0, 0));
        let key = <u64 as Key>::pack(u64::from(u32::MAX), 7, 0);
        assert_eq!((key.dst(), key.src()), (u64::from(u32::MAX), 7));
    }
}
