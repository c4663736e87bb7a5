//! `graphweft import`: other formats, and files of one's own, into a dataset folder.

mod arrays;
mod table;

use std::path::PathBuf;
use std::sync::Arc;

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use graphweft::{Format, Import, Stored};

use crate::size;
use crate::source::Loops;
use crate::ui::{Ui, count};

/// Formats that can be read, by their names.
fn formats() -> impl TypedValueParser<Value = Format> {
    let values = Format::ALL.map(|format| PossibleValue::new(format.name()).help(format.about()));
    let named = |name: String| Format::ALL.into_iter().find(|format| format.name() == name);
    PossibleValuesParser::new(values).try_map(move |name| named(name).ok_or("no such format"))
}

/// What node ids in an edge list mean.
#[derive(Clone, Copy, Default, ValueEnum)]
enum Ids {
    /// Node numbers from 0
    #[default]
    Keep,
    /// Any 64-bit integers: number them in ascending order and keep the originals as node_id.npy
    Relabel,
}

/// Arguments of `import`.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    own: Option<Own>,

    /// What PATH is
    #[arg(value_parser = formats(), required = true)]
    format: Option<Format>,

    /// The file to read, or the folder for ogb, tu, types-json and triples
    #[arg(required = true)]
    path: Option<PathBuf>,

    /// The dataset folder to create
    #[arg(short, long = "output", value_name = "DIR", required = true)]
    output: Option<PathBuf>,

    #[command(flatten)]
    common: Common,

    /// heterophilous, gnn-benchmark: keep the edges as they are listed. Without this they are symmetrised, as for the
    /// scores that are published for these graphs
    #[arg(long, conflicts_with = "symmetrise")]
    directed: bool,

    /// edge-list: what node ids mean [default: keep]
    #[arg(long, value_enum, value_name = "WHAT")]
    ids: Option<Ids>,

    /// edge-list: the number of nodes [default: the largest id + 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    num_nodes: Option<u64>,

    /// edge-list: columns from the third on are numbers that become edge features
    #[arg(long)]
    edge_features: bool,

    /// links: the dataset folder that has the nodes and their features
    #[arg(long, value_name = "DIR")]
    nodes_of: Option<PathBuf>,
}

#[derive(clap::Subcommand)]
enum Own {
    /// Tables of your own: nodes and edges, also of several types, from CSV, TSV and Parquet files
    Table(Box<table::Args>),

    /// Arrays of your own: edges, features, labels and splits from NumPy and SciPy files
    Arrays(Box<arrays::Args>),

    /// Dataset folders as one: their nodes, folder after folder, with the splits that all have
    Union(Box<Union>),
}

/// Arguments of `import union`.
#[derive(clap::Args)]
struct Union {
    /// The dataset folders; their features mean the same
    #[arg(required = true, num_args = 1..)]
    folders: Vec<PathBuf>,

    /// The dataset folder to create
    #[arg(short, long = "output", value_name = "DIR")]
    output: PathBuf,

    #[command(flatten)]
    common: Common,
}

/// What all formats have in common.
#[derive(clap::Args)]
struct Common {
    /// What to call the dataset [default: the name of DIR]
    #[arg(long)]
    name: Option<String>,

    /// Add the reverse of every edge and merge parallel edges
    #[arg(long)]
    symmetrise: bool,

    /// What to do with self-loops
    #[arg(long, value_enum, default_value_t, value_name = "WHAT")]
    self_loops: Loops,

    /// Keep only the first of parallel edges
    #[arg(long)]
    merge_parallel: bool,

    /// Memory for sorting edges, e.g. 512MiB or 8GiB, at least 1MiB; what exceeds it goes through temporary files in
    /// DIR's parent [default: a quarter of the machine's]
    #[arg(long, value_name = "SIZE", value_parser = size::for_sorting)]
    memory: Option<u64>,
}

/// Reads, sorts, writes, reports.
pub(crate) fn run(args: &Args, ui: &Ui) -> anyhow::Result<()> {
    let (import, output, common) = match &args.own {
        Some(Own::Table(table)) if table.dry_run => return table.show(ui),
        Some(Own::Table(table)) => (table.import(), table.output()?, &table.common),
        Some(Own::Arrays(own)) => (Import::arrays(own.files()), &own.output, &own.common),
        Some(Own::Union(union)) => (Import::union(&union.folders), &union.output, &union.common),
        None => {
            let (Some(format), Some(path), Some(output)) = (args.format, &args.path, &args.output) else {
                anyhow::bail!("the format, PATH and DIR are needed");
            };
            (args.of_format(Import::new(format, path)), output, &args.common)
        }
    };
    let made = common.apply(import).observer(Arc::new(ui.clone())).write(output)?;
    for note in &made.notes {
        ui.note(&format!("note: {note}"));
    }
    ui.result(&made.to_json(), || text(&made))
}

impl Args {
    /// Adds what only some formats have.
    fn of_format(&self, mut import: Import) -> Import {
        import = match self.ids {
            None => import,
            Some(Ids::Keep) => import.keep_ids(),
            Some(Ids::Relabel) => import.relabel_ids(),
        };
        if let Some(nodes) = self.num_nodes {
            import = import.num_nodes(nodes);
        }
        if self.edge_features {
            import = import.edge_features();
        }
        if let Some(folder) = &self.nodes_of {
            import = import.nodes_of(folder);
        }
        if self.directed { import.directed() } else { import }
    }
}

impl Common {
    /// Adds what all formats have.
    fn apply(&self, mut import: Import) -> Import {
        if let Some(name) = &self.name {
            import = import.name(name);
        }
        if self.symmetrise {
            import = import.symmetrise();
        }
        if self.merge_parallel {
            import = import.merge_parallel();
        }
        if let Some(memory) = self.memory {
            import = import.memory(memory);
        }
        import.self_loops(self.self_loops.into())
    }
}

fn text(made: &Stored) -> String {
    let splits = match &made.splits[..] {
        [] => "none".to_string(),
        names => names.join(", "),
    };
    let lines = [
        ("name", made.name.clone()),
        ("folder", made.path.display().to_string()),
        ("nodes", count(made.nodes as u64)),
        ("edges", format!("{} ({} read)", count(made.edges as u64), count(made.edges_read))),
        ("symmetric", if made.symmetric { "yes" } else { "no" }.to_string()),
        ("features", count(made.features as u64)),
        ("classes", count(made.classes as u64)),
        ("splits", splits),
    ];
    lines.iter().map(|(key, value)| format!("{key:10} {value}\n")).collect()
}
