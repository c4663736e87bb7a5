//! What dividing the graph would cost: α for every partitioner at several numbers of parts.

use graphweft_graph::partition::{self, Method, Options, Order, PartitionStats, statistics};
use graphweft_graph::progress::{Progress, Silent, Unit};
use graphweft_graph::with_csr;
use serde_json::{Value, json};

use crate::source::Opened;
use crate::ui;

/// Numbers of parts that are tried.
const PARTS: [usize; 4] = [2, 4, 8, 16];
/// The number of parts whose sizes are drawn.
const DRAWN: usize = 8;

/// One partition of the graph.
pub(crate) struct Trial {
    pub(crate) method: Method,
    parts: usize,
    pub(crate) stats: PartitionStats,
}

/// Tries every partitioner of this build. Numbers of parts that exceed the nodes are left out.
pub(super) fn survey(opened: &Opened, seed: u64, progress: &dyn Progress) -> anyhow::Result<Vec<Trial>> {
    let methods: Vec<Method> = Method::ALL.into_iter().filter(|m| m.is_available()).collect();
    let counts: Vec<usize> = PARTS.into_iter().filter(|&p| p <= opened.graph.num_nodes()).collect();
    let task = progress.start("partition", (methods.len() * counts.len()) as u64, Unit::Items);
    let mut trials = Vec::new();
    for method in methods {
        for &parts in &counts {
            // The order inside parts has no influence on what travels.
            let options = Options { order: Order::None, seed, ..Options::new(method, parts) };
            let stats = with_csr!(&opened.graph, g => {
                let found = partition::partition(g, &options, &Silent)?;
                statistics(g, &found)
            });
            trials.push(Trial { method, parts, stats });
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
    let one = |t: &Trial| {
        json!({
            "method": t.method.to_string(), "parts": t.parts, "alpha": t.stats.alpha, "cut": t.stats.cut,
            "imbalance": t.stats.imbalance.nodes, "imbalance_edges": t.stats.imbalance.edges,
        })
    };
    trials.iter().map(one).collect()
}

pub(super) fn text(trials: &[Trial]) -> String {
    let rows = trials.iter().map(|t| {
        [
            t.method.to_string(),
            t.parts.to_string(),
            format!("{:.3}", t.stats.alpha),
            format!("{:.1} %", 100.0 * t.stats.cut),
            format!("{:.2}", t.stats.imbalance.nodes),
            format!("{:.2}", t.stats.imbalance.edges),
        ]
    });
    let table = ui::table(["partitioner", "parts", "alpha", "cut", "imbalance", "of edges"], rows);
    format!("{table}\n\nalpha: rows of other parts that the parts need, per node")
}
