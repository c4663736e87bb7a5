//! Random small graphs, and pools to run the same thing with different numbers of threads.

use graphweft_graph::{Csr, NodeId};
use proptest::prelude::*;

/// Directed edges (source, destination) between `n` nodes: with self-loops, parallel edges and isolated nodes.
#[derive(Clone, Debug)]
pub struct Edges {
    pub n: usize,
    pub list: Vec<(usize, usize)>,
}

impl Edges {
    pub fn csr<I: NodeId>(&self) -> Csr<I> {
        let mut rows = vec![Vec::new(); self.n];
        for &(j, i) in &self.list {
            rows[i].push(I::new(j));
        }
        let mut indptr = vec![0u64];
        for row in &mut rows {
            row.sort_unstable();
            indptr.push(indptr[indptr.len() - 1] + row.len() as u64);
        }
        Csr::new(indptr, rows.concat(), self.n).unwrap()
    }
}

/// The edges of a CSR, by destination.
#[allow(dead_code, reason = "each test binary uses its share of this module")]
pub fn edges_of<I: NodeId>(g: &Csr<I>) -> Vec<(usize, usize)> {
    (0..g.num_dst()).flat_map(|i| g.row(i).iter().map(move |j| (j.index(), i))).collect()
}

/// Graphs of up to `most` nodes. Ids are drawn from the lower half more often, so that hubs and parallel edges occur.
pub fn edges(most: usize) -> impl Strategy<Value = Edges> {
    (1..=most, any::<prop::sample::Index>()).prop_flat_map(|(n, half)| {
        let few = half.index(n) + 1;
        let id = prop_oneof![0..n, 0..few];
        let list = prop::collection::vec((id.clone(), id), 0..=4 * n);
        list.prop_map(move |list| Edges { n, list })
    })
}

/// What `f` gives in pools of one, two and three threads; all must be equal.
pub fn on_any_threads<T: PartialEq + std::fmt::Debug + Send>(f: impl Fn() -> T + Sync) -> T {
    let run = |threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(&f);
    let one = run(1);
    for threads in [2, 3] {
        assert_eq!(run(threads), one, "{threads} threads");
    }
    one
}
