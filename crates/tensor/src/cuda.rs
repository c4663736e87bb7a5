//! The CUDA backend, begun: memory, linear layers and attention forward, enough to prove that the traits carry a GPU.
//!
//! Nothing of CUDA is needed to build this. The driver and NVRTC are loaded when a [`Cuda`] is made; kernels are CUDA C++ files
//! beside this one, compiled at first use. What is not written yet answers with an error that says so.

mod attention;
mod linear;
mod rest;

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaFunction, CudaSlice, CudaStream, DriverError};
use cudarc::nvrtc::{CompileOptions, compile_ptx_with_opts};

use crate::backend::{Block, Memory};
use crate::error::{Error, Result};
use crate::matrix::Matrix;

/// Memory on a GPU.
pub struct CudaBlock(CudaSlice<u8>);

impl CudaBlock {
    pub(crate) fn capacity(&self) -> usize {
        self.0.len()
    }
}

/// One GPU and a stream on it.
pub struct Cuda {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    functions: RefCell<HashMap<&'static str, CudaFunction>>,
}

impl Cuda {
    /// GPU number `index`.
    ///
    /// # Errors
    /// [`Error::Device`] that says which library is missing or why the GPU does not answer.
    pub fn new(index: usize) -> Result<Self> {
        let device = || format!("cuda:{index}");
        let missing = |library: &str, remedy: &str| Error::Device {
            device: device(),
            problem: format!("{library} was not found; {remedy} (`graphweft doctor` tells more)"),
        };
        // SAFETY: these only try to load the libraries.
        let (driver, nvrtc) =
            unsafe { (cudarc::driver::sys::is_culib_present(), cudarc::nvrtc::sys::is_culib_present()) };
        if !driver {
            return Err(missing("the CUDA driver", "install NVIDIA's driver"));
        }
        if !nvrtc {
            return Err(missing("NVRTC", "pip install nvidia-cuda-nvrtc, or install the CUDA toolkit"));
        }
        let context = CudaContext::new(index).map_err(|e| failed(&device(), "initialise", e))?;
        let stream = context.default_stream();
        Ok(Self { context, stream, functions: RefCell::default() })
    }

    fn fail(&self, what: &str) -> impl FnOnce(DriverError) -> Error {
        let (device, what) = (self.name(), what.to_string());
        move |e| failed(&device, &what, e)
    }

    /// The kernel `name` of a CUDA source, compiled if it is asked for the first time.
    fn function(&self, source: &'static str, name: &'static str) -> Result<CudaFunction> {
        if let Some(f) = self.functions.borrow().get(name) {
            return Ok(f.clone());
        }
        let (major, minor) = self.context.compute_capability().map_err(self.fail("ask for its architecture"))?;
        let options = vec![format!("--gpu-architecture=compute_{major}{minor}")];
        let ptx = compile_ptx_with_opts(source, CompileOptions { options, ..CompileOptions::default() });
        let ptx =
            ptx.map_err(|e| Error::Device { device: self.name(), problem: format!("cannot compile {name}: {e}") })?;
        let module = self.context.load_module(ptx).map_err(self.fail("load a kernel"))?;
        let f = module.load_function(name).map_err(self.fail("find a kernel"))?;
        self.functions.borrow_mut().insert(name, f.clone());
        Ok(f)
    }

    fn unsupported(&self, what: &str) -> Error {
        Error::Device { device: self.name(), problem: format!("{what} is not available on this device yet") }
    }
}

fn failed(device: &str, what: &str, e: DriverError) -> Error {
    Error::Device { device: device.to_string(), problem: format!("cannot {what}: {e}") }
}

/// The GPU memory of a matrix.
fn slice<'a>(op: &'static str, what: &'static str, m: &'a Matrix) -> Result<&'a CudaSlice<u8>> {
    match m.buffer().block() {
        Some(Block::Cuda(CudaBlock(slice))) => Ok(slice),
        _ => Err(Error::Argument { op, problem: format!("{what} is not on the GPU") }),
    }
}

/// The same for writing.
fn slice_mut<'a>(op: &'static str, what: &'static str, m: &'a mut Matrix) -> Result<&'a mut CudaSlice<u8>> {
    match m.buffer_mut().and_then(|b| b.block_mut()) {
        Some(Block::Cuda(CudaBlock(slice))) => Ok(slice),
        _ => Err(Error::Argument { op, problem: format!("{what} is not on the GPU, or is shared") }),
    }
}

impl Memory for Cuda {
    fn name(&self) -> String {
        let name = self.context.name().unwrap_or_else(|_| "GPU".into());
        format!("cuda:{} ({name})", self.context.ordinal())
    }

    fn allocate(&self, bytes: usize) -> std::result::Result<Block, ()> {
        // SAFETY: contents are unspecified by contract, and every bit pattern is a valid byte.
        let slice = unsafe { self.stream.alloc::<u8>(bytes.max(1)) };
        slice.map(|s| Block::Cuda(CudaBlock(s))).map_err(|_| ())
    }

    fn upload(&self, to: &mut Matrix, bytes: &[u8]) -> Result<()> {
        let mut to = slice_mut("upload", "matrix", to)?.slice_mut(..bytes.len());
        self.stream.memcpy_htod(bytes, &mut to).map_err(self.fail("copy to the GPU"))?;
        // The host bytes may go when this returns.
        self.stream.synchronize().map_err(self.fail("copy to the GPU"))
    }

    fn download(&self, from: &Matrix, bytes: &mut [u8]) -> Result<()> {
        let from = slice("download", "matrix", from)?.slice(..bytes.len());
        self.stream.memcpy_dtoh(&from, bytes).map_err(self.fail("copy from the GPU"))?;
        self.stream.synchronize().map_err(self.fail("copy from the GPU"))
    }

    fn zero(&self, m: &mut Matrix) -> Result<()> {
        self.stream.memset_zeros(slice_mut("zero", "matrix", m)?).map_err(self.fail("clear memory"))
    }

    fn convert(&self, _: &mut Matrix, _: &Matrix) -> Result<()> {
        Err(self.unsupported("conversion"))
    }

    fn add(&self, _: &mut Matrix, _: &Matrix) -> Result<()> {
        Err(self.unsupported("addition"))
    }
}

#[cfg(test)]
mod tests;
