//! Small graphs with everything that goes wrong, and ways to divide them.

use graphweft_graph::partition::Partition;
use graphweft_graph::{Csr, Permutation};

pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) graph: Csr<u32>,
    /// Parts for a number of ranks.
    pub(crate) partition: fn(&Csr<u32>, usize) -> Partition,
}

/// All of them.
pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case { name: "mixed", graph: mixed(), partition: shuffled },
        Case { name: "more parts than ranks", graph: mixed(), partition: many_parts },
        Case { name: "rank without edges", graph: half(), partition: in_order },
        Case { name: "fewer nodes than ranks", graph: tiny(), partition: shuffled },
        Case { name: "no edges", graph: from_rows(vec![vec![]; 5]), partition: in_order },
    ]
}

/// The first of them, for those who have much to do with each.
pub(crate) fn mixed_case() -> Case {
    Case { name: "mixed", graph: mixed(), partition: shuffled }
}

fn from_rows(rows: Vec<Vec<u32>>) -> Csr<u32> {
    let n = rows.len();
    Csr::from_rows(rows, n).unwrap()
}

/// 23 nodes: a hub that sees all and is seen by all, parallel edges, self-loops, nodes without in-edges, and two that
/// are nobody's neighbours.
fn mixed() -> Csr<u32> {
    let row = |i: u32| -> Vec<u32> {
        match i {
            4 => (0..21).collect(),
            21 | 22 => Vec::new(),
            i if i % 7 == 5 => Vec::new(),
            i if i % 3 == 0 => vec![4, i, i * 5 % 21, i * 5 % 21, (i + 1) % 21],
            i => (0..=i % 4).map(|k| (i * 3 + k * 8) % 21).chain([4]).collect(),
        }
    };
    from_rows((0..23).map(row).collect())
}

/// 12 nodes, of which the second half has no in-edges: the last ranks have none.
fn half() -> Csr<u32> {
    from_rows((0..12).map(|i| if i < 6 { vec![(i * 5 + 1) % 12, (i * 7 + 2) % 12, 6 + i] } else { vec![] }).collect())
}

fn tiny() -> Csr<u32> {
    from_rows(vec![vec![1, 2, 2], vec![0], vec![2]])
}

fn permutation(n: usize) -> Permutation {
    // A step that has no factor in common with n.
    let step = [7, 5, 11, 13].into_iter().find(|s| !n.is_multiple_of(*s)).unwrap();
    Permutation::from_old_of_new((0..n).map(|k| ((k * step + 3) % n) as u64).collect()).unwrap()
}

fn even(n: usize, parts: usize) -> Vec<u64> {
    (0..=parts).map(|p| (p * n / parts) as u64).collect()
}

fn shuffled(graph: &Csr<u32>, ranks: usize) -> Partition {
    Partition::new(permutation(graph.num_dst()), even(graph.num_dst(), ranks)).unwrap()
}

fn many_parts(graph: &Csr<u32>, ranks: usize) -> Partition {
    // Unequal ones, of which the second is empty.
    let n = graph.num_dst() as u64;
    let ranges = (0..=2 * ranks as u64 + 1).map(|p| if p <= 1 { 0 } else { p * p * n / (2 * ranks as u64 + 1).pow(2) });
    Partition::new(permutation(graph.num_dst()), ranges.collect()).unwrap()
}

fn in_order(graph: &Csr<u32>, ranks: usize) -> Partition {
    let same = Permutation::from_old_of_new((0..graph.num_dst() as u64).collect()).unwrap();
    Partition::new(same, even(graph.num_dst(), ranks)).unwrap()
}
