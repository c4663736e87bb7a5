//! What the planner chooses from.

use std::fmt;

use graphweft_graph::partition::Method;
use graphweft_model::Remat;
use graphweft_parallel::Strategy;
use serde::{Deserialize, Serialize};

/// One way to spread the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// What moves between ranks.
    pub strategy: Strategy,
    /// How the graph is divided; nothing for one rank.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<Method>,
    /// What is computed again in backward instead of being kept.
    pub remat: Remat,
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.strategy.fmt(f)?;
        if let Some(method) = self.partition {
            write!(f, ", {method}")?;
        }
        match self.remat {
            Remat::None => Ok(()),
            remat => write!(f, ", {} recomputed", name_of(remat)),
        }
    }
}

/// What is computed again, in a word.
pub fn name_of(remat: Remat) -> &'static str {
    match remat {
        Remat::None => "nothing",
        Remat::Attention => "attention",
        Remat::Layer => "layers",
        Remat::Both => "layers, attention twice",
    }
}

/// Everything that saves at least as much memory as `least`, the fastest first.
pub(crate) fn remats(least: Remat) -> &'static [Remat] {
    static ALL: [Remat; 4] = Remat::ALL;
    let first = ALL.iter().position(|remat| *remat == least).unwrap_or(0);
    &ALL[first..]
}

/// The exact strategies for `ranks` ranks and a model whose operations over the graph can be shared by `shares` of
/// them: heads of attention, or columns of a sum.
pub fn strategies(ranks: usize, shares: usize) -> Vec<Strategy> {
    candidates(ranks, shares).filter(Strategy::is_exact).collect()
}

/// Pipelines for `ranks` ranks. They do not compute what one rank would: only for those who allow it.
pub fn pipelines(ranks: usize) -> Vec<Strategy> {
    candidates(ranks, 1).filter(|strategy| matches!(strategy, Strategy::Pipeline(_))).collect()
}

fn candidates(ranks: usize, shares: usize) -> impl Iterator<Item = Strategy> {
    Strategy::TABLE.iter().flat_map(move |listed| listed.candidates(ranks, shares))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipelines_have_every_shape_with_more_than_one_stage() {
        let names = |ranks| pipelines(ranks).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(names(8), ["pipeline", "pipeline:4x2", "pipeline:2x4"]);
        assert_eq!(names(3), ["pipeline"]);
        assert!(names(1).is_empty());
    }

    fn names(ranks: usize, shares: usize) -> Vec<String> {
        strategies(ranks, shares).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_exact_strategy_is_a_candidate() {
        assert_eq!(names(1, 8), ["local"]);
        assert_eq!(names(2, 8), ["gather", "halo", "halo:plain", "heads", "ring"]);
        assert_eq!(names(3, 8), names(2, 8), "three is prime");
        let grids: Vec<String> = names(8, 8).into_iter().filter(|n| n.starts_with("grid")).collect();
        assert_eq!(grids, ["grid:4x2", "grid:4x2:gather", "grid:2x4", "grid:2x4:gather"]);
        assert!(names(8, 2).contains(&"grid:4x2".to_string()) && !names(8, 2).contains(&"grid:2x4".to_string()));
        assert!(names(4, 1).contains(&"ring:2".to_string()));
    }

    #[test]
    fn candidates_are_named_for_people() {
        let c = Candidate {
            strategy: graphweft_parallel::settings::Heads.into(),
            partition: Some(Method::Contiguous),
            remat: Remat::Layer,
        };
        assert_eq!(c.to_string(), "heads, contiguous, layers recomputed");
        assert_eq!(remats(Remat::Attention), [Remat::Attention, Remat::Layer, Remat::Both]);
    }
}
