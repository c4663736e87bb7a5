//! The kernels over edges, on the memory of tensors that `graphweft.torch` names by address.

use std::any::Any;

use graphweft::kernels::{
    Along, Attention, AttentionGradients, GpuArray, GpuHost, Score, Seed, Sum, Values, ValuesMut,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::data::Graph;
use crate::work;

/// Contiguous memory of a tensor: address, number of elements, and 0, 1, 2, 3 for f32, f64, bf16 or int32. The caller
/// has it for the time of the call (on a GPU: until that is done there), and names no memory twice of which one is
/// written.
#[derive(Clone, Copy, FromPyObject)]
pub(crate) struct Memory(usize, usize, u8);

/// Where memory is.
#[derive(Clone, Copy)]
enum Place {
    Here,
    Gpu,
}

/// Memory as what kernels read (`Values`) or write (`ValuesMut`).
macro_rules! lent {
    ($memory:ident, $place:ident, $of:ident) => {
        // SAFETY: as the type says; an int32 has the bits of a u32.
        unsafe {
            Ok(match ($place, $memory.2) {
                (Place::Gpu, _) => $of::Gpu($memory.gpu()?),
                (_, 0) => $of::F32($memory.slice()),
                (_, 1) => $of::F64($memory.slice()),
                (_, 2) => $of::Bf16($memory.slice()),
                _ => $of::Ids($memory.slice()),
            })
        }
    };
}

impl Memory {
    /// # Safety
    /// As the type says.
    unsafe fn slice<'a, T>(self) -> &'a mut [T] {
        let start = std::ptr::with_exposed_provenance_mut::<T>(self.0);
        // Tensors without elements are nowhere.
        if self.1 == 0 || !start.is_aligned() {
            return &mut [];
        }
        // SAFETY: by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(start, self.1) }
    }

    fn gpu(self) -> PyResult<GpuArray> {
        let of = match self.2 {
            0 => GpuArray::f32,
            1 => GpuArray::f64,
            2 => GpuArray::bf16,
            3 => GpuArray::ids,
            _ => return Err(PyValueError::new_err("this memory has neither numbers nor ids")),
        };
        // SAFETY: as the type says.
        Ok(unsafe { of(self.0 as u64, self.1) })
    }

    fn values<'a>(self, place: Place) -> PyResult<Values<'a>> {
        lent!(self, place, Values)
    }

    fn values_mut<'a>(self, place: Place) -> PyResult<ValuesMut<'a>> {
        lent!(self, place, ValuesMut)
    }
}

fn given<'a>(memory: Option<Memory>, place: Place) -> PyResult<Option<Values<'a>>> {
    memory.map(|memory| memory.values(place)).transpose()
}

fn wanted<'a>(memory: Option<Memory>, place: Place) -> PyResult<Option<ValuesMut<'a>>> {
    memory.map(|memory| memory.values_mut(place)).transpose()
}

/// What decides which weights are dropped: a number, or where on the GPU one is.
#[derive(FromPyObject)]
pub(crate) enum Dropped {
    Number(u64),
    At(Memory),
}

/// How attention goes: "dot", "gat" or "gatv2", heads, columns, slope, dropout and what decides it, and features of
/// edges.
#[derive(FromPyObject)]
pub(crate) struct How(String, usize, usize, f64, f64, Dropped, Option<Memory>);

/// What belongs to destinations, to sources, to values, to all edges, and the bias.
#[derive(Clone, Copy, FromPyObject)]
pub(crate) struct Operands(Memory, Memory, Option<Memory>, Option<Memory>, Option<Memory>);

fn called<'a>(how: &How, operands: Operands, place: Place) -> PyResult<Attention<'a>> {
    let How(kind, heads, width, slope, dropout, seed, edges) = how;
    let Operands(dst, src, value, shared, bias) = operands;
    let (dst, src) = (dst.values(place)?, src.values(place)?);
    let seed = match seed {
        Dropped::Number(seed) => Seed::Number(*seed),
        Dropped::At(seed) => Seed::OnGpu(seed.0 as u64),
    };
    let score = match (kind.as_str(), given(value, place)?, given(shared, place)?) {
        ("dot", None, None) => Score::Dot { q: dst, kv: src },
        ("gat", Some(z), None) => Score::Gat { l: dst, r: src, z, slope: *slope },
        ("gatv2", value, Some(a)) => Score::Gatv2 { l: dst, r: src, value, a, slope: *slope },
        _ => return Err(PyValueError::new_err(format!("these operands are not those of {kind}"))),
    };
    let (bias, edges) = (given(bias, place)?, given(*edges, place)?);
    Ok(Attention { heads: *heads, width: *width, score, bias, edges, dropout: *dropout, seed })
}

/// Which way a sum goes ("edges" or "transpose"), its columns, and per edge, destination and source what it is
/// multiplied with.
#[derive(FromPyObject)]
pub(crate) struct Weighted(String, usize, Option<Memory>, Option<Memory>, Option<Memory>);

fn summed<'a>(how: &Weighted, x: Memory, place: Place) -> PyResult<Sum<'a>> {
    let Weighted(along, width, edge, dst, src) = how;
    let along = match along.as_str() {
        "edges" => Along::Edges,
        "transpose" => Along::Transpose,
        other => return Err(PyValueError::new_err(format!("no sum goes along {other}"))),
    };
    let [edge, dst, src] = [given(*edge, place)?, given(*dst, place)?, given(*src, place)?];
    Ok(Sum { along, width: *width, edge, dst, src, x: x.values(place)? })
}

/// Torch, or who else has the GPU: a function that gives the current stream, and one that gives memory, as its address
/// and what keeps it.
struct Caller {
    stream: Py<PyAny>,
    memory: Py<PyAny>,
}

impl GpuHost for Caller {
    fn stream(&self) -> Result<u64, String> {
        Python::attach(|py| self.stream.call0(py)?.extract(py)).map_err(|e| format!("there is no stream: {e}"))
    }

    fn memory(&self, bytes: usize) -> Option<(u64, Box<dyn Any + Send>)> {
        // What the allocator raises where there is no memory is told by the engine, with what it was for.
        let (start, owner): (u64, Py<PyAny>) =
            Python::attach(|py| self.memory.call1(py, (bytes,))?.extract(py)).ok()?;
        Some((start, Box::new(owner)))
    }
}

/// A graph made ready for kernels.
#[pyclass(frozen, module = "graphweft")]
pub(crate) struct EdgeKernels {
    kernels: graphweft::kernels::EdgeKernels,
    place: Place,
}

#[pymethods]
#[allow(clippy::needless_pass_by_value)] // As pyo3 hands arguments over.
impl EdgeKernels {
    #[new]
    fn new(py: Python<'_>, graph: &Graph) -> PyResult<Self> {
        let kernels = work::here(py, || graphweft::kernels::EdgeKernels::new(&graph.0))?;
        Ok(Self { kernels, place: Place::Here })
    }

    /// On a GPU that the caller has: `stream()` gives the current stream, `memory(bytes)` an address and what keeps it.
    #[staticmethod]
    fn on_gpu(py: Python<'_>, graph: &Graph, index: usize, stream: Py<PyAny>, memory: Py<PyAny>) -> PyResult<Self> {
        let caller = Caller { stream, memory };
        let kernels = work::here(py, || graphweft::kernels::EdgeKernels::on_gpu(&graph.0, index, caller))?;
        Ok(Self { kernels, place: Place::Gpu })
    }

    fn attention(&self, py: Python<'_>, how: How, operands: Operands, out: Memory, lse: Memory) -> PyResult<()> {
        let call = called(&how, operands, self.place)?;
        let (out, lse) = (out.values_mut(self.place)?, lse.values_mut(self.place)?);
        work::here(py, || self.kernels.attention(&call, out, lse))
    }

    /// `saved`: the output, the log-sum-exp, and the gradient of the output.
    fn attention_backward(
        &self,
        py: Python<'_>,
        how: How,
        operands: Operands,
        saved: [Memory; 3],
        gradients: Operands,
    ) -> PyResult<()> {
        let place = self.place;
        let call = called(&how, operands, place)?;
        let [out, lse, g] = saved;
        let Operands(dst, src, value, shared, bias) = gradients;
        let to = AttentionGradients {
            out: out.values(place)?,
            lse: lse.values(place)?,
            g: g.values(place)?,
            dst: dst.values_mut(place)?,
            src: src.values_mut(place)?,
            value: wanted(value, place)?,
            shared: wanted(shared, place)?,
            bias: wanted(bias, place)?,
        };
        work::here(py, || self.kernels.attention_backward(&call, to))
    }

    fn sum(&self, py: Python<'_>, how: Weighted, x: Memory, out: Memory) -> PyResult<()> {
        let (sum, out) = (summed(&how, x, self.place)?, out.values_mut(self.place)?);
        work::here(py, || self.kernels.sum(&sum, out))
    }

    fn sum_weights(&self, py: Python<'_>, how: Weighted, x: Memory, g: Memory, dw: Memory) -> PyResult<()> {
        let place = self.place;
        let (sum, g, dw) = (summed(&how, x, place)?, g.values(place)?, dw.values_mut(place)?);
        work::here(py, || self.kernels.sum_weights(&sum, g, dw))
    }

    fn max(&self, py: Python<'_>, width: usize, x: Memory, out: Memory, arg: Memory) -> PyResult<()> {
        let place = self.place;
        let (x, out, arg) = (x.values(place)?, out.values_mut(place)?, arg.values_mut(place)?);
        work::here(py, || self.kernels.max(width, x, out, arg))
    }

    fn max_backward(&self, py: Python<'_>, width: usize, g: Memory, arg: Memory, dx: Memory) -> PyResult<()> {
        let place = self.place;
        let (g, arg, dx) = (g.values(place)?, arg.values(place)?, dx.values_mut(place)?);
        work::here(py, || self.kernels.max_backward(width, g, arg, dx))
    }
}
