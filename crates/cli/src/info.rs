//! `graphweft info`: a graph in numbers.

mod partitions;

use std::path::PathBuf;

use graphweft_graph::dataset::Features;
use graphweft_graph::stats::{Components, Degrees, class_counts, components, degrees, edge_homophily};
use graphweft_graph::{Dataset, with_csr};
use serde_json::{Value, json};

use crate::plot::{self, Panel};
use crate::source::{Opened, Source};
use crate::ui::{self, Ui};
pub(crate) use partitions::Trial;

/// Splits listed one by one in the table; the JSON has them all.
const SHOWN_SPLITS: usize = 4;

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
    #[arg(long, value_name = "FILE.svg", value_parser = plot::path())]
    plot: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, ui: &Ui) -> anyhow::Result<()> {
    let opened = args.source.open(args.seed, ui)?;
    let mut facts = Facts::of(&opened);
    if args.partition {
        facts.partitions = partitions::survey(&opened, args.seed, ui)?;
    }
    if let Some(path) = &args.plot {
        let title = format!(
            "{}: {} nodes, {} edges",
            opened.name,
            ui::count(opened.graph.num_nodes() as u64),
            ui::count(opened.graph.num_edges() as u64)
        );
        let mut panels = vec![Panel::Degrees { degrees: &facts.degrees, directed: !opened.symmetric }];
        let trials = partitions::drawn(&facts.partitions);
        if !trials.is_empty() {
            panels.push(Panel::Parts(trials));
        }
        plot::write(path, &title, &panels)?;
    }
    ui.result(&facts.json(&opened), || facts.text(&opened))
}

/// What is computed from the graph; what the folder states is read from it where it is shown.
struct Facts {
    degrees: Degrees,
    components: Components,
    self_loops: u64,
    parallel_edges: u64,
    homophily: Option<f64>,
    feature_density: Option<f64>,
    class_counts: Vec<u64>,
    partitions: Vec<Trial>,
}

impl Facts {
    fn of(opened: &Opened) -> Self {
        let labels = opened.labels.as_ref();
        let features = opened.dataset.as_ref().and_then(Dataset::features);
        with_csr!(&opened.graph, g => Self {
            degrees: degrees(g),
            components: components(g),
            self_loops: g.num_self_loops() as u64,
            parallel_edges: g.num_parallel_edges() as u64,
            homophily: labels.and_then(|l| edge_homophily(g, l)),
            feature_density: features.map(Features::density),
            class_counts: labels.map_or(Vec::new(), |l| class_counts(l, opened.num_classes)),
            partitions: Vec::new(),
        })
    }

    fn json(&self, opened: &Opened) -> Value {
        let histogram: Vec<Value> = (self.degrees.log_bins().iter())
            .map(|bin| json!({"from": bin.from, "to": bin.to, "nodes": bin.nodes}))
            .collect();
        let splits: Vec<Value> = (opened.dataset.iter().flat_map(Dataset::splits))
            .map(|s| json!({"name": s.name, "train": s.train.len(), "valid": s.valid.len(), "test": s.test.len()}))
            .collect();
        json!({
            "name": opened.name,
            "nodes": opened.graph.num_nodes(),
            "edges": opened.graph.num_edges(),
            "features": opened.num_features,
            "classes": opened.num_classes,
            "symmetric": opened.symmetric,
            "self_loops": self.self_loops,
            "parallel_edges": self.parallel_edges,
            "components": self.components.count,
            "largest_component": self.components.largest,
            "isolated": self.components.isolated,
            "homophily": self.homophily,
            "degree": {
                "mean": self.degrees.mean(),
                "median": self.degrees.quantile(0.5),
                "p99": self.degrees.quantile(0.99),
                "max": self.degrees.max(),
                "zero": self.degrees.zero(),
                "histogram": histogram,
            },
            "feature_density": self.feature_density,
            "class_counts": self.class_counts,
            "splits": splits,
            "partitions": partitions::json(&self.partitions),
        })
    }

    fn text(&self, opened: &Opened) -> String {
        let count = ui::count;
        let d = &self.degrees;
        let degree = if opened.symmetric { "degree" } else { "in-degree" };
        let largest = 100.0 * self.components.largest as f64 / opened.graph.num_nodes().max(1) as f64;
        let mut rows = vec![
            ("nodes", count(opened.graph.num_nodes() as u64)),
            ("edges", count(opened.graph.num_edges() as u64)),
            ("direction", if opened.symmetric { "each edge both ways" } else { "one way" }.into()),
            ("self-loops", count(self.self_loops)),
            ("parallel edges", count(self.parallel_edges)),
            (
                degree,
                format!("mean {:.2}, median {}, p99 {}", d.mean(), count(d.quantile(0.5)), count(d.quantile(0.99))),
            ),
            ("", format!("max {}, zero at {} nodes", count(d.max()), count(d.zero()))),
            ("components", format!("{}, the largest with {largest:.1} % of the nodes", count(self.components.count))),
            ("isolated nodes", count(self.components.isolated)),
        ];
        if opened.num_features > 0 {
            let density = self.feature_density.map_or(String::new(), |x| format!(", {:.1} % not zero", 100.0 * x));
            rows.push(("features", format!("{} columns{density}", count(opened.num_features as u64))));
        }
        if let (Some(fewest), Some(most)) = (self.class_counts.iter().min(), self.class_counts.iter().max()) {
            let sizes = format!("{}, of {} to {} nodes", opened.num_classes, count(*fewest), count(*most));
            rows.push(("classes", sizes));
        }
        if let Some(homophily) = self.homophily {
            rows.push(("edge homophily", format!("{homophily:.3}")));
        }
        let splits = opened.dataset.as_ref().map_or(&[][..], Dataset::splits);
        for (k, split) in splits.iter().take(SHOWN_SPLITS).enumerate() {
            let sizes = split.parts().map(|(part, ids)| format!("{part} {}", count(ids.len() as u64)));
            rows.push((if k == 0 { "splits" } else { "" }, format!("{}: {}", split.name, sizes.join(", "))));
        }
        if splits.len() > SHOWN_SPLITS {
            rows.push(("", format!("and {} more", splits.len() - SHOWN_SPLITS)));
        }
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let lines: Vec<String> = rows.iter().map(|(name, value)| format!("  {name:width$}  {value}")).collect();
        let mut text = format!("{}\n{}", opened.name, lines.join("\n"));
        if !self.partitions.is_empty() {
            text.push_str("\n\n");
            text.push_str(&partitions::text(&self.partitions));
        }
        text
    }
}
