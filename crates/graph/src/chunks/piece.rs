//! What is trained on at a time: a chunk, perhaps a second one, and their halo.
//!
//! Rows are in the order of new ids, halo and chunks mixed. So renumbering keeps the order of sources inside rows,
//! nothing is sorted, and the place of a node is the number of marked nodes before it: a bit per node of the graph and
//! a count per 64 bits.

use std::ops::Range;

use graphweft_base::random::Philox;

use super::Chunks;
use crate::csr::{Csr, rows};

/// Which nodes of the halo a piece has.
#[derive(Clone, Copy, Debug)]
pub enum Halo {
    /// All.
    All,
    /// This many, each as likely as any other: those whose draws, keyed by their original ids, are least. They stand
    /// for the others: see [`Piece::scales`].
    Drawn {
        /// How many.
        rows: usize,
        /// What decides.
        random: Philox,
    },
}

/// A graph of some rows with all their in-edges, and of the nodes that these come from.
#[derive(Clone, Debug)]
pub struct Piece {
    /// New ids, ascending.
    pub nodes: Vec<u32>,
    /// Original ids, in the same order.
    pub originals: Vec<u64>,
    /// The edges, between rows; rows of the halo have none.
    pub graph: Csr<u32>,
    /// In-degrees in the whole graph.
    pub degrees: Vec<u32>,
    /// The rows of the base chunk.
    pub base: Range<usize>,
    /// The rows of the other chunk; empty where there is none.
    pub other: Range<usize>,
    /// The share of the halo that was drawn.
    pub drawn: f64,
}

impl Piece {
    /// The rows `base` and `other` of a graph in chunks, which do not overlap, with their halo.
    pub fn cut(chunks: &Chunks, base: Range<usize>, other: Option<Range<usize>>, halo: &Halo) -> Self {
        let (graph, other) = (chunks.graph(), other.unwrap_or(0..0));
        debug_assert!(base.is_empty() || other.is_empty() || base.end <= other.start || other.end <= base.start);
        let is_inner = |new: usize| base.contains(&new) || other.contains(&new);
        let mut marks = Marks::of(graph, base.clone().chain(other.clone()));
        let drawn = match halo {
            Halo::All => 1.0,
            Halo::Drawn { rows, random } => {
                let found = marks.count() - base.len() - other.len();
                if *rows < found {
                    let draw = |new: usize| random.bits(chunks.original(new));
                    let mut draws: Vec<u64> = marks.ones().filter(|new| !is_inner(*new)).map(draw).collect();
                    let bound = *draws.select_nth_unstable(*rows).1;
                    marks.retain(|new| is_inner(new) || draw(new) < bound);
                }
                (*rows as f64 / found.max(1) as f64).min(1.0)
            }
        };
        let places = Places::of(marks);
        let nodes: Vec<u32> = places.marks.ones().map(|new| new as u32).collect();
        let local = |new: &u32| places.of_node(*new as usize).map(|row| row as u32);
        let kept = |row: usize| {
            let new = nodes[row] as usize;
            let edges = if is_inner(new) { graph.row(new) } else { &[] };
            edges.iter().filter_map(local)
        };
        let edges = rows::collect(nodes.len(), nodes.len(), kept);
        let place = |rows: &Range<usize>| {
            let start = nodes.partition_point(|new| (*new as usize) < rows.start);
            start..start + rows.len()
        };
        Self {
            originals: nodes.iter().map(|new| chunks.original(*new as usize)).collect(),
            degrees: nodes.iter().map(|new| graph.degree(*new as usize).min(u32::MAX as usize) as u32).collect(),
            graph: edges,
            base: place(&base),
            other: place(&other),
            nodes,
            drawn,
        }
    }

    /// Whether a piece of these rows and their whole halo has at most `limit` rows. No more is looked at than it takes
    /// to know.
    pub fn reaches_at_most(chunks: &Chunks, rows: &Range<usize>, limit: usize) -> bool {
        if rows.len() > limit {
            return false;
        }
        let (graph, mut marks) = (chunks.graph(), Marks::none(chunks.num_nodes()));
        let mut found = 0;
        for row in rows.clone() {
            let sources = graph.row(row).iter().map(|j| *j as usize);
            found += std::iter::once(row).chain(sources).filter(|k| marks.set(*k)).count();
            if found > limit {
                return false;
            }
        }
        true
    }

    /// Whether a row has all its edges, or all that come from nodes which are here: whether it is of one of the chunks.
    pub fn is_inner(&self, row: usize) -> bool {
        self.base.contains(&row) || self.other.contains(&row)
    }

    /// For each row, how many nodes it stands for as a source: 1, or more in a halo that was drawn; nothing where all
    /// are 1. Sums over in-edges with these factors have the sums over all in-edges as their mean over draws.
    pub fn scales(&self) -> Option<Vec<f32>> {
        let scale = (1.0 / self.drawn) as f32;
        (self.drawn < 1.0)
            .then(|| (0..self.nodes.len()).map(|row| if self.is_inner(row) { 1.0 } else { scale }).collect())
    }
}

/// A bit per node.
struct Marks(Vec<u64>);

impl Marks {
    fn none(nodes: usize) -> Self {
        Self(vec![0; nodes.div_ceil(64)])
    }

    /// Rows and the sources of their edges.
    fn of(graph: &Csr<u32>, rows: impl Iterator<Item = usize>) -> Self {
        let mut marks = Self::none(graph.num_dst());
        for row in rows {
            marks.set(row);
            for j in graph.row(row) {
                marks.set(*j as usize);
            }
        }
        marks
    }

    /// Whether it was not set before.
    fn set(&mut self, k: usize) -> bool {
        let (word, bit) = (&mut self.0[k / 64], 1 << (k % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Which are set, ascending.
    fn ones(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().flat_map(|(at, word)| {
            let mut rest = *word;
            std::iter::from_fn(move || {
                let bit = rest.trailing_zeros() as usize;
                rest &= rest.checked_sub(1)?;
                Some(at * 64 + bit)
            })
        })
    }

    fn retain(&mut self, keep: impl Fn(usize) -> bool) {
        for (at, word) in self.0.iter_mut().enumerate() {
            let mut rest = *word;
            while rest != 0 {
                let bit = rest.trailing_zeros() as usize;
                rest &= rest - 1;
                if !keep(at * 64 + bit) {
                    *word &= !(1 << bit);
                }
            }
        }
    }
}

/// Marked nodes and how many are before each.
struct Places {
    marks: Marks,
    before: Vec<u32>,
}

impl Places {
    fn of(marks: Marks) -> Self {
        let mut sum = 0;
        let before = marks.0.iter().map(|word| {
            let before = sum;
            sum += word.count_ones();
            before
        });
        Self { before: before.collect(), marks }
    }

    fn of_node(&self, k: usize) -> Option<usize> {
        let (word, bit) = (self.marks.0[k / 64], 1u64 << (k % 64));
        (word & bit != 0).then(|| self.before[k / 64] as usize + (word & (bit - 1)).count_ones() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::Spec;
    use crate::partition::{Method, Options, partition};
    use graphweft_base::progress::Silent;

    fn graph() -> Csr<u32> {
        "rmat:9:8+loops".parse::<Spec>().unwrap().graph(3, &Silent).unwrap()
    }

    fn chunked(count: usize) -> Chunks {
        let graph = graph();
        Chunks::divided(&graph, &partition(&graph, &Options::new(Method::Random, count), &Silent).unwrap())
    }

    #[test]
    fn inner_rows_have_all_their_edges_and_the_halo_has_none() {
        let (graph, chunks) = (graph(), chunked(5));
        for (base, other) in [(0, Some(3)), (4, Some(1)), (2, None)] {
            let piece = Piece::cut(&chunks, chunks.rows(base), other.map(|c| chunks.rows(c)), &Halo::All);
            assert_eq!(piece.base.len(), chunks.rows(base).len());
            assert_eq!(piece.other.len(), other.map_or(0, |c| chunks.rows(c).len()));
            assert!(piece.nodes.windows(2).all(|w| w[0] < w[1]) && piece.scales().is_none());
            let mut used = vec![false; piece.nodes.len()];
            for row in 0..piece.nodes.len() {
                let original = piece.originals[row] as usize;
                assert_eq!(chunks.original(piece.nodes[row] as usize), piece.originals[row]);
                assert_eq!(piece.degrees[row] as usize, graph.degree(original));
                let mut sources: Vec<u32> =
                    piece.graph.row(row).iter().map(|j| piece.originals[*j as usize] as u32).collect();
                sources.sort_unstable();
                piece.graph.row(row).iter().for_each(|j| used[*j as usize] = true);
                let expected = if piece.is_inner(row) { graph.row(original) } else { &[] };
                assert_eq!(sources, expected);
            }
            assert!((0..used.len()).all(|row| used[row] || piece.is_inner(row)), "nobody is there for nothing");
        }
    }

    #[test]
    fn one_chunk_is_the_graph() {
        let (graph, chunks) = (graph(), Chunks::contiguous(graph(), 1));
        let piece = Piece::cut(&chunks, chunks.rows(0), None, &Halo::All);
        assert_eq!((&piece.graph, piece.base.clone()), (&graph, 0..graph.num_dst()));
        assert!(piece.originals.iter().enumerate().all(|(row, id)| row as u64 == *id));
    }

    #[test]
    fn a_drawn_halo_stands_for_all_of_it() {
        let chunks = chunked(4);
        let whole = Piece::cut(&chunks, chunks.rows(0), None, &Halo::All);
        let halo = whole.nodes.len() - whole.base.len();
        let rows = halo / 3;
        let draw = |seed| {
            let halo = Halo::Drawn { rows, random: Philox::new(seed, 1) };
            Piece::cut(&chunks, chunks.rows(0), None, &halo)
        };
        let mut sum = 0.0;
        let seeds = 40;
        for seed in 0..seeds {
            let piece = draw(seed);
            let scales = piece.scales().unwrap();
            assert_eq!(piece.nodes.len() - piece.base.len(), rows);
            sum += piece.graph.indices().iter().map(|j| f64::from(scales[*j as usize])).sum::<f64>();
        }
        let mean = sum / seeds as f64 / whole.graph.num_edges() as f64;
        assert!((mean - 1.0).abs() < 0.03, "{mean}");
        assert_eq!(draw(7).nodes, draw(7).nodes);
        let enough = Halo::Drawn { rows: halo, random: Philox::new(0, 1) };
        assert_eq!(Piece::cut(&chunks, chunks.rows(0), None, &enough).nodes, whole.nodes);
        let nothing = Halo::Drawn { rows: 0, random: Philox::new(0, 1) };
        assert_eq!(Piece::cut(&chunks, chunks.rows(0), None, &nothing).nodes.len(), chunks.rows(0).len());
        assert!(Piece::cut(&chunks, 0..0, None, &nothing).nodes.is_empty());
    }
}
