//! A device: its backend, its memory and its ledger. Every matrix knows the device it lives on.

use std::fmt;
use std::rc::Rc;

use crate::backend::{Backend, Block};
use crate::cpu::{Cpu, HostBlock};
use crate::dry::{Dry, Like, Sink};
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::ledger::{Ledger, Tag};
use crate::matrix::Matrix;
use crate::pool::Pool;

/// A handle to a device, cheap to clone. It belongs to one rank and does not leave its thread.
#[derive(Clone)]
pub struct Device(Rc<Inner>);

struct Inner {
    backend: Box<dyn Backend>,
    pool: Pool<Block>,
    ledger: Ledger,
}

/// Memory of a device with a purpose. Counted while it lives, kept for reuse afterwards.
pub(crate) struct Buffer {
    block: Option<Block>,
    bytes: usize,
    tag: Tag,
    device: Device,
}

impl Device {
    /// The CPU, with the current rayon pool.
    pub fn cpu() -> Self {
        Self::with_backend(Box::new(Cpu::new()))
    }

    /// A device that has `capacity` bytes, or no end of them, and computes nothing: `sink` hears of what it would have
    /// done. See [`dry`](crate::dry).
    ///
    /// ```
    /// use std::rc::Rc;
    /// use graphweft_tensor::{Device, Tag};
    /// let device = Device::dry(Some(1000), Rc::new(|work| println!("{work:?}")));
    /// let m = device.upload(2, 2, &[1.0f32, 2.0, 3.0, 4.0], Tag::Activations)?;
    /// assert_eq!((m.to_vec::<f32>()?, device.ledger().now().total()), (vec![1.0; 4], 16));
    /// assert!(device.zeros("too much", 10, 100, m.dtype(), Tag::Activations).is_err());
    /// # Ok::<(), graphweft_tensor::Error>(())
    /// ```
    pub fn dry(capacity: Option<u64>, sink: Sink) -> Self {
        Self::with_backend(Box::new(Dry::new(Like::Cpu(Cpu::new()), capacity, sink)))
    }

    /// The same, whose kernels take as much memory for the time of a call as those of a GPU.
    pub fn dry_gpu(capacity: Option<u64>, sink: Sink) -> Self {
        Self::with_backend(Box::new(Dry::new(Like::Gpu, capacity, sink)))
    }

    /// A device run by `backend`.
    pub fn with_backend(backend: Box<dyn Backend>) -> Self {
        Self(Rc::new(Inner { backend, pool: Pool::default(), ledger: Ledger::default() }))
    }

    /// What runs the kernels.
    pub fn backend(&self) -> &dyn Backend {
        &*self.0.backend
    }

    /// What the device holds, by purpose.
    pub fn ledger(&self) -> &Ledger {
        &self.0.ledger
    }

    /// Whether two handles are the same device.
    pub fn is(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn pool(&self) -> &Pool<Block> {
        &self.0.pool
    }

    pub(crate) fn buffer(&self, op: &'static str, bytes: usize, tag: Tag) -> Result<Buffer> {
        let Inner { backend, pool, ledger } = &*self.0;
        ledger.add(tag, bytes as u64);
        let block = match pool.take(bytes, ledger) {
            Some(block) => block,
            None => {
                // What is captured can neither free nor allocate; the backend says so.
                if !pool.sets_apart() {
                    pool.trim(ledger);
                }
                match self.allocate(bytes) {
                    Ok(Some(block)) => block,
                    other => {
                        ledger.remove(tag, bytes as u64);
                        let usage = ledger.now();
                        other?;
                        return Err(Error::OutOfMemory { op, device: backend.name(), requested: bytes as u64, usage });
                    }
                }
            }
        };
        pool.lend(block.capacity().saturating_sub(bytes));
        Ok(Buffer { block: Some(block), bytes, tag, device: self.clone() })
    }

    /// Fresh memory; where there is not enough, idle blocks are given back for it.
    fn allocate(&self, bytes: usize) -> Result<Option<Block>> {
        let Inner { backend, pool, .. } = &*self.0;
        match backend.allocate(bytes)? {
            None if !pool.sets_apart() && pool.clear() => backend.allocate(bytes),
            found => Ok(found),
        }
    }

    /// A matrix whose elements are unspecified until written.
    pub fn uninit(&self, op: &'static str, rows: usize, cols: usize, dtype: DType, tag: Tag) -> Result<Matrix> {
        let bytes = rows.checked_mul(cols).and_then(|elements| elements.checked_mul(dtype.size()));
        let Some(bytes) = bytes.filter(|bytes| *bytes <= isize::MAX as usize) else {
            let (device, usage) = (self.backend().name(), self.ledger().now());
            return Err(Error::OutOfMemory { op, device, requested: u64::MAX, usage });
        };
        Ok(Matrix::new(self.buffer(op, bytes, tag)?, rows, cols, dtype))
    }

    /// A matrix of zeros.
    pub fn zeros(&self, op: &'static str, rows: usize, cols: usize, dtype: DType, tag: Tag) -> Result<Matrix> {
        let mut m = self.uninit(op, rows, cols, dtype, tag)?;
        self.backend().zero(&mut m)?;
        Ok(m)
    }

    /// A matrix with these elements, row by row.
    pub fn upload<T: Element>(&self, rows: usize, cols: usize, elements: &[T], tag: Tag) -> Result<Matrix> {
        if rows.checked_mul(cols) != Some(elements.len()) {
            let (got, expected) = ((elements.len(), 1), (rows.saturating_mul(cols), 1));
            return Err(Error::Shape { op: "upload", what: "elements", got, expected });
        }
        let mut m = self.uninit("upload", rows, cols, T::DTYPE, tag)?;
        self.backend().upload(&mut m, bytemuck::cast_slice(elements))?;
        Ok(m)
    }

    /// The same from elements that are dear to get: they are not asked for where nothing is kept.
    pub fn upload_from<T: Element, V: AsRef<[T]>>(
        &self,
        rows: usize,
        cols: usize,
        tag: Tag,
        elements: impl FnOnce() -> V,
    ) -> Result<Matrix> {
        if self.backend().keeps_contents() {
            return self.upload(rows, cols, elements().as_ref(), tag);
        }
        let mut m = self.uninit("upload", rows, cols, T::DTYPE, tag)?;
        self.backend().upload(&mut m, &[])?;
        Ok(m)
    }

    /// A matrix of so many rows and columns over memory of others in this process, which is neither copied nor kept.
    ///
    /// # Errors
    /// [`Error::Argument`] if the memory is not aligned or the matrix would be larger than memory can be.
    ///
    /// # Safety
    /// At `start` are the elements. While the matrix or a clone of it lives, that memory does, and nobody else writes
    /// it; if a kernel writes the matrix, nobody else reads it.
    pub unsafe fn lend<T: Element>(&self, rows: usize, cols: usize, start: *mut T, tag: Tag) -> Result<Matrix> {
        let refused = |problem: &str| Error::Argument { op: "lend", problem: problem.into() };
        let bytes = rows.checked_mul(cols).and_then(|elements| elements.checked_mul(size_of::<T>()));
        let bytes = bytes.filter(|bytes| *bytes <= isize::MAX as usize).ok_or_else(|| refused("too large"))?;
        let start = std::ptr::NonNull::new(start).filter(|start| start.is_aligned());
        let start = start.ok_or_else(|| refused("memory that is not aligned"))?;
        // SAFETY: by the caller's promise.
        let block = unsafe { HostBlock::lent(start.cast(), bytes) };
        self.ledger().add(tag, bytes as u64);
        let buffer = Buffer { block: Some(Block::Host(block)), bytes, tag, device: self.clone() };
        Ok(Matrix::new(buffer, rows, cols, T::DTYPE))
    }

    /// The same over memory of others on a GPU that they [lend](crate::cuda::GuestGpu).
    ///
    /// # Errors
    /// As [`Device::lend`].
    ///
    /// # Safety
    /// As [`Device::lend`], in the order of the device's stream.
    #[cfg(feature = "cuda")]
    pub unsafe fn lend_gpu(&self, rows: usize, cols: usize, dtype: DType, start: u64, tag: Tag) -> Result<Matrix> {
        let refused = |problem: &str| Error::Argument { op: "lend", problem: problem.into() };
        let bytes = rows.checked_mul(cols).and_then(|elements| elements.checked_mul(dtype.size()));
        let bytes = bytes.filter(|bytes| *bytes <= isize::MAX as usize).ok_or_else(|| refused("too large"))?;
        // Kernels load so many bytes at once.
        if bytes > 0 && (start == 0 || !start.is_multiple_of(16)) {
            return Err(refused("memory that is not aligned to 16 bytes"));
        }
        let loan = crate::cuda::Loan { at: start, bytes, owner: Box::new(()) };
        let block = Block::Cuda(crate::cuda::CudaBlock::lent(loan));
        self.ledger().add(tag, bytes as u64);
        let buffer = Buffer { block: Some(block), bytes, tag, device: self.clone() };
        Ok(Matrix::new(buffer, rows, cols, dtype))
    }

    /// A copy of `m` with memory of its own.
    pub fn copy(&self, op: &'static str, m: &Matrix) -> Result<Matrix> {
        self.convert(op, m, m.dtype())
    }

    /// A copy of `m` with elements of another type.
    pub fn convert(&self, op: &'static str, m: &Matrix, dtype: DType) -> Result<Matrix> {
        let mut out = self.uninit(op, m.rows(), m.cols(), dtype, Tag::Activations)?;
        self.backend().convert(&mut out, m)?;
        Ok(out)
    }

    /// Counts host memory that something on this device keeps alive (a CSR that was mapped or built elsewhere).
    pub fn charge(&self, tag: Tag, bytes: u64) -> Charge {
        self.0.ledger.add(tag, bytes);
        Charge { device: self.clone(), tag, bytes }
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({})", self.backend().name())
    }
}

/// Memory counted on a device for as long as this lives.
#[derive(Debug)]
pub struct Charge {
    device: Device,
    tag: Tag,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.device.0.ledger.remove(self.tag, self.bytes);
    }
}

impl Buffer {
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn block(&self) -> Option<&Block> {
        self.block.as_ref()
    }

    pub(crate) fn block_mut(&mut self) -> Option<&mut Block> {
        self.block.as_mut()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let Inner { pool, ledger, .. } = &*self.device.0;
        ledger.remove(self.tag, self.bytes as u64);
        if let Some(block) = self.block.take() {
            pool.unlend(block.capacity().saturating_sub(self.bytes));
            if !block.is_lent() {
                pool.put(block.capacity(), block);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;

    #[test]
    fn lent_memory_is_written_in_place_and_not_kept() {
        let device = Device::cpu();
        let mut numbers = vec![1.0f32; 6];
        // SAFETY: the numbers outlive the matrix, and are looked at after it.
        let mut m = unsafe { device.lend(2, 3, numbers.as_mut_ptr(), Tag::Activations).unwrap() };
        device.backend().zero(&mut m).unwrap();
        drop(m);
        assert_eq!((numbers, device.ledger().now().total()), (vec![0.0; 6], 0));
        assert!(!device.pool().clear(), "nothing of others is kept");
        // SAFETY: nothing is lent.
        assert!(unsafe { device.lend(1, 1, std::ptr::without_provenance_mut::<f32>(2), Tag::Activations) }.is_err());
    }

    fn parts_are_copied_and_nonsense_is_refused(device: &Device) {
        fn check<T: Element + PartialEq + fmt::Debug>(device: &Device, of: impl Fn(u16) -> T) {
            let from = device.upload(7, 3, &(0..21).map(&of).collect::<Vec<T>>(), Tag::Activations).unwrap();
            let mut to = device.upload(2, 5, &[of(100); 10], Tag::Activations).unwrap();
            device.backend().copy_part(&from, 13, &mut to, 4, 6).unwrap();
            let expected: Vec<T> = [100, 100, 100, 100, 13, 14, 15, 16, 17, 18].map(&of).into();
            assert_eq!(to.to_vec::<T>().unwrap(), expected);
            for (start, at, count) in [(16, 0, 6), (0, 5, 6), (usize::MAX, 0, 2)] {
                assert!(device.backend().copy_part(&from, start, &mut to, at, count).is_err(), "{start} {at} {count}");
            }
            assert_eq!(to.to_vec::<T>().unwrap(), expected);
        }
        check(device, f32::from);
        check(device, f64::from);
        check(device, |x| bf16::from_f32(f32::from(x)));
        let [from, mut to] = [DType::F32, DType::F64].map(|t| device.zeros("test", 1, 1, t, Tag::Activations).unwrap());
        assert!(device.backend().copy_part(&from, 0, &mut to, 0, 1).is_err(), "of another type");
    }

    crate::ops::tests::on_every_device!(parts_are_copied_and_nonsense_is_refused);
}
