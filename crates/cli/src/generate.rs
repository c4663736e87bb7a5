//! `graphweft generate`: make a graph and write it as a dataset folder.

use std::path::PathBuf;
use std::time::Instant;

use graphweft_graph::generate::Spec;
use serde_json::json;

use crate::memory;
use crate::ui::{self, Ui};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The graph: rmat:S:D (and :f=…, :c=…), sbm:N:C:D (and :h=…, :f=…, :snr=…), grid:R:C or ba:N:M, each optionally with +loops
    spec: String,

    /// Dataset folder to create
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,

    /// Seed: the same seed gives the same bytes
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
}

pub(crate) fn run(args: &Args, ui: &Ui) -> anyhow::Result<()> {
    let spec: Spec = args.spec.parse()?;
    let started = Instant::now();
    let meta = spec.write(args.seed, &args.output, ui)?;
    let seconds = started.elapsed().as_secs_f64();
    let edges_per_second = meta.num_edges as f64 / seconds;
    let peak = memory::peak_bytes();
    let path = args.output.display().to_string();

    let json = json!({
        "graph": meta.name,
        "seed": args.seed,
        "nodes": meta.num_nodes,
        "edges": meta.num_edges,
        "features": meta.num_features,
        "classes": meta.num_classes,
        "seconds": seconds,
        "edges_per_second": edges_per_second,
        "peak_bytes": peak,
        "path": path,
    });
    ui.result(&json, || {
        let facts = [
            ("nodes", ui::count(meta.num_nodes as u64)),
            ("edges", ui::count(meta.num_edges as u64)),
            ("time", format!("{seconds:.2} s")),
            ("edges per second", ui::count(edges_per_second as u64)),
            ("peak memory", peak.map_or("unknown".into(), ui::bytes)),
        ];
        let rows = facts.map(|(name, value)| [name.to_string(), value]);
        format!("{}\n\nwritten to {path}", ui::table([&meta.name, ""], rows))
    })
}
