//! Which cut edges are served by rows that are pulled and which by rows that are pushed.
//!
//! A cut edge j → i between a rank and a peer is served if the peer's row j is *pulled* here, which serves all edges
//! from j, or if row i is *pushed* there, which serves all of i's edges from that peer. With a weight for each, serving
//! all cut edges of a pair of ranks with the least weight is a minimum-weight vertex cover of a bipartite graph. By
//! König's theorem that is a minimum cut: arcs of capacity `pull` from a source to every j, unlimited arcs from j to i
//! along the edges, arcs of capacity `push` from every i to a sink. Whatever the cut separates from its end is in the
//! cover.
//!
//! The maximum flow is Dinic's: rounds of shortest augmenting paths, found breadth first and used up depth first.
//! Capacities are those of nodes, so an arc needs one number, its flow. Of all minimum cuts the one nearest to the
//! source is taken: it pushes least. Pairs are independent, and shared among threads.

use std::ops::Range;

use rayon::prelude::*;

use super::Partition;
use crate::csr::{Csr, NodeId};

/// What it costs to serve edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Weights {
    /// Of a source's row that is pulled.
    pub pull: u32,
    /// Of a destination's row that is pushed.
    pub push: u32,
}

impl Weights {
    /// The smallest weights with the same proportion: they have the same covers.
    pub fn reduced(self) -> Self {
        let (mut a, mut b) = (self.pull, self.push);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        let divisor = a.max(1);
        Self { pull: self.pull / divisor, push: self.push / divisor }
    }
}

/// What serves the edges from one peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cover {
    /// Sources whose rows are pulled, as columns of the rank's CSR, ascending.
    pub pulled: Vec<u32>,
    /// Rows that are pushed, ascending.
    pub pushed: Vec<u32>,
}

impl Cover {
    /// What it costs.
    pub fn weight(&self, weights: Weights) -> u64 {
        self.pulled.len() as u64 * u64::from(weights.pull) + self.pushed.len() as u64 * u64::from(weights.push)
    }
}

/// The covers of least weight of the edges from every other rank, and an empty one for `rank` itself. `rows` are the
/// rows of `rank`; its columns are all nodes, those of rank s being `ranges[s]..ranges[s + 1]`.
///
/// ```
/// use graphweft_graph::{Csr, partition::{Weights, covers}};
/// // Row 0 looks at all three nodes of the other rank, which are columns 2 to 4: it is cheaper to push it.
/// let rows = Csr::<u32>::new(vec![0, 3, 3], vec![2, 3, 4], 5)?;
/// let covers = covers(&rows, &[0, 2, 5], 0, Weights { pull: 16, push: 17 });
/// assert_eq!((&covers[1].pulled[..], &covers[1].pushed[..]), (&[][..], &[0][..]));
/// # Ok::<(), graphweft_graph::CsrError>(())
/// ```
pub fn covers(rows: &Csr<u32>, ranges: &[usize], rank: usize, weights: Weights) -> Vec<Cover> {
    let peers = 0..ranges.len().saturating_sub(1);
    peers
        .into_par_iter()
        .map(|peer| match peer == rank {
            true => Cover::default(),
            false => cover_from(rows, ranges[peer]..ranges[peer + 1], weights),
        })
        .collect()
}

/// The rows that move between the parts of `graph`, which is in original ids, if a row that is pushed costs as much as
/// one that is pulled: halo rows where nothing is pushed, never more than these. `None` for more nodes than a column of
/// a part's rows can name.
///
/// ```
/// use graphweft_graph::{Csr, Permutation, partition::{Partition, covered_rows}};
/// // 0 looks at 1 and 2, which are in the other part: 0 is pushed.
/// let graph = Csr::<u32>::new(vec![0, 2, 2, 2], vec![1, 2], 3)?;
/// let same = Permutation::from_old_of_new(vec![0, 1, 2]).unwrap();
/// assert_eq!(covered_rows(&graph, &Partition::new(same, vec![0, 1, 3]).unwrap()), Some(1));
/// # Ok::<(), graphweft_graph::CsrError>(())
/// ```
pub fn covered_rows<I: NodeId>(graph: &Csr<I>, partition: &Partition) -> Option<u64> {
    let (permutation, nodes) = (partition.permutation(), u32::try_from(graph.num_src()).ok()? as usize);
    let ranges: Vec<usize> = partition.ranges().iter().map(|start| *start as usize).collect();
    let one = Weights { pull: 1, push: 1 };
    let mut rows_that_move = 0;
    for part in 0..partition.num_parts() {
        let sources = |new: usize| {
            let old = permutation.old_of(new);
            graph.row(old).iter().map(|j| permutation.new_of(j.index()) as u32).collect::<Vec<u32>>()
        };
        let (mut indptr, mut indices) = (vec![0], Vec::new());
        for new in ranges[part]..ranges[part + 1] {
            let mut row = sources(new);
            row.sort_unstable();
            indices.extend(row);
            indptr.push(indices.len() as u64);
        }
        let found = covers(&Csr::from_valid(indptr, indices, nodes), &ranges, part, one);
        rows_that_move += found.iter().map(|cover| cover.weight(one)).sum::<u64>();
    }
    Some(rows_that_move)
}

/// The cover of least weight of the edges into `rows` from the columns `peer`, which are none of these rows' own.
pub fn cover_from(rows: &Csr<u32>, peer: Range<usize>, weights: Weights) -> Cover {
    Pair::new(rows, peer.start as u32..peer.end as u32).cover(weights.reduced())
}

/// The edges between the rows of a rank and the nodes of a peer, parallel ones once. Both sides are renumbered: only
/// nodes that have such an edge are here.
struct Pair {
    /// Which row each destination is.
    rows: Vec<u32>,
    /// Which column each source is.
    columns: Vec<u32>,
    /// Where each destination's edges begin, and the end.
    into: Vec<u32>,
    /// The source and the destination of every edge, in order of destinations.
    source: Vec<u32>,
    destination: Vec<u32>,
    /// Where each source's edges begin in `out_of`, and the end.
    starts: Vec<u32>,
    /// Edges in order of sources.
    out_of: Vec<u32>,
}

const NONE: u32 = u32::MAX;

impl Pair {
    fn new(csr: &Csr<u32>, peer: Range<u32>) -> Self {
        let (mut rows, mut into, mut source, mut destination) = (Vec::new(), vec![0], Vec::new(), Vec::new());
        let mut degree = vec![0u32; peer.len()];
        for i in 0..csr.num_dst() {
            let row = csr.row(i);
            let within = row.partition_point(|j| *j < peer.start)..row.partition_point(|j| *j < peer.end);
            for same in row[within].chunk_by(|a, b| a == b) {
                let j = same[0] - peer.start;
                degree[j as usize] += 1;
                source.push(j);
                destination.push(rows.len() as u32);
            }
            if source.len() as u32 > into[rows.len()] {
                rows.push(i as u32);
                into.push(source.len() as u32);
            }
        }
        // Sources that have an edge, in order, get the next numbers; `degree` becomes the map.
        let (mut columns, mut starts) = (Vec::new(), vec![0]);
        let mut end = 0;
        for (j, degree) in peer.zip(&mut degree).filter(|(_, degree)| **degree > 0) {
            end += *degree;
            *degree = columns.len() as u32;
            columns.push(j);
            starts.push(end);
        }
        source.iter_mut().for_each(|j| *j = degree[*j as usize]);
        let mut next = starts.clone();
        let mut out_of = vec![0; source.len()];
        for (edge, j) in (0..).zip(&source) {
            out_of[next[*j as usize] as usize] = edge;
            next[*j as usize] += 1;
        }
        Self { rows, columns, into, source, destination, starts, out_of }
    }

    fn cover(self, weights: Weights) -> Cover {
        let mut flow = Flow::new(&self, weights);
        while flow.levels() {
            flow.augment();
        }
        // What the last search reached is on the source's side of the cut.
        let cut = |ids: &[u32], level: &[u32], reached: bool| {
            ids.iter().zip(level).filter(|(_, level)| (**level != NONE) == reached).map(|(id, _)| *id).collect()
        };
        let pulled = cut(&self.columns, &flow.source_level, false);
        let pushed = cut(&self.rows, &flow.destination_level, true);
        Cover { pulled, pushed }
    }
}

/// A flow from sources to destinations, and the state of a search for more.
struct Flow<'a> {
    pair: &'a Pair,
    /// What each source can still send, each destination take.
    supply: Vec<u32>,
    demand: Vec<u32>,
    /// Of every edge.
    flow: Vec<u32>,
    /// How far from a source with supply a node is, counted in pairs of arcs; `NONE` if it was not reached.
    source_level: Vec<u32>,
    destination_level: Vec<u32>,
    /// Arcs before these lead nowhere in this round: positions in `out_of`, and edges.
    source_next: Vec<u32>,
    destination_next: Vec<u32>,
}

impl<'a> Flow<'a> {
    fn new(pair: &'a Pair, weights: Weights) -> Self {
        let (sources, destinations) = (pair.columns.len(), pair.rows.len());
        Self {
            pair,
            supply: vec![weights.pull; sources],
            demand: vec![weights.push; destinations],
            flow: vec![0; pair.source.len()],
            source_level: vec![NONE; sources],
            destination_level: vec![NONE; destinations],
            source_next: vec![0; sources],
            destination_next: vec![0; destinations],
        }
    }

    /// Finds how far every node is and whether any destination with demand can be reached.
    fn levels(&mut self) -> bool {
        let p = self.pair;
        self.source_level.fill(NONE);
        self.destination_level.fill(NONE);
        self.source_next.copy_from_slice(&p.starts[..p.columns.len()]);
        self.destination_next.copy_from_slice(&p.into[..p.rows.len()]);
        let mut here: Vec<u32> = (0..).zip(&self.supply).filter(|(_, s)| **s > 0).map(|(j, _)| j).collect();
        here.iter().for_each(|j| self.source_level[*j as usize] = 0);
        let (mut found, mut level) = (false, 0);
        while !here.is_empty() && !found {
            let mut beyond = Vec::new();
            for j in here {
                for edge in &p.out_of[p.starts[j as usize] as usize..p.starts[j as usize + 1] as usize] {
                    let i = p.destination[*edge as usize] as usize;
                    if self.destination_level[i] != NONE {
                        continue;
                    }
                    self.destination_level[i] = level;
                    found |= self.demand[i] > 0;
                    // Back along what flows into i: it could come from here instead.
                    for back in p.into[i] as usize..p.into[i + 1] as usize {
                        let j = p.source[back];
                        if self.flow[back] > 0 && self.source_level[j as usize] == NONE {
                            self.source_level[j as usize] = level + 1;
                            beyond.push(j);
                        }
                    }
                }
            }
            here = beyond;
            level += 1;
        }
        found
    }

    /// Sends as much as shortest paths can carry.
    fn augment(&mut self) {
        let mut path = Vec::new();
        for start in 0..self.supply.len() as u32 {
            while self.supply[start as usize] > 0 && self.search(start, &mut path) {
                self.send(start, &path);
            }
        }
    }

    /// Finds a path from `start` to demand: edges by turns along and against their direction.
    fn search(&mut self, start: u32, path: &mut Vec<u32>) -> bool {
        let p = self.pair;
        path.clear();
        let mut j = start;
        loop {
            match self.step(j) {
                Some((edge, None)) => {
                    path.push(edge);
                    return true;
                }
                Some((edge, Some(back))) => {
                    path.extend([edge, back]);
                    j = p.source[back as usize];
                }
                None => {
                    let (Some(back), Some(edge)) = (path.pop(), path.pop()) else { return false };
                    self.destination_next[p.destination[back as usize] as usize] += 1;
                    j = p.source[edge as usize];
                }
            }
        }
    }

    /// The next edge out of source `j`, to a destination with demand or, with the edge back, to one whose flow can be
    /// moved.
    fn step(&mut self, j: u32) -> Option<(u32, Option<u32>)> {
        let (p, j) = (self.pair, j as usize);
        let level = self.source_level[j];
        while self.source_next[j] < p.starts[j + 1] {
            let edge = p.out_of[self.source_next[j] as usize];
            let i = p.destination[edge as usize] as usize;
            if self.destination_level[i] == level {
                if self.demand[i] > 0 {
                    return Some((edge, None));
                }
                while self.destination_next[i] < p.into[i + 1] {
                    let back = self.destination_next[i];
                    if self.flow[back as usize] > 0 && self.source_level[p.source[back as usize] as usize] == level + 1
                    {
                        return Some((edge, Some(back)));
                    }
                    self.destination_next[i] += 1;
                }
            }
            self.source_next[j] += 1;
        }
        None
    }

    fn send(&mut self, start: u32, path: &[u32]) {
        let Some(last) = path.last() else { return };
        let end = self.pair.destination[*last as usize] as usize;
        let narrowest = path.iter().skip(1).step_by(2).map(|back| self.flow[*back as usize]).min().unwrap_or(u32::MAX);
        let amount = narrowest.min(self.supply[start as usize]).min(self.demand[end]);
        self.supply[start as usize] -= amount;
        self.demand[end] -= amount;
        path.iter().step_by(2).for_each(|edge| self.flow[*edge as usize] += amount);
        path.iter().skip(1).step_by(2).for_each(|back| self.flow[*back as usize] -= amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphweft_base::random::Philox;

    /// Rows of rank 0 over columns of rank 1, which begin at `rows`; parallel edges and empty rows among them.
    fn random(seed: u64, rows: usize, columns: usize, edges: u64) -> Csr<u32> {
        let random = Philox::new(seed, 0);
        let mut list: Vec<Vec<u32>> = vec![Vec::new(); rows];
        for k in 0..edges {
            let row = &mut list[random.below(2 * k, rows as u64) as usize];
            row.push((rows as u64 + random.below(2 * k + 1, columns as u64)) as u32);
        }
        list.iter_mut().for_each(|row| row.sort_unstable());
        let indptr = std::iter::once(0).chain(list.iter().scan(0, |end, row| {
            *end += row.len() as u64;
            Some(*end)
        }));
        Csr::new(indptr.collect::<Vec<u64>>(), list.concat(), rows + columns).unwrap()
    }

    fn serves_everything(csr: &Csr<u32>, cover: &Cover) -> bool {
        (0..csr.num_dst()).all(|i| {
            let pushed = cover.pushed.binary_search(&(i as u32)).is_ok();
            csr.row(i).iter().all(|j| pushed || cover.pulled.binary_search(j).is_ok())
        })
    }

    /// The least weight over all sets of pushed rows: what they leave must be pulled.
    fn least(csr: &Csr<u32>, weights: Weights) -> u64 {
        let weigh = |set: u32| {
            let left = (0..csr.num_dst()).filter(|i| set & (1 << i) == 0);
            let mut pulled: Vec<u32> = left.flat_map(|i| csr.row(i)).copied().collect();
            pulled.sort_unstable();
            pulled.dedup();
            let pushed = (0..csr.num_dst()).filter(|i| set & (1 << i) != 0).map(|i| i as u32).collect();
            Cover { pulled, pushed }.weight(weights)
        };
        (0..1 << csr.num_dst()).map(weigh).min().unwrap()
    }

    #[test]
    fn no_cover_weighs_less() {
        for seed in 0..400 {
            let (rows, columns, edges) = (1 + seed as usize % 9, 1 + seed as usize % 7, seed % 31);
            let csr = random(seed, rows, columns, edges);
            let ranges = [0, rows, rows + columns];
            for (pull, push) in [(1, 1), (16, 17), (8, 11), (2, 5), (5, 2)] {
                let weights = Weights { pull, push };
                let found = &covers(&csr, &ranges, 0, weights)[1];
                assert!(serves_everything(&csr, found), "{seed}");
                assert_eq!(found.weight(weights), least(&csr, weights), "{seed} {weights:?}");
            }
        }
    }

    #[test]
    fn the_weight_is_the_flow() {
        for seed in 0..20 {
            let csr = random(seed, 3000, 2000, 5000 * (1 + seed % 4));
            let weights = Weights { pull: 16, push: 17 };
            let pair = Pair::new(&csr, 3000..5000);
            let mut flow = Flow::new(&pair, weights);
            while flow.levels() {
                flow.augment();
            }
            let value: u64 = flow.flow.iter().map(|f| u64::from(*f)).sum();
            let cover = Pair::new(&csr, 3000..5000).cover(weights);
            assert!(serves_everything(&csr, &cover));
            assert_eq!(cover.weight(weights), value, "{seed}");
        }
    }

    #[test]
    fn edges_inside_a_rank_need_nothing() {
        let csr = Csr::new(vec![0, 2, 3], vec![0, 1, 3], 4).unwrap();
        let found = covers(&csr, &[0, 2, 3, 4], 0, Weights { pull: 1, push: 1 });
        let pulled = Cover { pulled: vec![3], pushed: vec![] };
        assert_eq!(found[..2], [Cover::default(), Cover::default()]);
        assert!(found[2] == pulled || found[2].pushed == [1]);
    }

    #[test]
    fn equal_costs_are_pulled() {
        let csr = random(1, 1, 1, 1);
        assert!(covers(&csr, &[0, 1, 2], 0, Weights { pull: 3, push: 3 })[1].pushed.is_empty());
    }
}
