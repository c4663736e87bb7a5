//! Dense matrices in device memory.
//!
//! A matrix lives in the memory of one [`Device`], which counts its bytes by purpose (`ledger.rs`) and keeps freed
//! blocks for the next step (`pool.rs`). Clones share their memory, and what is shared is never written.

use std::fmt;
use std::rc::Rc;

use crate::device::{Buffer, Device};
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};

/// Where a matrix's first element is.
#[derive(Clone, Copy, Debug)]
pub enum Address {
    /// In this process's own memory.
    Host(*mut u8),
    /// On an NVIDIA GPU.
    Cuda(OnGpu),
    /// Nowhere: it has a size and no contents.
    Nowhere,
}

/// Memory of a GPU, with what is needed to move and to add up such memory: handles of the CUDA driver, which live as
/// long as the matrix's device.
#[derive(Clone, Copy, Debug)]
pub struct OnGpu {
    /// The first byte.
    pub pointer: u64,
    /// The number of the GPU.
    pub device: usize,
    /// Its `CUcontext`.
    pub context: usize,
    /// The `CUstream` in whose order the memory is used.
    pub stream: usize,
    /// Another `CUstream`, for copies beside computations.
    pub aside: usize,
    /// The `CUfunction` that adds up pieces of elements of the matrix's type: see `add_up.cu`.
    pub add_up: usize,
}

/// A dense matrix, row by row, in the memory of one device. Cloning shares the memory; nothing shared is ever written.
///
/// ```
/// use graphweft_tensor::{Device, Tag};
/// let device = Device::cpu();
/// let m = device.upload(2, 2, &[1.0f32, 2.0, 3.0, 4.0], Tag::Activations)?;
/// assert_eq!(m.to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0]);
/// assert_eq!(device.ledger().now().total(), 16);
/// # Ok::<(), graphweft_tensor::Error>(())
/// ```
#[derive(Clone)]
pub struct Matrix {
    buffer: Rc<Buffer>,
    rows: usize,
    cols: usize,
    dtype: DType,
}

impl Matrix {
    pub(crate) fn new(buffer: Buffer, rows: usize, cols: usize, dtype: DType) -> Self {
        debug_assert_eq!(buffer.bytes(), rows * cols * dtype.size());
        Self { buffer: Rc::new(buffer), rows, cols, dtype }
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Rows and columns.
    pub fn shape(&self) -> (usize, usize) {
        (self.rows, self.cols)
    }

    /// Type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Bytes of the elements.
    pub fn bytes(&self) -> usize {
        self.buffer.bytes()
    }

    /// Where the elements are.
    pub fn device(&self) -> &Device {
        self.buffer.device()
    }

    /// Whether nobody else shares the elements, so that they may be overwritten.
    pub fn is_unique(&self) -> bool {
        Rc::strong_count(&self.buffer) == 1
    }

    /// Whether both are the same memory.
    pub fn shares(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.buffer, &other.buffer)
    }

    /// The same elements, in the same memory, in rows of another length.
    pub(crate) fn reshaped(&self, rows: usize, cols: usize) -> Result<Self> {
        if rows * cols != self.rows * self.cols {
            return Err(Error::Shape { op: "reshape", what: "matrix", got: self.shape(), expected: (rows, cols) });
        }
        Ok(Self { rows, cols, ..self.clone() })
    }

    pub(crate) fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// The memory for writing, or `None` if it is shared.
    pub(crate) fn buffer_mut(&mut self) -> Option<&mut Buffer> {
        Rc::get_mut(&mut self.buffer)
    }

    /// Where the elements are, for those who move bytes. Valid while this matrix, or a clone of it, lives.
    ///
    /// # Errors
    /// If the device does not tell.
    pub fn address(&self) -> Result<Address> {
        self.device().backend().address(self)
    }

    /// The same for writing.
    ///
    /// # Errors
    /// If the memory is shared: nothing shared is ever written.
    pub fn address_mut(&mut self) -> Result<Address> {
        if !self.is_unique() {
            let problem = format!("{self:?} is shared, and cannot be received into");
            return Err(Error::Argument { op: "address", problem });
        }
        self.address()
    }

    /// A copy of the elements on the host.
    ///
    /// # Errors
    /// [`Error::Type`] if the elements are not of type `T`.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        if T::DTYPE != self.dtype {
            return Err(Error::Type { op: "to_vec", what: "matrix", got: self.dtype });
        }
        let mut out = vec![T::zeroed(); self.rows * self.cols];
        self.device().backend().download(self, bytemuck::cast_slice_mut(&mut out))?;
        Ok(out)
    }

    /// Fails unless it has `count` elements from element `start` on.
    pub(crate) fn expect_part(&self, op: &'static str, start: usize, count: usize) -> Result<()> {
        match start.checked_add(count) {
            Some(end) if end <= self.rows * self.cols => Ok(()),
            _ => Err(Error::Argument { op, problem: format!("{self:?} has no elements {start}..{start}+{count}") }),
        }
    }

    /// Fails unless the shape is as expected.
    pub(crate) fn expect(&self, op: &'static str, what: &'static str, rows: usize, cols: usize) -> Result<()> {
        if self.shape() == (rows, cols) {
            return Ok(());
        }
        Err(Error::Shape { op, what, got: self.shape(), expected: (rows, cols) })
    }
}

impl fmt::Debug for Matrix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Matrix({} × {} {})", self.rows, self.cols, self.dtype)
    }
}
