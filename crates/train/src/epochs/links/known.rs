//! Who is known to be whose partner: what a filtered rank leaves out, and what learning from all nodes is of.
//!
//! Triples are kept twice, sorted by what is asked: 12 bytes each.

use graphweft_model::decoders::Missing;

/// A link by the ids of its ends and its relation, 0 where there are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Link {
    pub(super) head: u64,
    pub(super) relation: u32,
    pub(super) tail: u64,
}

impl Link {
    /// Number `k` of a list whose links have so many numbers each.
    pub(super) fn of(list: &[i64], width: usize, k: usize) -> Self {
        let numbers = &list[k * width..][..width];
        let relation = if width == 3 { numbers[1] as u32 } else { 0 };
        Self { head: numbers[0] as u64, relation, tail: numbers[width - 1] as u64 }
    }

    /// What is asked of it, where this end is missing.
    pub(super) fn ask(self, missing: Missing) -> Question {
        let Self { head, relation, tail } = self;
        let [given, partner] = if missing == Missing::Tail { [head, tail] } else { [tail, head] };
        Question { given, relation, missing, partner }
    }
}

/// An end and a relation, of which the other end is asked, with a partner that is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) given: u64,
    /// Of the data.
    pub(super) relation: u32,
    pub(super) missing: Missing,
    pub(super) partner: u64,
}

impl Question {
    /// The row of the relation that a decoder has, and the end that it is asked for: where each relation has a second
    /// row for the way back, all questions are for tails.
    pub(super) fn of_decoder(self, reciprocal: Option<u32>) -> (u32, Missing) {
        match (reciprocal, self.missing) {
            (Some(relations), Missing::Head) => (self.relation + relations, Missing::Tail),
            (_, missing) => (self.relation, missing),
        }
    }
}

/// Partners, by what is asked.
pub(super) struct Known {
    /// Given end, relation, partner; where tails are missing, and where heads are.
    lists: [Vec<[u32; 3]>; 2],
}

impl Known {
    /// Those of all these lists. Links without relations have no direction.
    pub(super) fn of(lists: &[&[i64]], width: usize) -> Self {
        let all = lists.iter().flat_map(|list| (0..list.len() / width).map(move |k| Link::of(list, width, k)));
        let sorted = |missing| {
            let mut found: Vec<[u32; 3]> = Vec::new();
            for link in all.clone() {
                let Question { given, relation, partner, .. } = link.ask(missing);
                found.push([given as u32, relation, partner as u32]);
                if width == 2 {
                    found.push([partner as u32, relation, given as u32]);
                }
            }
            found.sort_unstable();
            found.dedup();
            found
        };
        Self { lists: [sorted(Missing::Tail), sorted(Missing::Head)] }
    }

    fn list(&self, missing: Missing) -> &[[u32; 3]] {
        &self.lists[usize::from(missing == Missing::Head)]
    }

    /// Each partner of an end is the last number of these.
    pub(super) fn partners(&self, given: u64, relation: u32, missing: Missing) -> &[[u32; 3]] {
        let (list, key) = (self.list(missing), [given as u32, relation]);
        let first = list.partition_point(|[g, r, _]| [*g, *r] < key);
        &list[first..first + list[first..].partition_point(|[g, r, _]| [*g, *r] == key)]
    }

    /// How many ends have a partner that is another node, each pair counted from both ends.
    pub(super) fn count(&self) -> usize {
        self.lists[0].iter().filter(|[given, _, partner]| given != partner).count()
    }

    /// Everything that is asked, each once, with its partners.
    pub(super) fn questions(&self) -> Vec<Question> {
        let mut all = Vec::new();
        for missing in [Missing::Tail, Missing::Head] {
            for same in self.list(missing).chunk_by(|a, b| a[..2] == b[..2]) {
                let [given, relation, partner] = same[0];
                all.push(Question { given: given.into(), relation, missing, partner: partner.into() });
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partners_are_those_of_the_end_and_the_relation() {
        let known = Known::of(&[&[0, 1, 2, 0, 1, 4, 0, 0, 3], &[0, 1, 2, 5, 1, 2]], 3);
        let of = |given, relation, missing| -> Vec<u32> {
            known.partners(given, relation, missing).iter().map(|[.., partner]| *partner).collect()
        };
        assert_eq!(of(0, 1, Missing::Tail), [2, 4]);
        assert_eq!(of(2, 1, Missing::Head), [0, 5]);
        assert!(of(1, 1, Missing::Tail).is_empty() && of(0, 2, Missing::Tail).is_empty());
        assert_eq!(known.questions().len(), 3 + 3);
    }

    #[test]
    fn pairs_have_no_direction() {
        let known = Known::of(&[&[0, 1, 2, 1]], 2);
        let of = |given| known.partners(given, 0, Missing::Tail).iter().map(|[.., p]| *p).collect::<Vec<_>>();
        assert_eq!((of(0), of(1), of(2)), (vec![1], vec![0, 2], vec![1]));
    }
}
