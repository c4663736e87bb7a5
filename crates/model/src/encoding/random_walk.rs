//! How likely a random walk is back where it began, after 1, 2, … steps.
//!
//! With P = D⁻¹A, the k-th number of node i is (Pᵏ)ᵢᵢ. Walks over undirected edges can be cut in the middle: (Pᵃ⁺ᵇ)ᵢᵢ =
//! Σⱼ (Pᵃ)ᵢⱼ·(Pᵇ)ᵢⱼ·dᵢ/dⱼ, so a node's distribution after half of the steps is enough. It is kept sparse as long as it
//! is; nodes have nothing to do with each other. The cost is that of the edges within half of the steps around every
//! node: exact, and meant for small graphs.

use graphweft_graph::Csr;
use rayon::prelude::*;

/// Where a walk is after some steps.
struct Distribution {
    /// By node; zero for those not listed.
    of: Vec<f64>,
    /// Where it is not zero, ascending.
    nodes: Vec<u32>,
}

impl Distribution {
    fn new(n: usize) -> Self {
        Self { of: vec![0.0; n], nodes: Vec::new() }
    }

    fn clear(&mut self) {
        for j in self.nodes.drain(..) {
            self.of[j as usize] = 0.0;
        }
    }

    /// One step of the walk from `before`.
    fn step(&mut self, graph: &Csr<u32>, before: &Self) {
        self.clear();
        for &i in &before.nodes {
            let row = graph.row(i as usize);
            let share = before.of[i as usize] / row.len().max(1) as f64;
            for &j in row {
                // All shares are positive: zero means that nobody was here.
                if self.of[j as usize] == 0.0 {
                    self.nodes.push(j);
                }
                self.of[j as usize] += share;
            }
        }
        self.nodes.sort_unstable();
    }
}

/// The probabilities of being back after 1 to `steps` steps, for each node of an [undirected](super::undirected) graph:
/// a row each. A node without edges has zeros.
pub fn random_walk(graph: &Csr<u32>, steps: usize) -> Vec<f64> {
    let n = graph.num_dst();
    let mut rows = vec![0.0; n * steps];
    let fresh = || [Distribution::new(n), Distribution::new(n)];
    rows.par_chunks_mut(steps.max(1)).enumerate().with_min_len(16).for_each_init(fresh, |[now, next], (i, row)| {
        let degree = graph.degree(i) as f64;
        if degree == 0.0 {
            return;
        }
        now.clear();
        now.nodes.push(i as u32);
        now.of[i] = 1.0;
        let meet = |a: &Distribution, b: &Distribution| -> f64 {
            let term = |j: &u32| a.of[*j as usize] * b.of[*j as usize] / graph.degree(*j as usize) as f64;
            degree * a.nodes.iter().map(term).sum::<f64>()
        };
        for half in 0..=steps / 2 {
            // Now: after `half` steps. Twice that many, and one more, are found from here.
            if half > 0 && 2 * half <= steps {
                row[2 * half - 1] = meet(now, now);
            }
            next.step(graph, now);
            if 2 * half < steps {
                row[2 * half] = meet(now, next);
            }
            std::mem::swap(now, next);
        }
    });
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoding::tests::{graph, odd};

    #[test]
    fn equals_dense_powers() {
        for steps in [1, 2, 5, 8] {
            let (g, n) = (odd(40), 40);
            let found = random_walk(&g, steps);
            let p: Vec<f64> = (0..n * n)
                .map(|k| {
                    let (i, j) = (k / n, (k % n) as u32);
                    if g.row(i).contains(&j) { 1.0 / g.degree(i) as f64 } else { 0.0 }
                })
                .collect();
            let mut power = p.clone();
            for k in 0..steps {
                for i in 0..n {
                    assert!((found[i * steps + k] - power[i * n + i]).abs() < 1e-12, "node {i}, {} steps", k + 1);
                }
                power = (0..n * n).map(|at| (0..n).map(|m| power[at / n * n + m] * p[m * n + at % n]).sum()).collect();
            }
        }
    }

    #[test]
    fn a_pair_comes_back_every_other_step() {
        assert_eq!(random_walk(&graph(3, &[(0, 1)]), 4), [0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
        assert!(random_walk(&graph(3, &[(0, 1)]), 0).is_empty());
    }
}
