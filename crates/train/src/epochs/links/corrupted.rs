//! Triples that stand against a triple: one of its ends is another node.
//!
//! Which end changes by the number of the triple and k; the node is drawn by the [`Key`], from all nodes or from those
//! of the rank, until the triple is none of training. Where [`ATTEMPTS`] draws have all met some, the next node after
//! the last draw is taken that makes none: there is one, or training is refused.

use graphweft_base::Error as Bad;
use graphweft_base::random::{Philox, join, scale};
use graphweft_model::decoders::Missing;

use super::known::{Known, Link, Question};
use super::others::Key;
use crate::error::Result;

/// Keeps the draws apart from others of the same seed.
const STREAM: u64 = 0x11_4c << 48;
/// Draws before all nodes are gone through.
const ATTEMPTS: u64 = 16;

/// What is drawn from.
pub(super) struct Corrupted<'a> {
    /// Triples of training.
    pub(super) known: &'a Known,
    pub(super) nodes: u64,
    /// The nodes of the rank, where only these are drawn.
    pub(super) local: Option<&'a [u64]>,
}

impl Corrupted<'_> {
    /// A triple against `link`.
    pub(super) fn drawn(&self, key: Key, link: Link) -> Link {
        let missing = if (key.link + key.k).is_multiple_of(2) { Missing::Tail } else { Missing::Head };
        let Question { given, relation, .. } = link.ask(missing);
        let partners = self.known.partners(given, relation, missing);
        let is_free = |node: u64| partners.binary_search_by_key(&(node as u32), |[.., partner]| *partner).is_err();
        let random = Philox::new(key.draw.seed, STREAM ^ (key.draw.epoch << 8 | key.k));
        let draw = |attempt: u64| {
            let [a, b, ..] = random.words(key.link * ATTEMPTS + attempt);
            match self.local.filter(|own| !own.is_empty()) {
                Some(own) => own[scale(join(a, b), own.len() as u64) as usize],
                None => scale(join(a, b), self.nodes),
            }
        };
        let found = (0..ATTEMPTS).map(draw).find(|node| is_free(*node));
        let other = found.unwrap_or_else(|| {
            let last = draw(ATTEMPTS - 1);
            let mut after = (1..=self.nodes).map(|step| (last + step) % self.nodes);
            after.find(|node| is_free(*node)).unwrap_or(last)
        });
        match missing {
            Missing::Tail => Link { tail: other, ..link },
            Missing::Head => Link { head: other, ..link },
        }
    }

    /// Fails if some end has all nodes as partners: nothing could stand against such a link.
    pub(super) fn check(&self, data: &str) -> Result<()> {
        let all = |question: &Question| {
            let partners = self.known.partners(question.given, question.relation, question.missing);
            partners.len() as u64 >= self.nodes
        };
        let Some(Question { given, relation, missing, .. }) = self.known.questions().into_iter().find(all) else {
            return Ok(());
        };
        let [end, others] = if missing == Missing::Tail { ["head", "tails"] } else { ["tail", "heads"] };
        let what = format!("all nodes of {data} are {others} of {end} {given} and relation {relation} in training");
        let remedy = "no triple can be drawn against these: take link.loss=some-of-all, or leave the relation out";
        Err(Bad::request(what, remedy).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epochs::learner::Draw;

    #[test]
    fn what_is_drawn_differs_at_one_end_and_is_none_of_training() {
        // Of 0 and relation 0, all but node 3 are tails.
        let list: Vec<i64> = [0, 1, 2, 4].into_iter().flat_map(|tail| [0, 0, tail]).collect();
        let known = Known::of(&[&list], 3);
        let corrupted = Corrupted { known: &known, nodes: 5, local: None };
        corrupted.check("five").unwrap();
        for epoch in 0..50 {
            for number in 0..4 {
                let link = Link::of(&list, 3, number as usize);
                let key = |k| Key { draw: Draw { seed: 2, epoch }, link: number, k };
                for k in 0..2 {
                    let other = corrupted.drawn(key(k), link);
                    assert_eq!(other, corrupted.drawn(key(k), link));
                    let tail_differs = (number + k).is_multiple_of(2);
                    assert_eq!((other.head == link.head, other.tail == link.tail), (tail_differs, !tail_differs));
                    assert!(!tail_differs || other.tail == 3, "{other:?}");
                }
            }
        }
        let all: Vec<i64> = (0..5).flat_map(|tail| [0, 0, tail]).collect();
        let known = Known::of(&[&all], 3);
        let message = Corrupted { known: &known, nodes: 5, local: None }.check("five").unwrap_err().to_string();
        assert!(message.contains("head 0 and relation 0"), "{message}");
    }

    #[test]
    fn locally_only_nodes_of_the_rank_are_drawn() {
        let known = Known::of(&[&[0, 0, 1]], 3);
        let corrupted = Corrupted { known: &known, nodes: 100, local: Some(&[7, 8, 9]) };
        for epoch in 0..20 {
            let key = Key { draw: Draw { seed: 2, epoch }, link: 0, k: 0 };
            assert!((7..10).contains(&corrupted.drawn(key, Link { head: 0, relation: 0, tail: 1 }).tail));
        }
    }
}
