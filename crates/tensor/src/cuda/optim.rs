//! Optimizer steps on the GPU: all parameters in one launch, by a table of where they are.

use bytemuck::{Pod, Zeroable};
use cudarc::driver::{CudaSlice, DevicePtr};

use super::compile::{Defines, Source};
use super::elementwise::typed;
use super::launch::THREADS;
use super::{Cuda, place, place_mut, source};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::optim::{Decay, OptimizerKernels, Rule, Slot, Step};

const OP: &str = "optimizer";
pub(super) static SOURCE: Source = source!("optim");
pub(super) static SQUARES: Source = source!("squares");
/// Elements that a block has.
const STEP_CHUNK: usize = 4096;
const SQUARE_CHUNK: usize = 1 << 15;

/// Tables that are kept: those of a step, for each type of elements, with and without their squares.
const TABLES: usize = 16;

/// A table of the host that kernels read.
pub(super) struct Table {
    host: Vec<u8>,
    device: CudaSlice<u8>,
}

/// A parameter as the kernels see it.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Entry {
    value: u64,
    gradient: u64,
    first: u64,
    second: u64,
    len: i64,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Plain {
    x: u64,
    len: i64,
}

/// (number of the matrix, number of its chunk), for all chunks of matrices with so many elements.
fn chunks(lengths: impl Iterator<Item = usize>, size: usize) -> Vec<[u32; 2]> {
    let of = |(k, len): (usize, usize)| (0..len.div_ceil(size)).map(move |chunk| [k as u32, chunk as u32]);
    lengths.enumerate().flat_map(of).collect()
}

impl Cuda {
    /// Where a table is on the GPU: copied there, unless it was among the last.
    fn table<X: Pod>(&self, entries: &[X]) -> Result<u64> {
        let bytes: &[u8] = bytemuck::cast_slice(entries);
        let mut tables = self.tables.borrow_mut();
        let table = match tables.iter().position(|t| t.host == bytes) {
            Some(known) => tables.remove(known),
            None => {
                let device = self.stream.clone_htod(bytes).map_err(self.fail("copy a table to the GPU"))?;
                if tables.len() == TABLES {
                    // The one that was asked for longest ago: a kernel has two or three, which are the last.
                    tables.remove(0);
                }
                Table { host: bytes.to_vec(), device }
            }
        };
        let place = table.device.device_ptr(&self.stream).0;
        tables.push(table);
        Ok(place)
    }

    fn step_of(&self, dtype: DType, step: &Step, slots: &mut [Slot<'_>]) -> Result<()> {
        let mut entries = Vec::new();
        for slot in slots.iter_mut().filter(|s| s.value.dtype() == dtype) {
            typed(OP, "gradient", slot.gradient, dtype)?;
            let len = (slot.value.rows() * slot.value.cols()) as i64;
            let mut state = [0; 2];
            for (to, m) in state.iter_mut().zip(slot.state.iter_mut()) {
                *to = place_mut(self, OP, "state", m)?;
            }
            let [first, second] = state;
            let value = place_mut(self, OP, "parameter", slot.value)?;
            entries.push(Entry { value, gradient: place(self, OP, "gradient", slot.gradient)?, first, second, len });
        }
        let chunks = chunks(entries.iter().map(|e| e.len as usize), STEP_CHUNK);
        if chunks.is_empty() {
            return Ok(());
        }
        let (table, list) = (self.table(&entries)?, self.table(&chunks)?);
        let launch = |name| -> Result<_> {
            let launch = self.kernel(OP, &SOURCE, Defines::of(dtype).with("CHUNK", STEP_CHUNK), name)?;
            Ok(launch.arg(table).arg(list).arg(step.scale))
        };
        let launch = match step.rule {
            Rule::Adam { betas, epsilon, decay } => {
                let (keep, penalty) = match decay {
                    Decay::Decoupled(x) => (1.0 - step.lr * x, 0.0),
                    Decay::Penalty(x) => (1.0, x),
                };
                let correction = |beta: f64| 1.0 - beta.powi(i32::try_from(step.number).unwrap_or(i32::MAX));
                launch("adam")?
                    .arg(keep)
                    .arg(penalty)
                    .arg(betas.0)
                    .arg(betas.1)
                    .arg(step.lr / correction(betas.0))
                    .arg(1.0 / correction(betas.1).sqrt())
                    .arg(epsilon)
            }
            Rule::Sgd { momentum, weight_decay } => launch("sgd")?.arg(weight_decay).arg(momentum).arg(step.lr),
        };
        // SAFETY: the arguments are those of the kernel; the table says where the matrices are and how long.
        unsafe { launch.run([chunks.len(), 1], THREADS, 0) }
    }
}

impl OptimizerKernels for Cuda {
    fn step(&self, step: &Step, slots: &mut [Slot<'_>]) -> Result<()> {
        if let Some(slot) = slots.iter().find(|s| s.value.dtype() == DType::Bf16) {
            return Err(Error::Type { op: OP, what: "parameter", got: slot.value.dtype() });
        }
        // Its learning rate is another one every time.
        self.not_recorded("an update")?;
        self.step_of(DType::F32, step, slots)?;
        self.step_of(DType::F64, step, slots)
    }

    fn square_sums(&self, matrices: &[&Matrix]) -> Result<Vec<f64>> {
        self.not_recorded("what the host does with numbers")?;
        let mut sums = vec![0.0; matrices.len()];
        for dtype in [DType::F32, DType::F64, DType::Bf16] {
            let these: Vec<usize> = (0..matrices.len()).filter(|k| matrices[*k].dtype() == dtype).collect();
            let entry = |k: &usize| -> Result<Plain> {
                let m = matrices[*k];
                Ok(Plain { x: place(self, OP, "gradient", m)?, len: (m.rows() * m.cols()) as i64 })
            };
            let entries = these.iter().map(entry).collect::<Result<Vec<_>>>()?;
            let chunks = chunks(entries.iter().map(|e| e.len as usize), SQUARE_CHUNK);
            if chunks.is_empty() {
                continue;
            }
            let (table, list) = (self.table(&entries)?, self.table(&chunks)?);
            // SAFETY: every element is written by the kernel.
            let found = unsafe { self.stream.alloc::<f64>(chunks.len()) }.map_err(self.fail("add up squares"))?;
            let launch = self
                .kernel(OP, &SQUARES, Defines::of(dtype).with("CHUNK", SQUARE_CHUNK), "square_sums")?
                .arg(table)
                .arg(list)
                .arg(found.device_ptr(&self.stream).0);
            // SAFETY: the arguments are those of the kernel; the table says where the matrices are and how long.
            unsafe { launch.run([chunks.len(), 1], THREADS, 0) }?;
            let parts = self.stream.clone_dtoh(&found).map_err(self.fail("add up squares"))?;
            self.stream.synchronize().map_err(self.fail("add up squares"))?;
            for ([k, _], part) in chunks.iter().zip(parts) {
                sums[these[*k as usize]] += part;
            }
        }
        Ok(sums)
    }
}
