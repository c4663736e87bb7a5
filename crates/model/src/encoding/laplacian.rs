//! Eigenvectors of the normalised Laplacian I − D^(−1/2)·A·D^(−1/2), those of its smallest eigenvalues.
//!
//! They are the largest of M = D^(−1/2)·A·D^(−1/2), found by a block Lanczos method with full re-orthogonalisation and
//! thick restarts: a basis grows by M times its own vectors; when it is full, the small matrix of its products with M
//! is diagonalised and the best vectors go on. Starting from several vectors finds eigenvalues that occur several
//! times.
//!
//! Every connected component has one eigenvector known beforehand, D^(1/2)·1 on that component, with eigenvalue 0:
//! these say only which component a node is in, are left out, and everything is kept orthogonal to them.
//!
//! Signs are arbitrary, so they are fixed: the entry of largest magnitude is positive, the first of these if there are
//! several. Starting vectors are counter-based random numbers, sums are over fixed pieces in order: the same bits every
//! time.

use graphweft_base::random::Philox;
use graphweft_graph::Csr;
use graphweft_tensor::{Error, Result};
use rayon::prelude::*;

use super::eigen;

/// Vectors to start from: how often an eigenvalue may occur and still be found as often.
const BLOCK: usize = 4;
/// Length of M·v − λ·v at which v counts as found.
const TOLERANCE: f64 = 1e-8;
/// Restarts before giving up.
const RESTARTS: usize = 300;
/// Elements per partial sum.
const PIECE: usize = 4096;

/// The eigenvectors of the `count` smallest eigenvalues that are not trivial, as columns of a matrix with a row per
/// node of an [undirected](super::undirected) graph. Where there are not that many, columns of zeros fill up.
///
/// # Errors
/// If they are not found within some hundred restarts.
pub fn laplacian(graph: &Csr<u32>, count: usize) -> Result<Vec<f64>> {
    let n = graph.num_dst();
    let operator = Operator::new(graph);
    let wanted = count.min(n - operator.components.len().min(n));
    let vectors = largest(&operator, n, wanted)?;
    let mut rows = vec![0.0; n * count];
    for (k, v) in vectors.iter().enumerate() {
        let most = v.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
        // Equal but for rounding counts as equal.
        let sign = v.iter().find(|x| x.abs() >= most * (1.0 - 1e-6)).map_or(1.0, |x| x.signum());
        for (row, x) in rows.chunks_exact_mut(count).zip(v) {
            row[k] = sign * x;
        }
    }
    Ok(rows)
}

/// M, and the trivial eigenvectors.
struct Operator<'a> {
    graph: &'a Csr<u32>,
    /// 1/√degree, 0 without edges.
    scale: Vec<f64>,
    /// √degree, divided by its length over the component: all trivial eigenvectors at once.
    trivial: Vec<f64>,
    /// The nodes of every component that has edges.
    components: Vec<Vec<u32>>,
}

impl<'a> Operator<'a> {
    fn new(graph: &'a Csr<u32>) -> Self {
        let n = graph.num_dst();
        let degree = |i: usize| graph.degree(i) as f64;
        let scale = (0..n).map(|i| if degree(i) > 0.0 { degree(i).sqrt().recip() } else { 0.0 }).collect();
        let (mut seen, mut components, mut trivial) = (vec![false; n], Vec::new(), vec![0.0; n]);
        for first in 0..n {
            if seen[first] || graph.degree(first) == 0 {
                continue;
            }
            seen[first] = true;
            let mut nodes = vec![first as u32];
            let mut at = 0;
            while let Some(&i) = nodes.get(at) {
                at += 1;
                for &j in graph.row(i as usize) {
                    if !std::mem::replace(&mut seen[j as usize], true) {
                        nodes.push(j);
                    }
                }
            }
            nodes.sort_unstable();
            let length = nodes.iter().map(|i| degree(*i as usize)).sum::<f64>().sqrt();
            nodes.iter().for_each(|i| trivial[*i as usize] = degree(*i as usize).sqrt() / length);
            components.push(nodes);
        }
        Self { graph, scale, trivial, components }
    }

    fn apply(&self, v: &[f64]) -> Vec<f64> {
        let row = |i: usize| {
            let sum: f64 = self.graph.row(i).iter().map(|j| self.scale[*j as usize] * v[*j as usize]).sum();
            self.scale[i] * sum
        };
        (0..v.len()).into_par_iter().with_min_len(256).map(row).collect()
    }

    /// Makes `v` orthogonal to the trivial eigenvectors.
    fn project(&self, v: &mut [f64]) {
        for nodes in &self.components {
            let dot: f64 = nodes.iter().map(|i| self.trivial[*i as usize] * v[*i as usize]).sum();
            nodes.iter().for_each(|i| v[*i as usize] -= dot * self.trivial[*i as usize]);
        }
    }
}

fn dot(x: &[f64], y: &[f64]) -> f64 {
    let piece = |(x, y): (&[f64], &[f64])| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
    let pieces: Vec<f64> = x.par_chunks(PIECE).zip(y.par_chunks(PIECE)).map(piece).collect();
    pieces.iter().sum()
}

/// `y −= a·x`.
fn subtract(y: &mut [f64], a: f64, x: &[f64]) {
    y.par_chunks_mut(PIECE).zip(x.par_chunks(PIECE)).for_each(|(y, x)| {
        for (y, x) in y.iter_mut().zip(x) {
            *y -= a * x;
        }
    });
}

/// An orthonormal basis. M has been applied to the first `done` vectors; `products` are v_i·M·v_j for those j and all
/// i.
struct Basis<'a> {
    operator: &'a Operator<'a>,
    vectors: Vec<Vec<f64>>,
    products: Vec<Vec<f64>>,
    done: usize,
    drawn: u64,
}

impl Basis<'_> {
    /// Adds what is new in `w`, and returns its coefficients for all vectors, the new one included. Nothing is added
    /// where nothing is new.
    fn add(&mut self, mut w: Vec<f64>) -> Vec<f64> {
        let before = dot(&w, &w).sqrt();
        let mut coefficients = vec![0.0; self.vectors.len()];
        // Twice is enough.
        for _ in 0..2 {
            self.operator.project(&mut w);
            for (c, v) in coefficients.iter_mut().zip(&self.vectors) {
                let part = dot(v, &w);
                subtract(&mut w, part, v);
                *c += part;
            }
        }
        let length = dot(&w, &w).sqrt();
        if length > 1e-10 * before.max(1e-300) && length > 1e-12 {
            w.par_iter_mut().for_each(|x| *x /= length);
            self.vectors.push(w);
            coefficients.push(length);
        }
        coefficients
    }

    /// Adds a random vector.
    fn draw(&mut self, n: usize) {
        let random = Philox::new(0x1a91, self.drawn);
        self.drawn += 1;
        self.add((0..n as u64).map(|i| random.uniform(i) - 0.5).collect());
    }

    /// Applies M to the next vector.
    fn extend(&mut self) {
        let w = self.operator.apply(&self.vectors[self.done]);
        let column = self.add(w);
        self.products.push(column);
        self.done += 1;
    }

    /// v_i·M·v_j; M is symmetric, so that one of the two halves will do.
    fn product(&self, i: usize, j: usize) -> f64 {
        let of = |i: usize, j: usize| self.products.get(j).and_then(|column| column.get(i)).copied();
        of(i.max(j), i.min(j)).or_else(|| of(i.min(j), i.max(j))).unwrap_or(0.0)
    }

    /// Σ_j s_jk·v_j for the vectors that M has been applied to.
    fn combined(&self, vectors: &[f64], k: usize) -> Vec<f64> {
        let mut sum = vec![0.0; self.vectors[0].len()];
        for (j, v) in self.vectors[..self.done].iter().enumerate() {
            subtract(&mut sum, -vectors[j * self.done + k], v);
        }
        sum
    }
}

/// The eigenvectors of the `wanted` largest eigenvalues, apart from the trivial ones.
fn largest(operator: &Operator<'_>, n: usize, wanted: usize) -> Result<Vec<Vec<f64>>> {
    if wanted == 0 {
        return Ok(Vec::new());
    }
    let kept = wanted + wanted / 2 + 2 * BLOCK;
    let most = (2 * kept + 40).min(n);
    let mut basis = Basis { operator, vectors: Vec::new(), products: Vec::new(), done: 0, drawn: 0 };
    for _ in 0..BLOCK.min(n) {
        basis.draw(n);
    }
    for _ in 0..RESTARTS {
        while basis.done < most {
            if basis.done == basis.vectors.len() {
                // The basis is closed under M: go on elsewhere, if there is anything else.
                basis.draw(n);
                if basis.done == basis.vectors.len() {
                    break;
                }
            }
            basis.extend();
        }
        let m = basis.done;
        let small: Vec<f64> = (0..m * m).map(|k| basis.product(k / m, k % m)).collect();
        let (_, s) = eigen::symmetric(small, m);
        // M·v = Σ over the basis; what lies in vectors that M was not applied to yet is what is missing.
        let open = m..basis.vectors.len();
        let missing = |row: usize, k: usize| -> f64 { (0..m).map(|j| basis.product(row, j) * s[j * m + k]).sum() };
        let residual = |k: usize| open.clone().map(|row| missing(row, k).powi(2)).sum::<f64>().sqrt();
        let found = (0..wanted.min(m)).all(|k| residual(k) <= TOLERANCE);
        if found {
            return Ok((0..wanted.min(m)).map(|k| basis.combined(&s, k)).collect());
        }
        let keep = kept.min(m);
        let products: Vec<Vec<f64>> = (0..keep)
            .map(|k| {
                let own = (0..keep).map(|i| if i == k { ritz(&basis, &s, m, k) } else { 0.0 });
                own.chain(open.clone().map(|row| missing(row, k))).collect()
            })
            .collect();
        let mut vectors: Vec<Vec<f64>> = (0..keep).map(|k| basis.combined(&s, k)).collect();
        vectors.extend(basis.vectors.drain(m..));
        basis = Basis { vectors, products, done: keep, ..basis };
    }
    let problem = format!("{wanted} eigenvectors were not found in {RESTARTS} restarts: take fewer");
    Err(Error::Argument { op: "laplacian encoding", problem })
}

/// The k-th eigenvalue in the basis.
fn ritz(basis: &Basis<'_>, s: &[f64], m: usize, k: usize) -> f64 {
    let row = |i: usize| -> f64 { (0..m).map(|j| basis.product(i, j) * s[j * m + k]).sum() };
    (0..m).map(|i| s[i * m + k] * row(i)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoding::tests::{graph, odd};

    /// All eigenvalues of the Laplacian by a dense method, ascending, with the vectors as columns.
    fn dense(g: &Csr<u32>) -> (Vec<f64>, Vec<f64>) {
        let n = g.num_dst();
        let m: Vec<f64> = (0..n * n)
            .map(|k| {
                let (i, j) = (k / n, k % n);
                let edge = g.row(i).contains(&(j as u32));
                if edge { 1.0 / ((g.degree(i) * g.degree(j)) as f64).sqrt() } else { 0.0 }
            })
            .collect();
        let (values, vectors) = eigen::symmetric(m, n);
        (values.iter().map(|x| 1.0 - x).collect(), vectors)
    }

    fn quotient(g: &Csr<u32>, v: &[f64]) -> f64 {
        let m = Operator::new(g).apply(v);
        1.0 - dot(v, &m) / dot(v, v)
    }

    fn check(g: &Csr<u32>, count: usize, trivial: usize) {
        let n = g.num_dst();
        let rows = laplacian(g, count).unwrap();
        let (values, vectors) = dense(g);
        assert!(values[..trivial].iter().all(|x| x.abs() < 1e-10) && values[trivial] > 1e-8, "{:?}", &values[..8]);
        for k in 0..count {
            let v: Vec<f64> = rows.iter().skip(k).step_by(count).copied().collect();
            let expected = values[trivial + k];
            assert!((dot(&v, &v) - 1.0).abs() < 1e-9);
            assert!((quotient(g, &v) - expected).abs() < 1e-9, "value {k}: {} {expected}", quotient(g, &v));
            let gap = (expected - values[trivial + k - 1]).min(values[trivial + k + 1] - expected);
            if gap > 1e-4 {
                let same: f64 = (0..n).map(|i| v[i] * vectors[i * n + trivial + k]).sum();
                assert!((same.abs() - 1.0).abs() < 1e-7, "vector {k}: {same}");
            }
            let most = v.iter().copied().fold(0.0, |m: f64, x| if x.abs() > m.abs() { x } else { m });
            assert!(most > 0.0, "the largest entry is positive");
        }
    }

    #[test]
    fn equals_a_dense_decomposition() {
        check(&odd(60), 6, odd_components(60));
        check(&odd(150), 10, odd_components(150));
    }

    fn odd_components(n: usize) -> usize {
        Operator::new(&odd(n)).components.len()
    }

    #[test]
    fn eigenvalues_that_occur_twice_are_found_twice() {
        // A ring of n: 1 − cos(2πk/n), each twice.
        let n = 40;
        let ring: Vec<(u32, u32)> = (0..n).map(|k| (k, (k + 1) % n)).collect();
        let g = graph(n as usize, &ring);
        let rows = laplacian(&g, 6).unwrap();
        for k in 0..6 {
            let v: Vec<f64> = rows.iter().skip(k).step_by(6).copied().collect();
            let expected = 1.0 - (2.0 * std::f64::consts::PI * (k / 2 + 1) as f64 / f64::from(n)).cos();
            assert!((quotient(&g, &v) - expected).abs() < 1e-9);
        }
    }

    #[test]
    fn more_than_there_are_become_zeros() {
        // A triangle and an isolated node: two that are not trivial, and the isolated node's own.
        let g = graph(4, &[(0, 1), (1, 2), (2, 0)]);
        let rows = laplacian(&g, 5).unwrap();
        let column = |k: usize| -> Vec<f64> { rows.iter().skip(k).step_by(5).copied().collect() };
        assert!((0..3).all(|k| (dot(&column(k), &column(k)) - 1.0).abs() < 1e-9));
        assert!((3..5).all(|k| column(k).iter().all(|x| *x == 0.0)));
        assert!(laplacian(&graph(0, &[]), 2).unwrap().is_empty());
    }
}
