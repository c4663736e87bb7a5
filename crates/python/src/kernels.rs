//! The kernels over edges, on the memory of tensors that `graphweft.torch` names by address.

use graphweft::kernels::{Along, Attended, Attention, AttentionGradients, Score, Sum, Values, ValuesMut};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::data::Graph;
use crate::error::Raise;
use crate::work::check_process;

/// Contiguous memory of a tensor: address, number of elements, and 0, 1, 2, 3 for f32, f64, bf16 or int32. The caller
/// has it for the time of the call, and names no memory twice of which one is written.
#[derive(Clone, Copy, FromPyObject)]
pub(crate) struct Memory(usize, usize, u8);

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

    fn values<'a>(self) -> PyResult<Values<'a>> {
        // SAFETY: as the type says.
        unsafe {
            match self.2 {
                0 => Ok(Values::F32(self.slice())),
                1 => Ok(Values::F64(self.slice())),
                2 => Ok(Values::Bf16(self.slice())),
                _ => Err(wrong("numbers")),
            }
        }
    }

    fn values_mut<'a>(self) -> PyResult<ValuesMut<'a>> {
        // SAFETY: as the type says.
        unsafe {
            match self.2 {
                0 => Ok(ValuesMut::F32(self.slice())),
                1 => Ok(ValuesMut::F64(self.slice())),
                2 => Ok(ValuesMut::Bf16(self.slice())),
                _ => Err(wrong("numbers")),
            }
        }
    }

    fn ids<'a>(self) -> PyResult<&'a mut [u32]> {
        // SAFETY: as the type says; an int32 has the bits of a u32.
        if self.2 == 3 { Ok(unsafe { self.slice() }) } else { Err(wrong("ids")) }
    }
}

fn wrong(what: &str) -> PyErr {
    PyValueError::new_err(format!("this memory has no {what}"))
}

fn given<'a>(memory: Option<Memory>) -> PyResult<Option<Values<'a>>> {
    memory.map(Memory::values).transpose()
}

fn wanted<'a>(memory: Option<Memory>) -> PyResult<Option<ValuesMut<'a>>> {
    memory.map(Memory::values_mut).transpose()
}

/// How attention goes: "dot", "gat" or "gatv2", heads, columns, slope, dropout and seed.
#[derive(FromPyObject)]
pub(crate) struct How(String, usize, usize, f64, f64, u64);

/// What belongs to destinations, to sources, to values, to all edges, and the bias.
#[derive(Clone, Copy, FromPyObject)]
pub(crate) struct Operands(Memory, Memory, Option<Memory>, Option<Memory>, Option<Memory>);

fn called<'a>(how: &How, operands: Operands) -> PyResult<Attention<'a>> {
    let How(kind, heads, width, slope, dropout, seed) = how;
    let Operands(dst, src, value, shared, bias) = operands;
    let (dst, src) = (dst.values()?, src.values()?);
    let score = match (kind.as_str(), given(value)?, given(shared)?) {
        ("dot", None, None) => Score::Dot { q: dst, kv: src },
        ("gat", Some(z), None) => Score::Gat { l: dst, r: src, z, slope: *slope },
        ("gatv2", value, Some(a)) => Score::Gatv2 { l: dst, r: src, value, a, slope: *slope },
        _ => return Err(PyValueError::new_err(format!("these operands are not those of {kind}"))),
    };
    Ok(Attention { heads: *heads, width: *width, score, bias: given(bias)?, dropout: *dropout, seed: *seed })
}

/// Which way a sum goes ("edges" or "transpose"), its columns, and per edge, destination and source what it is
/// multiplied with.
#[derive(FromPyObject)]
pub(crate) struct Weighted(String, usize, Option<Memory>, Option<Memory>, Option<Memory>);

fn summed<'a>(how: &Weighted, x: Memory) -> PyResult<Sum<'a>> {
    let Weighted(along, width, edge, dst, src) = how;
    let along = match along.as_str() {
        "edges" => Along::Edges,
        "transpose" => Along::Transpose,
        other => return Err(PyValueError::new_err(format!("no sum goes along {other}"))),
    };
    let [edge, dst, src] = [given(*edge)?, given(*dst)?, given(*src)?];
    Ok(Sum { along, width: *width, edge, dst, src, x: x.values()? })
}

/// A graph made ready for kernels.
#[pyclass(frozen, module = "graphweft")]
pub(crate) struct EdgeKernels(graphweft::kernels::EdgeKernels);

#[pymethods]
#[allow(clippy::needless_pass_by_value)] // As pyo3 hands arguments over.
impl EdgeKernels {
    #[new]
    fn new(py: Python<'_>, graph: &Graph) -> PyResult<Self> {
        check_process()?;
        Ok(Self(py.detach(|| graphweft::kernels::EdgeKernels::new(&graph.0)).raise(py)?))
    }

    fn attention(&self, py: Python<'_>, how: How, operands: Operands, out: Memory, lse: Memory) -> PyResult<()> {
        check_process()?;
        let call = called(&how, operands)?;
        let (out, lse) = (out.values_mut()?, lse.values_mut()?);
        py.detach(|| self.0.attention(&call, out, lse)).raise(py)
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
        check_process()?;
        let call = called(&how, operands)?;
        let [out, lse, g] = saved;
        let saved = Attended { out: out.values()?, lse: lse.values()?, g: g.values()? };
        let Operands(dst, src, value, shared, bias) = gradients;
        let to = AttentionGradients {
            dst: dst.values_mut()?,
            src: src.values_mut()?,
            value: wanted(value)?,
            shared: wanted(shared)?,
            bias: wanted(bias)?,
        };
        py.detach(|| self.0.attention_backward(&call, &saved, to)).raise(py)
    }

    fn sum(&self, py: Python<'_>, how: Weighted, x: Memory, out: Memory) -> PyResult<()> {
        check_process()?;
        let (sum, out) = (summed(&how, x)?, out.values_mut()?);
        py.detach(|| self.0.sum(&sum, out)).raise(py)
    }

    fn sum_weights(&self, py: Python<'_>, how: Weighted, x: Memory, g: Memory, dw: Memory) -> PyResult<()> {
        check_process()?;
        let (sum, g, dw) = (summed(&how, x)?, g.values()?, dw.values_mut()?);
        py.detach(|| self.0.sum_weights(&sum, g, dw)).raise(py)
    }

    fn max(&self, py: Python<'_>, width: usize, x: Memory, out: Memory, arg: Memory) -> PyResult<()> {
        check_process()?;
        let (x, out, arg) = (x.values()?, out.values_mut()?, arg.ids()?);
        py.detach(|| self.0.max(width, x, out, arg)).raise(py)
    }

    fn max_backward(&self, py: Python<'_>, width: usize, g: Memory, arg: Memory, dx: Memory) -> PyResult<()> {
        check_process()?;
        let (g, arg, dx) = (g.values()?, arg.ids()?, dx.values_mut()?);
        py.detach(|| self.0.max_backward(width, g, arg, dx)).raise(py)
    }
}
