//! `graphweft info`: a graph in numbers.

use std::path::PathBuf;
use std::sync::Arc;

use graphweft::{Info, Trial, TypeCount};

use crate::source::Source;
use crate::ui::{self, Ui};

/// Splits listed one by one in the table; the JSON has them all.
const SHOWN_SPLITS: usize = 4;

/// Types listed one by one in the table.
const SHOWN_TYPES: usize = 12;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    source: Source,

    /// Seed for --graph
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,

    /// Try every partitioner at 2, 4, 8 and 16 parts
    #[arg(long)]
    partition: bool,

    /// Draw the degree distribution and, with --partition, the sizes of the parts
    #[arg(long, value_name = "FILE.svg", value_parser = ui::svg())]
    plot: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, ui: &Ui) -> anyhow::Result<()> {
    let watch = Arc::new(ui.clone());
    let mut info = Info::watched_by(args.source.input(args.seed), watch.clone())?;
    if args.partition {
        info.survey(args.seed, watch)?;
    }
    if let Some(path) = &args.plot {
        info.plot(path)?;
    }
    ui.result(&info.to_json(), || text(&info))
}

fn text(info: &Info) -> String {
    let count = ui::count;
    let d = &info.degree;
    let degree = if info.symmetric { "degree" } else { "in-degree" };
    let largest = 100.0 * info.largest_component as f64 / info.nodes.max(1) as f64;
    let mut rows = vec![
        ("nodes", count(info.nodes as u64)),
        ("edges", count(info.edges as u64)),
        ("direction", if info.symmetric { "each edge both ways" } else { "one way" }.into()),
        ("self-loops", count(info.self_loops)),
        ("parallel edges", count(info.parallel_edges)),
        (degree, format!("mean {:.2}, median {}, p99 {}", d.mean, count(d.median), count(d.p99))),
        ("", format!("max {}, zero at {} nodes", count(d.max), count(d.zero))),
        ("components", format!("{}, the largest with {largest:.1} % of the nodes", count(info.components))),
        ("isolated nodes", count(info.isolated)),
    ];
    if info.features > 0 {
        let density = info.feature_density.map_or(String::new(), |x| format!(", {:.1} % not zero", 100.0 * x));
        rows.push(("features", format!("{} columns{density}", count(info.features as u64))));
    }
    if let (Some(fewest), Some(most)) = (info.class_counts.iter().min(), info.class_counts.iter().max()) {
        let sizes = format!("{}, of {} to {} nodes", info.classes, count(*fewest), count(*most));
        rows.push(("classes", sizes));
    }
    if let Some(homophily) = info.homophily {
        rows.push(("edge homophily", format!("{homophily:.3}")));
    }
    rows.extend(types("node types", &info.node_types));
    rows.extend(types("edge types", &info.edge_types));
    let splits = &info.splits;
    for (k, split) in splits.iter().take(SHOWN_SPLITS).enumerate() {
        let (name, [train, valid, test]) = split;
        let sizes = [("train", train), ("valid", valid), ("test", test)]
            .map(|(part, n)| format!("{part} {}", count(*n as u64)));
        rows.push((if k == 0 { "splits" } else { "" }, format!("{name}: {}", sizes.join(", "))));
    }
    if splits.len() > SHOWN_SPLITS {
        rows.push(("", format!("and {} more", splits.len() - SHOWN_SPLITS)));
    }
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines: Vec<String> = rows.iter().map(|(name, value)| format!("  {name:width$}  {value}")).collect();
    let mut text = format!("{}\n{}", info.name, lines.join("\n"));
    if !info.partitions.is_empty() {
        text.push_str("\n\n");
        text.push_str(&partitions(&info.partitions));
    }
    text
}

/// A row per type, of which the first has the heading.
fn types(heading: &'static str, types: &[TypeCount]) -> Vec<(&'static str, String)> {
    let row = |(k, t): (usize, &TypeCount)| {
        let columns =
            if t.features > 0 { format!(", {} columns", ui::count(t.features as u64)) } else { String::new() };
        (if k == 0 { heading } else { "" }, format!("{}: {}{columns}", t.name, ui::count(t.count)))
    };
    let mut rows: Vec<(&'static str, String)> = types.iter().enumerate().take(SHOWN_TYPES).map(row).collect();
    if types.len() > SHOWN_TYPES {
        rows.push(("", format!("and {} more", types.len() - SHOWN_TYPES)));
    }
    rows
}

/// What dividing the graph would cost.
fn partitions(trials: &[Trial]) -> String {
    let rows = trials.iter().map(|t| {
        [
            t.method.clone(),
            t.parts.to_string(),
            format!("{:.3}", t.stats.alpha),
            t.covered.map_or_else(|| "–".into(), |covered| format!("{covered:.3}")),
            format!("{:.1} %", 100.0 * t.stats.cut),
            format!("{:.2}", t.stats.imbalance.nodes),
            format!("{:.2}", t.stats.imbalance.edges),
        ]
    });
    let table = ui::table(["partitioner", "parts", "alpha", "covered", "cut", "imbalance", "of edges"], rows);
    format!(
        "{table}\n\nalpha: rows of other parts that the parts need, per node\n\
             covered: the same where a row may also go to where it is needed from"
    )
}
