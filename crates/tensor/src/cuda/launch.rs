//! Kernel launches: arguments by value, in the order of the kernel's parameters.

use bytemuck::Pod;
use cudarc::driver::{CudaFunction, result};

use super::compile::{Defines, Source};
use super::{Cuda, place, place_mut};
use crate::error::Result;
use crate::matrix::Matrix;

/// Threads of a block, where nothing speaks for another number.
pub(super) const THREADS: usize = 256;

/// A kernel with the arguments that it has so far.
pub(super) struct Launch<'a> {
    cuda: &'a Cuda,
    op: &'static str,
    function: CudaFunction,
    /// The arguments, each from a word of its own on.
    words: Vec<u64>,
    starts: Vec<usize>,
}

impl Cuda {
    /// The kernel `name` of a source, specialised, for the operation `op`.
    pub(super) fn kernel(
        &self,
        op: &'static str,
        source: &Source,
        defines: Defines,
        name: &'static str,
    ) -> Result<Launch<'_>> {
        let function = self.function(source, defines, name)?;
        Ok(Launch { cuda: self, op, function, words: Vec::with_capacity(16), starts: Vec::with_capacity(16) })
    }
}

impl Launch<'_> {
    /// How many rows `x` has, and of how many columns.
    pub(super) fn size(self, x: &Matrix) -> Self {
        self.arg(x.rows() as i64).arg(x.cols() as i32)
    }

    /// A number, or a struct that has the layout of the kernel's.
    pub(super) fn arg<A: Pod>(mut self, a: A) -> Self {
        let start = self.words.len();
        self.starts.push(start);
        self.words.resize(start + size_of::<A>().div_ceil(8), 0);
        bytemuck::cast_slice_mut::<u64, u8>(&mut self.words[start..])[..size_of::<A>()]
            .copy_from_slice(bytemuck::bytes_of(&a));
        self
    }

    /// The elements of a matrix, which the kernel only reads.
    pub(super) fn read(self, what: &'static str, m: &Matrix) -> Result<Self> {
        let at = place(self.cuda, self.op, what, m)?;
        Ok(self.arg(at))
    }

    /// The same, null where there is none.
    pub(super) fn maybe_read(self, what: &'static str, m: Option<&Matrix>) -> Result<Self> {
        match m {
            Some(m) => self.read(what, m),
            None => Ok(self.arg(0u64)),
        }
    }

    /// The elements of a matrix, which the kernel writes.
    pub(super) fn write(self, what: &'static str, m: &mut Matrix) -> Result<Self> {
        let at = place_mut(self.cuda, self.op, what, m)?;
        Ok(self.arg(at))
    }

    /// The same, null where there is none.
    pub(super) fn maybe_write(self, what: &'static str, m: Option<&mut Matrix>) -> Result<Self> {
        match m {
            Some(m) => self.write(what, m),
            None => Ok(self.arg(0u64)),
        }
    }

    /// Runs the kernel with a thread for each of `count` items.
    ///
    /// # Safety
    /// As for [`Launch::run`].
    pub(super) unsafe fn run_each(self, count: usize) -> Result<()> {
        // SAFETY: passed on.
        unsafe { self.run([count.div_ceil(THREADS), 1], THREADS, 0) }
    }

    /// Runs the kernel on a grid of blocks; none where the grid is empty.
    ///
    /// # Safety
    /// The arguments must be those that the kernel declares, and it must stay inside the memory that they point to.
    /// Memory is freed in the order of the stream, so it outlives the kernel.
    pub(super) unsafe fn run(mut self, grid: [usize; 2], threads: usize, shared: usize) -> Result<()> {
        if grid.contains(&0) {
            return Ok(());
        }
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let words = self.words.as_mut_ptr();
        // SAFETY: starts are inside the words.
        let mut args: Vec<_> = self.starts.iter().map(|start| unsafe { words.add(*start) }.cast()).collect();
        let (grid, block) = ((number(grid[0]), number(grid[1]), 1), (number(threads), 1, 1));
        let stream = self.cuda.stream.cu_stream();
        let failed = |e| self.cuda.fail(&format!("run {}", self.op))(e);
        self.cuda.send_lists()?;
        self.cuda.context.bind_to_thread().map_err(failed)?;
        // SAFETY: the function is loaded, arguments are what the caller promises.
        unsafe { result::launch_kernel(self.function.cu_function(), grid, block, number(shared), stream, &mut args) }
            .map_err(failed)
    }
}
