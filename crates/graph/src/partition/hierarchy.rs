//! The multilevel hierarchy: a graph, its clusters as nodes of a smaller graph, the clusters of that one, and so on.
//!
//! Clusters come from label propagation under a bound on their weight: in a pass over the rows every node takes the
//! label that most of its edges lead to, if there is room. A pass reads the rows in order and keeps a label per node
//! and a weight per label; memory beside the graph grows with its nodes, not with its edges. A contraction is kept only
//! if all of them together have at most half as many edges as the graph, so the whole hierarchy is never larger than
//! the graph itself: a graph without clusters has no further level, and would gain nothing from one.
//!
//! Two things use it: [`super::streaming`] divides the smallest graph and carries the parts to the larger ones, and
//! [`super::order`] puts clusters within clusters next to each other.

mod cluster;
mod level;
mod pass;
mod ratings;

use graphweft_base::progress::{Progress, Unit};

use crate::csr::{Csr, NodeId};

use super::balance::Weighing;
use super::random::hash;

pub(super) use level::Level;
pub(super) use pass::{Labels, Rule, pass};
pub(super) use ratings::Ratings;

/// A graph and its contractions.
pub(super) struct Hierarchy<'a, I: NodeId> {
    base: Level<'a, I>,
    /// From the largest to the smallest, each with the number in it of every node of the graph before.
    contracted: Vec<(Level<'static, I>, Vec<I>)>,
}

impl<'a, I: NodeId> Hierarchy<'a, I> {
    /// Contracts clusters of at most the weights `bounds`, one after another, until `enough` nodes are left.
    pub(super) fn build(
        graph: &'a Csr<I>,
        weighing: Weighing<'a>,
        bounds: impl IntoIterator<Item = u64>,
        enough: usize,
        seed: u64,
        progress: &dyn Progress,
    ) -> Self {
        let mut hierarchy = Self { base: Level::base(graph, weighing), contracted: Vec::new() };
        let mut budget = graph.num_edges() / 2;
        let mut refused = 0;
        let mut bounds = bounds.into_iter().enumerate();
        while let Some((round, bound)) = bounds.next() {
            let level = hierarchy.top();
            if level.len() <= enough || bound <= refused {
                break;
            }
            let phase = progress.start("clustering", cluster::PASSES * level.len() as u64, Unit::Items);
            let mut labels = cluster::cluster(level, bound, hash(seed, round as u64), &*phase);
            if let Some(next) = level.contract(&mut labels, budget).filter(|next| next.len() * 10 <= level.len() * 9) {
                budget -= next.num_edges();
                hierarchy.contracted.push((next, labels));
            } else {
                // The same again would do no better; much larger clusters may.
                refused = bound;
                bounds.next();
            }
        }
        hierarchy
    }

    /// The smallest graph.
    pub(super) fn top(&self) -> &Level<'_, I> {
        self.contracted.last().map_or(&self.base, |(level, _)| level)
    }

    /// Takes the smallest graph away. Gives its size and, for every node of the graph before, its number in it; `None`
    /// if only the graph itself is left.
    pub(super) fn pop(&mut self) -> Option<(usize, Vec<I>)> {
        self.contracted.pop().map(|(level, numbers)| (level.len(), numbers))
    }
}
