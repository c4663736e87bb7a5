//! The CUDA backend.
//!
//! Nothing of CUDA is needed to build this. The driver, NVRTC and cuBLASLt are loaded when a [`Cuda`] is made; kernels
//! are CUDA C++ files beside the Rust file of the same operation, compiled at first use and kept on disk
//! (`compile.rs`).
//!
//! Everything is computed on one stream: memory is taken and given back in the order of the stream, and the host waits
//! only where it reads. What moves between ranks does so on another, kept in order by whoever moves it (`address.rs`).
//! As on the CPU, work is cut by the data alone and sums over pieces are in the order of the pieces, without atomics:
//! the same bits every time.

mod address;
mod blas;
mod compile;
mod convert;
mod cuda_graph;
mod elementwise;
mod floor;
mod gpu;
mod graph;
mod guest;
mod launch;
mod linear;
mod many_rows;
mod missing;
mod modules;
mod numbers;
mod optim;
mod parts;
mod shape;
mod staging;
mod sums;

crate::ops::operations!(crate::kernels::halves);

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use bytemuck::Pod;
use cudarc::driver::sys::{self, CUmemPool_attribute};
use cudarc::driver::{CudaContext, CudaFunction, CudaSlice, CudaStream, DevicePtr, DriverError, result};

use crate::adjacency::Direction;
use crate::backend::{Block, Capture, Memory};
use crate::device::Device;
use crate::device_name::Precision;
use crate::error::{Error, Result};
use crate::matrix::{Address, Matrix};
use crate::random::Ids;
use blas::Blas;
use compile::{Defines, Source, source};

pub use gpu::{Architecture, Gpu};
pub use guest::{GpuHost, GuestGpu, Loan, Visit};

/// Memory on a GPU.
pub struct CudaBlock(CudaMemory);

enum CudaMemory {
    Own(CudaSlice<u8>),
    Lent(Loan),
    /// A part of a chunk of lists.
    Staged(staging::Staged),
}

impl CudaBlock {
    /// Memory of others: see [`Device::lend_gpu`](crate::Device::lend_gpu).
    pub(crate) fn lent(loan: Loan) -> Self {
        Self(CudaMemory::Lent(loan))
    }

    /// Whether it goes back to others and must not be kept for the next who asks.
    pub(crate) fn is_lent(&self) -> bool {
        matches!(self.0, CudaMemory::Lent(_))
    }

    pub(crate) fn capacity(&self) -> usize {
        match &self.0 {
            CudaMemory::Own(slice) => slice.len(),
            CudaMemory::Lent(loan) => loan.bytes,
            CudaMemory::Staged(list) => list.bytes(),
        }
    }

    /// Its first byte. Memory is used on one stream, or in an order that others keep.
    fn place(&self, stream: &CudaStream) -> u64 {
        match &self.0 {
            CudaMemory::Own(slice) => slice.device_ptr(stream).0,
            CudaMemory::Lent(loan) => loan.at,
            CudaMemory::Staged(list) => list.place(stream),
        }
    }
}

/// Kernels that were asked for, by source, name and what they are specialised for.
type Functions = RefCell<HashMap<(&'static str, &'static str, Defines), CudaFunction>>;

/// One GPU and a stream on it.
pub struct Cuda {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    /// For copies beside computations.
    aside: Arc<CudaStream>,
    /// For products; a GPU of others is for kernels over edges only.
    blas: Option<Blas>,
    architecture: Architecture,
    cache: Option<PathBuf>,
    functions: Rc<Functions>,
    lists: RefCell<Vec<List>>,
    staging: RefCell<staging::Staging>,
    /// Tables of optimizers that were copied last.
    tables: RefCell<Vec<optim::Table>>,
    capturing: RefCell<Option<cuda_graph::Notes>>,
    /// Whose GPU it is, if others lend it.
    host: Option<guest::Host>,
}

/// A list of the host that kernels read, copied once.
struct List {
    /// Where it is on the host.
    at: usize,
    bytes: usize,
    block: CudaBlock,
    /// Whether somebody on the host still has it. What is behind holds a weak reference: the place is not used again.
    alive: Box<dyn Fn() -> bool>,
}

impl Cuda {
    /// GPU number `index`.
    ///
    /// # Errors
    /// [`Error::Device`] that says which library is missing or why the GPU does not answer.
    pub fn new(index: usize) -> Result<Self> {
        Self::with_precision(index, Precision::default())
    }

    /// The same, with products of f32 computed as `precision` says.
    ///
    /// # Errors
    /// As for [`Cuda::new`].
    pub fn with_precision(index: usize, precision: Precision) -> Result<Self> {
        let device = || format!("cuda:{index}");
        missing::of_kernels(index)?;
        missing::of_products(index)?;
        let fail = |what: &'static str| {
            let device = device();
            move |e| failed(&device, what, e)
        };
        let context = CudaContext::new(index).map_err(fail("initialise"))?;
        // SAFETY: matrices are used on one stream only; who moves them beside it keeps the order (see `Address`).
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream().map_err(fail("make a stream"))?;
        let aside = context.new_stream().map_err(fail("make a stream"))?;
        let (major, minor) = context.compute_capability().map_err(fail("ask for the architecture"))?;
        let mut pool = std::ptr::null_mut();
        let mut keep = u64::MAX;
        // Freed memory stays with the process for the next request: giving it back to the system would wait for the
        // GPU. SAFETY: the device is initialised; the attribute is a u64.
        unsafe {
            sys::cuDeviceGetDefaultMemPool(&mut pool, context.cu_device()).result().map_err(fail("use its memory"))?;
            let keep = std::ptr::from_mut(&mut keep).cast();
            sys::cuMemPoolSetAttribute(pool, CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, keep)
                .result()
                .map_err(fail("use its memory"))?;
        }
        let blas = Blas::new(&stream, precision).map_err(|problem| Error::Device { device: device(), problem })?;
        Ok(Self {
            context,
            stream,
            aside,
            blas: Some(blas),
            architecture: Architecture { major, minor },
            cache: compile::kernel_folder(),
            functions: Rc::default(),
            lists: RefCell::default(),
            staging: RefCell::default(),
            tables: RefCell::default(),
            capturing: RefCell::default(),
            host: None,
        })
    }

    /// Free and total bytes of the GPU's memory, whoever has taken the rest.
    pub fn memory(&self) -> Result<(usize, usize)> {
        self.context.mem_get_info().map_err(self.fail("ask for its memory"))
    }

    /// What becomes of an error; the driver is asked for the GPU's name only where there is one.
    fn fail(&self, what: &str) -> impl FnOnce(DriverError) -> Error {
        move |e| failed(&self.name(), what, e)
    }

    /// The kernel `name` of a source, compiled if it is asked for the first time.
    fn function(&self, source: &Source, defines: Defines, name: &'static str) -> Result<CudaFunction> {
        let key = (source.key(), name, defines);
        if let Some(f) = self.functions.borrow().get(&key) {
            return Ok(f.clone());
        }
        self.not_captured_by_host("a kernel that is not loaded yet")?;
        let module = modules::module(&self.context, source, &key.2, self.architecture, self.cache.as_deref())
            .map_err(|problem| Error::Device { device: self.name(), problem })?;
        let f = module.load_function(name).map_err(self.fail("find a kernel"))?;
        self.functions.borrow_mut().insert(key, f.clone());
        Ok(f)
    }

    /// Where a list of the host is on the GPU, copied there if it is asked for the first time.
    fn list<T: Pod>(&self, list: &Rc<[T]>) -> Result<u64> {
        let mut lists = self.lists.borrow_mut();
        let at = list.as_ptr().addr();
        let known = lists.iter().find(|known| known.at == at && known.bytes == size_of_val(&**list));
        if let Some(known) = known {
            return Ok(known.block.place(&self.stream));
        }
        self.not_captured("a list of the host")?;
        lists.retain(|known| (known.alive)());
        let bytes: &[u8] = bytemuck::cast_slice(list);
        let block = self.brought(bytes).map_err(self.fail("copy a list to the GPU"))?;
        let (weak, place) = (Rc::downgrade(list), block.place(&self.stream));
        let alive = Box::new(move || weak.strong_count() > 0);
        lists.push(List { at, bytes: bytes.len(), block, alive });
        Ok(place)
    }

    /// Original ids as kernels take them: null where row k is node k.
    fn ids(&self, ids: &Ids) -> Result<u64> {
        match ids {
            Ids::Same => Ok(0),
            Ids::Listed(ids) => self.list(ids),
        }
    }

    fn elsewhere(&self, what: &str) -> Error {
        Error::Device { device: self.name(), problem: format!("{what} was prepared for another device") }
    }
}

fn failed(device: &str, what: &str, e: DriverError) -> Error {
    Error::Device { device: device.to_string(), problem: format!("cannot {what}: {e}") }
}

/// The GPU memory of a matrix.
fn block<'a>(op: &'static str, what: &'static str, m: &'a Matrix) -> Result<&'a CudaBlock> {
    match m.buffer().block() {
        Some(Block::Cuda(block)) => Ok(block),
        _ => Err(Error::Argument { op, problem: format!("{what} is not on the GPU") }),
    }
}

/// The same for writing.
fn block_mut<'a>(op: &'static str, what: &'static str, m: &'a mut Matrix) -> Result<&'a mut CudaBlock> {
    match m.buffer_mut().and_then(|b| b.block_mut()) {
        Some(Block::Cuda(block)) => Ok(block),
        _ => Err(Error::Argument { op, problem: format!("{what} is not on the GPU, or is shared") }),
    }
}

/// The GPU memory of a matrix that is copied.
fn slice<'a>(op: &'static str, what: &'static str, m: &'a Matrix) -> Result<&'a CudaSlice<u8>> {
    match &block(op, what, m)?.0 {
        CudaMemory::Own(slice) => Ok(slice),
        CudaMemory::Lent(_) | CudaMemory::Staged(_) => Err(not_ours(op, what)),
    }
}

/// The same for writing.
fn slice_mut<'a>(op: &'static str, what: &'static str, m: &'a mut Matrix) -> Result<&'a mut CudaSlice<u8>> {
    match &mut block_mut(op, what, m)?.0 {
        CudaMemory::Own(slice) => Ok(slice),
        CudaMemory::Lent(_) | CudaMemory::Staged(_) => Err(not_ours(op, what)),
    }
}

fn not_ours(op: &'static str, what: &'static str) -> Error {
    Error::Argument { op, problem: format!("{what} is in memory of others, which only kernels over edges use") }
}

/// Where the first element of a matrix is.
fn place(cuda: &Cuda, op: &'static str, what: &'static str, m: &Matrix) -> Result<u64> {
    Ok(block(op, what, m)?.place(&cuda.stream))
}

/// The same for writing.
fn place_mut(cuda: &Cuda, op: &'static str, what: &'static str, m: &mut Matrix) -> Result<u64> {
    Ok(block_mut(op, what, m)?.place(&cuda.stream))
}

impl Memory for Cuda {
    fn name(&self) -> String {
        let name = self.context.name().unwrap_or_else(|_| "GPU".into());
        format!("cuda:{} ({name})", self.context.ordinal())
    }

    fn allocate(&self, bytes: usize) -> Result<Option<Block>> {
        if let Some(host) = &self.host {
            return Ok(host.memory(bytes).map(|loan| Block::Cuda(CudaBlock::lent(loan))));
        }
        self.not_captured("work that needs new memory")?;
        // SAFETY: contents are unspecified by contract, and every bit pattern is a valid byte.
        match unsafe { self.stream.alloc::<u8>(bytes.max(1)) } {
            Ok(slice) => Ok(Some(Block::Cuda(CudaBlock(CudaMemory::Own(slice))))),
            Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => Ok(None),
            Err(e) => Err(self.fail("take memory")(e)),
        }
    }

    fn upload(&self, to: &mut Matrix, bytes: &[u8]) -> Result<()> {
        self.not_captured("numbers of the host")?;
        let mut to = slice_mut("upload", "matrix", to)?.slice_mut(..bytes.len());
        // Pageable bytes are staged before this returns.
        self.stream.memcpy_htod(bytes, &mut to).map_err(self.fail("copy to the GPU"))
    }

    fn download(&self, from: &Matrix, bytes: &mut [u8]) -> Result<()> {
        self.not_captured("what the host does with numbers")?;
        let from = slice("download", "matrix", from)?.slice(..bytes.len());
        self.stream.memcpy_dtoh(&from, bytes).map_err(self.fail("copy from the GPU"))?;
        self.stream.synchronize().map_err(self.fail("copy from the GPU"))
    }

    fn zero(&self, m: &mut Matrix) -> Result<()> {
        let (place, bytes) = (place_mut(self, "zero", "matrix", m)?, m.bytes());
        self.context.bind_to_thread().map_err(self.fail("clear memory"))?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the matrix has so many bytes there, and nobody else shares them.
        unsafe { result::memset_d8_async(place, 0, bytes, self.stream.cu_stream()) }.map_err(self.fail("clear memory"))
    }

    fn convert(&self, to: &mut Matrix, from: &Matrix) -> Result<()> {
        self.convert_elements(to, from)
    }

    fn copy_part(&self, from: &Matrix, start: usize, to: &mut Matrix, at: usize, count: usize) -> Result<()> {
        const OP: &str = "copy";
        elementwise::typed(OP, "target", to, from.dtype())?;
        from.expect_part(OP, start, count)?;
        to.expect_part(OP, at, count)?;
        let size = from.dtype().size();
        let from = slice(OP, "source", from)?.slice(start * size..(start + count) * size);
        let mut to = slice_mut(OP, "target", to)?.slice_mut(at * size..(at + count) * size);
        self.stream.memcpy_dtod(&from, &mut to).map_err(self.fail("copy on the GPU"))
    }

    fn add(&self, to: &mut Matrix, x: &Matrix) -> Result<()> {
        self.add_elements(to, x)
    }

    fn address(&self, m: &Matrix) -> Result<Address> {
        self.address_of(m)
    }

    fn capture(&self) -> Option<&dyn Capture> {
        Some(self)
    }

    fn bring(&self, device: &Device, direction: &Direction) -> Result<()> {
        self.resident(device, direction).map(|_| ())
    }

    fn wait(&self) -> Result<()> {
        self.not_captured("waiting")?;
        self.stream.synchronize().map_err(self.fail("finish its work"))
    }
}

#[cfg(test)]
mod tests;
