//! From a heap of edges to the rows of a CSR.

use graphweft_base::progress::{Progress, Unit};
use graphweft_base::{Error, Result};

use super::key::{Key, REVERSED, WIDE_NODES};
use super::{Scratch, Sorter};
use crate::csr::{NodeId, SelfLoops};

/// Entries or rows handed on at a time.
const BLOCK: usize = 1 << 16;

/// What is done to the edges on their way, and with how much memory.
#[derive(Clone, Copy, Debug)]
pub struct EdgeRules {
    /// Add the reverse of each edge and merge parallel edges.
    pub symmetrise: bool,
    /// Keep one of each set of parallel edges: the first in input order.
    pub merge_parallel: bool,
    /// What to do with edges from a node to itself.
    pub self_loops: SelfLoops,
    /// Bytes for sorting.
    pub memory: usize,
}

/// What edges will come.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// They are between nodes below this.
    pub num_nodes: u64,
    /// Each remembers when it was pushed, so that its features can be found.
    pub origins: bool,
}

impl Expected {
    /// Edges between nodes below `num_nodes`, without features.
    pub fn bare(num_nodes: u64) -> Self {
        Self { num_nodes, origins: false }
    }
}

/// Takes edges in any order and gives them back as a CSR by destination, in bounded memory.
pub struct EdgeSorter {
    rules: EdgeRules,
    pushed: u64,
    keys: Keys,
}

enum Keys {
    Narrow(Sorter<u64>),
    Wide(Sorter<u128>),
}

/// A piece of the CSR, in order: rows and entries are flushed together, but a row's entries may span blocks.
#[derive(Debug, Default)]
pub struct Block {
    /// Offsets at which the next rows end.
    pub ends: Vec<u64>,
    /// The next sources.
    pub sources: Vec<u64>,
    /// For each of `sources` the number of the pushed edge it came from, `None` for a self-loop that was added. Empty
    /// unless the sorter carries origins.
    pub origins: Vec<Option<u64>>,
}

impl EdgeSorter {
    /// The most nodes that a graph can have.
    pub const MOST_NODES: u64 = WIDE_NODES;

    /// A sorter for such edges.
    ///
    /// # Errors
    /// [`Error::Request`] for more nodes than can be packed.
    pub fn new(expected: Expected, rules: EdgeRules, scratch: &Scratch) -> Result<Self> {
        let Expected { num_nodes, origins } = expected;
        if num_nodes > WIDE_NODES {
            let what = format!("{num_nodes} nodes: at most {WIDE_NODES} are supported");
            return Err(Error::request(what, "check the number of nodes; sparse ids can be relabelled"));
        }
        let merge = rules.symmetrise || rules.merge_parallel;
        let keys = if num_nodes <= <u32 as NodeId>::CAPACITY && !origins {
            Keys::Narrow(Sorter::new(scratch, rules.memory, merge.then_some(<u64 as Key>::same_edge)))
        } else {
            Keys::Wide(Sorter::new(scratch, rules.memory, merge.then_some(<u128 as Key>::same_edge)))
        };
        Ok(Self { rules, pushed: 0, keys })
    }

    /// Edges pushed so far.
    pub fn pushed(&self) -> u64 {
        self.pushed
    }

    /// What this sorter does to the edges.
    pub fn rules(&self) -> &EdgeRules {
        &self.rules
    }

    /// Appends edges `[source, destination]`, whose ids the caller has checked.
    pub fn push(&mut self, edges: &[[u64; 2]]) -> Result<()> {
        let (rules, first) = (self.rules, self.pushed);
        self.pushed += edges.len() as u64;
        match &mut self.keys {
            Keys::Narrow(sorter) => sorter.extend(packed(edges, first, rules)),
            Keys::Wide(sorter) => sorter.extend(packed(edges, first, rules)),
        }
    }

    /// Sorts, and hands the CSR of `num_nodes` rows to `out` piece by piece.
    pub fn stream(self, num_nodes: u64, progress: &dyn Progress, out: impl FnMut(&Block) -> Result<()>) -> Result<()> {
        let loops = self.rules.self_loops;
        match self.keys {
            Keys::Narrow(sorter) => stream(sorter, num_nodes, loops, progress, out),
            Keys::Wide(sorter) => stream(sorter, num_nodes, loops, progress, out),
        }
    }
}

fn packed<K: Key>(edges: &[[u64; 2]], first: u64, rules: EdgeRules) -> impl Iterator<Item = K> {
    let kept = move |src, dst| rules.self_loops != SelfLoops::Remove || src != dst;
    edges.iter().zip(first..).filter(move |(e, _)| kept(e[0], e[1])).flat_map(move |(&[src, dst], tag)| {
        // A self-loop is its own reverse.
        let back = (rules.symmetrise && src != dst).then(|| K::pack(src, dst, tag | REVERSED));
        std::iter::once(K::pack(dst, src, tag)).chain(back)
    })
}

fn stream<K: Key>(
    sorter: Sorter<K>,
    num_nodes: u64,
    loops: SelfLoops,
    progress: &dyn Progress,
    out: impl FnMut(&Block) -> Result<()>,
) -> Result<()> {
    let phase = progress.start("sort edges", sorter.len(), Unit::Items);
    let (block, origins) = (Block::default(), K::TAGGED);
    let mut rows = Rows { block, out, origins, row: 0, written: 0, looped: loops != SelfLoops::Add };
    sorter.drain(
        |n| phase.add(n),
        |keys| {
            for &key in keys {
                let (dst, src) = (key.dst(), key.src());
                while rows.row < dst {
                    rows.end(loops)?;
                }
                if loops == SelfLoops::Add && src >= dst {
                    if src == dst {
                        // The first self-loop stays, the others go.
                        if !std::mem::replace(&mut rows.looped, true) {
                            rows.entry(src, Some(key.tag() & !REVERSED))?;
                        }
                        continue;
                    }
                    rows.add_loop()?;
                }
                rows.entry(src, Some(key.tag() & !REVERSED))?;
            }
            Ok(())
        },
    )?;
    while rows.row < num_nodes {
        rows.end(loops)?;
    }
    rows.flush()
}

/// The rows being written.
struct Rows<F> {
    block: Block,
    out: F,
    origins: bool,
    row: u64,
    written: u64,
    /// Whether the current row has its self-loop, where each must have one.
    looped: bool,
}

impl<F: FnMut(&Block) -> Result<()>> Rows<F> {
    #[inline]
    fn entry(&mut self, src: u64, origin: Option<u64>) -> Result<()> {
        self.block.sources.push(src);
        if self.origins {
            self.block.origins.push(origin);
        }
        self.written += 1;
        if self.block.sources.len() == BLOCK { self.flush() } else { Ok(()) }
    }

    fn add_loop(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.looped, true) { Ok(()) } else { self.entry(self.row, None) }
    }

    #[inline]
    fn end(&mut self, loops: SelfLoops) -> Result<()> {
        if loops == SelfLoops::Add {
            self.add_loop()?;
            self.looped = false;
        }
        self.block.ends.push(self.written);
        self.row += 1;
        if self.block.ends.len() == BLOCK { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        (self.out)(&self.block)?;
        self.block.ends.clear();
        self.block.sources.clear();
        self.block.origins.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csr::Csr;
    use graphweft_base::progress::Silent;

    const KEEP: EdgeRules =
        EdgeRules { symmetrise: false, merge_parallel: false, self_loops: SelfLoops::Keep, memory: 0 };

    fn build(expected: Expected, edges: &[[u64; 2]], rules: EdgeRules) -> (Csr<u32>, Vec<Option<u64>>) {
        let (n, scratch) = (expected.num_nodes, Scratch::new(std::env::temp_dir()));
        let mut sorter = EdgeSorter::new(expected, rules, &scratch).unwrap();
        edges.chunks(7).for_each(|piece| sorter.push(piece).unwrap());
        let (mut indptr, mut indices, mut from) = (vec![0], Vec::new(), Vec::new());
        sorter
            .stream(n, &Silent, |block| {
                indptr.extend_from_slice(&block.ends);
                indices.extend(block.sources.iter().map(|&s| s as u32));
                from.extend_from_slice(&block.origins);
                Ok(())
            })
            .unwrap();
        (Csr::new(indptr, indices, n as usize).unwrap(), from)
    }

    /// Every rule gives what the transformation of the same name gives on the whole graph in memory.
    #[test]
    fn streaming_equals_transforming_in_memory() {
        let n = 3000u64;
        let mix = |i: u64| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % n;
        let mut edges: Vec<[u64; 2]> = (0..20_000).map(|i| [mix(i) % 50, mix(i * 7 + 1)]).collect();
        edges.extend((0..n).step_by(3).map(|i| [i, i]));
        edges.extend((0..n).step_by(9).map(|i| [i, i]));
        let plain = build(Expected::bare(n), &edges, KEEP).0;
        assert_eq!(plain.num_edges(), edges.len());
        for symmetrise in [false, true] {
            for merge_parallel in [false, true] {
                for self_loops in [SelfLoops::Keep, SelfLoops::Add, SelfLoops::Remove] {
                    let rules = EdgeRules { symmetrise, merge_parallel, self_loops, memory: 0 };
                    let mut expected = plain.clone();
                    if merge_parallel {
                        expected = expected.merge_parallel();
                    }
                    if symmetrise {
                        expected = expected.symmetrise();
                    }
                    expected = expected.with_self_loops(self_loops);
                    for origins in [false, true] {
                        let built = build(Expected { num_nodes: n, origins }, &edges, rules).0;
                        assert_eq!(built, expected, "{rules:?} {origins}");
                    }
                }
            }
        }
    }

    #[test]
    fn an_edges_own_features_win_over_its_reverse() {
        let edges = [[0, 1], [1, 0], [0, 1], [2, 1], [2, 2]];
        let rules = EdgeRules { symmetrise: true, ..KEEP };
        let tagged = Expected { num_nodes: 3, origins: true };
        let (g, from) = build(tagged, &edges, rules);
        assert_eq!((g.row(0), g.row(1), g.row(2)), (&[1][..], &[0, 2][..], &[1, 2][..]));
        assert_eq!(from, [Some(1), Some(0), Some(3), Some(3), Some(4)]);
        let (_, from) = build(tagged, &edges, EdgeRules { self_loops: SelfLoops::Add, ..rules });
        assert_eq!(from, [None, Some(1), Some(0), None, Some(3), Some(3), Some(4)]);
    }

    #[test]
    fn more_nodes_than_can_be_packed_are_refused() {
        let scratch = Scratch::new(std::env::temp_dir());
        assert!(EdgeSorter::new(Expected::bare(WIDE_NODES + 1), KEEP, &scratch).is_err());
    }
}
