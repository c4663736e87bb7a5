//! Dropout masks that depend on what an element *is*, not on where or when it is computed.
//!
//! A mask bit is a function of (seed, epoch, layer, stream) and of the element: original node id and column for rows,
//! original source, destination and head for edges. So the same elements are dropped for any number of ranks or
//! threads, in forward, in backward and when a layer is computed again; masks are never stored. The function is Philox
//! with seven rounds (ten is the usual reserve; seven pass every test known), eight 16-bit numbers a call.

use crate::error::{Error, Result};

/// The multipliers and key increments of Philox4x32.
const MULTIPLIERS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
const INCREMENTS: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];
const ROUNDS: usize = 7;

/// Numbers per call.
pub(crate) const GROUP: usize = 8;
/// Calls that are made side by side, one per lane of a vector.
pub(crate) const LOT: usize = 16;

/// A dropout of one layer in one epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    origin: Origin,
    key: [u32; 2],
    stream: u32,
    /// Elements whose 16-bit number is below this are dropped.
    threshold: u32,
    scale: f32,
    /// The first head, where only some heads of edges are computed.
    first_head: u32,
}

/// What a key is made of, beside the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    seed: u64,
    layer: u32,
}

impl Origin {
    /// The key of an epoch.
    pub(crate) fn key(self, epoch: u64) -> [u32; 2] {
        let mut key: u64 = 0;
        for x in [self.seed, epoch, self.layer.into()] {
            // splitmix64: one well-mixed step per coordinate. Seeds too: epochs of one seed are not to be those of
            // another.
            key = (key ^ x).wrapping_add(0x9e37_79b9_7f4a_7c15);
            key = (key ^ (key >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            key = (key ^ (key >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            key ^= key >> 31;
        }
        [key as u32, (key >> 32) as u32]
    }
}

impl Dropout {
    /// Drops about `rate` of all elements and scales the others so that the mean stays. The rate is rounded to a
    /// multiple of 2⁻¹⁶, the scale is exact for the rounded rate. `stream` tells the dropouts of one layer apart.
    pub fn new(rate: f64, seed: u64, epoch: u64, layer: u32, stream: u32) -> Self {
        let threshold = (rate.clamp(0.0, 1.0) * 65536.0).round() as u32;
        let origin = Origin { seed, layer };
        let kept = 65536 - threshold;
        let scale = if kept == 0 { 0.0 } else { 65536.0 / kept as f32 };
        Self { origin, key: origin.key(epoch), stream, threshold, scale, first_head: 0 }
    }

    /// The same for attention whose head 0 is head `first` of all: heads keep their masks wherever they are computed.
    pub fn from_head(self, first: u32) -> Self {
        Self { first_head: self.first_head + first, ..self }
    }

    /// Whether anything is dropped at all.
    pub fn is_active(&self) -> bool {
        self.threshold > 0
    }

    /// What its key is made of.
    #[cfg(feature = "cuda")]
    pub(crate) fn origin(&self) -> Origin {
        self.origin
    }

    /// Key, stream, threshold, scale and first head, for kernels elsewhere.
    #[cfg(feature = "cuda")]
    pub(crate) fn numbers(&self) -> ([u32; 2], u32, u32, f32, u32) {
        (self.key, self.stream, self.threshold, self.scale, self.first_head)
    }

    /// What undoes the scale of an element that was kept.
    pub(crate) fn unscale(&self) -> f64 {
        if self.scale > 0.0 { 1.0 / f64::from(self.scale) } else { 0.0 }
    }

    /// The factors, 0 or 1/keep, of columns 8·`group` to 8·`group` + 7 of a node's row: what kernels find by
    /// [`Dropout::row_bits`].
    #[cfg(test)]
    pub(crate) fn row(&self, node: u64, group: u32) -> [f32; GROUP] {
        self.factors([node as u32, (node >> 32) as u32, group, self.stream << 1])
    }

    /// The factors of heads 8·`group` to 8·`group` + 7 of an edge, of which only the first `wanted` are looked at.
    /// Parallel edges share them.
    #[inline(always)]
    pub(crate) fn edge(&self, source: u64, destination: u64, group: u32, wanted: usize) -> [f32; GROUP] {
        let high = (source >> 32) as u32 ^ ((destination >> 32) as u32).rotate_left(16);
        let of =
            |group: u32| self.factors([source as u32, destination as u32, high, ((self.stream << 8 | group) << 1) | 1]);
        let (group, skipped) = (group + self.first_head / GROUP as u32, self.first_head as usize % GROUP);
        let factors = of(group);
        if skipped == 0 {
            return factors;
        }
        // The few heads of a rank that shares them with others mostly lie in one group.
        let next = if skipped + wanted > GROUP { of(group + 1) } else { factors };
        std::array::from_fn(|k| if k + skipped < GROUP { factors[k + skipped] } else { next[k + skipped - GROUP] })
    }

    /// The numbers of columns 8·group to 8·group + 7 of a node's row, for many pairs of a node and a group at once:
    /// those of pair k are the 16-bit pieces of `to[2·k]` and `to[2·k + 1]`, lowest first, for [`Dropout::factor`].
    ///
    /// Each 32-bit word has a 64-bit lane. The upper halves may hold anything, since only lower halves are multiplied
    /// and kept: a round is two products, two shifts and two three-way exclusive ors of vectors.
    #[inline(always)]
    pub(crate) fn row_bits(&self, nodes: &[u64; LOT], groups: &[u64; LOT], to: &mut [u64; 2 * LOT]) {
        const LOW: u64 = 0xffff_ffff;
        let (mut c0, mut c1, mut c2, mut c3) = (*nodes, [0; LOT], *groups, [u64::from(self.stream << 1); LOT]);
        for (c1, node) in c1.iter_mut().zip(nodes) {
            *c1 = *node >> 32;
        }
        let mut key = self.key;
        for _ in 0..ROUNDS {
            for k in 0..LOT {
                let (a, b) = (u64::from(MULTIPLIERS[0]) * (c0[k] & LOW), u64::from(MULTIPLIERS[1]) * (c2[k] & LOW));
                c0[k] = (b >> 32) ^ c1[k] ^ u64::from(key[0]);
                c2[k] = (a >> 32) ^ c3[k] ^ u64::from(key[1]);
                (c1[k], c3[k]) = (b, a);
            }
            key = next_key(key);
        }
        for (k, to) in to.chunks_exact_mut(2).enumerate() {
            (to[0], to[1]) = (c0[k] & LOW | c1[k] << 32, c2[k] & LOW | c3[k] << 32);
        }
    }

    /// The factor of an element with this number.
    #[inline(always)]
    pub(crate) fn factor(&self, bits: u16) -> f32 {
        if u32::from(bits) < self.threshold { 0.0 } else { self.scale }
    }

    #[inline(always)]
    fn factors(&self, counter: [u32; 4]) -> [f32; GROUP] {
        let words = philox(counter, self.key);
        std::array::from_fn(|k| self.factor((words[k / 2] >> (16 * (k % 2))) as u16))
    }
}

#[inline(always)]
fn philox(mut c: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..ROUNDS {
        let a = u64::from(MULTIPLIERS[0]) * u64::from(c[0]);
        let b = u64::from(MULTIPLIERS[1]) * u64::from(c[2]);
        c = [(b >> 32) as u32 ^ c[1] ^ key[0], b as u32, (a >> 32) as u32 ^ c[3] ^ key[1], a as u32];
        key = next_key(key);
    }
    c
}

#[inline(always)]
fn next_key(key: [u32; 2]) -> [u32; 2] {
    [key[0].wrapping_add(INCREMENTS[0]), key[1].wrapping_add(INCREMENTS[1])]
}

/// Original ids of rows, where nodes have been renumbered.
#[derive(Clone, Debug, Default)]
pub enum Ids {
    /// Row k is node k.
    #[default]
    Same,
    /// Row k is this node.
    Listed(std::rc::Rc<[u64]>),
}

impl Ids {
    /// Fails unless every one of `rows` rows has an id.
    pub(crate) fn expect(&self, op: &'static str, rows: usize) -> Result<()> {
        match self {
            Self::Listed(ids) if ids.len() != rows => {
                Err(Error::Shape { op, what: "original ids", got: (ids.len(), 1), expected: (rows, 1) })
            }
            _ => Ok(()),
        }
    }

    /// A view that threads can share.
    pub(crate) fn view(&self) -> IdsView<'_> {
        match self {
            Self::Same => IdsView(None),
            Self::Listed(ids) => IdsView(Some(ids)),
        }
    }
}

/// [`Ids`] for kernels.
#[derive(Clone, Copy)]
pub(crate) struct IdsView<'a>(Option<&'a [u64]>);

impl IdsView<'_> {
    #[inline(always)]
    pub(crate) fn of(&self, row: usize) -> u64 {
        self.0.map_or(row as u64, |ids| ids[row])
    }

    /// The ids of many rows, given as distances from `first`; beyond `last` any id will do.
    #[inline(always)]
    pub(crate) fn many<const K: usize>(&self, first: usize, rows: &[u64; K], last: usize) -> [u64; K] {
        let mut to = [0; K];
        match self.0 {
            None => to.iter_mut().zip(rows).for_each(|(to, row)| *to = first as u64 + row),
            Some(ids) => to.iter_mut().zip(rows).for_each(|(to, row)| *to = ids[last.min(first + *row as usize)]),
        }
        to
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_met_and_the_mean_stays() {
        for rate in [0.0, 0.1, 0.5, 0.6] {
            let d = Dropout::new(rate, 1, 2, 3, 0);
            let factors: Vec<f32> = (0..20_000).flat_map(|n| d.row(n, 1)).collect();
            let mean = factors.iter().sum::<f32>() / factors.len() as f32;
            let dropped = factors.iter().filter(|x| **x == 0.0).count() as f64 / factors.len() as f64;
            assert!((f64::from(mean) - 1.0).abs() < 0.01 && (dropped - rate).abs() < 0.004, "{rate} {mean} {dropped}");
        }
    }

    #[test]
    fn many_calls_at_once_are_the_same_calls() {
        let d = Dropout::new(0.3, 1, 2, 3, 4);
        let nodes: [u64; LOT] = std::array::from_fn(|k| (k as u64 * 77) << (2 * k));
        let groups: [u64; LOT] = std::array::from_fn(|k| k as u64 * 3 % 5);
        let mut bits = [0; 2 * LOT];
        d.row_bits(&nodes, &groups, &mut bits);
        for k in 0..LOT {
            let pieces = bits[2 * k..][..2].iter().flat_map(|x| [0, 16, 32, 48].map(|s| d.factor((x >> s) as u16)));
            assert_eq!(pieces.collect::<Vec<_>>(), d.row(nodes[k], groups[k] as u32));
        }
    }

    #[test]
    fn every_coordinate_matters() {
        let masks = |d: Dropout, f: &dyn Fn(&Dropout, u64) -> [f32; GROUP]| -> Vec<f32> {
            (0..50).flat_map(|n| f(&d, n)).collect()
        };
        let row = |d: &Dropout, n: u64| d.row(n, 0);
        let base = masks(Dropout::new(0.5, 1, 1, 1, 1), &row);
        assert_eq!(base, masks(Dropout::new(0.5, 1, 1, 1, 1), &row));
        let all: Vec<[u64; 4]> =
            vec![[1, 1, 1, 1], [2, 1, 1, 1], [1, 2, 1, 1], [1, 1, 2, 1], [1, 1, 1, 2], [2, 2, 1, 1]];
        let mask = |[seed, epoch, layer, stream]: [u64; 4]| {
            masks(Dropout::new(0.5, seed, epoch, layer as u32, stream as u32), &row)
        };
        for (k, one) in all.iter().enumerate() {
            for other in &all[..k] {
                assert_ne!(mask(*one), mask(*other), "{one:?} {other:?}");
            }
        }
        let d = Dropout::new(0.5, 1, 1, 1, 1);
        assert_ne!(base, masks(d, &|d, n| d.row(n, 1)));
        assert_ne!(base, masks(d, &|d, n| d.row(n + (1 << 32), 0)));
        let edge = masks(d, &|d, n| d.edge(n, 7, 0, GROUP));
        assert_ne!(edge, base);
        assert_ne!(edge, masks(d, &|d, n| d.edge(7, n, 0, GROUP)), "direction");
    }

    #[test]
    fn heads_keep_their_masks_wherever_they_are_computed() {
        let d = Dropout::new(0.5, 1, 2, 3, 4);
        let all: Vec<f32> = (0..4).flat_map(|group| d.edge(5, 6, group, GROUP)).collect();
        for first in 0..16 {
            let some: Vec<f32> = (0..2).flat_map(|group| d.from_head(first).edge(5, 6, group, GROUP)).collect();
            assert_eq!(some, all[first as usize..][..16], "from head {first}");
            for wanted in 1..=GROUP {
                let few = d.from_head(first).edge(5, 6, 0, wanted);
                assert_eq!(few[..wanted], some[..wanted], "{wanted} from head {first}");
            }
        }
    }
}
