//! Self-loops.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::{Csr, NodeId, rows};

/// What to do with edges from a node to itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SelfLoops {
    /// Leave the graph as it is.
    #[default]
    Keep,
    /// Give every node exactly one.
    Add,
    /// Take all of them away.
    Remove,
}

impl<I: NodeId> Csr<I> {
    /// The graph with its self-loops kept, removed, or exactly one on every node.
    pub fn with_self_loops(&self, loops: SelfLoops) -> Self {
        let added = match loops {
            SelfLoops::Keep => return self.clone(),
            SelfLoops::Add => 1,
            SelfLoops::Remove => 0,
        };
        assert_eq!(self.num_dst(), self.num_src(), "only nodes of a square graph have self-loops");
        rows::build(
            self.num_dst(),
            self.num_src(),
            |i| self.degree(i) - self.loops_at(i).len() + added,
            |i, out| {
                let (row, loops) = (self.row(i), self.loops_at(i));
                out[..loops.start].copy_from_slice(&row[..loops.start]);
                out[loops.start..loops.start + added].fill(I::new(i));
                out[loops.start + added..].copy_from_slice(&row[loops.end..]);
            },
        )
    }

    /// How many edges lead from a node to itself.
    pub fn num_self_loops(&self) -> usize {
        (0..self.num_dst().min(self.num_src())).into_par_iter().map(|i| self.loops_at(i).len()).sum()
    }

    fn loops_at(&self, i: usize) -> std::ops::Range<usize> {
        let (row, me) = (self.row(i), I::new(i));
        let start = row.partition_point(|&j| j < me);
        start..start + row[start..].partition_point(|&j| j == me)
    }
}
