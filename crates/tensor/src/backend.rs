//! What a device must be able to do.
//!
//! A [`Backend`] is the sum of small traits: [`Memory`] here, and one per operation, declared beside the operation in
//! [`ops`](crate::ops). A new device implements them in a folder of its own, has a variant of [`Block`] for its memory
//! and one of [`DeviceName`](crate::DeviceName) to be opened by.

use crate::adjacency::Direction;
use crate::cpu::HostBlock;
use crate::device::Device;
use crate::dry::DryBlock;
use crate::dry::{Pass, Work, edges};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::kernels;
use crate::matrix::{Address, Matrix};
pub use crate::ops::Backend;
use crate::optim::{Rule, Slot, Step};

/// A piece of a device's memory.
pub enum Block {
    /// In this process's own memory.
    Host(HostBlock),
    /// Nowhere: only counted.
    Dry(DryBlock),
    /// On an NVIDIA GPU.
    #[cfg(feature = "cuda")]
    Cuda(crate::cuda::CudaBlock),
}

impl Block {
    /// Whether it belongs to others.
    pub(crate) fn is_lent(&self) -> bool {
        match self {
            Self::Host(block) => block.is_lent(),
            Self::Dry(_) => false,
            #[cfg(feature = "cuda")]
            Self::Cuda(block) => block.is_lent(),
        }
    }

    pub(crate) fn capacity(&self) -> usize {
        match self {
            Self::Host(block) => block.capacity(),
            Self::Dry(block) => block.capacity(),
            #[cfg(feature = "cuda")]
            Self::Cuda(block) => block.capacity(),
        }
    }
}

/// Memory and the few whole-matrix operations that everything needs.
pub trait Memory {
    /// What to call the device in messages.
    fn name(&self) -> String;

    /// Memory of at least `bytes` bytes, contents unspecified; `None` if there is not enough left.
    fn allocate(&self, bytes: usize) -> Result<Option<Block>>;

    /// Whether what is written can be read again.
    fn keeps_contents(&self) -> bool {
        true
    }

    /// Overwrites `to` with bytes from the host.
    fn upload(&self, to: &mut Matrix, bytes: &[u8]) -> Result<()>;

    /// Copies `from` to the host.
    fn download(&self, from: &Matrix, bytes: &mut [u8]) -> Result<()>;

    /// Sets every element to zero.
    fn zero(&self, m: &mut Matrix) -> Result<()>;

    /// Overwrites `to` with the elements of `from`, converted to `to`'s type.
    fn convert(&self, to: &mut Matrix, from: &Matrix) -> Result<()>;

    /// Overwrites `count` elements of `to`, from element `at` on, with those of `from`, of the same type, from element
    /// `start` on.
    fn copy_part(&self, from: &Matrix, start: usize, to: &mut Matrix, at: usize, count: usize) -> Result<()>;

    /// `to += x`.
    fn add(&self, to: &mut Matrix, x: &Matrix) -> Result<()>;

    /// Where the elements of a matrix are, for those who move bytes.
    fn address(&self, m: &Matrix) -> Result<Address>;

    /// Returns when everything that was asked for so far is done: for clocks.
    fn wait(&self) -> Result<()>;

    /// Copies what kernels over the edges of `direction` read to where they run, if that is not the host: many in one
    /// copy, where it would be done one by one when they are first run.
    fn bring(&self, _device: &Device, _direction: &Direction) -> Result<()> {
        Ok(())
    }

    /// What captures work, where the device can do it again without being told every kernel.
    fn capture(&self) -> Option<&dyn Capture> {
        None
    }
}

/// A device that can be told to remember its work instead of doing it.
pub trait Capture {
    /// From now on, work is remembered. Whatever waits for the device, or needs memory that is not there, fails.
    fn start(&self) -> Result<()>;

    /// Within what is remembered, at its end: an optimizer's step, which every run is told. Gradients that are longer
    /// than `clip` together are shortened, if that is more than 0. Nothing moves where the loss, in f64, or a gradient
    /// is not finite.
    fn update(&self, rule: Rule, clip: f64, loss: &Matrix, slots: &mut [Slot<'_>]) -> Result<()>;

    /// Ends that: what was remembered, if there is something.
    fn finish(&self) -> Result<Option<Box<dyn Replay>>>;

    /// Ends that, and forgets what was remembered.
    fn abandon(&self);
}

/// Work that was captured.
pub trait Replay {
    /// Does it, with the dropouts of `epoch`, and this step where it has one.
    fn run(&self, epoch: u64, step: Option<&Step>) -> Result<()>;

    /// Of the last run's step: the loss, and Σ x² of every gradient.
    fn found(&self) -> Result<(f64, Vec<f64>)>;
}

kernels! {
    /// The traffic floor of operations over edges: the same passes over the same indices, and nothing but loads.
    pub trait Floor {
        /// Loads, for every edge of `direction`, the row that it names in each of `tables`. Returns a number that
        /// depends on what was loaded, so that no load can be left out.
        ///
        /// # Errors
        /// If a table has fewer rows than the graph has columns, or is of a type that the device does not load here.
        fn touch(direction: &Direction, tables: &[&Matrix]) -> Result<u64> {
            |dry|
            let dtype = tables.first().map_or(DType::F32, |m| m.dtype());
            let width = tables.iter().map(|m| m.cols()).sum();
            dry.tell(Work::new("floor", dtype, edges(Pass::Forward, direction, width * dtype.size(), width, 1)))?;
            Ok(0)
        }
    }
}
