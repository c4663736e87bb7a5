//! Operations and epochs, timed alone. Results are the JSON that `graphweft bench --json` prints.

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

/// One operation over the edges of a graph: attention of so many heads, or without heads the sum over neighbours.
#[pyfunction]
#[pyo3(signature = (data, *, hidden=128, heads=None, runs=9, dtype="f32", device=None, watch=None))]
#[allow(clippy::too_many_arguments, clippy::needless_pass_by_value)] // Keyword arguments of Python.
pub(crate) fn bench_edges(
    py: Python<'_>,
    data: Data<'_>,
    hidden: usize,
    heads: Option<usize>,
    runs: u32,
    dtype: &str,
    device: Option<&str>,
    watch: Option<Bound<'_, PyAny>>,
) -> PyResult<String> {
    let mut bench = Bench::default().hidden(hidden).runs(runs);
    if let Some(device) = device {
        bench = bench.device(device.parse().raise(py)?);
    }
    if dtype == "bf16" {
        bench = bench.bf16();
    }
    let input = data.input();
    let timing = work::run(py, watch.as_ref(), Interrupted::Left, move |observer| {
        let bench = bench.observer(observer);
        heads.map_or_else(|| bench.spmm(input.clone()), |heads| bench.clone().heads(heads).attention(input.clone()))
    })?;
    Ok(timing.to_json().to_string())
}
