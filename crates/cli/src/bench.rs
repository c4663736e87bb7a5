//! `graphweft bench`: one operation, timed alone: median of several runs, peak memory, and the traffic floor beside it.

mod train;

use std::sync::Arc;

use clap::builder::RangedU64ValueParser;
use clap::{Subcommand, ValueEnum};
use graphweft::{Bench, BenchEdges, BenchLayers, Timing};

use crate::device::Choice;
use crate::source::Source;
use crate::ui::{Ui, bytes, table, table_of};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    op: Op,
}

#[derive(Subcommand)]
enum Op {
    /// Sparse dot-product attention over the edges of a graph, forward and backward
    Attention(Attention),
    /// The matrix products of a linear layer: forward, input gradient, weight gradient
    Gemm(Gemm),
    /// A stack of graph-transformer layers: forward, backward and update
    Layer(Layer),
    /// The sum over neighbours, forward and backward
    Spmm(Spmm),
    /// One epoch of a whole model: forward, backward and update
    Train(train::Args),
}

#[derive(clap::Args)]
struct Attention {
    #[command(flatten)]
    input: Input,

    #[command(flatten)]
    common: Common,

    #[command(flatten)]
    heads: Heads,

    /// Features of edges that are added to keys and values
    #[arg(long, default_value_t = 0, value_name = "F")]
    edge_features: usize,

    /// Categories of a column that is added likewise
    #[arg(long, default_value_t = 0, value_name = "T")]
    edge_categories: usize,
}

#[derive(clap::Args)]
struct Spmm {
    #[command(flatten)]
    input: Input,

    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args)]
struct Gemm {
    #[command(flatten)]
    common: Common,

    /// Rows of the input
    #[arg(long, default_value_t = 1 << 15, value_name = "N", value_parser = at_least_one())]
    rows: usize,

    /// Columns of the output
    #[arg(long, default_value_t = 128, value_name = "K", value_parser = at_least_one())]
    out: usize,
}

#[derive(clap::Args)]
struct Layer {
    #[command(flatten)]
    input: Input,

    #[command(flatten)]
    common: Common,

    #[command(flatten)]
    heads: Heads,

    /// Layers, at most 4096
    #[arg(long, default_value_t = 4, value_name = "L", value_parser = at_least_one().range(..=4096))]
    layers: usize,

    /// Share of elements that dropout drops
    #[arg(long, default_value_t = 0.1, value_name = "RATE")]
    dropout: f64,

    /// What to compute again instead of keeping it
    #[arg(long, value_enum, default_value_t = Remat::None)]
    remat: Remat,
}

/// What is computed again in backward instead of being kept.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Remat {
    /// Nothing
    None,
    /// Everything inside a layer
    Layer,
}

pub(crate) fn run(args: &Args, ui: &Ui) -> anyhow::Result<()> {
    let timing = match &args.op {
        Op::Attention(args) => {
            let edges = BenchEdges { features: args.edge_features, categories: args.edge_categories };
            args.common.bench(ui).attention_with_edges(args.input.input(), args.heads.heads, edges)
        }
        Op::Gemm(args) => args.common.bench(ui).gemm(args.rows, args.out),
        Op::Layer(args) => {
            let Layer { layers, dropout, .. } = *args;
            let stack = BenchLayers { layers, heads: args.heads.heads, dropout, remat: args.remat == Remat::Layer };
            args.common.bench(ui).layer(args.input.input(), &stack)
        }
        Op::Spmm(args) => args.common.bench(ui).spmm(args.input.input()),
        Op::Train(args) => args.run(ui).bench(&args.bench()),
    }?;
    ui.result(&timing.to_json(), || text(&timing))
}

fn text(timing: &Timing) -> String {
    let mut header = vec!["", "ms"];
    header.extend(timing.rate.as_deref());
    let digits = if timing.rate.is_some() { 2 } else { 1 };
    let rows = timing.phases.iter().map(|phase| {
        let mut row = vec![phase.name.clone(), format!("{:.digits$}", phase.ms)];
        row.extend(phase.rate.map(|rate| format!("{rate:.1}")));
        row
    });
    let mut text = format!("{}\n\n{}", timing.title, table_of(&header, &rows.collect::<Vec<_>>()));
    if let Some(kernels) = &timing.kernels {
        let rows = kernels.iter().map(|k| {
            let shape = k.heads.map_or(String::new(), |(heads, width)| format!("{heads} × {width}"));
            let [predicted, measured] = [k.predicted_ms, k.measured_ms].map(|ms| format!("{ms:.3}"));
            [k.op.clone(), shape, format!("{:.1}", k.calls), predicted, measured]
        });
        text += &format!("\n\n{}", table(["kernel", "heads", "calls", "predicted", "ms"], rows));
    }
    let peak = timing.peak.map(|peak| format!("{} at the peak", bytes(peak.total())));
    match (timing.over_floor, peak, timing.sent) {
        (Some(over), Some(peak), _) => text += &format!("\n\n{over:.2} times the floor; {peak}"),
        (None, Some(peak), Some(sent)) => {
            text += &format!("\n\n{peak} of the largest rank, {} sent by all", bytes(sent));
        }
        (None, Some(peak), None) => text += &format!("\n\n{peak}"),
        (_, None, _) => {}
    }
    text
}

/// Flags that every bench has.
#[derive(clap::Args)]
struct Common {
    /// Width of a node's row
    #[arg(long, default_value_t = 128, value_name = "D", value_parser = at_least_one())]
    hidden: usize,

    /// Type in which rows are stored
    #[arg(long, value_enum, default_value_t = Storage::F32)]
    dtype: Storage,

    /// Timed runs, after those that warm up; the median is reported
    #[arg(long, default_value_t = 9, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,

    #[command(flatten)]
    device: Choice,
}

/// The graph, for the benches that have one.
#[derive(clap::Args)]
struct Input {
    #[command(flatten)]
    source: Source,

    /// Seed for --graph
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
}

impl Common {
    fn bench(&self, ui: &Ui) -> Bench {
        let bench = Bench::default().hidden(self.hidden).runs(self.runs).device(self.device.device());
        let bench = bench.observer(Arc::new(ui.clone()));
        match self.dtype {
            Storage::F32 => bench,
            Storage::Bf16 => bench.bf16(),
        }
    }
}

impl Input {
    fn input(&self) -> graphweft::Input {
        self.source.input(self.seed)
    }
}

/// Counts that may not be 0.
fn at_least_one() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}

/// Attention heads, for the benches that have them.
#[derive(clap::Args)]
struct Heads {
    /// Attention heads
    #[arg(long, default_value_t = 8, value_name = "H")]
    heads: usize,
}

/// Type of stored elements.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Storage {
    F32,
    Bf16,
}
