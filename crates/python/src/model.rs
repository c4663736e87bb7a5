//! Trained models: scores, and what they say of every node.

use std::collections::HashMap;
use std::path::PathBuf;

use graphweft::{Model, PredictionFile, Smooth};
use numpy::ndarray::Array2;
use numpy::{IntoPyArray, PyArray2};
use pyo3::prelude::*;
use serde_json::json;

use crate::error::{failed, usage};
use crate::run::Data;
use crate::work::{self, Interrupted};

/// The models in `path`, on other data and ranks if some are named.
fn opened(
    py: Python<'_>,
    path: PathBuf,
    data: Option<&Data<'_>>,
    split: Option<&str>,
    ranks: Option<u64>,
) -> PyResult<Model> {
    let mut model = work::here(py, || Model::open(path))?;
    if let Some(data) = data {
        model = model.on(data.input());
    }
    if let Some(split) = split {
        model = model.split(split);
    }
    Ok(match ranks {
        Some(ranks) => model.ranks(ranks),
        None => model,
    })
}

#[pyfunction]
#[pyo3(signature = (path, data=None, *, split=None, ranks=None, watch=None))]
#[allow(clippy::needless_pass_by_value)] // Keyword arguments of Python.
pub(crate) fn evaluate(
    py: Python<'_>,
    path: PathBuf,
    data: Option<Data<'_>>,
    split: Option<&str>,
    ranks: Option<u64>,
    watch: Option<Bound<'_, PyAny>>,
) -> PyResult<String> {
    let model = opened(py, path, data.as_ref(), split, ranks)?;
    let found = work::run(py, watch.as_ref(), Interrupted::Left, move |observer| model.observer(observer).evaluate())?;
    Ok(found.to_json().to_string())
}

/// A row for every node: `logits`, or `probabilities`.
#[pyfunction]
#[pyo3(signature = (path, data=None, *, what="logits", ranks=None, watch=None))]
#[allow(clippy::needless_pass_by_value)] // Keyword arguments of Python.
pub(crate) fn predict<'py>(
    py: Python<'py>,
    path: PathBuf,
    data: Option<Data<'_>>,
    what: &str,
    ranks: Option<u64>,
    watch: Option<Bound<'_, PyAny>>,
) -> PyResult<Bound<'py, PyArray2<f32>>> {
    let probabilities = match what {
        "logits" => false,
        "probabilities" => true,
        other => {
            return Err(usage(format!("what={other:?} is no form of predictions"), "choose logits or probabilities"));
        }
    };
    let model = opened(py, path, data.as_ref(), None, ranks)?;
    let said = work::run(py, watch.as_ref(), Interrupted::Left, move |observer| {
        let model = model.observer(observer);
        if probabilities { model.predict_probabilities() } else { model.predict() }
    })?;
    let rows = Array2::from_shape_vec((said.nodes, said.columns), said.values);
    Ok(rows.map_err(|e| failed(py, &e.to_string(), "report this as a bug"))?.into_pyarray(py))
}

/// The same into a file. `how` are the program's arguments by name: "what", the form; or by a model of links "pairs", a
/// file of pairs to score; or "top", so many partners of every node, or of those in the file "of".
#[pyfunction]
#[pyo3(signature = (path, file, how, data=None, *, ranks=None, watch=None))]
#[allow(clippy::needless_pass_by_value)] // Keyword arguments of Python.
pub(crate) fn write(
    py: Python<'_>,
    path: PathBuf,
    file: PathBuf,
    how: HashMap<String, String>,
    data: Option<Data<'_>>,
    ranks: Option<u64>,
    watch: Option<Bound<'_, PyAny>>,
) -> PyResult<String> {
    let model = opened(py, path, data.as_ref(), None, ranks)?;
    let of = |name: &str| how.get(name).cloned();
    let number = |top: String| top.parse().map_err(|_| usage(format!("top={top:?} is no number"), "give one"));
    let (pairs, top, nodes) = (of("pairs"), of("top").map(number).transpose()?, of("of").map(PathBuf::from));
    let rows = form(PredictionFile::new(&file), how.get("what").map(String::as_str))?;
    let written = work::run(py, watch.as_ref(), Interrupted::Ends, move |observer| {
        let model = model.observer(observer);
        match (pairs, top) {
            (Some(pairs), _) => Ok(json!(model.write_pair_scores(pairs, file)?)),
            (None, Some(top)) => Ok(json!(model.write_partners(top, nodes.as_deref(), file)?)),
            (None, None) => Ok(model.write_predictions(&rows)?.to_json()),
        }
    })?;
    Ok(written.to_string())
}

/// A file of predictions in this form.
fn form(file: PredictionFile, what: Option<&str>) -> PyResult<PredictionFile> {
    Ok(match what {
        None => file,
        Some("logits") => file.logits(),
        Some("probabilities") => file.probabilities(),
        Some("values") => file.values(),
        Some("labels") => file.labels(),
        Some(other) => {
            let remedy = "choose logits, probabilities, values or labels";
            return Err(usage(format!("what={other:?} is no form of predictions"), remedy));
        }
    })
}

/// Spreads what models say over the graph. `how` are the program's arguments as `name=value`.
#[pyfunction]
#[pyo3(signature = (path, how, data=None, *, output=None, split=None, ranks=None, watch=None))]
#[allow(clippy::too_many_arguments, clippy::needless_pass_by_value)] // Keyword arguments of Python.
pub(crate) fn smooth(
    py: Python<'_>,
    path: PathBuf,
    how: Vec<(String, String)>,
    data: Option<Data<'_>>,
    output: Option<PathBuf>,
    split: Option<&str>,
    ranks: Option<u64>,
    watch: Option<Bound<'_, PyAny>>,
) -> PyResult<String> {
    let model = opened(py, path, data.as_ref(), split, ranks)?;
    let spread = how.iter().any(|(name, value)| name == "method" && value == "label-propagation");
    let begin = if spread { Smooth::label_propagation() } else { Smooth::correct_and_smooth() };
    let mut how = how.iter().try_fold(begin, |how, (name, value)| smoothed(how, name, value))?;
    if let Some(folder) = output {
        how = how.output(folder);
    }
    let found =
        work::run(py, watch.as_ref(), Interrupted::Ends, move |observer| model.observer(observer).smooth(&how))?;
    Ok(found.to_json().to_string())
}

fn smoothed(how: Smooth, name: &str, value: &str) -> PyResult<Smooth> {
    let wrong = || usage(format!("{name}={value:?} is nothing that smoothing takes"), "see help(graphweft.smooth)");
    let number = || value.parse().map_err(|_| wrong());
    Ok(match (name, value) {
        ("method", "correct-and-smooth" | "label-propagation") | ("labels", "train") => how,
        ("correct", _) => how.correct(number()?),
        ("smooth", _) => how.smooth(number()?),
        ("steps", _) => how.steps(value.parse().map_err(|_| wrong())?),
        ("weights", "symmetric") => how.symmetric(),
        ("weights", "row") => how.by_row(),
        ("weights", "column") => how.by_column(),
        ("labels", "train-and-valid") => how.with_validation_labels(),
        _ => return Err(wrong()),
    })
}
