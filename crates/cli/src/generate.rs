//! `graphweft generate`: make a graph and write it as a dataset folder.

use std::path::PathBuf;
use std::sync::Arc;

use graphweft::Dataset;

use crate::ui::{self, Ui};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The graph: rmat:S:D (and :f=…, :c=…), sbm:N:C:D (and :h=…, :f=…, :snr=…), grid:R:C or ba:N:M, each optionally
    /// with +loops
    spec: String,

    /// Dataset folder to create
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,

    /// Seed: the same seed gives the same bytes
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
}

pub(crate) fn run(args: &Args, ui: &Ui) -> anyhow::Result<()> {
    let made = Dataset::generate_into(&args.spec, args.seed, &args.output, Arc::new(ui.clone()))?;
    ui.result(&made.to_json(), || {
        let facts = [
            ("nodes", ui::count(made.nodes as u64)),
            ("edges", ui::count(made.edges as u64)),
            ("time", format!("{:.2} s", made.seconds)),
            ("edges per second", ui::count((made.edges as f64 / made.seconds) as u64)),
            ("peak memory", made.peak_bytes.map_or("unknown".into(), ui::bytes)),
        ];
        let rows = facts.map(|(name, value)| [name.to_string(), value]);
        format!("{}\n\nwritten to {}", ui::table([&made.name, ""], rows), made.path.display())
    })
}
