//! Graphs and datasets, with their arrays as NumPy sees them.

use std::path::PathBuf;

use graphweft::Split;
use numpy::ndarray::{ArrayView1, ArrayView2};
use numpy::{Element, PyArray1, PyArray2, PyReadonlyArray1, PyReadonlyArray2, PyUntypedArrayMethods, ToPyArray};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::Raise;
use crate::work::check_process;

/// The structure of a graph.
#[pyclass(frozen, module = "graphweft")]
pub(crate) struct Graph(pub(crate) graphweft::Graph);

/// Node ids as other libraries have them.
#[derive(FromPyObject)]
pub(crate) enum Ids<'py> {
    Narrow(PyReadonlyArray1<'py, u32>),
    Wide(PyReadonlyArray1<'py, i64>),
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
        check_process()?;
        let graph = match (&sources, &targets) {
            (Ids::Narrow(sources), Ids::Narrow(targets)) => {
                let (sources, targets) = (sources.as_slice()?, targets.as_slice()?);
                py.detach(|| graphweft::Graph::from_edges(num_nodes, sources, targets))
            }
            (Ids::Wide(sources), Ids::Wide(targets)) => {
                let (sources, targets) = (sources.as_slice()?, targets.as_slice()?);
                py.detach(|| graphweft::Graph::from_edges(num_nodes, sources, targets))
            }
            _ => return Err(PyValueError::new_err("sources and targets are of different types")),
        };
        Ok(Self(graph.raise(py)?))
    }

    /// A CSR matrix by destination.
    #[staticmethod]
    #[allow(clippy::needless_pass_by_value)] // As pyo3 hands arguments over.
    fn from_csr(
        py: Python<'_>,
        indptr: PyReadonlyArray1<'_, u64>,
        indices: PyReadonlyArray1<'_, u32>,
    ) -> PyResult<Self> {
        check_process()?;
        let (indptr, indices) = (indptr.as_slice()?.to_vec(), indices.as_slice()?.to_vec());
        Ok(Self(py.detach(|| graphweft::Graph::from_csr(indptr, indices)).raise(py)?))
    }

    /// A generated graph.
    #[staticmethod]
    fn generate(py: Python<'_>, spec: &str, seed: u64) -> PyResult<Self> {
        check_process()?;
        Ok(Self(py.detach(|| graphweft::Graph::generate(spec, seed)).raise(py)?))
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

    fn symmetrise(&self, py: Python<'_>) -> Self {
        Self(py.detach(|| self.0.symmetrise()))
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
        check_process()?;
        Ok(Self(py.detach(|| graphweft::Dataset::open(dir)).raise(py)?))
    }

    /// A generated one.
    #[staticmethod]
    fn generate(py: Python<'_>, spec: &str, seed: u64) -> PyResult<Self> {
        check_process()?;
        Ok(Self(py.detach(|| graphweft::Dataset::generate(spec, seed)).raise(py)?))
    }

    fn save(&self, py: Python<'_>, dir: PathBuf) -> PyResult<()> {
        py.detach(|| self.0.save(dir)).raise(py)
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

    /// One class per node.
    #[getter]
    fn labels<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyArray1<i64>>>> {
        slf.get().0.labels().map(|labels| view(labels, slf.as_any())).transpose()
    }

    /// Several labels per node.
    #[getter]
    fn label_rows<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyArray2<f32>>>> {
        let Some(labels) = self.0.label_rows() else { return Ok(None) };
        let classes = self.0.num_classes();
        let all = ArrayView2::from_shape((self.0.num_nodes(), classes), &labels);
        Ok(Some(all.map_err(|e| PyValueError::new_err(e.to_string()))?.to_pyarray(py)))
    }

    /// Numbers to predict, as rows.
    #[getter]
    fn values<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<Bound<'py, PyArray2<f32>>>> {
        let dataset = &slf.get().0;
        let width = dataset.num_classes().max(1);
        dataset.values().map(|values| rows(values, width, slf.as_any())).transpose()
    }

    /// Splits: name, and ids of train, valid and test.
    #[getter]
    #[allow(clippy::type_complexity)] // A name and three arrays.
    fn splits<'py>(
        &self,
        py: Python<'py>,
    ) -> Vec<(String, Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<i64>>)> {
        let of = |split: Split| {
            let [train, valid, test] = [&split.train, &split.valid, &split.test].map(|ids| ids.to_pyarray(py));
            (split.name, train, valid, test)
        };
        self.0.splits().into_iter().map(of).collect()
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

    fn features(&mut self, values: PyReadonlyArray2<'_, f32>) -> PyResult<()> {
        let (width, values) = (values.shape()[1], values.as_slice()?.to_vec());
        self.with(|builder| builder.features(width, values))
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

    fn label_rows(&mut self, labels: PyReadonlyArray2<'_, f32>) -> PyResult<()> {
        let (classes, labels) = (labels.shape()[1], labels.as_slice()?.to_vec());
        self.with(|builder| builder.label_rows(classes, labels))
    }

    fn values(&mut self, values: PyReadonlyArray2<'_, f32>) -> PyResult<()> {
        let (width, values) = (values.shape()[1], values.as_slice()?.to_vec());
        self.with(|builder| builder.values(width, values))
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

    fn build(&mut self, py: Python<'_>) -> PyResult<Dataset> {
        let builder = self.0.take().ok_or_else(|| PyValueError::new_err("this dataset is built already"))?;
        Ok(Dataset(py.detach(|| builder.build()).raise(py)?))
    }
}
