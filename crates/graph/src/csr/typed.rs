//! Edges that have types, carried along where the graph is changed.
//!
//! Two edges between the same nodes are different edges if their types differ. So nothing here merges them, and the
//! reverse of an edge has a type of its own: that of `rev(r)`, which is `r + R` where there are `R` types.

use rayon::prelude::*;

use super::{Csr, Permutation, SelfLoops};

/// A graph with the type of each edge. Rows are sorted by source, and edges between the same two nodes by type.
///
/// ```
/// use graphweft_graph::{Csr, TypedCsr};
/// // 1 → 0 of type 1 and 2 → 0 of type 0.
/// let typed = TypedCsr::new(&Csr::<u32>::from_valid(vec![0, 2, 2, 2], vec![1, 2], 3), &[1, 0]);
/// let both = typed.with_reverses(2);
/// assert_eq!((both.graph.row(1), both.types.as_slice()), (&[0][..], &[1, 0, 3, 2][..]));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct TypedCsr {
    /// The structure.
    pub graph: Csr<u32>,
    /// A type per edge, in the order of the graph's indices.
    pub types: Vec<u16>,
}

/// A source with the type of the edge from it.
type Entry = (u32, u16);

impl TypedCsr {
    /// A graph whose edges have these types.
    pub fn new(graph: &Csr<u32>, types: &[u16]) -> Self {
        assert_eq!(graph.num_edges(), types.len(), "a type for every edge");
        let num_src = graph.num_src();
        let rows = (0..graph.num_dst()).into_par_iter().map(|i| {
            let mut row: Vec<Entry> = graph.edges_of(i).map(|e| (graph.indices()[e], types[e])).collect();
            row.sort_unstable();
            row
        });
        Self::from_rows(rows.collect(), num_src)
    }

    fn from_rows(rows: Vec<Vec<Entry>>, num_src: usize) -> Self {
        let mut indptr = Vec::with_capacity(rows.len() + 1);
        indptr.push(0);
        let mut edges = 0;
        for row in &rows {
            edges += row.len() as u64;
            indptr.push(edges);
        }
        let types = rows.iter().flatten().map(|(_, t)| *t).collect();
        let indices: Vec<u32> = rows.into_iter().flatten().map(|(j, _)| j).collect();
        Self { graph: Csr::from_valid(indptr, indices, num_src), types }
    }

    /// The edges into node `i`: sources and types.
    pub fn row(&self, i: usize) -> impl Iterator<Item = (u32, u16)> + '_ {
        self.graph.edges_of(i).map(|e| (self.graph.indices()[e], self.types[e]))
    }

    fn rows(&self, change: impl Fn(usize) -> Vec<Entry> + Sync + Send) -> Vec<Vec<Entry>> {
        (0..self.graph.num_dst()).into_par_iter().map(change).collect()
    }

    /// The same with the reverse of every edge, whose type is larger by `types`, the number of types. An edge that is
    /// there twice with the same type stays so.
    pub fn with_reverses(&self, types: u16) -> Self {
        let mut rows = self.rows(|i| self.row(i).collect());
        for i in 0..self.graph.num_dst() {
            for (j, t) in self.row(i) {
                rows[j as usize].push((i as u32, t + types));
            }
        }
        rows.par_iter_mut().for_each(|row| row.sort_unstable());
        Self::from_rows(rows, self.graph.num_src())
    }

    /// The same with its self-loops kept, removed, or exactly one on every node, of type `of`.
    pub fn with_self_loops(&self, loops: SelfLoops, of: u16) -> Self {
        if loops == SelfLoops::Keep {
            return self.clone();
        }
        let rows = self.rows(|i| {
            let mut row: Vec<Entry> = self.row(i).filter(|(j, _)| *j as usize != i).collect();
            if loops == SelfLoops::Add {
                row.push((i as u32, of));
                row.sort_unstable();
            }
            row
        });
        Self::from_rows(rows, self.graph.num_src())
    }

    /// The same graph with its nodes renumbered.
    pub fn permute(&self, p: &Permutation) -> Self {
        let rows = self.rows(|new| {
            let mut row: Vec<Entry> = self.row(p.old_of(new)).map(|(j, t)| (p.new_of(j as usize) as u32, t)).collect();
            row.sort_unstable();
            row
        });
        Self::from_rows(rows, p.len())
    }

    /// The subgraph induced by `nodes`, which are ascending and different: node k is `nodes[k]`.
    pub fn induced(&self, nodes: &[u32]) -> Self {
        let rows = nodes.par_iter().map(|&i| {
            let new = |(j, t): Entry| nodes.binary_search(&j).ok().map(|k| (k as u32, t));
            self.row(i as usize).filter_map(new).collect()
        });
        Self::from_rows(rows.collect(), nodes.len())
    }

    /// How many edges with the same type lead into the same node, for each edge: c of R-GCN's mean over a relation.
    pub fn same_type_degrees(&self) -> Vec<u32> {
        let mut degrees = vec![0; self.types.len()];
        let mut counts = vec![0u32; self.types.iter().max().map_or(0, |&most| usize::from(most) + 1)];
        for i in 0..self.graph.num_dst() {
            let edges = self.graph.edges_of(i);
            self.types[edges.clone()].iter().for_each(|&t| counts[usize::from(t)] += 1);
            for e in edges.clone() {
                degrees[e] = counts[usize::from(self.types[e])];
            }
            self.types[edges].iter().for_each(|&t| counts[usize::from(t)] = 0);
        }
        degrees
    }
}

#[cfg(test)]
mod tests {
    use graphweft_base::random::Philox;

    use super::*;

    /// Edges (source, destination, type), in order.
    fn edges(g: &TypedCsr) -> Vec<(u32, u32, u16)> {
        let mut all: Vec<_> =
            (0..g.graph.num_dst()).flat_map(|i| g.row(i).map(move |(j, t)| (j, i as u32, t))).collect();
        all.sort_unstable();
        all
    }

    /// Some edges, parallel ones and self-loops among them.
    fn random(nodes: usize, count: u64, seed: u64) -> TypedCsr {
        let draw = Philox::new(seed, 1);
        let of = |k: u64, below: usize| (draw.uniform(k) * below as f64) as u32;
        let mut all: Vec<(u32, u32, u16)> =
            (0..count).map(|k| (of(3 * k, nodes), of(3 * k + 1, nodes), of(3 * k + 2, 3) as u16)).collect();
        all.sort_by_key(|(j, i, _)| (*i, *j));
        let sources: Vec<u32> = all.iter().map(|(j, _, _)| *j).collect();
        let ends: Vec<u32> = all.iter().map(|(_, i, _)| *i).collect();
        let graph = Csr::from_edges(nodes, &sources, &ends).unwrap();
        TypedCsr::new(&graph, &all.iter().map(|(_, _, t)| *t).collect::<Vec<_>>())
    }

    #[test]
    fn types_stay_with_their_edges() {
        for seed in 0..20 {
            let g = random(9, 40, seed);
            let all = edges(&g);
            assert!((0..9).all(|i| g.row(i).is_sorted()));

            let mut both: Vec<_> = all.iter().flat_map(|&(j, i, t)| [(j, i, t), (i, j, t + 3)]).collect();
            both.sort_unstable();
            assert_eq!(edges(&g.with_reverses(3)), both);

            let bare: Vec<_> = all.iter().copied().filter(|(j, i, _)| j != i).collect();
            assert_eq!(edges(&g.with_self_loops(SelfLoops::Remove, 7)), bare);
            let mut looped: Vec<_> = bare.into_iter().chain((0..9).map(|i| (i, i, 7))).collect();
            looped.sort_unstable();
            assert_eq!(edges(&g.with_self_loops(SelfLoops::Add, 7)), looped);
            assert_eq!(g.with_self_loops(SelfLoops::Keep, 7), g);

            let p = Permutation::from_old_of_new(vec![3, 1, 4, 8, 5, 0, 2, 7, 6]).unwrap();
            let renumbered = g.permute(&p);
            let mut old: Vec<_> = edges(&renumbered)
                .into_iter()
                .map(|(j, i, t)| (p.old_of(j as usize) as u32, p.old_of(i as usize) as u32, t))
                .collect();
            old.sort_unstable();
            assert_eq!(old, all);
            assert_eq!(renumbered.graph, g.graph.permute(&p), "the structure is that of a graph without types");

            let nodes = [1u32, 2, 5, 8];
            let mut inside: Vec<_> = edges(&g.induced(&nodes))
                .into_iter()
                .map(|(j, i, t)| (nodes[j as usize], nodes[i as usize], t))
                .collect();
            inside.sort_unstable();
            let kept = all.iter().copied().filter(|(j, i, _)| nodes.contains(j) && nodes.contains(i));
            assert_eq!(inside, kept.collect::<Vec<_>>());

            let degrees = g.same_type_degrees();
            for i in 0..9 {
                for e in g.graph.edges_of(i) {
                    let same = all.iter().filter(|(_, d, t)| *d as usize == i && *t == g.types[e]).count();
                    assert_eq!(degrees[e] as usize, same);
                }
            }
        }
    }
}
