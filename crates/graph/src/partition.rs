//! Dividing a graph among ranks.
//!
//! A [`Partition`] gives every node to one of P parts and renumbers the nodes so that each part is one contiguous
//! range. What a partition costs is decided by two numbers. The *halo* of a part is the set of remote nodes that its
//! rows look at: these rows travel in every layer, and α = Σ halo rows / N says how much that is beside the graph
//! itself. The *imbalance*, the largest part over the mean part, is how long everyone waits for the slowest.
//! [`statistics`] counts both.
//!
//! | method | how | when |
//! |---|---|---|
//! | [`Method::Contiguous`] | cuts the id range | ids already follow locality (crawls, meshes) |
//! | [`Method::Random`] | ignores edges | the baseline; hides any structure |
//! | [`Method::Metis`] | multilevel, by the METIS library | fewer than 2³¹ entries, one core |
//! | [`Method::Streaming`] | passes over the rows, contracting what belongs together | any size, all cores |
//!
//! All of them keep the part weights (nodes, or edges into nodes, as [`Balance`] says) within 1.05 of the mean where
//! the weights of single nodes allow it, and all give the same bytes for the same seed on any number of threads. For a
//! directed graph, `metis` symmetrises by itself, the others see the stored in-edges only, and a caller that wants both
//! directions counted symmetrises first.
//!
//! Inside a part, nodes are put in an order that keeps neighbours near each other ([`Order`]), because gathering
//! neighbours' rows is what training spends its time on.
//!
//! A partition is stored in the dataset folder as `part/<method>-<P>/` ([`save`], [`load`]).

/// A type whose values are known by their `name`s: how they are written and read.
macro_rules! by_name {
    ($kind:ty, $what:literal) => {
        impl std::fmt::Display for $kind {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $kind {
            type Err = graphweft_base::Error;

            fn from_str(name: &str) -> graphweft_base::Result<Self> {
                Self::ALL.into_iter().find(|one| one.name() == name).ok_or_else(|| {
                    let what = format!("there is no {} {name:?}", $what);
                    let names = Self::ALL.map(Self::name).join(", ");
                    graphweft_base::Error::request(what, format!("choose one of: {names}"))
                })
            }
        }
    };
}

mod balance;
mod contiguous;
mod cover;
mod halo;
mod hierarchy;
#[cfg(feature = "metis")]
mod metis;
mod order;
mod random;
mod store;
mod streaming;

use std::ops::Range;

use graphweft_base::progress::Progress;
use graphweft_base::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::csr::{Csr, NodeId, Permutation};

pub use balance::Balance;
use balance::Weighing;
pub use cover::{Cover, Weights, cover_from, covered_rows, covers};
pub use halo::{Imbalance, PartitionStats, halo_lists, statistics};
pub use order::Order;
pub use store::{About, Existing, Stored, check_target, folder, load, save};

/// The most parts a graph may be divided into: statistics hold a matrix of parts × parts.
pub const MOST_PARTS: usize = 4096;

/// The part of a node, as stored per node while a partition is made.
type PartId = u16;

/// How to choose parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// Ranges of ids.
    Contiguous,
    /// A seeded shuffle.
    Random,
    /// The METIS library.
    Metis,
    /// Our own, for graphs of any size.
    Streaming,
}

impl Method {
    /// All methods.
    pub const ALL: [Self; 4] = [Self::Contiguous, Self::Random, Self::Metis, Self::Streaming];

    /// Whether this build has it.
    pub fn is_available(self) -> bool {
        self != Self::Metis || cfg!(feature = "metis")
    }

    fn name(self) -> &'static str {
        match self {
            Self::Contiguous => "contiguous",
            Self::Random => "random",
            Self::Metis => "metis",
            Self::Streaming => "streaming",
        }
    }
}

by_name!(Method, "partition method");

/// What to ask a partitioner for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How to choose parts.
    pub method: Method,
    /// How many.
    pub parts: usize,
    /// What to share out evenly.
    pub balance: Balance,
    /// How to arrange the nodes of a part.
    pub order: Order,
    /// Other seeds give other partitions of like quality.
    pub seed: u64,
}

impl Options {
    /// The usual choices for this method and number of parts.
    pub fn new(method: Method, parts: usize) -> Self {
        Self { method, parts, balance: Balance::default(), order: Order::default(), seed: 0 }
    }
}

/// Every node in one of P parts, and the numbering in which each part is a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    permutation: Permutation,
    ranges: Vec<u64>,
    part_of: Vec<PartId>,
}

impl Partition {
    /// From a renumbering and the first new id of every part (and, last, the number of nodes).
    ///
    /// # Errors
    /// What is wrong with `ranges`, in words.
    pub fn new(permutation: Permutation, ranges: Vec<u64>) -> std::result::Result<Self, String> {
        let n = permutation.len() as u64;
        match (ranges.first(), ranges.last()) {
            (Some(0), Some(&last)) if last == n && ranges.len() >= 2 => {}
            (Some(0), Some(&last)) if ranges.len() >= 2 => {
                return Err(format!("ranges[{}] is {last}, but there are {n} nodes", ranges.len() - 1));
            }
            (Some(&first), _) if ranges.len() >= 2 => return Err(format!("ranges[0] is {first}, expected 0")),
            _ => return Err(format!("{} entries: expected one more than there are parts", ranges.len())),
        }
        if ranges.len() - 1 > MOST_PARTS {
            return Err(format!("{} parts: at most {MOST_PARTS} are allowed", ranges.len() - 1));
        }
        if let Some(k) = ranges.windows(2).position(|w| w[1] < w[0]) {
            return Err(format!("ranges[{}] = {} is below ranges[{k}] = {}", k + 1, ranges[k + 1], ranges[k]));
        }
        let mut part_of = vec![0; permutation.len()];
        for (part, w) in ranges.windows(2).enumerate() {
            for &old in &permutation.old_of_new()[w[0] as usize..w[1] as usize] {
                part_of[old as usize] = part as PartId;
            }
        }
        Ok(Self { permutation, ranges, part_of })
    }

    /// Number of parts.
    pub fn num_parts(&self) -> usize {
        self.ranges.len() - 1
    }

    /// Number of nodes.
    pub fn num_nodes(&self) -> usize {
        self.part_of.len()
    }

    /// The renumbering: the nodes of part 0 first, then those of part 1, and so on.
    pub fn permutation(&self) -> &Permutation {
        &self.permutation
    }

    /// The first new id of every part, and the number of nodes.
    pub fn ranges(&self) -> &[u64] {
        &self.ranges
    }

    /// The new ids of a part.
    pub fn rows(&self, part: usize) -> Range<usize> {
        self.ranges[part] as usize..self.ranges[part + 1] as usize
    }

    /// The part of a node, by its original id.
    pub fn part_of(&self, old: usize) -> usize {
        usize::from(self.part_of[old])
    }
}

/// Divides `graph` into parts.
///
/// ```
/// use graphweft_base::progress::Silent;
/// use graphweft_graph::{Csr, partition::{Method, Options, partition, statistics}};
/// // Two triangles joined by one edge.
/// let g = Csr::<u32>::new(vec![0, 2, 4, 7, 10, 12, 14], vec![1, 2, 0, 2, 0, 1, 3, 2, 4, 5, 3, 5, 3, 4], 6)?;
/// let halves = partition(&g, &Options::new(Method::Streaming, 2), &Silent)?;
/// assert_eq!(statistics(&g, &halves).cut_edges, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Error::Request`] if there are no parts, more parts than nodes, more than [`MOST_PARTS`], or if the graph is too
/// large for the method.
pub fn partition<I: NodeId>(graph: &Csr<I>, options: &Options, progress: &dyn Progress) -> Result<Partition> {
    partition_by_cost(graph, options, None, progress)
}

/// The same where the row of each node has a cost, as of nodes of several types: what parts have equally much of are
/// then costs instead of nodes. They add up to less than 2³¹ where METIS divides.
///
/// # Errors
/// As [`partition`]; or if there is not a cost for each node.
pub fn partition_by_cost<I: NodeId>(
    graph: &Csr<I>,
    options: &Options,
    costs: Option<&[u32]>,
    progress: &dyn Progress,
) -> Result<Partition> {
    check(graph, options)?;
    if let Some(costs) = costs.filter(|costs| costs.len() != graph.num_dst()) {
        let what = format!("{} costs are not one for each of {} nodes", costs.len(), graph.num_dst());
        return Err(Error::request(what, "give one for each"));
    }
    let Options { method, parts, order, .. } = *options;
    let weighing = Weighing::new(options.balance, costs);
    let mut part_of = if parts == 1 {
        vec![0; graph.num_dst()]
    } else {
        match method {
            Method::Contiguous => contiguous::assign(graph, parts, weighing),
            Method::Random => random::assign(graph, options, weighing),
            Method::Metis => metis(graph, options, weighing, progress)?,
            Method::Streaming => streaming::assign(graph, options, weighing, progress),
        }
    };
    // Moving single nodes would break the one promise of contiguous parts, and their cuts are the best possible.
    if method != Method::Contiguous {
        balance::rebalance(graph, &mut part_of, parts, weighing);
    }
    let (old_of_new, ranges) = order::arrange(graph, &part_of, parts, order, progress);
    let bug = |what: String| Error::request(format!("the partition is inconsistent: {what}"), "report this as a bug");
    let permutation = Permutation::from_old_of_new(old_of_new).map_err(|e| bug(e.to_string()))?;
    Partition::new(permutation, ranges).map_err(bug)
}

fn check<I: NodeId>(graph: &Csr<I>, options: &Options) -> Result<()> {
    let (n, parts) = (graph.num_dst(), options.parts);
    if graph.num_src() != n {
        let what = format!("a block of {n} × {} nodes cannot be divided", graph.num_src());
        return Err(Error::request(what, "divide the whole graph"));
    }
    if parts == 0 {
        return Err(Error::request("a graph cannot be divided into 0 parts", "ask for at least 1 part"));
    }
    // A graph without nodes is one empty part.
    if parts > n.max(1) {
        let what = format!("{parts} parts of a graph with {n} nodes would leave parts empty");
        return Err(Error::request(what, format!("ask for at most {} parts", n.max(1))));
    }
    if parts > MOST_PARTS {
        let what = format!("{parts} parts are more than the {MOST_PARTS} that are supported");
        return Err(Error::request(what, format!("ask for at most {MOST_PARTS} parts")));
    }
    Ok(())
}

#[cfg(feature = "metis")]
fn metis<I: NodeId>(
    graph: &Csr<I>,
    options: &Options,
    weighing: Weighing<'_>,
    progress: &dyn Progress,
) -> Result<Vec<PartId>> {
    metis::assign(graph, options, weighing, progress)
}

#[cfg(not(feature = "metis"))]
fn metis<I: NodeId>(_: &Csr<I>, _: &Options, _: Weighing<'_>, _: &dyn Progress) -> Result<Vec<PartId>> {
    Err(Error::request("this build has no METIS", "choose the method streaming, or build with the feature metis"))
}
