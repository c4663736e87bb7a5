//! The strategies by name. All but those that are called approximate compute the same function.

use std::fmt;
use std::rc::Rc;
use std::str::FromStr;

use graphweft_model::GraphOps;
use graphweft_tensor::{Error, Matrix, Result};
use serde::{Deserialize, Serialize};

use crate::gather::Gather;
use crate::grid;
use crate::halo::Halo;
use crate::layout::Layout;
use crate::link::Link;
use crate::local::Local;
use crate::ring::Ring;

/// How operations over the graph are spread over ranks.
///
/// ```
/// use graphweft_parallel::Strategy;
/// let strategy: Strategy = "grid:2x4:gather".parse()?;
/// assert_eq!(strategy.to_string(), "grid:2x4:gather");
/// # Ok::<(), graphweft_tensor::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Strategy {
    /// One rank that has every row.
    Local,
    /// All rows of the sources' operand on every rank.
    Gather,
    /// What cut edges need, and nothing else.
    Halo(Cover),
    /// All rows on every rank, for some of the heads.
    Heads,
    /// One rank's rows at a time.
    Ring {
        /// How many ranks' rows are under way while one's are used.
        depth: usize,
    },
    /// Nodes × heads.
    Grid {
        /// Groups of ranks that have different nodes.
        nodes: usize,
        /// Ranks of a group, which have different heads of the group's nodes.
        heads: usize,
        /// What the ranks that have the same heads do.
        inside: Inside,
    },
    /// Approximate: layers in stages, the graph in [chunks](crate::Pipeline) that pass through them. Where all rows are needed at
    /// once, for scores of a model that was trained, it is [`Strategy::Ring`], or [`Strategy::Local`] on one rank.
    Pipeline {
        /// Unset: a stage for every rank.
        shape: Option<Stages>,
    },
    /// Approximate: each rank learns from pieces of its own, and only gradients move. Where all rows are needed at once, for
    /// exact scores, it is [`Strategy::Ring`], or [`Strategy::Local`] on one rank.
    Isolated,
}

/// The shape of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stages {
    /// How many.
    pub count: usize,
    /// Ranks that share one.
    pub ways: usize,
    /// What these do together.
    pub within: Within,
}

impl Stages {
    /// Those of a pipeline on so many ranks.
    pub fn of(shape: Option<Self>, ranks: usize) -> Self {
        shape.unwrap_or(Self { count: ranks, ways: 1, within: Within::default() })
    }
}

/// What the ranks of a stage do together: one of the exact strategies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Within {
    /// As [`Strategy::Gather`].
    Gather,
    /// As [`Strategy::Halo`].
    Halo(Cover),
    /// As [`Strategy::Heads`].
    Heads,
    /// As [`Strategy::Ring`].
    Ring {
        /// As there.
        depth: usize,
    },
}

impl Default for Within {
    fn default() -> Self {
        Self::Halo(Cover::Least)
    }
}

impl From<Within> for Strategy {
    fn from(within: Within) -> Self {
        match within {
            Within::Gather => Self::Gather,
            Within::Halo(cover) => Self::Halo(cover),
            Within::Heads => Self::Heads,
            Within::Ring { depth } => Self::Ring { depth },
        }
    }
}

impl TryFrom<Strategy> for Within {
    type Error = Strategy;

    fn try_from(strategy: Strategy) -> std::result::Result<Self, Strategy> {
        match strategy {
            Strategy::Gather => Ok(Self::Gather),
            Strategy::Halo(cover) => Ok(Self::Halo(cover)),
            Strategy::Heads => Ok(Self::Heads),
            Strategy::Ring { depth } => Ok(Self::Ring { depth }),
            other => Err(other),
        }
    }
}

/// How `halo` serves cut edges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Cover {
    /// Rows are pulled or queries pushed, whichever moves less in all.
    #[default]
    Least,
    /// Rows are pulled.
    Plain,
}

/// What `grid` does between groups of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Inside {
    /// As [`Strategy::Gather`].
    Gather,
    /// As [`Strategy::Halo`].
    Halo(Cover),
}

impl Default for Inside {
    fn default() -> Self {
        Self::Halo(Cover::Least)
    }
}

impl Strategy {
    /// What may be asked for.
    pub const NAMES: &'static str = "local, gather, halo, halo:plain, heads, ring, ring:DEPTH, grid:NODESxHEADS, \
         grid:NODESxHEADS:gather, pipeline, pipeline:STAGESxWAYS, pipeline:STAGESxWAYS:gather, isolated";

    /// Whether it computes the same function as one rank would.
    pub fn is_exact(&self) -> bool {
        !matches!(self, Self::Pipeline { .. } | Self::Isolated)
    }
}

impl fmt::Display for Cover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Least => "halo",
            Self::Plain => "halo:plain",
        })
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("local"),
            Self::Isolated => f.write_str("isolated"),
            Self::Gather => f.write_str("gather"),
            Self::Halo(cover) => cover.fmt(f),
            Self::Heads => f.write_str("heads"),
            Self::Ring { depth: 1 } => f.write_str("ring"),
            Self::Ring { depth } => write!(f, "ring:{depth}"),
            Self::Pipeline { shape: None } => f.write_str("pipeline"),
            Self::Pipeline { shape: Some(Stages { count, ways, within }) } => {
                write!(f, "pipeline:{count}x{ways}")?;
                if *within == Within::default() { Ok(()) } else { write!(f, ":{}", Self::from(*within)) }
            }
            Self::Grid { nodes, heads, inside } => {
                write!(f, "grid:{nodes}x{heads}")?;
                match inside {
                    Inside::Halo(Cover::Least) => Ok(()),
                    Inside::Halo(Cover::Plain) => f.write_str(":halo:plain"),
                    Inside::Gather => f.write_str(":gather"),
                }
            }
        }
    }
}

impl FromStr for Strategy {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let unknown = || {
            let problem = format!("there is no strategy {name:?}; choose one of: {}", Self::NAMES);
            Error::Argument { op: "strategy", problem }
        };
        let number = |text: &str| text.parse().ok().filter(|n| *n > 0).ok_or_else(unknown);
        let (first, rest) = name.split_once(':').map_or((name, None), |(first, rest)| (first, Some(rest)));
        match (first, rest) {
            ("local", None) => Ok(Self::Local),
            ("isolated", None) => Ok(Self::Isolated),
            ("gather", None) => Ok(Self::Gather),
            ("halo", None) => Ok(Self::Halo(Cover::Least)),
            ("halo", Some("plain")) => Ok(Self::Halo(Cover::Plain)),
            ("heads", None) => Ok(Self::Heads),
            ("ring", None) => Ok(Self::Ring { depth: 1 }),
            ("ring", Some(depth)) => Ok(Self::Ring { depth: number(depth)? }),
            ("pipeline", None) => Ok(Self::Pipeline { shape: None }),
            ("pipeline", Some(rest)) => {
                let (shape, within) = rest.split_once(':').unwrap_or((rest, "halo"));
                let (count, ways) = shape.split_once('x').ok_or_else(unknown)?;
                let within = within.parse::<Self>().ok().and_then(|exact| Within::try_from(exact).ok());
                let within = within.ok_or_else(unknown)?;
                Ok(Self::Pipeline { shape: Some(Stages { count: number(count)?, ways: number(ways)?, within }) })
            }
            ("grid", Some(rest)) => {
                let (shape, inside) = rest.split_once(':').unwrap_or((rest, "halo"));
                let (nodes, heads) = shape.split_once('x').ok_or_else(unknown)?;
                let inside = match inside {
                    "gather" => Inside::Gather,
                    "halo" => Inside::Halo(Cover::Least),
                    "halo:plain" => Inside::Halo(Cover::Plain),
                    _ => return Err(unknown()),
                };
                Ok(Self::Grid { nodes: number(nodes)?, heads: number(heads)?, inside })
            }
            _ => Err(unknown()),
        }
    }
}

impl TryFrom<String> for Strategy {
    type Error = Error;

    fn try_from(name: String) -> Result<Self> {
        name.parse()
    }
}

impl From<Strategy> for String {
    fn from(strategy: Strategy) -> Self {
        strategy.to_string()
    }
}

/// This rank's operations over the rows of `layout`, where `edge_features` have a row per edge into them, in its order.
///
/// # Errors
/// If the strategy is not for this number of ranks, or ranks could not agree.
pub fn spread(
    strategy: &Strategy,
    layout: &Layout,
    link: &Link,
    edge_features: Option<Matrix>,
) -> Result<Rc<dyn GraphOps>> {
    let refused = |problem: String| Err(Error::Argument { op: "strategy", problem });
    if (layout.rank(), layout.ranks()) != (link.rank(), link.size()) {
        let (rank, ranks) = (layout.rank(), layout.ranks());
        return refused(format!("rows of rank {rank} of {ranks} are on rank {} of {}", link.rank(), link.size()));
    }
    if let Some(features) = edge_features.as_ref().filter(|m| m.rows() != layout.csr().num_edges()) {
        return refused(format!("{} edge features for {} edges", features.rows(), layout.csr().num_edges()));
    }
    match *strategy {
        Strategy::Local | Strategy::Pipeline { .. } | Strategy::Isolated if link.size() == 1 => {
            Ok(Rc::new(Local::renumbered(link.device(), layout, edge_features)?))
        }
        Strategy::Local => refused(format!("local is for one rank, not {}", link.size())),
        Strategy::Gather => Ok(Rc::new(Gather::new(layout, link, edge_features)?)),
        Strategy::Heads => grid::new((1, link.size()), Inside::Gather, layout, link, edge_features),
        Strategy::Grid { nodes, heads, inside } => grid::new((nodes, heads), inside, layout, link, edge_features),
        Strategy::Halo(cover) => Ok(Rc::new(Halo::new(layout, link, edge_features, cover)?)),
        Strategy::Ring { depth } => Ok(Rc::new(Ring::new(layout, link, edge_features.as_ref(), depth)?)),
        Strategy::Pipeline { .. } | Strategy::Isolated => {
            Ok(Rc::new(Ring::new(layout, link, edge_features.as_ref(), 1)?))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        for name in [
            "local",
            "gather",
            "halo",
            "halo:plain",
            "heads",
            "ring",
            "ring:3",
            "grid:2x4",
            "grid:2x4:gather",
            "grid:1x3:halo:plain",
            "pipeline",
            "pipeline:4x2",
            "pipeline:4x2:gather",
            "pipeline:2x3:ring:2",
            "isolated",
        ] {
            assert_eq!(name.parse::<Strategy>().unwrap().to_string(), name);
        }
        assert_eq!("ring:1".parse::<Strategy>().unwrap(), Strategy::Ring { depth: 1 });
        assert_eq!("grid:2x2:halo".parse::<Strategy>().unwrap().to_string(), "grid:2x2");
    }

    #[test]
    fn other_names_are_refused() {
        for name in [
            "",
            "halos",
            "ring:0",
            "ring:x",
            "grid",
            "grid:2",
            "grid:0x2",
            "grid:2x2:ring",
            "heads:2",
            "local:",
            "pipeline:2",
            "pipeline:2x2:local",
            "pipeline:2x2:pipeline",
        ] {
            let e = name.parse::<Strategy>().unwrap_err().to_string();
            assert!(e.contains("halo:plain"), "{name:?}: {e}");
        }
    }
}
