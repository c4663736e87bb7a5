//! Improving parts across small hills: moves that make things worse for a while are kept if better ones follow.
//!
//! The method of Fiduccia and Mattheyses for many parts. The best move at hand is carried out, whatever it costs; a node moves
//! once; when no new best was seen for long, everything after the best state is taken back. It needs a number per node and
//! part, so it serves the contracted graphs and small ones; the others make do with passes.

use std::collections::BinaryHeap;

use crate::csr::NodeId;
use crate::partition::ladder::{Labels, Level};

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
