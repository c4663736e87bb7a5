//! A device that has no memory and computes nothing: on it, the code that trains can be rehearsed.
//!
//! Everything that a real device would hold is counted by the same ledger and kept by the same pool, to the byte,
//! because the same operations ask for it; what a kernel of the CPU, or of a GPU (`gpu`), would take for the time of a
//! call is taken here too ([`scratch`](crate::cpu)), as a part of that call. Every call of a kernel becomes a [`Work`]
//! that somebody hears of, in order: a cost model, say. What is read back are ones, and messages between ranks have
//! their sizes and no contents ([`Address::Nowhere`]).

mod edges;
pub(crate) mod gpu;
mod reuse;
mod work;

use std::cell::Cell;
use std::rc::Rc;

use half::bf16;

use crate::adjacency::Direction;
use crate::backend::{Block, Memory};
use crate::cpu::Cpu;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::Result;
use crate::matrix::{Address, Matrix};
use crate::ops::dropout::RowDropout;
use crate::pool::LEAST;

pub(crate) use edges::edges;
pub use reuse::Reuse;
pub use work::{Pass, Work, WorkKind};

/// Hears of every kernel that would have run.
pub type Sink = Rc<dyn Fn(Work)>;

/// See the top of this file.
pub(crate) struct Dry {
    sink: Sink,
    memory: Rc<Account>,
    pub(crate) like: Like,
    /// Whether a kernel is under way: clearing what it takes for itself is a part of it, and no call of its own.
    busy: Cell<bool>,
}

/// Whose kernels would take scratch.
pub(crate) enum Like {
    /// Those of this processor.
    Cpu(Cpu),
    /// Those of a GPU.
    Gpu,
}

/// Memory that a device would have.
struct Account {
    capacity: u64,
    taken: Cell<u64>,
}

/// Memory that a device would give.
pub struct DryBlock {
    bytes: usize,
    of: Rc<Account>,
}

impl DryBlock {
    pub(crate) fn capacity(&self) -> usize {
        self.bytes
    }
}

impl Drop for DryBlock {
    fn drop(&mut self) {
        self.of.taken.set(self.of.taken.get() - self.bytes as u64);
    }
}

impl Dry {
    pub(crate) fn new(like: Like, capacity: Option<u64>, sink: Sink) -> Self {
        let memory = Rc::new(Account { capacity: capacity.unwrap_or(u64::MAX), taken: Cell::new(0) });
        Self { sink, memory, like, busy: Cell::new(false) }
    }

    /// Tells whoever listens of a call.
    pub(crate) fn tell(&self, work: Work) -> Result<()> {
        if !self.busy.get() {
            (self.sink)(work);
        }
        Ok(())
    }

    /// Takes what a kernel needs for itself.
    pub(crate) fn within<T>(&self, take: impl FnOnce() -> Result<T>) -> Result<T> {
        self.busy.set(true);
        let taken = take();
        self.busy.set(false);
        taken
    }

    /// A pass over matrices from end to end.
    pub(crate) fn stream(&self, op: &'static str, read: &[&Matrix], written: &[&Matrix]) -> Result<()> {
        self.dropping(op, None, read, written)
    }

    /// A product of dense matrices, m × k and k × n.
    pub(crate) fn gemm(&self, op: &'static str, dtype: DType, [m, n, k]: [usize; 3]) -> Result<()> {
        self.tell(Work::new(op, dtype, WorkKind::Gemm { m, n, k }))
    }

    /// A stream, with random masks if something is dropped.
    pub(crate) fn dropping(
        &self,
        op: &'static str,
        dropout: Option<&RowDropout>,
        read: &[&Matrix],
        written: &[&Matrix],
    ) -> Result<()> {
        let bytes = |all: &[&Matrix]| all.iter().map(|m| m.bytes()).sum();
        // The first written is as large as any.
        let (dtype, rows) = written.first().or(read.first()).map_or((DType::F32, 0), |m| (m.dtype(), m.rows()));
        let dropout = dropout.is_some_and(|d| d.dropout.is_active());
        let kind = WorkKind::Stream { read: bytes(read), written: bytes(written), rows };
        self.tell(Work { op, dtype, dropout, kind })
    }
}

/// Those that are there.
pub(crate) fn present<const K: usize>(all: [Option<&Matrix>; K]) -> Vec<&Matrix> {
    all.into_iter().flatten().collect()
}

impl Memory for Dry {
    fn name(&self) -> String {
        "a rehearsal".into()
    }

    fn allocate(&self, bytes: usize) -> Result<Option<Block>> {
        // As the CPU rounds.
        let bytes = bytes.max(LEAST);
        let Account { capacity, taken } = &*self.memory;
        let after = taken.get().checked_add(bytes as u64).filter(|after| after <= capacity);
        Ok(after.map(|after| {
            taken.set(after);
            Block::Dry(DryBlock { bytes, of: Rc::clone(&self.memory) })
        }))
    }

    fn keeps_contents(&self) -> bool {
        false
    }

    fn upload(&self, to: &mut Matrix, _: &[u8]) -> Result<()> {
        self.stream(Work::UPLOAD, &[to], &[to])
    }

    fn download(&self, from: &Matrix, bytes: &mut [u8]) -> Result<()> {
        match from.dtype() {
            DType::F64 => bytes.chunks_exact_mut(8).for_each(|to| to.copy_from_slice(&1f64.to_ne_bytes())),
            DType::F32 => bytes.chunks_exact_mut(4).for_each(|to| to.copy_from_slice(&1f32.to_ne_bytes())),
            DType::Bf16 => bytes.chunks_exact_mut(2).for_each(|to| to.copy_from_slice(&bf16::ONE.to_ne_bytes())),
        }
        self.stream(Work::DOWNLOAD, &[from], &[from])
    }

    fn zero(&self, m: &mut Matrix) -> Result<()> {
        self.stream("zero", &[], &[m])
    }

    fn convert(&self, to: &mut Matrix, from: &Matrix) -> Result<()> {
        self.stream("convert", &[from], &[to])
    }

    fn copy_part(&self, _: &Matrix, _: usize, to: &mut Matrix, _: usize, count: usize) -> Result<()> {
        let bytes = count * to.dtype().size();
        self.tell(Work::new("copy part", to.dtype(), WorkKind::Stream { read: bytes, written: bytes, rows: 1 }))
    }

    fn add(&self, to: &mut Matrix, x: &Matrix) -> Result<()> {
        self.stream("add", &[to, x], &[to])
    }

    fn address(&self, _: &Matrix) -> Result<Address> {
        Ok(Address::Nowhere)
    }

    fn wait(&self) -> Result<()> {
        Ok(())
    }

    fn bring(&self, device: &Device, direction: &Direction) -> Result<()> {
        if let Like::Gpu = self.like {
            gpu::listed(device, direction);
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests;
