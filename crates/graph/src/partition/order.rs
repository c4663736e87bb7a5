//! The order of nodes inside a part.
//!
//! Gathering neighbours' rows is fast when they lie near each other. Both searches below start from a node of few neighbours
//! and number what they meet, breadth first; parts are searched independently, each node is visited by its own part only.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::PartId;
use crate::csr::{Csr, NodeId};
use crate::error::{Error, Result};
use crate::progress::Task;

/// How to arrange the nodes of a part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// By original id.
    None,
    /// Breadth first.
    Bfs,
    /// Reverse Cuthill–McKee: breadth first, neighbours of few neighbours first, backwards.
    #[default]
    Rcm,
}

impl Order {
    /// All orders.
    pub const ALL: [Self; 3] = [Self::None, Self::Bfs, Self::Rcm];

    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Bfs => "bfs",
            Self::Rcm => "rcm",
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Order {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|o| o.name() == name).ok_or_else(|| {
            let what = format!("there is no node order {name:?}");
            Error::request(what, format!("choose one of: {}", Self::ALL.map(Self::name).join(", ")))
        })
    }
}

/// Original ids in new order, part after part, and the first new id of every part.
pub(super) fn arrange<I: NodeId>(
    graph: &Csr<I>,
    part_of: &[PartId],
    parts: usize,
    order: Order,
    task: &dyn Task,
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
    if order != Order::None {
        let seen: Vec<AtomicBool> = part_of.iter().map(|_| AtomicBool::new(false)).collect();
        let mut rest = &mut old_of_new[..];
        let mut slices = Vec::with_capacity(parts);
        for w in ranges.windows(2) {
            let (slice, tail) = rest.split_at_mut((w[1] - w[0]) as usize);
            slices.push(slice);
            rest = tail;
        }
        slices.into_par_iter().enumerate().for_each(|(part, nodes)| {
            search(graph, part_of, part as PartId, nodes, &seen, order);
            task.add(nodes.len() as u64);
        });
    }
    (old_of_new, ranges)
}

/// Rearranges the nodes of one part.
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
