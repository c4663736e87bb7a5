//! Weakly connected components, by union-find on all threads.
//!
//! Each node points to a node of its component with a smaller id, or to itself. An edge that joins two components makes
//! the larger root point to the smaller, by compare-and-swap, so no lock is needed. Whatever the order, each component
//! ends up under its smallest id: the result does not depend on the threads.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rayon::prelude::*;

use crate::csr::{Csr, NodeId, rows};

/// The weakly connected components of a graph: directions do not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Components {
    /// How many there are.
    pub count: u64,
    /// Nodes of the largest.
    pub largest: u64,
    /// Components of one node: nodes with no edge to or from another.
    pub isolated: u64,
}

/// Finds the weakly connected components.
pub fn components<I: NodeId>(graph: &Csr<I>) -> Components {
    let forest = Forest::new(graph.num_dst().max(graph.num_src()));
    graph.balanced_rows(rows::pieces()).into_par_iter().for_each(|range| {
        for i in range {
            graph.row(i).iter().for_each(|j| forest.join(i, j.index()));
        }
    });
    let sizes = forest.sizes();
    Components {
        count: sizes.par_iter().filter(|&&size| size > 0).count() as u64,
        largest: sizes.par_iter().copied().max().unwrap_or(0),
        isolated: sizes.par_iter().filter(|&&size| size == 1).count() as u64,
    }
}

struct Forest(Vec<AtomicUsize>);

impl Forest {
    fn new(n: usize) -> Self {
        Self((0..n).into_par_iter().map(AtomicUsize::new).collect())
    }

    /// The root above `i`; shortens the way for those who come after.
    fn root(&self, mut i: usize) -> usize {
        loop {
            let parent = self.0[i].load(Relaxed);
            let above = self.0[parent].load(Relaxed);
            if parent == above {
                return parent;
            }
            // A late store may undo a shorter way that another thread found, but never leads out of the component:
            // `above` stays an ancestor of `i` for ever, and a node that is no root never becomes one.
            self.0[i].store(above, Relaxed);
            i = above;
        }
    }

    fn join(&self, mut a: usize, mut b: usize) {
        loop {
            (a, b) = (self.root(a), self.root(b));
            if a == b {
                return;
            }
            let (low, high) = (a.min(b), a.max(b));
            // Fails if another thread gave `high` a parent meanwhile; then look again.
            if self.0[high].compare_exchange(high, low, Relaxed, Relaxed).is_ok() {
                return;
            }
        }
    }

    /// The size of the component under each root; 0 at all other nodes.
    fn sizes(&self) -> Vec<u64> {
        let mut sizes = vec![0u64; self.0.len()];
        for i in 0..self.0.len() {
            sizes[self.root(i)] += 1;
        }
        sizes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphweft_base::progress::Silent;

    #[test]
    fn directions_and_loops_do_not_matter() {
        // 0 → 1, 2 → 1; 3 alone with a loop; 4 alone; 6 → 5.
        let g = Csr::<u32>::new(vec![0, 0, 2, 2, 3, 3, 4, 4], vec![0, 2, 3, 6], 7).unwrap();
        assert_eq!(components(&g), Components { count: 4, largest: 3, isolated: 2 });
        assert_eq!(components(&g.transpose()), components(&g));
    }

    #[test]
    fn a_long_path_and_a_sparse_random_graph_agree_with_a_search() {
        for text in ["grid:1:50000", "sbm:20000:4:1", "rmat:12:1"] {
            let spec: crate::generate::Spec = text.parse().unwrap();
            let g = spec.graph(1, &Silent).unwrap();
            let (mut seen, mut sizes) = (vec![false; g.num_dst()], Vec::new());
            for start in 0..g.num_dst() {
                if std::mem::replace(&mut seen[start], true) {
                    continue;
                }
                let (mut open, mut size) = (vec![start], 0);
                while let Some(i) = open.pop() {
                    size += 1;
                    open.extend(
                        g.row(i).iter().map(|&j| j as usize).filter(|&j| !std::mem::replace(&mut seen[j], true)),
                    );
                }
                sizes.push(size);
            }
            let expected = Components {
                count: sizes.len() as u64,
                largest: *sizes.iter().max().unwrap(),
                isolated: sizes.iter().filter(|&&s| s == 1).count() as u64,
            };
            for threads in [1, 3] {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                assert_eq!(pool.install(|| components(&g)), expected, "{text}");
            }
        }
    }
}
