//! What dividing the graph would cost: α for every partitioner at several numbers of parts.

use graphweft_base::progress::{Progress, Silent, Unit};
use graphweft_graph::partition::{self, Method, Options, Order, PartitionStats, covered_rows, statistics};
use graphweft_graph::{AnyCsr, with_csr};
use serde_json::{Value, json};

use crate::error::Result;

/// Numbers of parts that are tried.
const PARTS: [usize; 4] = [2, 4, 8, 16];
/// The number of parts whose sizes are drawn.
const DRAWN: usize = 8;

/// One partition of a graph, and what it costs.
///
/// ```
/// let mut info = graphweft::Info::of("grid:8:8")?;
/// info.survey(0, std::sync::Arc::new(()))?;
/// let alphas = info.partitions.iter().filter(|trial| trial.parts == 4).map(|trial| trial.stats.alpha);
/// assert!(alphas.fold(f64::INFINITY, f64::min) < 1.0);
/// assert!(info.partitions.iter().all(|trial| trial.covered <= Some(trial.stats.alpha)));
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Trial {
    /// The partitioner.
    pub method: String,
    /// How many parts.
    pub parts: usize,
    /// What that costs.
    pub stats: PartitionStats,
    /// Rows that move per node where each edge is served by its source or by its destination, whichever is least in
    /// all: as α, and at most α. Nothing for more than 2³² nodes.
    pub covered: Option<f64>,
}

/// Tries every partitioner of this build. Numbers of parts that exceed the nodes are left out.
pub(super) fn survey(graph: &AnyCsr, seed: u64, progress: &dyn Progress) -> Result<Vec<Trial>> {
    let methods: Vec<Method> = Method::ALL.into_iter().filter(|m| m.is_available()).collect();
    let counts: Vec<usize> = PARTS.into_iter().filter(|&p| p <= graph.num_nodes()).collect();
    let task = progress.start("partition", (methods.len() * counts.len()) as u64, Unit::Items);
    let mut trials = Vec::new();
    for method in methods {
        for &parts in &counts {
            // The order inside parts has no influence on what travels.
            let options = Options { order: Order::None, seed, ..Options::new(method, parts) };
            let (stats, rows) = with_csr!(graph, g => {
                let found = partition::partition(g, &options, &Silent)?;
                (statistics(g, &found), covered_rows(g, &found))
            });
            let covered = rows.map(|rows| rows as f64 / graph.num_nodes().max(1) as f64);
            trials.push(Trial { method: method.to_string(), parts, stats, covered });
            task.add(1);
        }
    }
    Ok(trials)
}

/// The partitions whose sizes are drawn: one per method.
pub(super) fn drawn(trials: &[Trial]) -> Vec<&Trial> {
    let parts = trials.iter().map(|t| t.parts).filter(|&p| p <= DRAWN).max().unwrap_or(0);
    trials.iter().filter(|t| t.parts == parts).collect()
}

pub(super) fn json(trials: &[Trial]) -> Value {
    let one = |Trial { method, parts, stats, covered }: &Trial| {
        json!({
            "method": method, "parts": parts, "alpha": stats.alpha, "covered": covered, "cut": stats.cut,
            "imbalance": stats.imbalance.nodes, "imbalance_edges": stats.imbalance.edges,
        })
    };
    trials.iter().map(one).collect()
}
