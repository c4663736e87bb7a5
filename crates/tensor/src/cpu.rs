//! The CPU backend.
//!
//! Kernels come in up to three versions behind one function: AVX-512, AVX2 and portable Rust (which is also the f64
//! version and the yardstick in tests). The choice is made once, at run time, by what the processor has ([`Isa`]).
//!
//! Work is cut into tasks whose number and size depend on the data only, never on the number of threads; whatever is
//! summed over tasks is summed in task order. So results have the same bits for any number of threads.
//!
//! All of it is for x86-64: vector kernels are written with its instructions.

#[cfg(not(target_arch = "x86_64"))]
compile_error!("Graphweft's kernels are written for x86-64 (AVX-512, AVX2 or neither); there are none for this target");

mod elementwise;
mod floor;
mod gemm;
mod isa;
mod neighbours;
mod optim;
mod parallel;
mod rowwise;
pub(crate) mod scratch;
mod share;
mod simd;

crate::ops::operations!(crate::kernels::halves);

use graphweft_base::room;
use half::bf16;
use memmap2::{Advice, MmapMut};

use crate::backend::{Block, Memory};
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::matrix::{Address, Matrix};
use crate::pool::LEAST;

pub use isa::Isa;

/// Blocks of this size and more ask for huge pages: rows gathered at random miss the TLB otherwise.
const HUGE: usize = 1 << 21;
/// Bytes that are asked for only if the machine has them.
const MUCH: usize = 1 << 26;

/// The CPU: kernels run in the current rayon pool.
#[derive(Clone, Copy, Debug)]
pub struct Cpu {
    isa: Isa,
}

impl Cpu {
    /// The best that this processor can do.
    pub fn new() -> Self {
        Self { isa: Isa::detect() }
    }

    /// At most `isa`: for tests and comparisons.
    pub fn with_isa(isa: Isa) -> Self {
        Self { isa: isa.min(Isa::detect()) }
    }
}

impl Default for Cpu {
    fn default() -> Self {
        Self::new()
    }
}

/// Host memory: pages of its own, huge ones where it is large, or memory of others.
pub struct HostBlock(HostMemory);

enum HostMemory {
    Pages(MmapMut),
    Lent(Lent),
}

/// Memory of others, for as long as they lend it: see [`Device::lend`](crate::Device::lend).
struct Lent {
    start: std::ptr::NonNull<u8>,
    bytes: usize,
}

impl HostBlock {
    fn new(bytes: usize) -> std::io::Result<Self> {
        let pages = MmapMut::map_anon(bytes.max(LEAST))?;
        if bytes >= HUGE {
            // Advice only: without huge pages everything works, slower.
            let _ = pages.advise(Advice::HugePage);
        }
        Ok(Self(HostMemory::Pages(pages)))
    }

    /// # Safety
    /// While the block lives, the memory does, and nobody else writes it; if the block is written, nobody else reads
    /// it.
    pub(crate) unsafe fn lent(start: std::ptr::NonNull<u8>, bytes: usize) -> Self {
        Self(HostMemory::Lent(Lent { start, bytes }))
    }

    /// Whether it goes back to others and must not be kept for the next who asks.
    pub(crate) fn is_lent(&self) -> bool {
        matches!(self.0, HostMemory::Lent(_))
    }

    pub(crate) fn capacity(&self) -> usize {
        self.bytes().len()
    }

    pub(crate) fn address(&self) -> *mut u8 {
        self.bytes().as_ptr().cast_mut()
    }

    fn bytes(&self) -> &[u8] {
        match &self.0 {
            HostMemory::Pages(pages) => pages,
            // SAFETY: by the promise of who made it.
            HostMemory::Lent(lent) => unsafe { std::slice::from_raw_parts(lent.start.as_ptr(), lent.bytes) },
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            HostMemory::Pages(pages) => pages,
            // SAFETY: by the promise of who made it.
            HostMemory::Lent(lent) => unsafe { std::slice::from_raw_parts_mut(lent.start.as_ptr(), lent.bytes) },
        }
    }
}

/// The elements of a matrix in host memory.
///
/// # Errors
/// [`Error::Type`] if they are not of type `T`; and if the matrix is elsewhere, with the name of the operation `op` and
/// what the matrix is to it.
pub fn host<'a, T: Element>(op: &'static str, what: &'static str, m: &'a Matrix) -> Result<&'a [T]> {
    if m.dtype() != T::DTYPE {
        return Err(Error::Type { op, what, got: m.dtype() });
    }
    let buffer = m.buffer();
    match buffer.block() {
        Some(Block::Host(block)) => Ok(bytemuck::cast_slice(&block.bytes()[..buffer.bytes()])),
        Some(Block::Dry(_)) => Err(elsewhere(op, what)),
        #[cfg(feature = "cuda")]
        Some(Block::Cuda(_)) => Err(elsewhere(op, what)),
        None => Ok(&[]),
    }
}

/// The same for writing.
///
/// # Errors
/// Also if the memory is shared: kernels write only what nobody else can see.
pub fn host_mut<'a, T: Element>(op: &'static str, what: &'static str, m: &'a mut Matrix) -> Result<&'a mut [T]> {
    if m.dtype() != T::DTYPE {
        return Err(Error::Type { op, what, got: m.dtype() });
    }
    let Some(buffer) = m.buffer_mut() else {
        return Err(Error::Argument { op, problem: format!("{what} is shared and cannot be written") });
    };
    let bytes = buffer.bytes();
    match buffer.block_mut() {
        Some(Block::Host(block)) => Ok(bytemuck::cast_slice_mut(&mut block.bytes_mut()[..bytes])),
        Some(Block::Dry(_)) => Err(elsewhere(op, what)),
        #[cfg(feature = "cuda")]
        Some(Block::Cuda(_)) => Err(elsewhere(op, what)),
        None => Ok(&mut []),
    }
}

fn elsewhere(op: &'static str, what: &'static str) -> Error {
    Error::Argument { op, problem: format!("{what} is on another device") }
}

impl Memory for Cpu {
    fn name(&self) -> String {
        format!("cpu ({}, {} threads)", self.isa, rayon::current_num_threads())
    }

    fn allocate(&self, bytes: usize) -> Result<Option<Block>> {
        // Systems promise more than they have, and end whoever takes it. Small blocks are not worth the question.
        if bytes >= MUCH && room::memory().is_some_and(|available| bytes as u64 > available) {
            return Ok(None);
        }
        Ok(HostBlock::new(bytes).ok().map(Block::Host))
    }

    fn upload(&self, to: &mut Matrix, bytes: &[u8]) -> Result<()> {
        match to.dtype() {
            DType::F32 => {
                host_mut::<f32>("upload", "matrix", to).map(|m| m.copy_from_slice(bytemuck::cast_slice(bytes)))
            }
            DType::F64 => {
                host_mut::<f64>("upload", "matrix", to).map(|m| m.copy_from_slice(bytemuck::cast_slice(bytes)))
            }
            DType::Bf16 => {
                host_mut::<bf16>("upload", "matrix", to).map(|m| m.copy_from_slice(bytemuck::cast_slice(bytes)))
            }
        }
    }

    fn download(&self, from: &Matrix, bytes: &mut [u8]) -> Result<()> {
        let elements: &[u8] = match from.dtype() {
            DType::F32 => bytemuck::cast_slice(host::<f32>("download", "matrix", from)?),
            DType::F64 => bytemuck::cast_slice(host::<f64>("download", "matrix", from)?),
            DType::Bf16 => bytemuck::cast_slice(host::<bf16>("download", "matrix", from)?),
        };
        bytes.copy_from_slice(elements);
        Ok(())
    }

    fn zero(&self, m: &mut Matrix) -> Result<()> {
        match m.dtype() {
            DType::F32 => host_mut::<f32>("zero", "matrix", m).map(elementwise::zero),
            DType::F64 => host_mut::<f64>("zero", "matrix", m).map(elementwise::zero),
            DType::Bf16 => host_mut::<bf16>("zero", "matrix", m).map(elementwise::zero),
        }
    }

    fn convert(&self, to: &mut Matrix, from: &Matrix) -> Result<()> {
        elementwise::convert(to, from)
    }

    fn copy_part(&self, from: &Matrix, start: usize, to: &mut Matrix, at: usize, count: usize) -> Result<()> {
        elementwise::copy_part(from, start, to, at, count)
    }

    fn add(&self, to: &mut Matrix, x: &Matrix) -> Result<()> {
        elementwise::add(to, x)
    }

    fn address(&self, m: &Matrix) -> Result<Address> {
        match m.buffer().block() {
            Some(Block::Host(block)) => Ok(Address::Host(block.address())),
            _ => Err(Error::Argument { op: "address", problem: format!("{m:?} is not in this process's memory") }),
        }
    }

    fn wait(&self) -> Result<()> {
        Ok(())
    }
}
