//! Which graphs are in which batch, and who has which of them.

use std::cmp::Reverse;
use std::ops::Range;

use graphweft_base::random::Philox;

use crate::data::Data;
use crate::ranks::rank::Rank;

/// Keeps the order of graphs apart from other draws of the same seed.
const ORDER: u64 = 0x0ba7_c400_0000;

/// The order in which graphs are learned from.
pub(crate) struct Order {
    seed: u64,
    graphs: Vec<u64>,
    batch: usize,
}

impl Order {
    /// Batches of `batch` of these graphs.
    pub(crate) fn new(seed: u64, mut graphs: Vec<u64>, batch: usize) -> Self {
        graphs.sort_unstable();
        Self { seed, graphs, batch: batch.max(1) }
    }

    /// All of them, ascending.
    pub(crate) fn graphs(&self) -> &[u64] {
        &self.graphs
    }

    /// How many there are in a batch; the last of an epoch may have fewer.
    pub(crate) fn batch(&self) -> usize {
        self.batch
    }

    /// The batches of an epoch: a function of the seed, the epoch and ids of graphs.
    pub(crate) fn epoch(&self, epoch: u64) -> Vec<Vec<u64>> {
        let random = Philox::new(self.seed, ORDER.wrapping_add(epoch));
        let mut all = self.graphs.clone();
        all.sort_by_key(|graph| (random.bits(*graph), *graph));
        all.chunks(self.batch).map(<[u64]>::to_vec).collect()
    }
}

/// A rank's run of a batch.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Share {
    pub(crate) own: Range<usize>,
}

impl Share {
    /// All of `count` graphs.
    pub(crate) fn all(count: usize) -> Self {
        Self { own: 0..count }
    }

    /// That of a rank, where these are the work on each graph: runs end where the work so far comes nearest to what so
    /// many ranks should have.
    pub(crate) fn of(work: &[u64], rank: &Rank) -> Self {
        Self::balanced(work, rank.index(), rank.count())
    }

    fn balanced(work: &[u64], rank: usize, ranks: usize) -> Self {
        let total: u128 = work.iter().map(|w| u128::from(*w)).sum();
        let end = |rank: usize| -> usize {
            if rank == ranks {
                return work.len();
            }
            let wanted = total * rank as u128 / ranks as u128;
            let mut sum = 0u128;
            for (k, w) in work.iter().enumerate() {
                let w = u128::from(*w);
                if sum + w / 2 >= wanted {
                    return k;
                }
                sum += w;
            }
            work.len()
        };
        Self { own: end(rank)..end(rank + 1) }
    }
}

/// The work on a graph: its nodes and edges.
pub(crate) fn work(data: &Data, ptr: &[u64], graph: u64) -> u64 {
    let (first, end) = (ptr[graph as usize], ptr[graph as usize + 1]);
    let indptr = data.graph.indptr();
    end - first + indptr[end as usize] - indptr[first as usize]
}

/// The graphs among `graphs` with the most nodes and edges, as many as a batch has: ascending.
pub(crate) fn largest(data: &Data, graphs: &[u64], batch: usize) -> Vec<u64> {
    let ptr = data.graphs.as_deref().unwrap_or_default();
    let mut all = graphs.to_vec();
    all.sort_by_key(|graph| (Reverse(work(data, ptr, *graph)), *graph));
    all.truncate(batch);
    all.sort_unstable();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_graph_comes_once_an_epoch_and_the_order_is_drawn() {
        let order = Order::new(3, (0..103).rev().collect(), 10);
        for epoch in 1..4 {
            let batches = order.epoch(epoch);
            assert_eq!((batches.len(), batches[0].len(), batches[10].len()), (11, 10, 3));
            let mut all = batches.concat();
            assert_ne!(all, order.graphs());
            all.sort_unstable();
            assert_eq!(all, order.graphs());
            assert_eq!(batches, order.epoch(epoch));
        }
        assert_ne!(order.epoch(1), order.epoch(2));
        assert_ne!(order.epoch(1), Order::new(4, (0..103).collect(), 10).epoch(1));
    }

    #[test]
    fn ranks_share_the_work_in_runs() {
        let work: Vec<u64> = (0..50).map(|k| 5 + k * k % 17).collect();
        let total: u64 = work.iter().sum();
        for ranks in [1, 2, 3, 4, 8, 60] {
            let shares: Vec<_> = (0..ranks).map(|rank| Share::balanced(&work, rank, ranks).own).collect();
            assert_eq!((shares[0].start, shares[ranks - 1].end), (0, 50));
            for pair in shares.windows(2) {
                assert_eq!(pair[0].end, pair[1].start);
            }
            for share in shares {
                let own: u64 = work[share].iter().sum();
                assert!(own <= total / ranks as u64 + 22, "{own} of {total} on {ranks}");
            }
        }
        assert_eq!(Share::balanced(&[], 1, 2).own, 0..0);
    }
}
