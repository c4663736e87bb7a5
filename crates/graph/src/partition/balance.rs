//! What is shared out evenly, how evenly, and the last step that enforces it.

use serde::{Deserialize, Serialize};

use super::PartId;
use crate::csr::{Csr, NodeId};

/// What every part should have equally much of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Balance {
    /// Nodes: equal memory for activations.
    #[default]
    Nodes,
    /// Edges into the part's nodes: equal work in graph operations.
    Edges,
    /// Both as nearly as may be: hubs make parts of equally many nodes differ twofold in edges. METIS holds each of the
    /// two; elsewhere a node weighs its edges and the mean of all nodes' edges.
    Both,
}

/// What nodes weigh: what is shared out, and the cost of each node's row where rows differ.
#[derive(Clone, Copy)]
pub(super) struct Weighing<'a> {
    pub(super) balance: Balance,
    /// For each node.
    pub(super) costs: Option<&'a [u32]>,
    /// Of all of these, rounded; 1 where rows are alike.
    mean: u64,
}

impl From<Balance> for Weighing<'_> {
    /// All rows are alike.
    fn from(balance: Balance) -> Self {
        Self { balance, costs: None, mean: 1 }
    }
}

impl<'a> Weighing<'a> {
    pub(super) fn new(balance: Balance, costs: Option<&'a [u32]>) -> Self {
        let sum = |costs: &[u32]| costs.iter().map(|cost| u64::from(*cost)).sum::<u64>();
        let mean = costs.map_or(1, |costs| (sum(costs) / costs.len().max(1) as u64).max(1));
        Self { balance, costs, mean }
    }

    /// What rows cost on average.
    pub(super) fn mean(self) -> u64 {
        self.mean
    }

    /// What the row of node `i` costs.
    pub(super) fn row(self, i: usize) -> u64 {
        self.costs.map_or(1, |costs| u64::from(costs[i]))
    }

    /// What node `i` weighs.
    pub(super) fn weight<I: NodeId>(self, graph: &Csr<I>, i: usize) -> u64 {
        match self.balance {
            Balance::Nodes => self.row(i),
            Balance::Edges => graph.degree(i) as u64,
            Balance::Both => self.mean * graph.degree(i) as u64 + self.row(i) * mean_degree(graph),
        }
    }

    /// What all nodes weigh.
    pub(super) fn total<I: NodeId>(self, graph: &Csr<I>) -> u64 {
        let (rows, edges) = (self.rows(graph.num_dst()), graph.num_edges() as u64);
        match self.balance {
            Balance::Nodes => rows,
            Balance::Edges => edges,
            Balance::Both => self.mean * edges + rows * mean_degree(graph),
        }
    }

    /// What the rows of the first `count` nodes cost.
    pub(super) fn rows(self, count: usize) -> u64 {
        self.costs.map_or(count as u64, |costs| costs[..count].iter().map(|cost| u64::from(*cost)).sum())
    }
}

/// Rounded, and at least one, so that no node is without weight.
pub(super) fn mean_degree<I: NodeId>(graph: &Csr<I>) -> u64 {
    let (edges, nodes) = (graph.num_edges() as u64, graph.num_dst().max(1) as u64);
    ((edges + nodes / 2) / nodes).max(1)
}

/// The most that a part may weigh: 1.05 times the mean.
pub(super) fn limit(total: u64, parts: usize) -> u64 {
    (u128::from(total) * 105 / (100 * parts as u128)) as u64
}

/// The weight of every part.
pub(super) fn loads<I: NodeId>(graph: &Csr<I>, part_of: &[PartId], parts: usize, balance: Weighing<'_>) -> Vec<u64> {
    let mut loads = vec![0; parts];
    for (i, &p) in part_of.iter().enumerate() {
        loads[usize::from(p)] += balance.weight(graph, i);
    }
    loads
}

/// Moves nodes out of parts above the [`limit`], those first whose move cuts the fewest edges per weight.
///
/// A node goes where it ends within the limit, or at least below where it came from. The sum of squared loads falls
/// with every move, so this ends; and when no move is left, a part is above the limit only if each of its nodes is
/// heavier than the room anywhere else: only graphs with nodes nearly as heavy as a part come to that.
pub(super) fn rebalance<I: NodeId>(graph: &Csr<I>, part_of: &mut [PartId], parts: usize, balance: Weighing<'_>) {
    let limit = limit(balance.total(graph), parts);
    let mut loads = loads(graph, part_of, parts, balance);
    let mut affinity = vec![0u64; parts];
    loop {
        let mut candidates: Vec<(f64, usize)> = (0..part_of.len())
            .filter(|&i| loads[usize::from(part_of[i])] > limit)
            .filter_map(|i| {
                let to = destination(graph, part_of, &loads, limit, balance, i, &mut affinity)?;
                let loss = affinity[usize::from(part_of[i])] as f64 - affinity[to] as f64;
                Some((loss / balance.weight(graph, i) as f64, i))
            })
            .collect();
        candidates.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let mut moved = false;
        for (_, i) in candidates {
            let from = usize::from(part_of[i]);
            if loads[from] <= limit {
                continue;
            }
            if let Some(to) = destination(graph, part_of, &loads, limit, balance, i, &mut affinity) {
                let weight = balance.weight(graph, i);
                loads[from] -= weight;
                loads[to] += weight;
                part_of[i] = to as PartId;
                moved = true;
            }
        }
        if !moved {
            return;
        }
    }
}

/// The part with the most neighbours of `i` among those that may take it; the lightest of these. Leaves the number of
/// neighbours in every part in `affinity`.
fn destination<I: NodeId>(
    graph: &Csr<I>,
    part_of: &[PartId],
    loads: &[u64],
    limit: u64,
    balance: Weighing<'_>,
    i: usize,
    affinity: &mut [u64],
) -> Option<usize> {
    affinity.fill(0);
    for j in graph.row(i) {
        affinity[usize::from(part_of[j.index()])] += 1;
    }
    let (from, weight) = (usize::from(part_of[i]), balance.weight(graph, i));
    let may = |p: usize| p != from && loads[p] + weight <= limit.max(loads[from].saturating_sub(1));
    // A node without weight cannot lighten a part.
    let parts = (0..loads.len()).filter(|&p| weight > 0 && may(p));
    parts.min_by_key(|&p| (std::cmp::Reverse(affinity[p]), loads[p], p))
}

/// Cuts a sequence of weights into `parts` runs so that the heaviest run is as light as possible. `prefix(k)` is the
/// weight of the first k of `len` items, of which there are at least as many as parts. Returns `parts + 1` positions.
pub(super) fn cut_runs(len: usize, parts: usize, prefix: impl Fn(usize) -> u64) -> Vec<u64> {
    let total = prefix(len);
    // The first of 0..=most for which `yes` holds; it holds for `most` and, once it does, for all that follow.
    let first = |most: usize, yes: &dyn Fn(usize) -> bool| {
        let (mut lo, mut hi) = (0, most);
        while lo < hi {
            let mid = lo + (hi - lo) / 2;
            if yes(mid) { hi = mid } else { lo = mid + 1 }
        }
        lo
    };
    // The last position that a run from `start` may end at without weighing more than `most`.
    let end = |start: usize, most: u64| {
        let reach = prefix(start).saturating_add(most);
        first(len, &|k| k == len || prefix(k + 1) > reach)
    };
    let fits = |most: u64| (0..parts).fold(0, |at, _| end(at, most)) == len;
    let (mut lo, mut hi) = (total.div_ceil(parts as u64), total);
    while lo < hi {
        let mid = lo + (hi - lo) / 2;
        if fits(mid) { hi = mid } else { lo = mid + 1 }
    }
    let best = lo;
    // Where each run must at least begin, so that what follows still fits: found from the back.
    let mut earliest = vec![len; parts + 1];
    for p in (0..parts).rev() {
        let stop = prefix(earliest[p + 1]);
        earliest[p] = first(earliest[p + 1], &|k| stop - prefix(k) <= best);
    }
    // Any cuts within the best bound would do; those nearest to even shares keep all parts alike, not only the
    // heaviest. Every part gets an item, even where nodes without edges weigh nothing.
    let mut cuts = vec![0u64; parts + 1];
    for p in 1..parts {
        let start = cuts[p - 1] as usize;
        let share = (u128::from(total) * p as u128 / parts as u128) as u64;
        let after = first(len, &|k| prefix(k) >= share);
        let nearest = if after > 0 && share - prefix(after - 1) < prefix(after) - share { after - 1 } else { after };
        let latest = end(start, best).min(len - (parts - p));
        cuts[p] = nearest.max(earliest[p]).max(start + 1).min(latest) as u64;
    }
    cuts[parts] = len as u64;
    cuts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(weights: &[u64], parts: usize) -> Vec<u64> {
        let mut prefix = vec![0];
        weights.iter().for_each(|w| prefix.push(prefix[prefix.len() - 1] + w));
        let cuts = cut_runs(weights.len(), parts, |k| prefix[k]);
        cuts.windows(2).map(|c| prefix[c[1] as usize] - prefix[c[0] as usize]).collect()
    }

    #[test]
    fn runs_are_as_even_as_can_be() {
        assert_eq!(cut(&[1; 10], 5), [2; 5]);
        assert_eq!(cut(&[1; 10], 4).iter().max(), Some(&3));
        assert_eq!(cut(&[9, 1, 1, 1, 9, 1, 1, 1], 2), [12, 12]);
        assert_eq!(cut(&[1, 1, 1, 50, 1, 1], 3).iter().max(), Some(&50));
        assert_eq!(cut(&[0, 0, 0, 0], 2), [0, 0]);
    }

    #[test]
    fn the_heaviest_run_is_the_lightest_possible() {
        // Against all ways to cut seven items into three runs.
        for seed in 0u64..200 {
            let weights: Vec<u64> = (0..7).map(|k| (seed * 31 + k * k * 17) % 11).collect();
            let sum = |a: usize, b: usize| weights[a..b].iter().sum::<u64>();
            let best = (0..=7).flat_map(|a| (a..=7).map(move |b| (a, b)));
            let best = best.map(|(a, b)| sum(0, a).max(sum(a, b)).max(sum(b, 7))).min();
            assert_eq!(cut(&weights, 3).into_iter().max(), best, "{weights:?}");
        }
    }

    #[test]
    fn an_overloaded_part_gives_up_what_costs_least() {
        // A path of 40 nodes, all but the last four in part 0.
        let n = 40;
        let rows: Vec<Vec<u32>> =
            (0..n).map(|i: u32| (i.saturating_sub(1)..=i + 1).filter(|&j| j != i && j < n).collect()).collect();
        let indptr = std::iter::once(0)
            .chain(rows.iter().scan(0, |s, r| {
                *s += r.len() as u64;
                Some(*s)
            }))
            .collect::<Vec<u64>>();
        let g = Csr::<u32>::new(indptr, rows.concat(), n as usize).unwrap();
        let mut part_of: Vec<PartId> = (0..n as usize).map(|i| PartId::from(i >= 36)).collect();
        rebalance(&g, &mut part_of, 2, Balance::Nodes.into());
        let load = part_of.iter().filter(|&&p| p == 0).count();
        assert_eq!(load, 21);
    }
}
