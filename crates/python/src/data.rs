//! Graphs and datasets, with their arrays as NumPy sees them.

use std::path::PathBuf;

use graphweft::{Split, TypeCount};
use numpy::ndarray::{Array2, ArrayView1, ArrayView2};
use numpy::{
    Element, IntoPyArray, PyArray1, PyArray2, PyReadonlyArray1, PyReadonlyArray2, PyUntypedArrayMethods, ToPyArray,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::Raise;
use crate::work::{self, check_process};

/// The structure of a graph.
#[pyclass(frozen, module = "graphweft")]
pub(crate) struct Graph(pub(crate) graphweft::Graph);

/// Node ids as other libraries have them.
#[derive(FromPyObject)]
pub(crate) enum Ids<'py> {
    Narrow(PyReadonlyArray1<'py, u32>),
    Wide(PyReadonlyArray1<'py, i64>),
}

fn different() -> PyErr {
    PyValueError::new_err("sources and targets are of different types")
}

/// A read-only array over memory that `owner` keeps alive.
fn view<'py, T: Element>(values: &[T], owner: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArray1<T>>> {
    // SAFETY: `owner` is what the memory belongs to, never changes it (its class is frozen), and lives as long as the
    // array, which keeps a reference to it.
    let array = unsafe { PyArray1::borrow_from_array(&ArrayView1::from(values), owner.clone()) };
    array.call_method1("setflags", (false,))?;
    Ok(array)
}

/// The same with rows.
fn rows<'py, T: Element>(values: &[T], width: usize, owner: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArray2<T>>> {
    let shape = (values.len() / width.max(1), width);
    let all = ArrayView2::from_shape(shape, values).map_err(|e| PyValueError::new_err(e.to_string()))?;
    // SAFETY: as in `view`.
    let array = unsafe { PyArray2::borrow_from_array(&all, owner.clone()) };
    array.call_method1("setflags", (false,))?;
    Ok(array)
}

#[pymethods]
impl Graph {
    /// Edges as two arrays of node ids of one type; they are read where they are.
    #[staticmethod]
    #[allow(clippy::needless_pass_by_value)] // As pyo3 hands arguments over.
    fn from_edges(py: Python<'_>, sources: Ids<'_>, targets: Ids<'_>, num_nodes: usize) -> PyResult<Self> {
        let graph = match (&sources, &targets) {
            (Ids::Narrow(sources), Ids::Narrow(targets)) => {
                let (sources, targets) = (sources.as_slice()?, targets.as_slice()?);
                work::here(py, || graphweft::Graph::from_edges(num_nodes, sources, targets))
            }
            (Ids::Wide(sources), Ids::Wide(targets)) => {
                let (sources, targets) = (sources.as_slice()?, targets.as_slice()?);
                work::here(py, || graphweft::Graph::from_edges(num_nodes, sources, targets))
            }
            _ => return Err(different()),
        };
        Ok(Self(graph?))
    }

    /// A CSR matrix by destination.
    #[staticmethod]
    #[allow(clippy::needless_pass_by_value)] // As pyo3 hands arguments over.
    fn from_csr(
        py: Python<'_>,
        indptr: PyReadonlyArray1<'_, u64>,
        indices: PyReadonlyArray1<'_, u32>,
    ) -> PyResult<Self> {
        let (indptr, indices) = (indptr.as_slice()?.to_vec(), indices.as_slice()?.to_vec());
        Ok(Self(work::here(py, || graphweft::Graph::from_csr(indptr, indices))?))
    }

    /// A generated graph.
    #[staticmethod]
    fn generate(py: Python<'_>, spec: &str, seed: u64) -> PyResult<Self> {
        Ok(Self(work::here(py, || graphweft::Graph::generate(spec, seed))?))
    }

    /// Which of these edges stands at each place of `indices`.
    #[allow(clippy::needless_pass_by_value)] // As pyo3 hands arguments over.
    fn edge_order<'py>(
        &self,
        py: Python<'py>,
        sources: Ids<'_>,
        targets: Ids<'_>,
    ) -> PyResult<Bound<'py, PyArray1<u64>>> {
        let order = match (&sources, &targets) {
            (Ids::Narrow(sources), Ids::Narrow(targets)) => {
                let (sources, targets) = (sources.as_slice()?, targets.as_slice()?);
                work::here(py, || self.0.edge_order(sources, targets))
            }
            (Ids::Wide(sources), Ids::Wide(targets)) => {
                let (sources, targets) = (sources.as_slice()?, targets.as_slice()?);
                work::here(py, || self.0.edge_order(sources, targets))
            }
            _ => return Err(different()),
        };
        Ok(order?.into_pyarray(py))
    }

    #[getter]
    fn num_nodes(&self) -> usize {
        self.0.num_nodes()
    }

    #[getter]
    fn num_edges(&self) -> usize {
        self.0.num_edges()
    }

    #[getter]
    fn indptr<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyArray1<u64>>> {
        view(slf.get().0.indptr(), slf.as_any())
    }

    #[getter]
    fn indices<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyArray1<u32>>> {
        view(slf.get().0.indices().raise(slf.py())?, slf.as_any())
    }

    fn is_symmetric(&self) -> bool {
        self.0.is_symmetric()
    }

    fn symmetrise(&self, py: Python<'_>) -> PyResult<Self> {
        Ok(Self(work::here(py, || Ok(self.0.symmetrise()))?))
    }
}

/// A graph with features, labels and splits.
#[pyclass(frozen, module = "graphweft")]
pub(crate) struct Dataset(pub(crate) graphweft::Dataset);

#[pymethods]
impl Dataset {
    /// A folder, mapped.
    #[staticmethod]
    fn open(py: Python<'_>, dir: PathBuf) -> PyResult<Self> {
        Ok(Self(work::here(py, || graphweft::Dataset::open(dir))?))
    }

    /// A generated one.
    #[staticmethod]
    fn generate(py: Python<'_>, spec: &str, seed: u64) -> PyResult<Self> {
        Ok(Self(work::here(py, || graphweft::Dataset::generate(spec, seed))?))
    }

    fn save(&self, py: Python<'_>, dir: PathBuf) -> PyResult<()> {
        work::here(py, || self.0.save(dir))
    }

    #[pyo3(signature = (format, path, *, split=None))]
    fn export(&self, py: Python<'_>, format: &str, path: PathBuf, split: Option<&str>) -> PyResult<Vec<String>> {
        work::here(py, || self.0.export(format, path, split))
    }

    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    #[getter]
    fn folder(&self) -> Option<PathBuf> {
        self.0.folder().map(PathBuf::from)
    }

    #[getter]
    fn graph(&self, py: Python<'_>) -> PyResult<Graph> {
        Ok(Graph(self.0.graph().raise(py)?))
    }

    #[getter]
    fn num_nodes(&self) -> usize {
        self.0.num_nodes()
    }

    #[getter]
    fn num_edges(&self) -> usize {
        self.0.num_edges()
    }

    #[getter]
    fn num_features(&self) -> usize {
        self.0.num_features()
    }

    #[getter]
    fn num_classes(&self) -> usize {
        self.0.num_classes()
    }

    /// Dense features; None where they are sparse or missing.
    #[getter]
    fn features<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyArray2<f32>>>> {
        let dataset = &slf.get().0;
        dataset.features().map(|values| rows(values, dataset.num_features(), slf.as_any())).transpose()
    }

    /// Sparse features: indptr, indices and values, or None for values that are all 1.
    #[getter]
    #[allow(clippy::type_complexity)] // The three arrays of a CSR matrix.
    fn sparse_features<'py>(
        slf: &Bound<'py, Self>,
    ) -> PyResult<Option<(Bound<'py, PyArray1<u64>>, Bound<'py, PyArray1<u32>>, Option<Bound<'py, PyArray1<f32>>>)>>
    {
        let Some(sparse) = slf.get().0.sparse_features() else { return Ok(None) };
        let owner = slf.as_any();
        let values = sparse.values.map(|values| view(values, owner)).transpose()?;
        Ok(Some((view(sparse.indptr, owner)?, view(sparse.indices, owner)?, values)))
    }

    /// One class per node, or per graph where there are many.
    #[getter]
    fn labels<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyArray1<i64>>>> {
        slf.get().0.labels().map(|labels| view(labels, slf.as_any())).transpose()
    }

    /// Several labels per node, or per graph where there are many.
    #[getter]
    fn label_rows<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyArray2<f32>>>> {
        let Some(labels) = self.0.label_rows() else { return Ok(None) };
        let classes = self.0.num_classes();
        let all = ArrayView2::from_shape((labels.len() / classes.max(1), classes), &labels);
        Ok(Some(all.map_err(|e| PyValueError::new_err(e.to_string()))?.to_pyarray(py)))
    }

    /// Numbers to predict, as rows.
    #[getter]
    fn values<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyArray2<f32>>>> {
        let dataset = &slf.get().0;
        let width = dataset.num_classes().max(1);
        dataset.values().map(|values| rows(values, width, slf.as_any())).transpose()
    }

    /// What is predicted, as `task` in meta.toml says.
    #[getter]
    fn task(&self) -> String {
        serde_json::to_value(self.0.task()).ok().and_then(|task| task.as_str().map(String::from)).unwrap_or_default()
    }

    /// Features of edges in the order of the graph's indices.
    #[getter]
    fn edge_features<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyArray2<f32>>>> {
        let dataset = &slf.get().0;
        dataset.edge_features().map(|values| rows(values, dataset.num_edge_features(), slf.as_any())).transpose()
    }

    /// Categories of nodes, as rows.
    #[getter]
    fn categories<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyArray2<u16>>>> {
        let Some((values, sizes)) = self.0.categories() else { return Ok(None) };
        let all = Array2::from_shape_vec((values.len() / sizes.len().max(1), sizes.len()), values);
        Ok(Some(all.map_err(|e| PyValueError::new_err(e.to_string()))?.into_pyarray(py)))
    }

    /// The first node of every graph, and how many nodes there are; None if there is one graph.
    #[getter]
    fn graphs<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyArray1<u64>>>> {
        slf.get().0.graphs().map(|first| view(first, slf.as_any())).transpose()
    }

    /// Splits: name, and ids of train, valid and test.
    #[getter]
    #[allow(clippy::type_complexity)] // A name and three arrays.
    fn splits<'py>(
        slf: &Bound<'py, Self>,
    ) -> PyResult<Vec<(String, Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<i64>>)>> {
        let owner = slf.as_any();
        let of = |(name, [train, valid, test]): (&str, [&[i64]; 3])| {
            Ok((name.into(), view(train, owner)?, view(valid, owner)?, view(test, owner)?))
        };
        slf.get().0.split_ids().into_iter().map(of).collect()
    }

    /// Types of nodes: name, how many, and their features, where they have dense ones of their own.
    #[getter]
    #[allow(clippy::type_complexity)] // A name, a count and rows.
    fn node_types<'py>(slf: &Bound<'py, Self>) -> PyResult<Vec<(String, u64, Option<Bound<'py, PyArray2<f32>>>)>> {
        let dataset = &slf.get().0;
        let own = |(number, of): (usize, TypeCount)| {
            let values = dataset.features_of_type(number);
            Ok((of.name, of.count, values.map(|values| rows(values, of.features, slf.as_any())).transpose()?))
        };
        dataset.node_types().into_iter().enumerate().map(own).collect()
    }

    /// Names of the types of edges, and the number of that of each edge, in the order of the graph's indices.
    #[getter]
    fn edge_types<'py>(&self, py: Python<'py>) -> PyResult<(Vec<String>, Bound<'py, PyArray1<u16>>)> {
        let (names, types) = work::here(py, || Ok((self.0.edge_types()?, self.0.type_of_edges()?)))?;
        Ok((names.into_iter().map(|of| of.name).collect(), types.into_pyarray(py)))
    }

    /// Splits of links: name, and pairs or triples by the name of the part.
    #[getter]
    #[allow(clippy::type_complexity)] // A name and arrays.
    fn links<'py>(&self, py: Python<'py>) -> PyResult<Vec<(String, Vec<(&'static str, Bound<'py, PyArray2<i64>>)>)>> {
        let width = self.0.link_width();
        let pairs = |pairs: Vec<i64>| {
            let rows = Array2::from_shape_vec((pairs.len() / width, width), pairs);
            PyResult::Ok(rows.map_err(|e| PyValueError::new_err(e.to_string()))?.into_pyarray(py))
        };
        let of = |split: Split| {
            let Split { name, train, valid, test, no_links: [valid_neg, test_neg], .. } = split;
            let all = [Some(train), Some(valid), Some(test), valid_neg, test_neg];
            let named = ["train", "valid", "test", "valid_neg", "test_neg"].into_iter().zip(all);
            let parts = named.filter_map(|(part, ids)| Some(pairs(ids?).map(|ids| (part, ids))));
            Ok((name, parts.collect::<PyResult<_>>()?))
        };
        self.0.links().into_iter().map(of).collect()
    }
}

/// A dataset in memory, one array after another.
#[pyclass(module = "graphweft")]
pub(crate) struct DatasetBuilder(Option<graphweft::DatasetBuilder>);

impl DatasetBuilder {
    fn with(&mut self, change: impl FnOnce(graphweft::DatasetBuilder) -> graphweft::DatasetBuilder) -> PyResult<()> {
        let builder = self.0.take().ok_or_else(|| PyValueError::new_err("this dataset is built already"))?;
        self.0 = Some(change(builder));
        Ok(())
    }
}

#[pymethods]
#[allow(clippy::needless_pass_by_value)] // As pyo3 hands arguments over.
impl DatasetBuilder {
    #[new]
    fn new(name: &str, graph: &Graph) -> PyResult<Self> {
        check_process()?;
        Ok(Self(Some(graphweft::Dataset::builder(name, &graph.0))))
    }

    /// Rows of "features", of "label_rows" or "values" to predict, or of "edge_features", edges in the order of the
    /// graph's indices.
    fn rows(&mut self, what: &str, values: PyReadonlyArray2<'_, f32>) -> PyResult<()> {
        let (width, values) = (values.shape()[1], values.as_slice()?.to_vec());
        match what {
            "features" => self.with(|builder| builder.features(width, values)),
            "label_rows" => self.with(|builder| builder.label_rows(width, values)),
            "values" => self.with(|builder| builder.values(width, values)),
            "edge_features" => self.with(|builder| builder.edge_features(width, values)),
            _ => Err(PyValueError::new_err(format!("there are no rows of {what}"))),
        }
    }

    fn sparse_features(
        &mut self,
        width: usize,
        indptr: PyReadonlyArray1<'_, u64>,
        indices: PyReadonlyArray1<'_, u32>,
        values: Option<PyReadonlyArray1<'_, f32>>,
    ) -> PyResult<()> {
        let values = values.map(|values| values.as_slice().map(<[f32]>::to_vec)).transpose()?;
        let (indptr, indices) = (indptr.as_slice()?.to_vec(), indices.as_slice()?.to_vec());
        self.with(|builder| builder.sparse_features(width, indptr, indices, values))
    }

    fn labels(&mut self, labels: PyReadonlyArray1<'_, i64>) -> PyResult<()> {
        let labels = labels.as_slice()?.to_vec();
        self.with(|builder| builder.labels(labels))
    }

    fn split(
        &mut self,
        name: &str,
        train: PyReadonlyArray1<'_, i64>,
        valid: PyReadonlyArray1<'_, i64>,
        test: PyReadonlyArray1<'_, i64>,
    ) -> PyResult<()> {
        let ids = |array: &PyReadonlyArray1<'_, i64>| array.as_slice().map(<[i64]>::to_vec);
        let split = Split::new(name, ids(&train)?, ids(&valid)?, ids(&test)?);
        self.with(|builder| builder.split(split))
    }

    /// One more type of nodes: the next `nodes`, each with a row of these.
    fn node_type(&mut self, name: &str, nodes: usize, values: Option<PyReadonlyArray2<'_, f32>>) -> PyResult<()> {
        let width = values.as_ref().map_or(0, |values| values.shape()[1]);
        let values = values.map(|values| values.as_slice().map(<[f32]>::to_vec)).transpose()?;
        self.with(|builder| builder.node_type(name, nodes, width, values.unwrap_or_default()))
    }

    /// Names of types, and the number of that of each edge, in the order of the graph's indices.
    fn edge_types(&mut self, names: Vec<String>, types: PyReadonlyArray1<'_, u16>) -> PyResult<()> {
        let types = types.as_slice()?.to_vec();
        self.with(|builder| builder.edge_types(&names, types))
    }

    fn categories(&mut self, values: PyReadonlyArray2<'_, u16>) -> PyResult<()> {
        let (width, values) = (values.shape()[1], values.as_slice()?.to_vec());
        self.with(|builder| builder.categories(width, values))
    }

    fn graphs(&mut self, first: PyReadonlyArray1<'_, u64>) -> PyResult<()> {
        let first = first.as_slice()?.to_vec();
        self.with(|builder| builder.graphs(first))
    }

    /// Pairs, or triples, to learn from, to choose by and to report on, and pairs that are no links for the latter two.
    fn links(&mut self, name: &str, parts: [Option<PyReadonlyArray2<'_, i64>>; 5]) -> PyResult<()> {
        let ids = |array: &Option<PyReadonlyArray2<'_, i64>>| {
            array.as_ref().map(|array| array.as_slice().map(<[i64]>::to_vec)).transpose()
        };
        let [train, valid, test, valid_neg, test_neg] = &parts;
        let part = |array| PyResult::Ok(ids(array)?.unwrap_or_default());
        let split = Split::new(name, part(train)?, part(valid)?, part(test)?);
        let split = split.no_links(ids(valid_neg)?, ids(test_neg)?);
        let width = train.as_ref().map_or(2, |array| array.shape()[1]);
        self.with(|builder| if width == 3 { builder.triples(split) } else { builder.links(split) })
    }

    fn build(&mut self, py: Python<'_>) -> PyResult<Dataset> {
        let builder = self.0.take().ok_or_else(|| PyValueError::new_err("this dataset is built already"))?;
        Ok(Dataset(work::here(py, || builder.build())?))
    }
}
