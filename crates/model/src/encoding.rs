//! Positional encodings: where a node is, as a row of numbers that depend on the graph alone.
//!
//! Edges count in both directions, once, and without self-loops, whatever the data has: that is what [`undirected`]
//! makes.

mod degree;
mod eigen;
mod laplacian;
mod random_walk;

pub use degree::degree;
pub use laplacian::laplacian;
pub use random_walk::random_walk;

use graphweft_graph::{Csr, SelfLoops};
use graphweft_tensor::{Result, room_for};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::keys::comment_on_field;

/// Which encodings a run uses; their columns stand side by side in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Encodings {
    /// Eigenvectors of the Laplacian.
    pub laplacian: usize,
    /// Steps of a random walk.
    pub random_walk: usize,
    /// Whether the degree is one.
    pub degree: bool,
}

impl Encodings {
    /// Columns.
    pub fn width(&self) -> usize {
        self.laplacian + self.random_walk + usize::from(self.degree)
    }

    /// The encodings of all nodes of `csr`, a row each. Where it is many graphs, which begin and end at `graphs`, they
    /// are those of a node in its graph, as if there were no others.
    pub fn compute(&self, csr: &Csr<u32>, graphs: Option<&[u64]>) -> Result<Vec<f32>> {
        let width = self.width();
        if width == 0 {
            return Ok(Vec::new());
        }
        // The rows, and the vectors that the largest part of them is searched with.
        let columns = (width as u128 * 3).max(self.laplacian as u128 * 6);
        room_for("positional encodings", 8 * columns * csr.num_dst() as u128)?;
        let graph = undirected(csr);
        let mut rows = vec![0f32; graph.num_dst() * width];
        let mut first = 0;
        let mut place = |columns: usize, values: &[f64]| {
            for (row, values) in rows.chunks_exact_mut(width).zip(values.chunks_exact(columns.max(1))) {
                for (to, x) in row[first..].iter_mut().zip(values) {
                    *to = *x as f32;
                }
            }
            first += columns;
        };
        if self.laplacian > 0 {
            let vectors = match graphs {
                None => laplacian(&graph, self.laplacian)?,
                Some(ends) => each(&graph, ends, |graph| laplacian(graph, self.laplacian))?,
            };
            place(self.laplacian, &vectors);
        }
        if self.random_walk > 0 {
            place(self.random_walk, &random_walk(&graph, self.random_walk));
        }
        if self.degree {
            place(1, &degree(&graph));
        }
        Ok(rows)
    }
}

/// The rows that `of` makes of each graph by itself, one graph after the other.
fn each(csr: &Csr<u32>, ends: &[u64], of: impl Fn(&Csr<u32>) -> Result<Vec<f64>> + Sync) -> Result<Vec<f64>> {
    let one = |ends: &[u64]| {
        let (first, end) = (ends[0] as usize, ends[1] as usize);
        let (mut indptr, mut indices) = (Vec::with_capacity(end - first + 1), Vec::new());
        indptr.push(0);
        for node in first..end {
            // No edge leads out of a graph.
            indices.extend(csr.row(node).iter().map(|source| source.wrapping_sub(first as u32)));
            indptr.push(indices.len() as u64);
        }
        of(&Csr::from_valid(indptr, indices, end - first))
    };
    let rows: Vec<Vec<f64>> = ends.par_windows(2).map(one).collect::<Result<_>>()?;
    Ok(rows.concat())
}

/// What a key of [`Encodings`] means: the comment on its field.
pub fn meaning_of(key: &str) -> Option<String> {
    comment_on_field(include_str!("encoding.rs"), key)
}

/// Edges in both directions, without duplicates and self-loops.
pub fn undirected(csr: &Csr<u32>) -> Csr<u32> {
    csr.symmetrise().merge_parallel().with_self_loops(SelfLoops::Remove)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A graph from pairs of nodes.
    pub(super) fn graph(n: usize, edges: &[(u32, u32)]) -> Csr<u32> {
        let mut rows = vec![Vec::new(); n];
        for (a, b) in edges {
            rows[*a as usize].push(*b);
        }
        let mut indptr = vec![0u64];
        for row in &mut rows {
            row.sort_unstable();
            indptr.push(indptr[indptr.len() - 1] + row.len() as u64);
        }
        undirected(&Csr::new(indptr, rows.concat(), n).unwrap())
    }

    /// Two components, a hub, a tail and two isolated nodes.
    pub(super) fn odd(n: usize) -> Csr<u32> {
        let mut edges: Vec<(u32, u32)> =
            (0..n as u32 - 10).map(|k| (k, (k * k + 3 * k + 1) % (n as u32 - 10))).collect();
        edges.extend((1..12).map(|k| (0, k)));
        edges.extend((n as u32 - 10..n as u32 - 3).map(|k| (k, k + 1)));
        graph(n, &edges)
    }

    #[test]
    fn columns_stand_side_by_side() {
        let csr = odd(40);
        let all = Encodings { laplacian: 3, random_walk: 2, degree: true };
        let rows = all.compute(&csr, None).unwrap();
        assert_eq!((all.width(), rows.len()), (6, 40 * 6));
        let walk = random_walk(&csr, 2);
        assert!((0..40).all(|i| rows[i * 6 + 3] == walk[i * 2] as f32 && rows[i * 6 + 4] == walk[i * 2 + 1] as f32));
        assert!((0..40).all(|i| rows[i * 6 + 5] == degree(&csr)[i] as f32));
        assert!(Encodings::default().compute(&csr, None).unwrap().is_empty());
    }

    #[test]
    fn a_node_of_many_graphs_is_where_it_is_in_its_own() {
        let graphs = [odd(40), odd(23), graph(1, &[]), graph(3, &[(0, 1), (1, 2)]), odd(40)];
        let (mut ends, mut edges) = (vec![0u64], Vec::new());
        for one in &graphs {
            let first = ends[ends.len() - 1] as u32;
            let rows = (0..one.num_dst()).flat_map(|i| one.row(i).iter().map(move |j| (i as u32, *j)));
            edges.extend(rows.map(|(i, j)| (first + i, first + j)));
            ends.push(u64::from(first) + one.num_dst() as u64);
        }
        let together = graph(ends[graphs.len()] as usize, &edges);
        let all = Encodings { laplacian: 5, random_walk: 4, degree: true };
        let found = all.compute(&together, Some(&ends)).unwrap();
        let alone: Vec<f32> = graphs.iter().flat_map(|one| all.compute(one, None).unwrap()).collect();
        assert_eq!(found, alone);
        assert_ne!(found, all.compute(&together, None).unwrap(), "not those of one graph");
    }

    #[test]
    fn the_same_bits_for_any_number_of_threads() {
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| Encodings { laplacian: 4, random_walk: 5, degree: true }.compute(&odd(3000), None).unwrap())
        };
        let one = run(1);
        assert!(one == run(2) && one == run(3));
    }
}
