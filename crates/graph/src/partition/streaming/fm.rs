//! Improving parts across small hills: moves that make things worse for a while are kept if better ones follow.
//!
//! The method of Fiduccia and Mattheyses for many parts. The best move at hand is carried out, whatever it costs; a
//! node moves once; when no new best was seen for long, everything after the best state is taken back. It needs a
//! number per node and part, so it serves the contracted graphs and small ones; the others make do with passes.

use std::collections::BinaryHeap;

use crate::csr::NodeId;
use crate::partition::hierarchy::{Labels, Level};

/// The table of nodes × parts may take this many bytes, or half as many as the graph if that is more.
const TABLE_BYTES: u64 = 16 << 20;
const MOST_ROUNDS: usize = 8;
/// Moves without a new best before a round ends.
const PATIENCE: usize = 400;

/// Whether the table for `level` is small beside a graph of `graph_bytes`.
pub(super) fn is_affordable<I: NodeId>(level: &Level<I>, parts: usize, graph_bytes: u64) -> bool {
    let bytes = (level.len() as u64).saturating_mul(parts as u64 * 8);
    bytes <= TABLE_BYTES.max(graph_bytes / 2) && level.is_symmetric()
}

/// Moves nodes of a symmetric graph between parts of at most `most`, until nothing gets better.
pub(super) fn climb<I: NodeId>(level: &Level<I>, labels: &mut Labels<I>, most: u64) {
    let mut state = State::new(level, labels, most);
    for _ in 0..MOST_ROUNDS {
        if !state.round() {
            break;
        }
    }
}

struct State<'a, I: NodeId> {
    level: &'a Level<'a, I>,
    labels: &'a mut Labels<I>,
    most: u64,
    parts: usize,
    /// Weight of the edges from each node to each part.
    affinity: Vec<u64>,
}

impl<'a, I: NodeId> State<'a, I> {
    fn new(level: &'a Level<'a, I>, labels: &'a mut Labels<I>, most: u64) -> Self {
        let parts = labels.weights.len();
        let mut affinity = vec![0u64; level.len() * parts];
        for i in 0..level.len() {
            for (j, w) in level.neighbours(i) {
                affinity[i * parts + labels.of[j].index()] += w;
            }
        }
        Self { level, labels, most, parts, affinity }
    }

    /// The best part for node `i` to move to, and what that saves.
    fn best_move(&self, i: usize) -> Option<(i64, usize)> {
        let (own, weight) = (self.labels.of[i].index(), self.level.weight(i));
        let affinity = &self.affinity[i * self.parts..(i + 1) * self.parts];
        let may = |p: &usize| *p != own && affinity[*p] > 0 && self.labels.weights[*p] + weight <= self.most;
        let best = (0..self.parts).filter(may).max_by_key(|&p| (affinity[p], u64::MAX - self.labels.weights[p]));
        best.map(|p| (affinity[p] as i64 - affinity[own] as i64, p))
    }

    fn move_to(&mut self, i: usize, to: usize) {
        let (from, weight) = (self.labels.of[i].index(), self.level.weight(i));
        self.labels.of[i] = I::new(to);
        self.labels.weights[from] -= weight;
        self.labels.weights[to] += weight;
        for (j, w) in self.level.neighbours(i) {
            self.affinity[j * self.parts + from] -= w;
            self.affinity[j * self.parts + to] += w;
        }
    }

    /// Every node moves at most once; keeps the best state. Whether that is better than before.
    fn round(&mut self) -> bool {
        let mut queue: BinaryHeap<(i64, std::cmp::Reverse<usize>)> = (0..self.level.len())
            .filter_map(|i| self.best_move(i).map(|(gain, _)| (gain, std::cmp::Reverse(i))))
            .collect();
        let mut locked = vec![false; self.level.len()];
        let mut moves: Vec<(usize, usize)> = Vec::new();
        let (mut saved, mut best, mut best_len) = (0i64, 0i64, 0);
        while let Some((expected, std::cmp::Reverse(i))) = queue.pop() {
            if locked[i] {
                continue;
            }
            let Some((gain, to)) = self.best_move(i) else { continue };
            if gain < expected {
                queue.push((gain, std::cmp::Reverse(i)));
                continue;
            }
            locked[i] = true;
            moves.push((i, self.labels.of[i].index()));
            self.move_to(i, to);
            saved += gain;
            if saved > best {
                (best, best_len) = (saved, moves.len());
            } else if moves.len() - best_len > PATIENCE {
                break;
            }
            for (j, _) in self.level.neighbours(i) {
                if !locked[j]
                    && let Some((gain, _)) = self.best_move(j)
                {
                    queue.push((gain, std::cmp::Reverse(j)));
                }
            }
        }
        for &(i, from) in moves[best_len..].iter().rev() {
            self.move_to(i, from);
        }
        best > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csr::Csr;
    use crate::partition::Balance;

    #[test]
    fn a_hill_is_climbed_within_the_bound() {
        // Nodes 4 and 5 belong to the clique 0..4, but three parallel edges keep either from going alone.
        let mut list = vec![(4, 5), (4, 5), (4, 5), (4, 0), (4, 1), (5, 2), (5, 3)];
        list.extend([0, 6].iter().flat_map(|&c| (c..c + 4).flat_map(move |i| (i + 1..c + 4).map(move |j| (i, j)))));
        let mut rows = vec![Vec::new(); 10];
        for (i, j) in list {
            rows[i as usize].push(j);
            rows[j as usize].push(i);
        }
        rows.iter_mut().for_each(|row| row.sort_unstable());
        let mut indptr = vec![0u64];
        rows.iter().for_each(|row| indptr.push(indptr[indptr.len() - 1] + row.len() as u64));
        let graph = Csr::<u32>::new(indptr, rows.concat(), 10).unwrap();
        let level = Level::base(&graph, Balance::Nodes.into());
        let parted = || Labels { of: vec![1, 1, 1, 1, 0, 0, 0, 0, 0, 0], weights: vec![6, 4] };

        let mut labels = parted();
        let state = State::new(&level, &mut labels, 6);
        assert!((0..10).filter_map(|i| state.best_move(i)).all(|(gain, _)| gain < 0), "no move helps by itself");
        climb(&level, &mut labels, 6);
        assert_eq!((level.cut(&labels.of), labels.weights), (0, vec![4, 6]));

        let mut labels = parted();
        climb(&level, &mut labels, 5);
        assert_eq!((level.cut(&labels.of), labels.weights), (8, vec![6, 4]), "there is room for one only");
    }
}
