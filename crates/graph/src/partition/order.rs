//! The order of nodes inside a part.
//!
//! Gathering neighbours' rows is fast when they lie near each other. The measure is log₂(1 + |i − j|), averaged over
//! edges:
//!
//! | graph, 8 parts | by id | breadth first | reverse Cuthill–McKee | clusters |
//! |---|---|---|---|---|
//! | law-cnr2000 | **7.9** | 9.7 | 10.6 | 8.1 |
//! | snap-web-google | 14.6 | 10.4 | 10.2 | **5.4** |
//! | pubmed | 9.5 | 8.5 | 8.5 | **5.8** |
//! | coauthor-cs | 9.4 | 7.9 | 7.9 | **6.3** |
//! | amazon-photo | 8.2 | 7.2 | 7.2 | **6.8** |
//!
//! Breadth-first layers of graphs with hubs are as wide as the part: neighbours end up a layer apart. Clusters of some
//! tens of nodes, inside clusters eight times as large, and so on, keep most edges short.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use graphweft_base::progress::{Progress, Unit};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::PartId;
use super::balance::Balance;
use super::hierarchy::Hierarchy;
use crate::csr::{Csr, NodeId};

/// How to arrange the nodes of a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// By original id.
    None,
    /// Breadth first.
    Bfs,
    /// Reverse Cuthill–McKee: breadth first, neighbours of few neighbours first, backwards.
    Rcm,
    /// Clusters within clusters, next to each other; by original id inside the smallest.
    #[default]
    Cluster,
}

impl Order {
    /// All orders.
    pub const ALL: [Self; 4] = [Self::None, Self::Bfs, Self::Rcm, Self::Cluster];

    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Bfs => "bfs",
            Self::Rcm => "rcm",
            Self::Cluster => "cluster",
        }
    }
}

by_name!(Order, "node order");

/// Nodes of the smallest clusters, at most.
const SMALLEST_CLUSTER: u64 = 32;
/// Binary logarithm of how much larger each next kind is.
const GROWTH: u32 = 3;

/// Original ids in new order, part after part, and the first new id of every part.
pub(super) fn arrange<I: NodeId>(
    graph: &Csr<I>,
    part_of: &[PartId],
    parts: usize,
    order: Order,
    progress: &dyn Progress,
) -> (Vec<u64>, Vec<u64>) {
    let mut ranges = vec![0u64; parts + 1];
    for &p in part_of {
        ranges[usize::from(p) + 1] += 1;
    }
    for p in 0..parts {
        ranges[p + 1] += ranges[p];
    }
    let mut next = ranges.clone();
    let mut old_of_new = vec![0u64; part_of.len()];
    for (old, &p) in part_of.iter().enumerate() {
        let at = &mut next[usize::from(p)];
        old_of_new[*at as usize] = old as u64;
        *at += 1;
    }
    match order {
        Order::None => {}
        Order::Bfs | Order::Rcm => {
            let phase = progress.start("ordering nodes", part_of.len() as u64, Unit::Items);
            let seen: Vec<AtomicBool> = part_of.iter().map(|_| AtomicBool::new(false)).collect();
            slices(&mut old_of_new, &ranges).into_par_iter().enumerate().for_each(|(part, nodes)| {
                search(graph, part_of, part as PartId, nodes, &seen, order);
                phase.add(nodes.len() as u64);
            });
        }
        Order::Cluster => {
            let places = hierarchy(graph, progress);
            slices(&mut old_of_new, &ranges)
                .into_par_iter()
                .for_each(|nodes| nodes.par_sort_unstable_by_key(|&i| places[i as usize]));
        }
    }
    (old_of_new, ranges)
}

fn slices<'a>(mut nodes: &'a mut [u64], ranges: &[u64]) -> Vec<&'a mut [u64]> {
    let cut = |w: &[u64]| {
        let (slice, rest) = std::mem::take(&mut nodes).split_at_mut((w[1] - w[0]) as usize);
        nodes = rest;
        slice
    };
    ranges.windows(2).map(cut).collect()
}

/// Rearranges the nodes of one part, breadth first.
fn search<I: NodeId>(
    graph: &Csr<I>,
    part_of: &[PartId],
    part: PartId,
    nodes: &mut [u64],
    seen: &[AtomicBool],
    order: Order,
) {
    let mut starts: Vec<I> = nodes.iter().map(|&i| I::new(i as usize)).collect();
    starts.sort_unstable_by_key(|&i| (graph.degree(i.index()), i));
    // The part's own slice is the queue: `done` were expanded, `found` were met.
    let (mut done, mut found) = (0, 0);
    for start in starts {
        let visit = |i: I, nodes: &mut [u64], found: &mut usize| {
            if part_of[i.index()] == part && !seen[i.index()].swap(true, Relaxed) {
                nodes[*found] = i.into();
                *found += 1;
            }
        };
        visit(start, nodes, &mut found);
        while done < found {
            let first = found;
            for &j in graph.row(nodes[done] as usize) {
                visit(j, nodes, &mut found);
            }
            if order == Order::Rcm {
                nodes[first..found].sort_unstable_by_key(|&i| (graph.degree(i as usize), i));
            }
            done += 1;
        }
    }
    if order == Order::Rcm {
        nodes.reverse();
    }
}

/// The place of every node when clusters within clusters are put next to each other.
fn hierarchy<I: NodeId>(graph: &Csr<I>, progress: &dyn Progress) -> Vec<I> {
    let bounds = (0..).map(|k| SMALLEST_CLUSTER << (k * GROWTH)).take_while(|&b| b <= graph.num_dst() as u64);
    let mut hierarchy = Hierarchy::build(graph, Balance::Nodes.into(), bounds, 1, 0, progress);
    let mut places: Vec<I> = (0..hierarchy.top().len()).map(I::new).collect();
    while let Some((size, numbers)) = hierarchy.pop() {
        // A stable counting sort of the finer nodes by the place of their cluster.
        let mut next = vec![0usize; size + 1];
        for cluster in &numbers {
            next[places[cluster.index()].index() + 1] += 1;
        }
        for k in 0..size {
            next[k + 1] += next[k];
        }
        let place = |cluster: &I| {
            let at = &mut next[places[cluster.index()].index()];
            *at += 1;
            I::new(*at - 1)
        };
        places = numbers.iter().map(place).collect();
    }
    places
}
