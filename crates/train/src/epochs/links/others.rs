//! Pairs of nodes that are no links of training, to stand against those that are.
//!
//! A pair is a function of its [`Key`], the same on any ranks. Draws from all pairs are tried until one is none of the
//! links; where links are many and [`ATTEMPTS`] draws have all met some, one random number chooses among the pairs that
//! are left, by counting. Either way every pair that may be drawn is as likely as any other.

use graphweft_base::random::{Philox, join, scale};

use crate::epochs::learner::Draw;

/// Keeps the draws apart from others of the same seed.
const STREAM: u64 = 0x11_4b << 48;
/// Draws from all pairs before one is chosen from those that are left.
const ATTEMPTS: u64 = 32;

/// The part that is reported on, as pairs against it are drawn.
pub(super) const TEST: u64 = 2;

/// What a pair that stands against a link is drawn by.
#[derive(Clone, Copy)]
pub(super) struct Key {
    pub(super) draw: Draw,
    /// The number of the link.
    pub(super) link: u64,
    /// Which of the pairs against it.
    pub(super) k: u64,
}

/// The pairs of different nodes that are no links of training.
pub(super) struct Others {
    nodes: u64,
    /// Links of training between different nodes, the lower id first, in order.
    known: Vec<[u32; 2]>,
}

impl Others {
    /// Those of a graph of so many nodes with these links, one pair after the other.
    pub(super) fn new(nodes: u64, links: &[i64]) -> Self {
        let pairs = links.chunks_exact(2).filter(|pair| pair[0] != pair[1]);
        let mut known: Vec<[u32; 2]> = pairs.map(|pair| ordered(pair[0] as u64, pair[1] as u64)).collect();
        known.sort_unstable();
        known.dedup();
        Self { nodes, known }
    }

    /// How many there are, each counted once.
    pub(super) fn count(&self) -> u64 {
        self.nodes * self.nodes.saturating_sub(1) / 2 - self.known.len() as u64
    }

    /// The pairs that stand against `positives` of a part where the split gives none.
    pub(super) fn against(&self, given: Option<&[i64]>, positives: usize, part: u64) -> Vec<i64> {
        let draw = Draw { seed: 0, epoch: u64::MAX >> 8 };
        let drawn = |link: usize| self.drawn(Key { draw, link: link as u64, k: part });
        match given {
            Some(given) => given.to_vec(),
            None => (0..positives).flat_map(drawn).map(|id| id as i64).collect(),
        }
    }

    /// A pair against a link; there must be some.
    pub(super) fn drawn(&self, key: Key) -> [u64; 2] {
        self.drawn_from(key, None)
    }

    /// The same of some nodes, if there are any; where all draws meet links, of all.
    pub(super) fn drawn_from(&self, key: Key, nodes: Option<&[u64]>) -> [u64; 2] {
        let Key { draw: Draw { seed, epoch }, link, k } = key;
        let random = Philox::new(seed, STREAM ^ (epoch << 8 | k));
        let draw = |attempt: u64| {
            let [a, b, c, d] = random.words(link * ATTEMPTS + attempt);
            let [i, j] = [join(a, b), join(c, d)];
            match nodes.filter(|nodes| !nodes.is_empty()) {
                Some(nodes) => [i, j].map(|word| nodes[scale(word, nodes.len() as u64) as usize]),
                None => [i, j].map(|word| scale(word, self.nodes)),
            }
        };
        let is_link = |[i, j]: [u64; 2]| self.known.binary_search(&ordered(i, j)).is_ok();
        let mut drawn = (0..ATTEMPTS).map(draw).filter(|pair| pair[0] != pair[1] && !is_link(*pair));
        drawn.next().unwrap_or_else(|| {
            // The last draw again, for another purpose: a number of a pair, and which of its nodes is first.
            let [a, b, c, _] = random.words(link * ATTEMPTS + ATTEMPTS - 1);
            let [i, j] = self.nth(scale(join(a, b), self.count()));
            if c & 1 == 0 { [i, j] } else { [j, i] }
        })
    }

    /// The pair with this number, counting only those that are no links: lower ids first.
    fn nth(&self, number: u64) -> [u64; 2] {
        // Before the link at place p of the list there are `place - p` pairs that are none.
        let (mut low, mut high) = (0, self.known.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let [i, j] = self.known[middle].map(u64::from);
            let before = self.starting_below(i) + (j - i - 1) - middle as u64;
            if before <= number { low = middle + 1 } else { high = middle }
        }
        let place = number + low as u64;
        // The lower id is the last one from which no more pairs start below than this place.
        let (mut first, mut beyond) = (0, self.nodes);
        while beyond - first > 1 {
            let middle = first + (beyond - first) / 2;
            if self.starting_below(middle) <= place { first = middle } else { beyond = middle }
        }
        [first, first + 1 + place - self.starting_below(first)]
    }

    /// Pairs of different nodes whose lower id is below `id`.
    fn starting_below(&self, id: u64) -> u64 {
        // id · (2N − id − 1) is even.
        (u128::from(id) * u128::from(2 * self.nodes - id - 1) / 2) as u64
    }
}

fn ordered(i: u64, j: u64) -> [u32; 2] {
    [i.min(j) as u32, i.max(j) as u32]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often each ordered pair is drawn.
    fn drawn(others: &Others, links: u64) -> Vec<u32> {
        let n = others.nodes;
        let mut seen = vec![0; (n * n) as usize];
        for epoch in 0..40 {
            for link in 0..links {
                for k in 0..3 {
                    let key = Key { draw: Draw { seed: 7, epoch }, link, k };
                    let [i, j] = others.drawn(key);
                    assert!(i != j && i < n && j < n && others.known.binary_search(&ordered(i, j)).is_err(), "{i} {j}");
                    assert_eq!(others.drawn(key), [i, j]);
                    seen[(n * i + j) as usize] += 1;
                }
            }
        }
        seen.into_iter().filter(|count| *count > 0).collect()
    }

    #[test]
    fn what_is_drawn_is_no_link_and_depends_on_the_key_alone() {
        let links: Vec<i64> = (0..12).flat_map(|i| [i, (i + 1) % 12]).collect();
        let others = Others::new(12, &links);
        // 108 ordered pairs may be drawn, 1440 draws were made.
        let seen = drawn(&others, 12);
        assert!(others.count() == 54 && seen.len() == 108 && seen.iter().all(|count| *count < 40), "{seen:?}");
    }

    /// All but two of the 4950 pairs are links: nearly all of the draws meet some 32 times.
    #[test]
    fn where_nearly_all_pairs_are_links_the_others_are_drawn_alike() {
        let all = (0..100i64).flat_map(|i| (i + 1..100).map(move |j| [j, i]));
        let links: Vec<i64> = all.filter(|pair| ![[9, 4], [99, 98]].contains(pair)).flatten().chain([5, 5]).collect();
        let others = Others::new(100, &links);
        let seen = drawn(&others, 10);
        assert!(others.count() == 2 && seen.len() == 4 && seen.iter().all(|count| *count > 250), "{seen:?}");
    }

    #[test]
    fn the_pairs_that_are_no_links_are_counted_in_order() {
        let links = [0, 1, 3, 0, 2, 3, 4, 2, 1, 1];
        let others = Others::new(5, &links);
        let all = (0..5u64).flat_map(|i| (i + 1..5).map(move |j| [i, j]));
        let left: Vec<[u64; 2]> = all.filter(|[i, j]| others.known.binary_search(&ordered(*i, *j)).is_err()).collect();
        assert_eq!((others.count(), left.len()), (6, 6));
        assert_eq!((0..6).map(|number| others.nth(number)).collect::<Vec<_>>(), left);
        let none = Others::new(3, &[]);
        assert_eq!((0..3).map(|number| none.nth(number)).collect::<Vec<_>>(), [[0, 1], [0, 2], [1, 2]]);
        assert_eq!(Others::new(1, &[]).count(), 0);
    }
}
