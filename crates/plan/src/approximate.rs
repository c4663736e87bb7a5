//! Candidates that do not compute the same function as one rank would: only for those who allow it.

use graphweft_parallel::{Stages, Strategy, Within};

/// Pipelines for `ranks` ranks: a stage for each, and stages that several share.
///
/// Bubbles, rows that chunks look at beside their own, and states between stages need no formula: a rehearsal has them.
pub fn pipelines(ranks: usize) -> Vec<Strategy> {
    let shared = (2..=ranks / 2).filter(|ways| ranks.is_multiple_of(*ways));
    let shared = shared.map(|ways| Some(Stages { count: ranks / ways, ways, within: Within::default() }));
    std::iter::once(None).chain(shared).filter(|_| ranks > 1).map(|shape| Strategy::Pipeline { shape }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_with_more_than_one_stage() {
        let names = |ranks| pipelines(ranks).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(names(8), ["pipeline", "pipeline:4x2", "pipeline:2x4"]);
        assert_eq!(names(3), ["pipeline"]);
        assert!(names(1).is_empty());
    }
}
