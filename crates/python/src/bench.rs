//! Operations and epochs, timed alone. Results are the JSON that `graphweft bench --json` prints.

use std::collections::HashMap;

use graphweft::Bench;
use pyo3::prelude::*;

use crate::error::Raise;
use crate::run::{Data, described};
use crate::work::{self, Interrupted};

/// Epochs of a whole model on random features and labels.
#[pyfunction]
#[pyo3(signature = (data, settings, *, features=None, classes=None, runs=9, device=None, watch=None))]
#[allow(clippy::too_many_arguments, clippy::needless_pass_by_value)] // Keyword arguments of Python.
pub(crate) fn bench_epochs(
    py: Python<'_>,
    data: Data<'_>,
    settings: Vec<String>,
    features: Option<usize>,
    classes: Option<usize>,
    runs: u32,
    device: Option<&str>,
    watch: Option<Bound<'_, PyAny>>,
) -> PyResult<String> {
    let mut bench = Bench::default().runs(runs);
    if let Some(features) = features {
        bench = bench.features(features);
    }
    if let Some(classes) = classes {
        bench = bench.classes(classes);
    }
    if let Some(device) = device {
        bench = bench.device(device.parse().raise(py)?);
    }
    let (input, run) = (data.input(), described(None, &settings, device, py)?);
    let timing = work::run(py, watch.as_ref(), Interrupted::Left, move |observer| {
        bench.observer(observer).epoch(input.clone(), &run)
    })?;
    Ok(timing.to_json().to_string())
}

/// One operation: "attention" or "spmm" over the edges of a graph, a stack of "layer"s of a graph transformer, or
/// "gemm", the products of a linear layer, which needs no graph. `sizes` are the program's arguments by name.
#[pyfunction]
#[pyo3(signature = (op, data=None, *, sizes=HashMap::new(), runs=9, dtype="f32", device=None, watch=None))]
#[allow(clippy::too_many_arguments, clippy::needless_pass_by_value)] // Keyword arguments of Python.
pub(crate) fn bench_op(
    py: Python<'_>,
    op: &str,
    data: Option<Data<'_>>,
    sizes: HashMap<String, usize>,
    runs: u32,
    dtype: &str,
    device: Option<&str>,
    watch: Option<Bound<'_, PyAny>>,
) -> PyResult<String> {
    let mut bench = Bench::default().runs(runs);
    if let Some(device) = device {
        bench = bench.device(device.parse().raise(py)?);
    }
    if dtype == "bf16" {
        bench = bench.bf16();
    }
    let size = |name: &str, usual: usize| sizes.get(name).copied().unwrap_or(usual);
    bench = bench.hidden(size("hidden", 128)).heads(size("heads", 8)).layers(size("layers", 4));
    bench = bench.edge_features(size("edge_features", 0)).edge_categories(size("edge_categories", 0));
    let (rows, out) = (size("rows", 1 << 15), size("out", 128));
    let (op, input) = (op.to_string(), data.map(|data| data.input()));
    let timing = work::run(py, watch.as_ref(), Interrupted::Left, move |observer| {
        let bench = bench.observer(observer);
        match (op.as_str(), input) {
            ("attention", Some(input)) => bench.attention(input),
            ("spmm", Some(input)) => bench.spmm(input),
            ("layer", Some(input)) => bench.layer(input),
            _ => bench.gemm(rows, out),
        }
    })?;
    Ok(timing.to_json().to_string())
}
