//! Which piece is whose turn: a function of the epoch and the step.

use std::ops::Range;

use graphweft_base::random::Philox;
use graphweft_graph::chunks::Chunks;

use crate::config::Config;

/// Keeps the order of visits apart from other draws of the same seed.
const ORDER: u64 = 0x0b5e_0000_0000;

/// A piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Visit {
    /// The chunk that is learned from; none on a rank that has none left.
    pub(crate) base: Option<usize>,
    /// How often the chunk beside it has changed.
    pub(crate) round: u64,
    /// Tells draws of the halo apart.
    pub(crate) draw: u64,
    /// The step, where there are several: ranks turn to other pieces all at once, those that have none left too.
    pub(crate) step: usize,
}

impl Visit {
    /// The rows that are learned from, and those beside them.
    pub(crate) fn rows(&self, chunks: &Chunks) -> (Range<usize>, Option<Range<usize>>) {
        let base = self.base.map_or(0..0, |chunk| chunks.rows(chunk));
        let other = self.base.and_then(|chunk| chunks.companion(chunk, self.round));
        (base, other.map(|chunk| chunks.rows(chunk)))
    }
}

/// The visits of one rank.
pub(crate) struct Timetable {
    /// Chunks of this rank that have nodes to learn from.
    bases: Vec<usize>,
    /// Of the rank that takes most.
    steps: usize,
    rotate_every: u64,
    seed: u64,
}

impl Timetable {
    /// Of K chunks, rank r of P has those from r·K/P up to (r+1)·K/P, as a `Layout` has it. Chunks without seeds are
    /// left out.
    pub(crate) fn new(seeds: &[usize], ranks: usize, rank: usize, config: &Config) -> Self {
        let bases = |rank: usize| -> Vec<usize> {
            let chunks = rank * seeds.len() / ranks..(rank + 1) * seeds.len() / ranks;
            chunks.filter(|chunk| seeds[*chunk] > 0).collect()
        };
        let steps = (0..ranks).map(|rank| bases(rank).len()).max().unwrap_or(0);
        Self { bases: bases(rank), steps, rotate_every: config.isolated.rotate_every, seed: config.run.seed }
    }

    /// Steps of an epoch.
    pub(crate) fn steps(&self) -> usize {
        self.steps
    }

    /// The visit of a step, from 0, of an epoch, from 1.
    pub(crate) fn visit(&self, epoch: u64, step: usize) -> Visit {
        let round = (epoch - 1).checked_div(self.rotate_every).unwrap_or(0);
        // A piece that is loaded for every epoch is drawn for every epoch.
        let draw = if self.steps > 1 { epoch } else { round };
        Visit { base: self.order(epoch).get(step).copied(), round, draw, step }
    }

    /// The bases in the order of an epoch: another one each time.
    fn order(&self, epoch: u64) -> Vec<usize> {
        let random = Philox::new(self.seed, ORDER ^ epoch);
        let mut order = self.bases.clone();
        for last in (1..order.len()).rev() {
            order.swap(last, random.below(last as u64, last as u64 + 1) as usize);
        }
        order
    }

    /// The first visit after a step that is another one, in a run of `epochs`.
    pub(crate) fn next(&self, epoch: u64, step: usize, epochs: u64) -> Option<Visit> {
        let now = self.visit(epoch, step);
        let (epoch, step) = match self.rotate_every {
            _ if step + 1 < self.steps => (epoch, step + 1),
            _ if self.steps > 1 => (epoch + 1, 0),
            0 => return None,
            every => ((now.round + 1) * every + 1, 0),
        };
        let next = (epoch <= epochs).then(|| self.visit(epoch, step));
        next.filter(|next| *next != now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Draft;

    fn table(seeds: &[usize], ranks: usize, rank: usize, rotate_every: u64) -> Timetable {
        let mut draft = Draft::default();
        draft.assign(&format!("isolated.rotate_every={rotate_every}")).unwrap();
        Timetable::new(seeds, ranks, rank, &draft.finish().unwrap())
    }

    #[test]
    fn all_ranks_take_as_many_steps_and_every_base_has_its_turn_once_an_epoch() {
        let seeds = [3, 0, 1, 4, 1, 5, 9];
        let tables = [0, 1, 2].map(|rank| table(&seeds, 3, rank, 5));
        let mut visited = Vec::new();
        for t in &tables {
            assert_eq!(t.steps(), 3);
            let mut bases: Vec<usize> = (0..3).filter_map(|step| t.visit(7, step).base).collect();
            bases.sort_unstable();
            visited.extend(bases);
        }
        assert_eq!(visited, [0, 2, 3, 4, 5, 6], "chunk 1 has nothing to learn from");
        let orders: Vec<_> = (1..20).map(|epoch| tables[2].order(epoch)).collect();
        assert!(orders.iter().any(|o| *o != orders[0]), "the order changes");
    }

    #[test]
    fn ranks_turn_to_other_pieces_all_at_once() {
        let [busy, idle] = [0, 1].map(|rank| table(&[1, 1, 1, 0, 0, 1], 2, rank, 5));
        let at = |t: &Timetable, k: u64| t.visit(1 + k / 3, k as usize % 3);
        for k in 1..30 {
            assert!(at(&busy, k) != at(&busy, k - 1) && at(&idle, k) != at(&idle, k - 1), "step {k}");
        }
    }

    #[test]
    fn the_next_visit_is_the_one_that_comes() {
        let one = table(&[2, 2], 2, 1, 5);
        assert_eq!((one.visit(5, 0).round, one.visit(6, 0).round), (0, 1));
        assert_eq!(one.next(3, 0, 100), Some(one.visit(6, 0)));
        assert_eq!(one.next(3, 0, 5), None, "the run is over before");
        assert_eq!(table(&[2, 2], 2, 1, 0).next(3, 0, 100), None);
        let many = table(&[2; 6], 2, 0, 5);
        for epoch in 1..12 {
            for step in 0..3 {
                let (e, s) = if step < 2 { (epoch, step + 1) } else { (epoch + 1, 0) };
                assert_eq!(many.next(epoch, step, 100), Some(many.visit(e, s)));
            }
        }
    }
}
