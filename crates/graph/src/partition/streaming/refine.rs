//! Improving parts: restreamed passes over the rows, then, where its table is small, a search across hills.

use graphweft_base::progress::Phase;

use super::fm;
use crate::csr::NodeId;
use crate::partition::hierarchy::{Labels, Level, Rule, pass};

/// Passes over the rows; each is also a restreaming of the last.
pub(super) const MOST_PASSES: usize = 8;
/// A pass that moves fewer than one node in this many is the last.
const SETTLED: usize = 1000;

/// How to improve parts of a graph.
#[derive(Clone, Copy)]
pub(super) enum Effort {
    /// Passes over the rows.
    Passes,
    /// Also the search of [`fm`], for which the graph must be symmetric.
    Search,
}

/// Improves parts of at most `most` each.
pub(super) fn refine<I: NodeId>(
    level: &Level<I>,
    labels: &mut Labels<I>,
    most: u64,
    effort: Effort,
    phase: &dyn Phase,
) {
    for _ in 0..MOST_PASSES {
        if pass(level, labels, most, Rule::Refine, phase) <= level.len() / SETTLED {
            break;
        }
    }
    match effort {
        Effort::Passes => {}
        Effort::Search => fm::climb(level, labels, most),
    }
}
