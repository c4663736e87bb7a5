//! Training, planning and describing. Results are the JSON that the program prints with `--json`.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use graphweft::{Balance, Description, Doctor, Info, Input, Key, Page, Partition, Run, Stop};
use pyo3::prelude::*;

use crate::data::Dataset;
use crate::error::{Raise, usage};
use crate::work::{self, Interrupted};

/// What to work on: a dataset in memory or mapped, or the name of a folder or of a graph to generate.
#[derive(FromPyObject)]
pub(crate) enum Data<'py> {
    Dataset(PyRef<'py, Dataset>),
    Named(String),
}

impl Data<'_> {
    pub(crate) fn input(&self) -> Input {
        match self {
            // A folder stays one, so that a run can be resumed and evaluated by its name.
            Self::Dataset(dataset) => match dataset.0.folder() {
                Some(folder) => Input::folder(folder),
                None => (&dataset.0).into(),
            },
            Self::Named(name) => name.as_str().into(),
        }
    }
}

/// A run of these settings, each written `section.key=value`.
pub(crate) fn described(
    data: Option<&Data<'_>>,
    settings: &[String],
    device: Option<&str>,
    py: Python<'_>,
) -> PyResult<Run> {
    let mut run = data.map_or_else(Run::default, |data| Run::new(data.input()));
    if let Some(device) = device {
        run = run.device(device.parse().raise(py)?);
    }
    Ok(settings.iter().fold(run, |run, setting| run.assign(setting)))
}

#[pyfunction]
#[pyo3(signature = (data, settings, *, output=None, resume=None, device=None, threads=None, emulate=None, watch=None))]
#[allow(clippy::too_many_arguments, clippy::needless_pass_by_value)] // Keyword arguments of Python.
pub(crate) fn train(
    py: Python<'_>,
    data: Option<Data<'_>>,
    settings: Vec<String>,
    output: Option<PathBuf>,
    resume: Option<String>,
    device: Option<&str>,
    threads: Option<usize>,
    emulate: Option<PathBuf>,
    watch: Option<Bound<'_, PyAny>>,
) -> PyResult<String> {
    let mut run = described(data.as_ref(), &settings, device, py)?;
    if let Some(output) = output {
        run = run.output(output);
    }
    run = match resume.as_deref() {
        None => run,
        Some("") => run.resume(),
        Some(checkpoint) => run.resume_from(checkpoint),
    };
    if let Some(threads) = threads {
        run = run.threads(threads);
    }
    if let Some(profile) = emulate {
        run = run.emulate(profile);
    }
    let stop = Stop::new();
    let run = run.stop(&stop);
    let train = move |observer| run.observer(observer).train();
    let report = work::run_until(py, watch.as_ref(), Interrupted::Saves, &stop, train)?;
    Ok(report.to_json().to_string())
}

/// A plan for data, or for a `graph` that is only described, as `nodes=2.4e6,edges=1.2e8,features=100,classes=47`. `to`
/// names files that it is drawn to: "plot", "scaling" and "report".
#[pyfunction]
#[pyo3(signature = (data, settings, *, graph=None, device=None, features=None, classes=None, to=HashMap::new(), watch=None))]
#[allow(clippy::too_many_arguments, clippy::needless_pass_by_value)] // Keyword arguments of Python.
pub(crate) fn plan(
    py: Python<'_>,
    data: Option<Data<'_>>,
    settings: Vec<String>,
    graph: Option<&str>,
    device: Option<&str>,
    features: Option<usize>,
    classes: Option<usize>,
    to: HashMap<String, PathBuf>,
    watch: Option<Bound<'_, PyAny>>,
) -> PyResult<String> {
    let graph: Option<Description> = graph.map(str::parse).transpose().map_err(graphweft::Error::from).raise(py)?;
    let run = described(data.as_ref(), &settings, device, py)?.assume(features, classes);
    let plan = work::run(py, watch.as_ref(), Interrupted::Left, move |observer| {
        let run = run.observer(observer);
        graph.map_or_else(|| run.plan(), |graph| run.simulate_scaling(&graph))
    })?;
    if let Some(path) = to.get("plot") {
        plan.plot(path).raise(py)?;
    }
    if let Some(path) = to.get("scaling") {
        plan.plot_scaling(path).raise(py)?;
    }
    if let Some(path) = to.get("report") {
        Page::of_plan(&plan).write(path).raise(py)?;
    }
    Ok(plan.to_json().to_string())
}

/// Measures this machine for the plans that follow, and writes that as a profile if there is a file to.
#[pyfunction]
#[pyo3(signature = (settings, *, device=None, file=None, existing="keep", watch=None))]
#[allow(clippy::needless_pass_by_value)] // Keyword arguments of Python.
pub(crate) fn calibrate(
    py: Python<'_>,
    settings: Vec<String>,
    device: Option<&str>,
    file: Option<PathBuf>,
    existing: &str,
    watch: Option<Bound<'_, PyAny>>,
) -> PyResult<String> {
    let run = described(None, &settings, device, py)?;
    let run = if existing == "replace" { run.replace() } else { run };
    let work = move |observer| run.observer(observer).calibrate(file.as_deref());
    Ok(work::run(py, watch.as_ref(), Interrupted::Ends, work)?.to_json().to_string())
}

/// The whole configuration of a run, as TOML.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // Arguments of Python.
pub(crate) fn config(py: Python<'_>, settings: Vec<String>) -> PyResult<String> {
    described(None, &settings, None, py)?.config().raise(py)
}

/// All settings, or those of a name or section: their names, kinds, defaults, what they mean, and the models that have
/// them.
#[pyfunction]
#[pyo3(signature = (name=None))]
#[allow(clippy::type_complexity)] // A record as Python takes it.
pub(crate) fn keys(
    py: Python<'_>,
    name: Option<&str>,
) -> PyResult<Vec<(String, String, Option<String>, String, Vec<&'static str>)>> {
    let found = work::here(py, || name.map_or_else(|| Ok(Key::all()), Key::find))?;
    Ok(found.into_iter().map(|key| (key.name, key.kind, key.default, key.meaning, key.models)).collect())
}

/// Divides a graph. `how` are the program's arguments by name: "method", "balance", "order", "existing" (replace), and
/// "chunks", the bytes to sort in, if the graph is to be stored by part.
#[pyfunction]
#[pyo3(signature = (data, parts, *, how=HashMap::new(), seed=0, store=None, watch=None))]
#[allow(clippy::needless_pass_by_value)] // Keyword arguments of Python.
pub(crate) fn partition(
    py: Python<'_>,
    data: Data<'_>,
    parts: usize,
    how: HashMap<String, String>,
    seed: u64,
    store: Option<PathBuf>,
    watch: Option<Bound<'_, PyAny>>,
) -> PyResult<String> {
    let mut partition = of_parts(&data, parts, &how, seed, py)?;
    // A dataset in a folder keeps its parts.
    let stored = store.is_some() || !matches!(data, Data::Dataset(ref dataset) if dataset.0.folder().is_none());
    if let Some(dir) = store {
        partition = partition.store(dir);
    }
    let interrupted = if stored { Interrupted::Ends } else { Interrupted::Left };
    let chunks = how.get("chunks").map(|memory| memory.parse().ok());
    let divided = work::run(py, watch.as_ref(), interrupted, move |observer| {
        let partition = partition.observer(observer);
        match chunks {
            Some(memory) => Ok(partition.chunk(memory)?.to_json()),
            None => Ok(partition.divide()?.to_json()),
        }
    })?;
    Ok(divided.to_string())
}

fn of_parts(
    data: &Data<'_>,
    parts: usize,
    how: &HashMap<String, String>,
    seed: u64,
    py: Python<'_>,
) -> PyResult<Partition> {
    let mut partition = Partition::of(data.input(), parts).seed(seed);
    if let Some(method) = how.get("method") {
        partition = partition.method(method.parse().map_err(graphweft::Error::from).raise(py)?);
    }
    if let Some(order) = how.get("order") {
        partition = partition.order(order.parse().map_err(graphweft::Error::from).raise(py)?);
    }
    if how.get("existing").is_some_and(|existing| existing == "replace") {
        partition = partition.replace();
    }
    Ok(match how.get("balance").map(String::as_str) {
        None => partition,
        Some("nodes") => partition.balance(Balance::Nodes),
        Some("edges") => partition.balance(Balance::Edges),
        Some("both") => partition.balance(Balance::Both),
        Some(other) => return Err(usage(format!("balance={other:?} cannot be shared"), "choose nodes, edges or both")),
    })
}

/// Writes a generated graph as a dataset folder.
#[pyfunction]
#[pyo3(signature = (spec, dir, *, seed=0, watch=None))]
#[allow(clippy::needless_pass_by_value)] // Keyword arguments of Python.
pub(crate) fn generate(
    py: Python<'_>,
    spec: String,
    dir: PathBuf,
    seed: u64,
    watch: Option<Bound<'_, PyAny>>,
) -> PyResult<String> {
    let work = move |observer| graphweft::Dataset::generate_into(&spec, seed, dir, observer);
    Ok(work::run(py, watch.as_ref(), Interrupted::Ends, work)?.to_json().to_string())
}

/// A graph in numbers; with `partitions` also what every partitioner makes of it. `plot` is a picture of both.
#[pyfunction]
#[pyo3(signature = (data, *, partitions=None, plot=None, watch=None))]
#[allow(clippy::needless_pass_by_value)] // Keyword arguments of Python.
pub(crate) fn info(
    py: Python<'_>,
    data: Data<'_>,
    partitions: Option<u64>,
    plot: Option<PathBuf>,
    watch: Option<Bound<'_, PyAny>>,
) -> PyResult<String> {
    let input = data.input();
    let info = work::run(py, watch.as_ref(), Interrupted::Left, move |observer| {
        let mut info = Info::watched_by(input, Arc::clone(&observer))?;
        if let Some(seed) = partitions {
            info.survey(seed, observer)?;
        }
        Ok(info)
    })?;
    if let Some(path) = plot {
        info.plot(path).raise(py)?;
    }
    Ok(info.to_json().to_string())
}

#[pyfunction]
pub(crate) fn doctor(py: Python<'_>) -> PyResult<String> {
    work::here(py, || Ok(Doctor::look().to_json().to_string()))
}

/// The runs below a folder.
#[pyfunction]
pub(crate) fn runs(py: Python<'_>, dir: PathBuf) -> PyResult<String> {
    let all = work::here(py, || Page::runs(dir))?;
    Ok(serde_json::to_string(&all).unwrap_or_default())
}

/// Writes the page of some runs.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // Arguments of Python.
pub(crate) fn report(py: Python<'_>, folders: Vec<PathBuf>, path: PathBuf) -> PyResult<()> {
    work::here(py, || Page::of_runs(&folders)?.write(path))
}
