//! `graphweft partition`: divides a graph into parts, says what that costs, and stores it.

use std::path::PathBuf;
use std::sync::Arc;

use clap::ValueEnum;
use graphweft::{Balance, Error, Method, Order, Partition, Partitioned, Stored};

use crate::size;
use crate::source::Source;
use crate::ui::{Ui, bytes, count, counted, table};

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
    let partition = Partition::of(args.source.input(args.seed), args.parts)
        .method(args.method)
        .balance(balance)
        .order(args.order)
        .seed(args.seed)
        .observer(Arc::new(ui.clone()));
    let partition = if args.replace { partition.replace() } else { partition };
    if args.chunks {
        let made = partition.chunk(args.memory)?;
        return ui.result(&made.to_json(), || chunked(args, &made));
    }
    let made = match &args.output {
        Some(dir) => partition.store(dir),
        None => partition,
    };
    let made = made.divide()?;
    ui.result(&made.to_json(), || partitioned(&made))
}

fn chunked(args: &Args, made: &Stored) -> String {
    let (nodes, edges) = (count(made.nodes as u64), count(made.edges as u64));
    format!(
        "{}: {nodes} nodes and {edges} edges in {} by {}, in {:.2} s\nstored in  {}",
        made.name,
        counted(args.parts, "chunk"),
        args.method,
        made.seconds,
        made.path.display()
    )
}

fn partitioned(made: &Partitioned) -> String {
    let stats = &made.stats;
    let part = |p: usize| {
        let peer = (0..made.parts).max_by_key(|&s| (stats.halo[p][s], std::cmp::Reverse(s)));
        let peer = peer.filter(|&s| stats.halo[p][s] > 0);
        let peer = peer.map_or("–".into(), |s| format!("{s} ({})", count(stats.halo[p][s])));
        [p.to_string(), count(stats.rows[p]), count(stats.edges[p]), count(stats.halo_rows(p)), peer]
    };
    let parts = table(["part", "rows", "edges", "halo rows", "largest peer"], (0..made.parts).map(part));
    let mut lines = vec![
        format!(
            "{}: {} nodes, {} edges, {} by {}",
            made.graph,
            count(made.nodes as u64),
            count(made.edges as u64),
            counted(made.parts, "part"),
            made.method
        ),
        String::new(),
        parts.to_string(),
        String::new(),
        format!("alpha      {:.4} halo rows per node", stats.alpha),
        format!("cut        {} edges ({:.2} %)", count(stats.cut_edges), 100.0 * stats.cut),
        format!("imbalance  {:.3} by nodes, {:.3} by edges", stats.imbalance.nodes, stats.imbalance.edges),
        format!("locality   {:.2} bits between neighbours' rows, order {}", stats.gap_bits, made.order),
        format!("time       {:.2} s", made.seconds),
    ];
    lines.extend(made.peak_bytes.map(|b| format!("memory     {} at most", bytes(b))));
    lines.push(match &made.stored {
        Some(dir) => format!("stored in  {}", dir.display()),
        None => "not stored: name a folder with -o".into(),
    });
    lines.join("\n")
}
