//! `graphweft partition`: divides a graph into parts, says what that costs, and stores it.

use std::path::PathBuf;
use std::time::Instant;

use clap::ValueEnum;
use graphweft_graph::chunks::{self, Chunks, Recipe};
use graphweft_graph::partition::{
    self, About, Balance, Existing, Method, Options, Order, PartitionStats, check_target, folder, save, statistics,
};
use graphweft_graph::{Dataset, Error, with_csr};
use serde_json::{Value, json};

use crate::memory;
use crate::size;
use crate::source::Source;
use crate::ui::{Ui, bytes, count, counted, table};

/// For sorting edges and ordering features.
const SORTING_MEMORY: u64 = 1 << 30;

/// What every part should have equally much of.
#[derive(Clone, Copy, ValueEnum)]
enum Share {
    /// Nodes
    Nodes,
    /// Edges into the part's nodes
    Edges,
    /// Both
    Both,
}

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    source: Source,

    /// How many parts
    #[arg(long, short = 'p', value_name = "P")]
    parts: usize,

    /// How to choose them: contiguous, random, metis or streaming
    #[arg(long, value_name = "NAME", default_value_t = Method::Streaming)]
    method: Method,

    /// What to share out evenly
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = Share::Nodes)]
    balance: Share,

    /// How to arrange the nodes inside a part: none, bfs, rcm or cluster
    #[arg(long, value_name = "NAME", default_value_t)]
    order: Order,

    /// Other seeds give other partitions of like quality
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,

    /// Folder to store the partition in [default: part/METHOD-P in the dataset folder]
    #[arg(long, short, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Replace a partition that is stored there already
    #[arg(long)]
    replace: bool,

    /// Store the graph and its features by part, in chunks/METHOD-P, for training with --strategy isolated
    #[arg(long, conflicts_with_all = ["output", "replace"])]
    chunks: bool,

    /// Memory for that, at least 1MiB [default: 1GiB]
    #[arg(long, value_name = "SIZE", value_parser = size::for_sorting, requires = "chunks")]
    memory: Option<u64>,
}

pub(crate) fn run(args: &Args, ui: &Ui) -> anyhow::Result<()> {
    // clap lets it through where --chunks conflicts with another flag.
    if args.memory.is_some() && !args.chunks {
        return Err(Error::request("--memory is for --chunks", "add --chunks, or leave it out").into());
    }
    let balance = match args.balance {
        Share::Nodes => Balance::Nodes,
        Share::Edges => Balance::Edges,
        Share::Both => Balance::Both,
    };
    let options = Options { method: args.method, parts: args.parts, balance, order: args.order, seed: args.seed };
    if args.chunks {
        return chunk(args, &options, ui);
    }
    let existing = if args.replace { Existing::Replace } else { Existing::Keep };
    let opened = args.source.open(args.seed, ui)?;
    let in_dataset = || opened.dataset.as_ref().map(|data| folder(data, args.method, args.parts));
    let target = args.output.clone().or_else(in_dataset);
    if let Some(dir) = &target {
        check_target(dir, existing)?;
    }

    let started = Instant::now();
    let partition = with_csr!(&opened.graph, g => partition::partition(g, &options, ui))?;
    let seconds = started.elapsed().as_secs_f64();
    let peak = memory::peak_bytes();
    let stats = with_csr!(&opened.graph, g => statistics(g, &partition));
    let about = About::new(&options, args.source.symmetrise, stats);
    if let Some(dir) = &target {
        save(dir, &partition, &about, existing)?;
    }
    let stored = target.as_ref().map(|dir| dir.display().to_string());
    ui.result(&as_json(&about, seconds, peak, stored.as_deref()), || {
        as_text(&opened.name, &about, seconds, peak, stored.as_deref())
    })
}

/// Stores chunks; what an interrupted call has left is used.
fn chunk(args: &Args, options: &Options, ui: &Ui) -> anyhow::Result<()> {
    let Some(folder) = args.source.folder() else {
        return Err(Error::request("chunks are stored in a dataset folder", "name one with --data").into());
    };
    let data = Dataset::open(folder)?;
    let Options { method, parts: chunks, balance, order, seed } = *options;
    let (symmetrise, self_loops) = (args.source.symmetrise, args.source.self_loops());
    let recipe = Recipe { method, chunks, balance, order, seed, symmetrise, self_loops };
    let target = chunks::folder(data.dir(), method, chunks);
    let started = Instant::now();
    let memory = usize::try_from(args.memory.unwrap_or(SORTING_MEMORY))?;
    chunks::prepare(&data, &recipe, &target, memory, ui)?;
    let (seconds, peak) = (started.elapsed().as_secs_f64(), memory::peak_bytes());
    let (made, _) = Chunks::open(&target)?;
    let (nodes, edges) = (made.num_nodes(), made.graph().num_edges());
    let json = json!({
        "method": method, "chunks": chunks, "nodes": nodes, "num_edges": edges, "seconds": seconds, "peak_bytes": peak,
        "stored": target,
    });
    ui.result(&json, || {
        let (nodes, edges) = (count(nodes as u64), count(edges as u64));
        let name = &data.meta().name;
        format!(
            "{name}: {nodes} nodes and {edges} edges in {} by {method}, in {seconds:.2} s\nstored in  {}",
            counted(chunks, "chunk"),
            target.display()
        )
    })
}

fn as_json(about: &About, seconds: f64, peak: Option<u64>, stored: Option<&str>) -> Value {
    let PartitionStats { alpha, cut, cut_edges, gap_bits, imbalance, rows, edges, halo } = &about.stats;
    json!({
        "method": about.method, "parts": about.parts, "balance": about.balance, "order": about.order, "seed": about.seed,
        "symmetrised": about.symmetrised, "nodes": about.num_nodes, "num_edges": about.num_edges,
        "alpha": alpha, "cut": cut, "cut_edges": cut_edges, "imbalance": imbalance, "gap_bits": gap_bits,
        "rows": rows, "edges": edges, "halo": halo, "seconds": seconds, "peak_bytes": peak, "stored": stored,
    })
}

fn as_text(name: &str, about: &About, seconds: f64, peak: Option<u64>, stored: Option<&str>) -> String {
    let stats = &about.stats;
    let part = |p: usize| {
        let peer = (0..about.parts).max_by_key(|&s| (stats.halo[p][s], std::cmp::Reverse(s)));
        let peer = peer.filter(|&s| stats.halo[p][s] > 0);
        let peer = peer.map_or("–".into(), |s| format!("{s} ({})", count(stats.halo[p][s])));
        [p.to_string(), count(stats.rows[p]), count(stats.edges[p]), count(stats.halo_rows(p)), peer]
    };
    let parts = table(["part", "rows", "edges", "halo rows", "largest peer"], (0..about.parts).map(part));
    let mut lines = vec![
        format!(
            "{name}: {} nodes, {} edges, {} by {}",
            count(about.num_nodes as u64),
            count(about.num_edges as u64),
            counted(about.parts, "part"),
            about.method
        ),
        String::new(),
        parts.to_string(),
        String::new(),
        format!("alpha      {:.4} halo rows per node", stats.alpha),
        format!("cut        {} edges ({:.2} %)", count(stats.cut_edges), 100.0 * stats.cut),
        format!("imbalance  {:.3} by nodes, {:.3} by edges", stats.imbalance.nodes, stats.imbalance.edges),
        format!("locality   {:.2} bits between neighbours' rows, order {}", stats.gap_bits, about.order),
        format!("time       {seconds:.2} s"),
    ];
    lines.extend(peak.map(|b| format!("memory     {} at most", bytes(b))));
    lines.push(match stored {
        Some(dir) => format!("stored in  {dir}"),
        None => "not stored: name a folder with -o".into(),
    });
    lines.join("\n")
}
