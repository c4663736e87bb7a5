//! `graphweft import`: other formats, and files of one's own, into a dataset folder.

mod arrays;

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use graphweft_graph::build::{EdgeRules, Scratch};
use graphweft_graph::dataset::DatasetWriter;
use graphweft_graph::read::{self, Context, Directory, Imported, Input, Summary, edge_list};
use graphweft_graph::{Error, Result};
use serde_json::json;

use crate::doctor::machine;
use crate::size;
use crate::source::Loops;
use crate::ui::{Ui, count};

/// Where the machine does not say how much memory it has.
const FALLBACK_MEMORY: u64 = 1 << 30;

/// Formats that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// .npz of the heterophilous-graphs collection: node_features, node_labels, edges, masks
    Heterophilous,
    /// .npz of gnn-benchmark: CSR matrices adj_* and attr_*, labels
    GnnBenchmark,
    /// Folder of an OGB node-property dataset, with raw/ and split/ (CSV or binary)
    Ogb,
    /// "source destination" per line: SNAP, CSV, TSV; plain or .gz
    EdgeList,
    /// Matrix Market coordinate file; entry (i, j) is the edge i → j; plain or .gz
    MatrixMarket,
    /// METIS .graph; plain or .gz
    Metis,
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
    #[arg(value_enum, required = true)]
    format: Option<Format>,

    /// The file to read, or the folder for ogb
    #[arg(required = true)]
    path: Option<PathBuf>,

    /// The dataset folder to create
    #[arg(short, long = "output", value_name = "DIR", required = true)]
    output: Option<PathBuf>,

    #[command(flatten)]
    common: Common,

    /// heterophilous, gnn-benchmark: keep the edges as they are listed. Without this they are symmetrised, as for the scores
    /// that are published for these graphs
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
}

#[derive(clap::Subcommand)]
enum Own {
    /// Data of your own: edges, features, labels and splits from CSV, NumPy and SciPy files
    Arrays(Box<arrays::Args>),
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
    if let Some(Own::Arrays(own)) = &args.own {
        let given = own.given()?;
        let note = |summary: &mut Summary| {
            if !summary.meta.symmetric {
                let note = "some edges go one way only; where they mean both, import with --symmetrise";
                summary.notes.push(note.into());
            }
        };
        return write(&own.common, &own.output, ui, |cx| read::arrays::read(&given, cx), note);
    }
    let (Some(format), Some(path), Some(output)) = (args.format, &args.path, &args.output) else {
        anyhow::bail!("the format, PATH and DIR are needed");
    };
    check_flags(format, args)?;
    // The input first: a wrong path should leave no trace, not even the parents of DIR.
    let source = Source::open(format, path)?;
    let undirected = matches!(format, Format::Heterophilous | Format::GnnBenchmark) && !args.directed;
    let common =
        Common { symmetrise: args.common.symmetrise || undirected, name: args.common.name.clone(), ..args.common };
    let note = |summary: &mut Summary| {
        if undirected && !args.common.symmetrise && summary.meta.num_edges as u64 != summary.edges_read {
            summary
                .notes
                .push("symmetrised, as for published scores; --directed keeps the edges as they are listed".into());
        }
    };
    write(&common, output, ui, |cx| source.read(args, cx), note)
}

/// Makes the folder from what `read` returns; `note` may add to what is said about it.
fn write(
    common: &Common,
    output: &Path,
    ui: &Ui,
    read: impl FnOnce(&Context<'_>) -> Result<Imported>,
    note: impl FnOnce(&mut Summary),
) -> anyhow::Result<()> {
    let name = match &common.name {
        Some(name) => name.clone(),
        None => folder_name(output),
    };
    let writer = DatasetWriter::create(output)?;
    let scratch = Scratch::new(writer.path(""));
    let memory = common.memory.unwrap_or_else(|| machine::memory_bytes().map_or(FALLBACK_MEMORY, |b| b / 4));
    let rules = EdgeRules {
        symmetrise: common.symmetrise,
        merge_parallel: common.merge_parallel,
        self_loops: common.self_loops.into(),
        memory: usize::try_from(memory)?,
    };
    let cx = Context { rules, scratch: &scratch, progress: ui };
    let mut summary = read(&cx)?.write(&name, writer, &cx)?;
    note(&mut summary);
    for note in &summary.notes {
        ui.note(&format!("note: {note}"));
    }
    report(output, &summary, ui)
}

fn check_flags(format: Format, args: &Args) -> Result<()> {
    let given = [
        ("--ids", args.ids.is_some()),
        ("--num-nodes", args.num_nodes.is_some()),
        ("--edge-features", args.edge_features),
    ];
    if args.directed && !matches!(format, Format::Heterophilous | Format::GnnBenchmark) {
        let what = "--directed is for heterophilous and gnn-benchmark: other formats are only symmetrised if asked to";
        return Err(Error::request(what, "leave --directed out"));
    }
    match given.iter().find(|(_, given)| *given) {
        Some((flag, _)) if format != Format::EdgeList => {
            let what = format!("{flag} is for edge lists: this format says by itself what its ids and columns mean");
            Err(Error::request(what, format!("leave {flag} out")))
        }
        _ => Ok(()),
    }
}

fn folder_name(path: &Path) -> String {
    path.file_name().map_or_else(|| "graph".to_string(), |n| n.to_string_lossy().into_owned())
}

/// What is read, known to exist.
enum Source {
    File(Format, Input),
    Folder(Directory),
}

impl Source {
    fn open(format: Format, path: &Path) -> Result<Self> {
        match format {
            Format::Ogb => Directory::open(path).map(Self::Folder),
            _ => Input::file(path).map(|input| Self::File(format, input)),
        }
    }

    fn read(&self, args: &Args, cx: &Context<'_>) -> Result<Imported> {
        match self {
            Self::Folder(folder) => read::ogb::read(folder, cx),
            Self::File(Format::Heterophilous, input) => read::heterophilous::read(input, cx),
            Self::File(Format::GnnBenchmark, input) => read::gnn_benchmark::read(input, cx),
            Self::File(Format::MatrixMarket, input) => read::matrix_market::read(input, cx),
            Self::File(Format::Metis, input) => read::metis::read(input, cx),
            Self::File(Format::EdgeList | Format::Ogb, input) => {
                let ids = match args.ids.unwrap_or_default() {
                    Ids::Keep => edge_list::Ids::Keep,
                    Ids::Relabel => edge_list::Ids::Relabel,
                };
                let options = edge_list::Options {
                    ids,
                    num_nodes: args.num_nodes,
                    edge_features: args.edge_features,
                    ..Default::default()
                };
                edge_list::read(input, &options, cx)
            }
        }
    }
}

fn report(output: &Path, summary: &Summary, ui: &Ui) -> anyhow::Result<()> {
    let meta = &summary.meta;
    let json = json!({
        "name": meta.name,
        "path": output,
        "nodes": meta.num_nodes,
        "edges": meta.num_edges,
        "edges_read": summary.edges_read,
        "features": meta.num_features,
        "classes": meta.num_classes,
        "symmetric": meta.symmetric,
        "splits": summary.splits,
        "notes": summary.notes,
    });
    ui.result(&json, || {
        let splits = match &summary.splits[..] {
            [] => "none".to_string(),
            names => names.join(", "),
        };
        let lines = [
            ("name", meta.name.clone()),
            ("folder", output.display().to_string()),
            ("nodes", count(meta.num_nodes as u64)),
            ("edges", format!("{} ({} read)", count(meta.num_edges as u64), count(summary.edges_read))),
            ("symmetric", if meta.symmetric { "yes" } else { "no" }.to_string()),
            ("features", count(meta.num_features as u64)),
            ("classes", count(meta.num_classes as u64)),
            ("splits", splits),
        ];
        lines.iter().map(|(key, value)| format!("{key:10} {value}\n")).collect()
    })
}
