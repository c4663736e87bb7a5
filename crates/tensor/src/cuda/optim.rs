//! Optimizer steps on the GPU: all parameters in one launch, by a table of where they are.

use bytemuck::{Pod, Zeroable};
use cudarc::driver::DevicePtr;

use super::compile::{Defines, Source};
use super::elementwise::typed;
use super::launch::{Launch, THREADS};
use super::{Cuda, CudaBlock, place, place_mut, source};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::optim::{Decay, OptimizerKernels, Rule, Slot, Step};

const OP: &str = "optimizer";
pub(super) static SOURCE: Source = source!("optim", ["numbers", "optim"]);
pub(super) static SQUARES: Source = source!("squares", ["numbers", "lanes", "optim"]);
/// Elements that a block has.
const STEP_CHUNK: usize = 4096;
const SQUARE_CHUNK: usize = 1 << 15;

/// Tables that are kept: those of a step, for each type of elements, with and without their squares.
const TABLES: usize = 16;

/// A table of the host that kernels read.
pub(super) struct Table {
    host: Vec<u8>,
    device: CudaBlock,
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
    /// 1, or 0 where weight decay does not act on it.
    decays: f64,
}

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Plain {
    x: u64,
    len: i64,
}

/// What changes from step to step, as in optim.cuh.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
pub(super) struct Told {
    /// Not 0.
    go: f64,
    scale: f64,
    keep: f64,
    rate: f64,
    root_scale: f64,
}

/// Its numbers.
pub(super) const TOLD: usize = size_of::<Told>() / size_of::<f64>();

impl Told {
    pub(super) fn of(step: &Step) -> Self {
        let (keep, rate, root_scale) = match step.rule {
            Rule::Adam { betas, decay, .. } => {
                let correction = |beta: f64| 1.0 - beta.powi(i32::try_from(step.number).unwrap_or(i32::MAX));
                let keep = match decay {
                    Decay::Decoupled(x) => 1.0 - step.lr * x,
                    Decay::Penalty(_) => 1.0,
                };
                (keep, step.lr / correction(betas.0), 1.0 / correction(betas.1).sqrt())
            }
            Rule::Sgd { .. } => (1.0, step.lr, 1.0),
        };
        Self { go: 1.0, scale: step.scale, keep, rate, root_scale }
    }

    pub(super) fn numbers(self) -> [f64; TOLD] {
        bytemuck::cast(self)
    }
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
        if let Some(place) = self.captured_table(bytes)? {
            return Ok(place);
        }
        let mut tables = self.tables.borrow_mut();
        let table = match tables.iter().position(|t| t.host == bytes) {
            Some(known) => tables.remove(known),
            None => {
                let device = self.brought(bytes).map_err(self.fail("copy a table to the GPU"))?;
                if tables.len() == TABLES {
                    // The one that was asked for longest ago: a kernel has two or three, which are the last.
                    tables.remove(0);
                }
                Table { host: bytes.to_vec(), device }
            }
        };
        let place = table.device.place(&self.stream);
        tables.push(table);
        Ok(place)
    }

    /// Moves parameters of this type as told, or as the captured step is told at `told`.
    fn step_of(&self, dtype: DType, rule: Rule, now: Told, told: u64, slots: &mut [Slot<'_>]) -> Result<()> {
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
            let gradient = place(self, OP, "gradient", slot.gradient)?;
            let decays = f64::from(u8::from(slot.decays));
            entries.push(Entry { value, gradient, first, second, len, decays });
        }
        let chunks = chunks(entries.iter().map(|e| e.len as usize), STEP_CHUNK);
        if chunks.is_empty() {
            return Ok(());
        }
        let (table, list) = (self.table(&entries)?, self.table(&chunks)?);
        let launch = |name| -> Result<_> {
            let launch = self.kernel(OP, &SOURCE, Defines::of(dtype).with("CHUNK", STEP_CHUNK), name)?;
            Ok(launch.arg(table).arg(list).arg(told).arg(now))
        };
        let launch = match rule {
            Rule::Adam { betas, epsilon, decay } => {
                let penalty = match decay {
                    Decay::Decoupled(_) => 0.0,
                    Decay::Penalty(x) => x,
                };
                launch("adam")?.arg(penalty).arg(betas.0).arg(betas.1).arg(epsilon)
            }
            Rule::Sgd { momentum, weight_decay } => launch("sgd")?.arg(weight_decay).arg(momentum),
        };
        // SAFETY: the arguments are those of the kernel; the table says where the matrices are and how long.
        unsafe { launch.run([chunks.len(), 1], THREADS, 0) }
    }

    /// Σ x² of the chunks of matrices of this type, at the place that `to` gives for so many numbers. Returns the
    /// chunks.
    fn squares_of(
        &self,
        dtype: DType,
        matrices: &[&Matrix],
        to: impl FnOnce(usize) -> Result<u64>,
    ) -> Result<Vec<[u32; 2]>> {
        let entry = |m: &&Matrix| -> Result<Plain> {
            Ok(Plain { x: place(self, OP, "gradient", m)?, len: (m.rows() * m.cols()) as i64 })
        };
        let entries = matrices.iter().map(entry).collect::<Result<Vec<_>>>()?;
        let chunks = chunks(entries.iter().map(|e| e.len as usize), SQUARE_CHUNK);
        if chunks.is_empty() {
            return Ok(chunks);
        }
        let (table, list) = (self.table(&entries)?, self.table(&chunks)?);
        let launch = self.squares(dtype, "square_sums")?.arg(table).arg(list).arg(to(chunks.len())?);
        // SAFETY: the arguments are those of the kernel; the table says where the matrices are and how long.
        unsafe { launch.run([chunks.len(), 1], THREADS, 0) }?;
        Ok(chunks)
    }

    fn squares(&self, dtype: DType, name: &'static str) -> Result<Launch<'_>> {
        self.kernel(OP, &SQUARES, Defines::of(dtype).with("CHUNK", SQUARE_CHUNK), name)
    }

    /// An update as a part of captured work. Numbers are what it is told, the loss, Σ x² of each gradient, then of
    /// their chunks.
    pub(super) fn captured_update(&self, rule: Rule, clip: f64, loss: &Matrix, slots: &mut [Slot<'_>]) -> Result<()> {
        typed(OP, "loss", loss, DType::F64)?;
        let Some(dtype) = slots.first().map(|slot| slot.value.dtype()) else { return Ok(()) };
        let (gradients, mut numbers) = (slots.len(), 0);
        let matrices = slots.iter().map(|slot| typed(OP, "gradient", slot.gradient, dtype).map(|()| slot.gradient));
        let matrices = matrices.collect::<Result<Vec<_>>>()?;
        let after = |numbers: u64, count: usize| numbers + 8 * (TOLD + count) as u64;
        let chunks = self.squares_of(dtype, &matrices, |chunks| {
            numbers = self.captured_numbers(gradients, chunks)?;
            Ok(after(numbers, 1 + gradients))
        })?;
        if chunks.is_empty() {
            return Err(Error::Argument { op: OP, problem: "there is nothing to move".into() });
        }
        let first = |k: usize| chunks.partition_point(|[of, _]| (*of as usize) < k) as u32;
        let starts = self.table(&(0..=gradients).map(first).collect::<Vec<_>>())?;
        let launch = self
            .squares(dtype, "settle")?
            .arg(starts)
            .arg(after(numbers, 1 + gradients))
            .arg(gradients as i32)
            .read("loss", loss)?
            .arg(clip)
            .arg(numbers)
            .arg(after(numbers, 0));
        // SAFETY: the arguments are those of the kernel; there is room for these numbers.
        unsafe { launch.run([1, 1], THREADS, 0) }?;
        self.step_of(dtype, rule, Told::zeroed(), numbers, slots)
    }
}

impl OptimizerKernels for Cuda {
    fn step(&self, step: &Step, slots: &mut [Slot<'_>]) -> Result<()> {
        if let Some(slot) = slots.iter().find(|s| s.value.dtype() == DType::Bf16) {
            return Err(Error::Type { op: OP, what: "parameter", got: slot.value.dtype() });
        }
        self.not_captured("one step of an optimizer")?;
        [DType::F32, DType::F64].iter().try_for_each(|dtype| self.step_of(*dtype, step.rule, Told::of(step), 0, slots))
    }

    fn square_sums(&self, matrices: &[&Matrix]) -> Result<Vec<f64>> {
        self.not_captured("what the host does with numbers")?;
        let mut sums = vec![0.0; matrices.len()];
        for dtype in [DType::F32, DType::F64, DType::Bf16] {
            let these: Vec<usize> = (0..matrices.len()).filter(|k| matrices[*k].dtype() == dtype).collect();
            let chosen: Vec<&Matrix> = these.iter().map(|k| matrices[*k]).collect();
            let mut found = None;
            let chunks = self.squares_of(dtype, &chosen, |count| {
                // SAFETY: every element is written by the kernel.
                let room = unsafe { self.stream.alloc::<f64>(count) }.map_err(self.fail("add up squares"))?;
                Ok(found.insert(room).device_ptr(&self.stream).0)
            })?;
            let Some(found) = found else { continue };
            let parts = self.stream.clone_dtoh(&found).map_err(self.fail("add up squares"))?;
            self.stream.synchronize().map_err(self.fail("add up squares"))?;
            for ([k, _], part) in chunks.iter().zip(parts) {
                sums[these[*k as usize]] += part;
            }
        }
        Ok(sums)
    }
}
