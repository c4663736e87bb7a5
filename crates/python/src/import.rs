//! Data of other programs, made a dataset folder.

use std::collections::HashMap;
use std::path::PathBuf;

use graphweft::{ArrayFiles, DatasetTask, Format, Import, SelfLoops};
use pyo3::prelude::*;

use crate::error::usage;
use crate::work::{self, Interrupted};

/// Values by the name of the argument: one, or none for a flag, or several.
type Given = HashMap<String, Vec<String>>;

/// A dataset folder of a file of `format`, of a "table" or several, of "arrays", or of a "union" of several; `given`
/// are the arguments of the program, without dashes.
#[pyfunction]
#[pyo3(signature = (format, dir, given, *, watch=None))]
#[allow(clippy::needless_pass_by_value)] // Keyword arguments of Python.
pub(crate) fn import_data(
    py: Python<'_>,
    format: &str,
    dir: PathBuf,
    given: Given,
    watch: Option<Bound<'_, PyAny>>,
) -> PyResult<String> {
    let mut given = given;
    let import = match (format, Format::ALL.into_iter().find(|known| known.name() == format)) {
        (_, Some(known)) => Import::new(known, taken(&mut given, "path")?.unwrap_or_default()),
        ("table", _) => tables(&mut given)?,
        ("arrays", _) => Import::arrays(arrays(&mut given)?),
        ("union", _) => Import::union(given.remove("path").unwrap_or_default()),
        _ => {
            let names = Format::ALL.map(Format::name).join(", ");
            return Err(usage(
                format!("there is no format {format:?}"),
                &format!("choose table, arrays, union, {names}"),
            ));
        }
    };
    let import = given.into_iter().try_fold(import, |import, (name, values)| with(import, &name, &values))?;
    let made = work::run(py, watch.as_ref(), Interrupted::Ends, move |observer| import.observer(observer).write(dir))?;
    Ok(made.to_json().to_string())
}

/// What all formats have in common, and what some have.
fn with(import: Import, name: &str, values: &[String]) -> PyResult<Import> {
    let value = values.first().map(String::as_str).unwrap_or_default();
    let number = || value.parse().map_err(|_| usage(format!("{name}={value:?} is no whole number"), "give one"));
    Ok(match (name, value) {
        ("name", name) => import.name(name),
        ("symmetrise", _) => import.symmetrise(),
        ("merge_parallel", _) => import.merge_parallel(),
        ("directed", _) => import.directed(),
        ("edge_features", _) => import.edge_features(),
        ("ids", "keep") => import.keep_ids(),
        ("ids", "relabel") => import.relabel_ids(),
        ("self_loops", "keep") => import.self_loops(SelfLoops::Keep),
        ("self_loops", "add") => import.self_loops(SelfLoops::Add),
        ("self_loops", "remove") => import.self_loops(SelfLoops::Remove),
        ("num_nodes", _) => import.num_nodes(number()?),
        ("memory", _) => import.memory(number()?),
        ("nodes_of", folder) => import.nodes_of(folder),
        _ => {
            let remedy = "graphweft import --help says what each format takes";
            return Err(usage(format!("{name}={value:?} is nothing that this format takes"), remedy));
        }
    })
}

fn arrays(given: &mut Given) -> PyResult<ArrayFiles> {
    let mut path = |name: &str| Ok::<_, PyErr>(taken(given, name)?.map(PathBuf::from));
    let (edges, nodes, features) = (path("edges")?.unwrap_or_default(), path("nodes")?, path("features")?);
    let (labels, splits, train) = (path("labels")?, path("splits")?, path("train")?);
    let (valid, test, edge_features) = (path("valid")?, path("test")?, path("edge_features")?);
    let task = task(given)?;
    let num_nodes = taken(given, "num_nodes")?.map(|count| count.parse()).transpose();
    Ok(ArrayFiles {
        edges,
        nodes,
        features,
        labels,
        task,
        splits,
        train,
        valid,
        test,
        // Without a file, the columns of the edge list.
        edge_features: edge_features.map(|path| Some(path).filter(|path| !path.as_os_str().is_empty())),
        num_nodes: num_nodes.map_err(|_| usage("num_nodes is no whole number", "give one"))?,
        id_column: taken(given, "id_column")?,
        label_columns: given.remove("label_columns").unwrap_or_default(),
        split_column: taken(given, "split_column")?,
        skip_columns: given.remove("skip_columns").unwrap_or_default(),
    })
}

fn tables(given: &mut Given) -> PyResult<Import> {
    let import = taken(given, "schema")?.into_iter().fold(Import::tables(), Import::schema);
    let mut all = |name: &str| given.remove(name).unwrap_or_default();
    let import = all("nodes").iter().fold(import, |import, table| import.node_table(table));
    let import = all("edges").iter().fold(import, |import, table| import.edge_table(table));
    let import = all("column").iter().fold(import, |import, column| import.column(column));
    Ok(import.task(task(given)?))
}

/// What labels are for.
fn task(given: &mut Given) -> PyResult<DatasetTask> {
    match taken(given, "task")?.as_deref() {
        None | Some("node-classification") => Ok(DatasetTask::NodeClassification),
        Some("node-regression") => Ok(DatasetTask::NodeRegression),
        Some(other) => {
            let remedy = "choose node-classification or node-regression";
            Err(usage(format!("task={other:?}: arrays and tables are for nodes"), remedy))
        }
    }
}

/// The value of an argument that has one.
fn taken(given: &mut Given, name: &str) -> PyResult<Option<String>> {
    match given.remove(name) {
        None => Ok(None),
        Some(mut values) if values.len() == 1 => Ok(values.pop()),
        Some(values) if values.is_empty() => Ok(Some(String::new())),
        Some(_) => Err(usage(format!("{name} is one value"), "give one")),
    }
}
