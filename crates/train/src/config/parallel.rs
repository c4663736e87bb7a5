//! `[parallel]`: how many ranks, and how the work is spread over them.

use std::fmt;
use std::str::FromStr;

use graphweft_graph::partition::{MOST_PARTS, Method};
use graphweft_parallel::Strategy;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{Problem, at_least_one};

/// `[parallel]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ParallelConfig {
    /// How many ranks. Unset: one, or all processes that a launcher started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks: Option<u64>,
    /// What each rank computes and what moves between them: auto, or a strategy by name.
    pub strategy: Choice,
    /// How ranks talk.
    pub comm: CommName,
    /// How the graph is divided; a partition `part/<method>-<parts>` in the dataset folder is taken as it is.
    pub partition: Method,
    /// Into how many parts. Unset: as many as there are ranks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parts: Option<u64>,
    /// The machine that auto plans for: a shipped profile or a file. Unset: the one at hand, which is measured once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// How often it is measured; the least time of every kernel counts. More than once where others use it too.
    pub calibration_rounds: u64,
    /// Whether auto may choose a strategy that computes something else: `isolated`, or a pipeline.
    pub allow_approximate: bool,
    /// How many of the best strategies auto tries for a few epochs before it decides.
    pub measure: u64,
    /// Seconds after which a rank that does not answer is taken for lost.
    pub deadline: u64,
}

/// How ranks talk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CommName {
    /// Ranks are threads of this process.
    #[default]
    Threads,
    /// Ranks are processes that `mpirun` started.
    Mpi,
    /// Ranks have a GPU each: processes that `torchrun`, `mpirun` or `srun` started, or threads of one.
    Nccl,
}

impl fmt::Display for CommName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Threads => "threads",
            Self::Mpi => "mpi",
            Self::Nccl => "nccl",
        })
    }
}

/// A strategy, or that one be chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Choice {
    /// By Graphweft.
    #[default]
    Auto,
    /// By the user.
    Named(Strategy),
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Named(strategy) => strategy.fmt(f),
        }
    }
}

impl FromStr for Choice {
    type Err = <Strategy as FromStr>::Err;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        if name == "auto" { Ok(Self::Auto) } else { name.parse().map(Self::Named) }
    }
}

impl Serialize for Choice {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Choice {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}

impl Default for ParallelConfig {
    fn default() -> Self {
        let partition = if Method::Metis.is_available() { Method::Metis } else { Method::Streaming };
        Self {
            ranks: None,
            strategy: Choice::Auto,
            comm: CommName::Threads,
            partition,
            parts: None,
            profile: None,
            calibration_rounds: 1,
            allow_approximate: false,
            measure: 0,
            deadline: 600,
        }
    }
}

impl ParallelConfig {
    /// Whether two runs spread their work in the same way, however their ranks talk.
    pub fn spreads_as(&self, other: &Self) -> bool {
        let spread = |c: &Self| (c.ranks, c.strategy, c.allow_approximate, c.partition, c.parts);
        spread(self) == spread(other)
    }

    /// Into how many parts the graph is divided for so many ranks.
    pub fn parts_for(&self, ranks: usize) -> usize {
        self.parts.map_or(ranks, |parts| parts as usize)
    }

    pub(super) fn check(&self) -> Result<(), Problem> {
        let (ranks, most) = (self.ranks.unwrap_or(1), MOST_PARTS as u64);
        at_least_one("ranks", ranks)?;
        at_least_one("deadline", self.deadline)?;
        at_least_one("calibration_rounds", self.calibration_rounds)?;
        for (key, count) in [("ranks", ranks), ("parts", self.parts.unwrap_or(1))] {
            if count > most {
                return Err((key, format!("{count} are more than the {most} that are supported"), "set fewer"));
            }
        }
        if let Some(parts) = self.parts.filter(|parts| *parts < ranks) {
            return Err(("parts", format!("{parts} parts leave ranks of {ranks} without any"), "set at least as many"));
        }
        if !self.partition.is_available() {
            return Err(("partition", "this build has no METIS".into(), "set streaming, or build with feature metis"));
        }
        Ok(())
    }
}
