//! Operations and epochs, timed alone: the median of several runs, peak memory, and the traffic floor beside it.

mod attention;
mod epoch;
mod gemm;
mod layer;
mod spmm;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use graphweft_base::random::Philox;
use graphweft_base::room;
use graphweft_graph::{AnyCsr, Csr};
use graphweft_plan::explain::counted;
use graphweft_tensor::{DType, Device as Opened, Matrix, Precision, Tag, Usage};
use rayon::prelude::*;
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::input::Input;
use crate::memory::Memory;
use crate::observe::{Observer, Watched};
use crate::place::Device;
use crate::run::Run;
use crate::setters::setters;

/// An operation or an epoch to time, alone.
///
/// ```
/// use graphweft::Bench;
/// let timing = Bench::default().hidden(16).heads(2).runs(1).attention("rmat:6:4")?;
/// assert_eq!(timing.phases[0].name, "forward");
/// assert!(timing.peak.unwrap().total() > 0);
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone)]
pub struct Bench {
    hidden: usize,
    heads: usize,
    layers: usize,
    dropout: f64,
    recompute: Recompute,
    dtype: DType,
    features: Option<usize>,
    classes: usize,
    kernels: Kernels,
    emulated: Vec<PathBuf>,
    runs: u32,
    device: Device,
    observer: Arc<dyn Observer>,
}

/// What layers keep for backward.
#[derive(Clone, Copy, PartialEq)]
enum Recompute {
    Nothing,
    Layers,
}

/// Whether every kernel of an epoch is timed.
#[derive(Clone, Copy, PartialEq)]
enum Kernels {
    Untimed,
    Timed,
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
    pub phases: Vec<Timed>,
    /// What rates of phases are: ns per edge, or GFLOP/s.
    pub rate: Option<String>,
    /// Memory of the rank that needed most.
    pub peak: Option<Memory>,
    /// How many times as long as only loading the operands.
    pub over_floor: Option<f64>,
    /// Of several ranks, bytes that all of them sent.
    pub sent: Option<u64>,
    /// Every kernel, if they were timed.
    pub kernels: Option<Vec<Timed>>,
    json: Value,
}

impl Timing {
    /// As `graphweft bench --json` prints it.
    pub fn to_json(&self) -> Value {
        self.json.clone()
    }
}

/// A phase of what was timed, or a kernel of the mean rank beside what the planner expects of it.
///
/// ```
/// let timing = graphweft::Bench::default().hidden(8).runs(1).spmm("rmat:6:4")?;
/// assert!(timing.phases.iter().all(|phase| phase.ms >= 0.0 && phase.rate.is_some()));
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Timed {
    /// What it is called.
    pub name: String,
    /// Milliseconds: of a phase in the median run, of a kernel in an epoch.
    pub ms: f64,
    /// How fast a phase is.
    pub rate: Option<f64>,
    /// Heads of a kernel and the width of each, where it has them.
    pub heads: Option<(usize, usize)>,
    /// Calls of a kernel in an epoch.
    pub calls: Option<f64>,
    /// Milliseconds that the planner expects of a kernel.
    pub predicted_ms: Option<f64>,
}

impl Timed {
    fn new(name: impl Into<String>, ms: f64) -> Self {
        Self { name: name.into(), ms, ..Self::default() }
    }
}

impl Default for Bench {
    /// Rows of 128 numbers in f32 and eight heads; four layers with a dropout of 0.1; 40 classes; the median of nine
    /// runs.
    fn default() -> Self {
        Self {
            hidden: 128,
            heads: 8,
            layers: 4,
            dropout: 0.1,
            recompute: Recompute::Nothing,
            dtype: DType::F32,
            features: None,
            classes: 40,
            kernels: Kernels::Untimed,
            emulated: Vec::new(),
            runs: 9,
            device: Device::default(),
            observer: Arc::new(()),
        }
    }
}

impl Bench {
    setters! {
        /// Stores rows in bf16 instead of f32.
        bf16 => dtype = DType::Bf16,

        /// The width of a node's row.
        hidden: usize,

        /// Attention heads, which share the columns of a row.
        heads: usize,

        /// Layers of a [stack](Bench::layer).
        layers: usize,

        /// The share of elements that dropout drops in a [stack](Bench::layer).
        dropout: f64,

        /// Computes everything inside a layer of a [stack](Bench::layer) again in backward, instead of keeping it.
        recompute = Recompute::Layers,

        /// Columns of the random features of an [epoch](Bench::epoch), in place of the width of a row.
        features: usize => Some,

        /// Classes of the random labels of an [epoch](Bench::epoch).
        classes: usize,

        /// Times every kernel of an [epoch](Bench::epoch) too, beside what the planner expects of it.
        ///
        /// ```no_run
        /// # // It measures the machine first.
        /// let timing = graphweft::Bench::default().kernels().epoch("rmat:8:8", &graphweft::Run::default())?;
        /// for kernel in timing.kernels.unwrap() {
        ///     println!("{}: {:.3} ms, {:.3} expected", kernel.name, kernel.ms, kernel.predicted_ms.unwrap());
        /// }
        /// # Ok::<(), graphweft::Error>(())
        /// ```
        kernels = Kernels::Timed,

        /// Where to compute, in place of the best that there is.
        device: Device,

        /// Who watches.
        observer: Arc<dyn Observer>,
    }

    /// Timed runs, after those that warm up.
    #[must_use]
    pub fn runs(self, runs: u32) -> Self {
        Self { runs: runs.max(1), ..self }
    }

    /// Times [epochs](Bench::epoch) as if ranks were elsewhere, on shipped profiles or in files; one run serves all.
    #[must_use]
    pub fn emulate(self, profiles: &[PathBuf]) -> Self {
        Self { emulated: profiles.to_vec(), ..self }
    }

    /// Sparse dot-product attention over the edges of a graph, forward and backward.
    ///
    /// # Errors
    /// If the graph cannot be opened, heads cannot share the columns, or memory is too small.
    pub fn attention(&self, graph: impl Into<Input>) -> Result<Timing> {
        attention::run(self, &graph.into())
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
    /// ```
    /// let bench = graphweft::Bench::default().hidden(16).heads(2).layers(1).runs(1);
    /// assert_eq!(bench.layer("rmat:6:4")?.phases.last().unwrap().name, "step");
    /// # Ok::<(), graphweft::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Bench::attention`].
    pub fn layer(&self, graph: impl Into<Input>) -> Result<Timing> {
        layer::run(self, &graph.into())
    }

    /// Epochs of the model that `run` would train, with its settings, on random features and labels of this graph:
    /// forward, loss, backward and update.
    ///
    /// ```
    /// use graphweft::{Bench, Run};
    /// let run = Run::default().model("gcn").set("model.hidden", 8).ranks(2).strategy("halo");
    /// let timing = Bench::default().features(8).classes(3).runs(1).epoch("rmat:6:4", &run)?;
    /// assert_eq!(timing.phases.last().unwrap().name, "epoch");
    /// assert!(timing.sent.unwrap() > 0);
    /// # Ok::<(), graphweft::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Run::train`]; if its epochs are not of one kind, as those of the strategy `isolated`. Under a launcher only
    /// the first process has what was measured.
    pub fn epoch(&self, graph: impl Into<Input>, run: &Run) -> Result<Timing> {
        epoch::run(self, &graph.into(), run)
    }

    /// The number of heads, if the columns can be shared equally among them.
    fn shared_heads(&self) -> Result<usize> {
        let heads = self.heads;
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
        let row = |name: &str, ms: f64| Timed { rate: Some(per_edge(ms)), ..Timed::new(name, ms) };
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
