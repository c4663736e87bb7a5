//! `graphweft bench`: one operation, timed alone: median of several runs, peak memory, and the traffic floor beside it.

mod train;

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use clap::builder::RangedU64ValueParser;
use clap::{Subcommand, ValueEnum};
use graphweft::{Bench, Error, Timing};

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
    Attention(AttentionAlone),
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

    /// Attention heads
    #[arg(long, default_value_t = 8, value_name = "H")]
    heads: usize,
}

impl Attention {
    fn bench(&self, ui: &Ui) -> Bench {
        self.common.bench(ui).heads(self.heads)
    }
}

#[derive(clap::Args)]
struct AttentionAlone {
    #[command(flatten)]
    attention: Attention,

    #[command(flatten)]
    kept: Kept,

    /// Features of edges that are added to keys and values
    #[arg(long, default_value_t = 0, value_name = "F")]
    edge_features: usize,

    /// Categories of a column of edges that is added likewise
    #[arg(long, default_value_t = 0, value_name = "T")]
    edge_categories: usize,
}

#[derive(clap::Args)]
struct Spmm {
    #[command(flatten)]
    input: Input,

    #[command(flatten)]
    common: Common,

    #[command(flatten)]
    kept: Kept,
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
    attention: Attention,

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
        Op::Attention(AttentionAlone { attention, edge_features, edge_categories, .. }) => {
            let bench = attention.bench(ui).edge_features(*edge_features).edge_categories(*edge_categories);
            bench.attention(attention.input.input())
        }
        Op::Gemm(args) => args.common.bench(ui).gemm(args.rows, args.out),
        Op::Layer(args) => {
            let bench = args.attention.bench(ui).layers(args.layers).dropout(args.dropout);
            let bench = if args.remat == Remat::Layer { bench.recompute() } else { bench };
            bench.layer(args.attention.input.input())
        }
        Op::Spmm(args) => args.common.bench(ui).spmm(args.input.input()),
        Op::Train(args) => args.bench(ui).epoch(args.input.input(), &args.run()),
    }?;
    if let Op::Attention(AttentionAlone { kept, .. }) | Op::Spmm(Spmm { kept, .. }) = &args.op {
        kept.add(&timing)?;
    }
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
        let number = |x: Option<f64>, digits: usize| x.map_or(String::new(), |x| format!("{x:.digits$}"));
        let rows = kernels.iter().map(|k| {
            let shape = k.heads.map_or(String::new(), |(heads, width)| format!("{heads} × {width}"));
            [k.name.clone(), shape, number(k.calls, 1), number(k.predicted_ms, 3), number(Some(k.ms), 3)]
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

/// Where the page of a run finds what was timed.
#[derive(clap::Args)]
struct Kept {
    /// Also add the result to this run directory: the page of the run shows it beside the kernels
    #[arg(long = "for", value_name = "RUN")]
    run: Option<PathBuf>,
}

impl Kept {
    fn add(&self, timing: &Timing) -> anyhow::Result<()> {
        let Some(run) = &self.run else { return Ok(()) };
        let path = run.join("bench.json");
        let failed = |e: std::io::Error| {
            let remedy = "name the directory of a run that may be written to";
            Error::request(format!("cannot add to {}: {e}", path.display()), remedy)
        };
        // What is no run gets no file of its own.
        fs::metadata(run.join("config.toml")).map_err(failed)?;
        let mut file = OpenOptions::new().create(true).append(true).open(&path).map_err(failed)?;
        Ok(file.write_all(format!("{}\n", timing.to_json()).as_bytes()).map_err(failed)?)
    }
}

/// Flags that every bench has.
#[derive(clap::Args)]
struct Common {
    /// Width of a node's row
    #[arg(long, default_value_t = 128, value_name = "D", value_parser = at_least_one())]
    hidden: usize,

    /// Type in which rows are stored
    #[arg(long, value_enum, default_value_t = DType::F32)]
    dtype: DType,

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
            DType::F32 => bench,
            DType::Bf16 => bench.bf16(),
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

/// Type of stored elements.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum DType {
    F32,
    Bf16,
}
