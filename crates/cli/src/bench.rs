//! `graphweft bench`: one operation, timed alone: median of several runs, peak memory, and the traffic floor beside it.

mod attention;
mod gemm;
mod layer;
mod spmm;
mod train;

use std::time::Instant;

use clap::builder::RangedU64ValueParser;
use clap::{Subcommand, ValueEnum};
use graphweft_graph::random::Philox;
use graphweft_graph::{AnyCsr, Csr, Error, room};
use graphweft_tensor::{DType, Device, Matrix, Tag, Usage};
use rayon::prelude::*;
use serde_json::{Value, json};

use crate::device::Choice;
use crate::source::{Opened, Source};
use crate::ui::{Ui, bytes, counted, table, usage};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    op: Op,
}

#[derive(Subcommand)]
enum Op {
    /// Sparse dot-product attention over the edges of a graph, forward and backward
    Attention(attention::Args),
    /// The matrix products of a linear layer: forward, input gradient, weight gradient
    Gemm(gemm::Args),
    /// A stack of graph-transformer layers: forward, backward and update
    Layer(layer::Args),
    /// The sum over neighbours, forward and backward
    Spmm(spmm::Args),
    /// One epoch of a whole model: forward, backward and update
    Train(train::Args),
}

pub(crate) fn run(args: &Args, ui: &Ui) -> anyhow::Result<()> {
    match &args.op {
        Op::Attention(args) => attention::run(args, ui),
        Op::Gemm(args) => gemm::run(args, ui),
        Op::Layer(args) => layer::run(args, ui),
        Op::Spmm(args) => spmm::run(args, ui),
        Op::Train(args) => train::run(args, ui),
    }
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

impl Heads {
    /// Their number, if `hidden` columns can be shared equally among them.
    fn of(&self, hidden: usize) -> anyhow::Result<usize> {
        if self.heads == 0 || !hidden.is_multiple_of(self.heads) {
            let what = format!("{hidden} columns cannot be shared by {} heads", self.heads);
            return Err(Error::request(what, "choose --heads so that it divides --hidden").into());
        }
        Ok(self.heads)
    }
}

/// Type of stored elements.
#[derive(Clone, Copy, ValueEnum)]
enum Storage {
    F32,
    Bf16,
}

impl From<Storage> for DType {
    fn from(s: Storage) -> Self {
        match s {
            Storage::F32 => Self::F32,
            Storage::Bf16 => Self::Bf16,
        }
    }
}

/// Opens the graph a bench runs on.
fn open(input: &Input, ui: &Ui) -> anyhow::Result<(String, Csr<u32>)> {
    let Opened { name, graph, .. } = input.source.open(input.seed, ui)?;
    match graph {
        AnyCsr::Narrow(csr) => Ok((name, csr)),
        AnyCsr::Wide(_) => {
            let what = format!("{name} has more than 2³² nodes, too many for one device");
            Err(Error::request(what, "name a smaller graph").into())
        }
    }
}

/// Normal random numbers, so many rows of so many.
fn normals(rows: usize, cols: usize, stream: u64) -> anyhow::Result<Vec<f32>> {
    // Drawn on the host, then again where kernels are.
    let needed = 8 * rows as u128 * cols as u128;
    room::check_memory(format!("a matrix of {rows} × {cols}"), needed, "ask for fewer rows or columns")?;
    let random = Philox::new(1, stream);
    let len = rows * cols;
    let mut numbers = vec![0.0; len.next_multiple_of(4)];
    numbers.par_chunks_mut(4).enumerate().for_each(|(k, to)| to.copy_from_slice(&random.normals(k as u64)));
    numbers.truncate(len);
    Ok(numbers)
}

/// The same as a matrix.
fn random(device: &Device, rows: usize, cols: usize, dtype: DType, stream: u64) -> anyhow::Result<Matrix> {
    let m = device.upload(rows, cols, &normals(rows, cols, stream)?, Tag::Activations)?;
    Ok(if dtype == DType::F32 { m } else { device.convert("bench", &m, dtype)? })
}

/// Milliseconds of one run, until the device is done.
fn timed<T>(device: &Device, f: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<(T, f64)> {
    device.backend().wait()?;
    let start = Instant::now();
    let out = f()?;
    device.backend().wait()?;
    Ok((out, start.elapsed().as_secs_f64() * 1e3))
}

/// The middle of the timed runs, the first (warm-up) run left out.
fn median(mut times: Vec<f64>) -> f64 {
    times.remove(0);
    middle(times)
}

/// The middle of some times.
fn middle(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// What the benches of graph operations report.
struct Report<'a> {
    op: &'static str,
    graph: &'a str,
    csr: &'a Csr<u32>,
    common: &'a Common,
    forward: f64,
    backward: f64,
    floor: f64,
    peak: Usage,
}

impl Report<'_> {
    fn show(&self, ui: &Ui, more: Value) -> anyhow::Result<()> {
        let edges = self.csr.num_edges();
        let total = self.forward + self.backward;
        let mut line = json!({
            "op": self.op, "graph": self.graph, "nodes": self.csr.num_dst(), "edges": edges,
            "threads": rayon::current_num_threads(), "dtype": DType::from(self.common.dtype).to_string(),
            "hidden": self.common.hidden, "forward_ms": self.forward, "backward_ms": self.backward,
            "ns_per_edge": total * 1e6 / edges as f64, "floor_ms": self.floor, "over_floor": total / self.floor,
            "peak_bytes": self.peak.total(), "peak": usage(self.peak),
        });
        if let (Value::Object(line), Value::Object(more)) = (&mut line, more) {
            line.extend(more);
        }
        ui.result(&line, || {
            let ms = |x: f64| [format!("{x:.2}"), format!("{:.1}", x * 1e6 / edges as f64)];
            let row = |name: &str, x: f64| {
                let [time, per_edge] = ms(x);
                [name.to_string(), time, per_edge]
            };
            let times = [
                row("forward", self.forward),
                row("backward", self.backward),
                row("both", total),
                row("floor (loads only)", self.floor),
            ];
            format!(
                "{} on {}, {}, {}\n\n{}\n\n{:.2} times the floor; {} at the peak",
                self.op,
                self.graph,
                counted(rayon::current_num_threads(), "thread"),
                DType::from(self.common.dtype),
                table(["", "ms", "ns per edge"], times),
                total / self.floor,
                bytes(self.peak.total()),
            )
        })
    }
}
