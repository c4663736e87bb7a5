//! One operation, timed alone: the median of several runs, peak memory, and the traffic floor beside it.

mod attention;
mod epoch;
mod gemm;
mod layer;
mod spmm;

use std::sync::Arc;
use std::time::Instant;

use graphweft_base::random::Philox;
use graphweft_base::room;
use graphweft_graph::{AnyCsr, Csr};
use graphweft_tensor::{DType, Device as Opened, Matrix, Precision, Tag, Usage};
use rayon::prelude::*;
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::input::Input;
use crate::memory::Memory;
use crate::observe::{Observer, Watched};
use crate::place::Device;
use crate::units::counted;

pub use epoch::EpochBench;

/// One operation to time alone. [`Run::bench`](crate::Run::bench) times epochs of a whole model.
///
/// ```
/// use graphweft::Bench;
/// let timing = Bench::default().hidden(16).runs(1).attention("rmat:6:4", 2)?;
/// assert_eq!(timing.phases[0].name, "forward");
/// assert!(timing.peak.unwrap().total() > 0);
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone)]
pub struct Bench {
    hidden: usize,
    dtype: DType,
    runs: u32,
    device: Device,
    observer: Arc<dyn Observer>,
}

/// Features of edges in timed attention.
///
/// ```
/// let edges = graphweft::BenchEdges { features: 4, categories: 3 };
/// let timing = graphweft::Bench::default().hidden(16).runs(1).attention_with_edges("rmat:6:4", 2, edges)?;
/// assert_eq!(timing.to_json()["edge_categories"], 3);
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct BenchEdges {
    /// Numbers per edge.
    pub features: usize,
    /// Categories of one more column; 0 without it.
    pub categories: usize,
}

/// A stack of graph-transformer layers to time.
///
/// ```
/// let layers = graphweft::BenchLayers { layers: 1, heads: 2, ..Default::default() };
/// let timing = graphweft::Bench::default().hidden(16).runs(1).layer("rmat:6:4", &layers)?;
/// assert_eq!(timing.phases.last().unwrap().name, "step");
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct BenchLayers {
    /// Layers.
    pub layers: usize,
    /// Attention heads.
    pub heads: usize,
    /// Share of elements that dropout drops.
    pub dropout: f64,
    /// Whether everything inside a layer is computed again in backward instead of being kept.
    pub remat: bool,
}

impl Default for BenchLayers {
    fn default() -> Self {
        Self { layers: 4, heads: 8, dropout: 0.1, remat: false }
    }
}

/// How long an operation took.
///
/// ```
/// let timing = graphweft::Bench::default().hidden(8).runs(1).gemm(64, 8)?;
/// assert_eq!(timing.rate.as_deref(), Some("GFLOP/s"));
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Timing {
    /// What was timed, and on what.
    pub title: String,
    /// Its phases.
    pub phases: Vec<TimedPhase>,
    /// What rates of phases are: ns per edge, or GFLOP/s.
    pub rate: Option<String>,
    /// Memory of the rank that needed most.
    pub peak: Option<Memory>,
    /// How many times as long as only loading the operands.
    pub over_floor: Option<f64>,
    /// Of several ranks, bytes that all of them sent.
    pub sent: Option<u64>,
    /// Every kernel, if they were timed.
    pub kernels: Option<Vec<TimedKernel>>,
    json: Value,
}

impl Timing {
    /// As `graphweft bench --json` prints it.
    pub fn to_json(&self) -> Value {
        self.json.clone()
    }
}

/// A phase of an operation.
///
/// ```
/// let timing = graphweft::Bench::default().hidden(8).runs(1).spmm("rmat:6:4")?;
/// assert!(timing.phases.iter().all(|phase| phase.ms >= 0.0 && phase.rate.is_some()));
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TimedPhase {
    /// What it is called.
    pub name: String,
    /// Milliseconds, of the median run.
    pub ms: f64,
    /// How fast that is.
    pub rate: Option<f64>,
}

impl TimedPhase {
    fn new(name: impl Into<String>, ms: f64) -> Self {
        Self { name: name.into(), ms, rate: None }
    }
}

/// A kernel of the mean rank, beside what the planner expects of it.
///
/// ```no_run
/// # // It measures the machine first.
/// let bench = graphweft::EpochBench::of("rmat:8:8").kernels();
/// let timing = graphweft::Run::default().bench(&bench)?;
/// for kernel in timing.kernels.unwrap() {
///     println!("{}: {:.3} ms, {:.3} expected", kernel.op, kernel.measured_ms, kernel.predicted_ms);
/// }
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TimedKernel {
    /// The operation.
    pub op: String,
    /// Heads and the width of each, where it has them.
    pub heads: Option<(usize, usize)>,
    /// Calls in an epoch.
    pub calls: f64,
    /// Milliseconds that the planner expects.
    pub predicted_ms: f64,
    /// Milliseconds that it took.
    pub measured_ms: f64,
}

impl Default for Bench {
    /// Rows of 128 numbers in f32, the median of nine runs.
    fn default() -> Self {
        Self { hidden: 128, dtype: DType::F32, runs: 9, device: Device::default(), observer: Arc::new(()) }
    }
}

impl Bench {
    /// The width of a node's row.
    #[must_use]
    pub fn hidden(self, hidden: usize) -> Self {
        Self { hidden, ..self }
    }

    /// Stores rows in bf16 instead of f32.
    #[must_use]
    pub fn bf16(self) -> Self {
        Self { dtype: DType::Bf16, ..self }
    }

    /// Timed runs, after one that warms up.
    #[must_use]
    pub fn runs(self, runs: u32) -> Self {
        Self { runs: runs.max(1), ..self }
    }

    /// Where to compute, in place of the best that there is.
    #[must_use]
    pub fn device(self, device: Device) -> Self {
        Self { device, ..self }
    }

    /// Who watches.
    #[must_use]
    pub fn observer(self, observer: Arc<dyn Observer>) -> Self {
        Self { observer, ..self }
    }

    /// Sparse dot-product attention over the edges of a graph, forward and backward.
    ///
    /// # Errors
    /// If the graph cannot be opened, heads cannot share the columns, or memory is too small.
    pub fn attention(&self, graph: impl Into<Input>, heads: usize) -> Result<Timing> {
        self.attention_with_edges(graph, heads, BenchEdges::default())
    }

    /// The same with features of edges, which are added to keys and values.
    ///
    /// # Errors
    /// As [`Bench::attention`].
    pub fn attention_with_edges(&self, graph: impl Into<Input>, heads: usize, edges: BenchEdges) -> Result<Timing> {
        attention::run(self, &graph.into(), heads, edges)
    }

    /// The sum over neighbours, forward and backward.
    ///
    /// # Errors
    /// As [`Bench::attention`].
    pub fn spmm(&self, graph: impl Into<Input>) -> Result<Timing> {
        spmm::run(self, &graph.into())
    }

    /// The matrix products of a linear layer of so many rows and columns of the output: forward, gradient of the input,
    /// gradient of the weights.
    ///
    /// # Errors
    /// If memory is too small.
    pub fn gemm(&self, rows: usize, out: usize) -> Result<Timing> {
        gemm::run(self, rows, out)
    }

    /// A stack of graph-transformer layers: forward, backward and update.
    ///
    /// # Errors
    /// As [`Bench::attention`].
    pub fn layer(&self, graph: impl Into<Input>, layers: &BenchLayers) -> Result<Timing> {
        layer::run(self, &graph.into(), layers)
    }

    /// The number of heads, if the columns can be shared equally among them.
    fn check_heads(&self, heads: usize) -> Result<usize> {
        if heads == 0 || !self.hidden.is_multiple_of(heads) {
            let what = format!("{} columns cannot be shared by {heads} heads", self.hidden);
            return Err(Error::request(what, "choose --heads so that it divides --hidden"));
        }
        Ok(heads)
    }

    /// A device, with products of f32 in f32.
    fn open_device(&self) -> Result<Opened> {
        Ok(self.device.place(&Watched::by(&self.observer)).open(Precision::default())?)
    }

    fn open(&self, input: &Input) -> Result<Named> {
        open(input, &Watched::by(&self.observer))
    }
}

impl std::fmt::Debug for Bench {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Bench({} columns, {}, {} runs)", self.hidden, self.dtype, self.runs)
    }
}

/// A graph that fits on a device, and what it is called.
struct Named {
    name: String,
    csr: Csr<u32>,
}

/// Opens the graph a bench runs on.
fn open(input: &Input, watched: &Watched) -> Result<Named> {
    let opened = input.open(watched)?;
    let name = opened.name;
    match opened.graph {
        AnyCsr::Narrow(csr) => Ok(Named { name, csr }),
        AnyCsr::Wide(_) => {
            let what = format!("{name} has more than 2³² nodes, too many for one device");
            Err(Error::request(what, "name a smaller graph"))
        }
    }
}

/// Normal random numbers, so many rows of so many.
fn normals(rows: usize, cols: usize, stream: u64) -> Result<Vec<f32>> {
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
fn random(device: &Opened, rows: usize, cols: usize, dtype: DType, stream: u64) -> Result<Matrix> {
    let m = device.upload(rows, cols, &normals(rows, cols, stream)?, Tag::Activations)?;
    Ok(if dtype == DType::F32 { m } else { device.convert("bench", &m, dtype)? })
}

/// Milliseconds of one run, until the device is done.
fn timed<T>(device: &Opened, f: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
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

/// What was measured of an operation over the edges of a graph.
struct OverEdges<'a> {
    op: &'static str,
    graph: &'a Named,
    bench: &'a Bench,
    forward: f64,
    backward: f64,
    floor: f64,
    peak: Usage,
}

impl OverEdges<'_> {
    /// The timing; `more` has what only this operation has.
    fn timing(&self, more: Value) -> Timing {
        let Self { op, graph: Named { name, csr }, bench, forward, backward, floor, .. } = *self;
        let (edges, total, peak) = (csr.num_edges(), forward + backward, Memory::from(self.peak));
        let per_edge = |ms: f64| ms * 1e6 / edges as f64;
        let mut json = json!({
            "op": op, "graph": name, "nodes": csr.num_dst(), "edges": edges,
            "threads": rayon::current_num_threads(), "dtype": bench.dtype.to_string(),
            "hidden": bench.hidden, "forward_ms": forward, "backward_ms": backward,
            "ns_per_edge": per_edge(total), "floor_ms": floor, "over_floor": total / floor,
            "peak_bytes": peak.total(), "peak": peak.to_json(),
        });
        if let (Value::Object(json), Value::Object(more)) = (&mut json, more) {
            json.extend(more);
        }
        let row = |name: &str, ms: f64| TimedPhase { rate: Some(per_edge(ms)), ..TimedPhase::new(name, ms) };
        Timing {
            title: format!("{op} on {name}, {}, {}", counted(rayon::current_num_threads(), "thread"), bench.dtype),
            phases: vec![
                row("forward", forward),
                row("backward", backward),
                row("both", total),
                row("floor (loads only)", floor),
            ],
            rate: Some("ns per edge".into()),
            peak: Some(peak),
            over_floor: Some(total / floor),
            sent: None,
            kernels: None,
            json,
        }
    }
}
