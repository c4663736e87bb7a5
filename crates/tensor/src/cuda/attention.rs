//! Attention on the GPU.

use std::rc::Rc;

use cudarc::driver::{CudaSlice, DevicePtr};

use super::compile::{Defines, Source};
use super::{Cuda, source};
use crate::adjacency::Direction;
use crate::backend::Memory;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::ops::attention::{Attention, AttentionKernels, Bias, DstGrads, Saved, Score, SrcGrads};

const OP: &str = "attention";
pub(super) static SOURCE: Source = source!("attention");
/// Threads of a block, and so columns of a row, that any GPU allows.
const MOST_COLUMNS: usize = 1024;

/// A CSR on the GPU.
struct Resident {
    indptr: CudaSlice<u64>,
    indices: CudaSlice<u32>,
}

impl Cuda {
    fn resident(&self, direction: &Direction) -> Result<Rc<Resident>> {
        let wrong =
            || Error::Device { device: self.name(), problem: "the graph was prepared for another device".into() };
        if direction.resident.get().is_none() {
            let copy = |e| super::failed(&self.name(), "copy the graph to the GPU", e);
            let resident = Resident {
                indptr: self.stream.clone_htod(&direction.csr.indptr()[..]).map_err(copy)?,
                indices: self.stream.clone_htod(&direction.csr.indices()[..]).map_err(copy)?,
            };
            // The cell was empty just now, and a rank is one thread.
            let _ = direction.resident.set(Rc::new(resident));
        }
        let held = direction.resident.get().ok_or_else(wrong)?;
        Rc::clone(held).downcast::<Resident>().map_err(|_| wrong())
    }
}

impl AttentionKernels for Cuda {
    fn attention(&self, a: &Attention<'_>, out: &mut Matrix, lse: &mut Matrix) -> Result<()> {
        let Score::Dot { q, kv } = a.score else { return Err(self.unsupported("this kind of attention")) };
        for (what, m) in [("q", q), ("kv", kv)] {
            if m.dtype() != DType::F32 {
                return Err(Error::Type { op: OP, what, got: m.dtype() });
            }
        }
        let (rows, d) = q.shape();
        if !matches!(a.bias, Bias::None) || a.dropout.is_some() || d > MOST_COLUMNS {
            return Err(self.unsupported("attention with bias or dropout, or wider than 1024 columns,"));
        }
        if rows == 0 {
            return Ok(());
        }
        let graph = self.resident(&a.graph.forward)?;
        let (heads, columns) = (a.heads as i32, d as i32);
        let scale = 1.0 / ((d / a.heads) as f32).sqrt();
        let launch = self
            .kernel(OP, &SOURCE, Defines::of(DType::F32), "dot_attention_f32")?
            .arg(graph.indptr.device_ptr(&self.stream).0)
            .arg(graph.indices.device_ptr(&self.stream).0)
            .read("q", q)?
            .read("kv", kv)?
            .write("out", out)?
            .write("lse", lse)?
            .arg(heads)
            .arg(columns)
            .arg(scale);
        // SAFETY: the arguments are those of the kernel, in order; ids in a CSR are below its number of sources, which is the
        // number of rows of kv by the operation's check.
        unsafe { launch.run([rows, 1], d, 4 * d) }
    }

    fn attention_fold(&self, _: &Attention<'_>, _: &mut Matrix) -> Result<()> {
        Err(self.unsupported("attention block by block"))
    }

    fn attention_finish(&self, _: usize, _: &Matrix, _: &mut Matrix, _: &mut Matrix) -> Result<()> {
        Err(self.unsupported("attention block by block"))
    }

    fn attention_d(&self, _: usize, _: &Matrix, _: &Matrix, _: &mut Matrix) -> Result<()> {
        Err(self.unsupported("the gradient of attention"))
    }

    fn attention_dst(&self, _: &Attention<'_>, _: &Saved<'_>, _: DstGrads<'_>) -> Result<()> {
        Err(self.unsupported("the gradient of attention"))
    }

    fn attention_src(&self, _: &Attention<'_>, _: &Saved<'_>, _: SrcGrads<'_>) -> Result<()> {
        Err(self.unsupported("the gradient of attention"))
    }
}
