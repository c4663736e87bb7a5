//! Improving parts by moving nodes along their edges.

use super::level::Level;
use super::pass::{Labels, Rule, pass};
use crate::csr::NodeId;

const MOST_PASSES: usize = 8;

/// Passes until hardly any node moves.
pub(super) fn refine<I: NodeId>(level: &Level<I>, labels: &mut Labels<I>, most: u64) {
    for _ in 0..MOST_PASSES {
        let moved = pass(level, labels, most, Rule::Refine);
        if moved * 1000 < level.len().max(1000) {
            break;
        }
    }
}
