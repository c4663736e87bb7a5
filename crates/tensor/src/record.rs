//! Work that is told to a device once and done many times.
//!
//! A GPU is told every kernel by the host, which takes longer than the kernels of a small graph. Where a step is the same every
//! time but for its dropouts, the device [records](Device::record) it and does it again by one call.
//!
//! Memory that recorded work takes belongs to the recording: nobody else gets it while the recording lives, and it is counted. So
//! do its results. What it only reads, and what it changes in place, must live as long.

use crate::backend::{Block, Replay};
use crate::device::{Charge, Device};
use crate::error::{Error, Result};
use crate::ledger::Tag;
use crate::optim::Step;

/// What a device has recorded, and where its results are.
pub struct Recording<T> {
    replay: Box<dyn Replay>,
    results: T,
    blocks: Vec<(usize, Block)>,
    device: Device,
    _charge: Charge,
}

impl Device {
    /// Whether this device can record work.
    pub fn records(&self) -> bool {
        self.backend().recorder().is_some()
    }

    /// Remembers what `work` asks for, without doing it; `None` where the device cannot. What `work` returns has contents after the
    /// recording [was run](Recording::run), new ones every time.
    ///
    /// # Errors
    /// Of `work`; and if it needs memory that is not idle (so it should have been done before), reads results or brings new
    /// numbers to the device. Nothing was done then.
    pub fn record<T, E: From<Error>>(
        &self,
        work: impl FnOnce() -> std::result::Result<T, E>,
    ) -> std::result::Result<Option<Recording<T>>, E> {
        let Some(recorder) = self.backend().recorder() else { return Ok(None) };
        recorder.start()?;
        self.pool().set_apart();
        let (most, found) = self.ledger().peak_within(work);
        let replay = recorder.finish(found.is_ok());
        let blocks = self.pool().end_apart();
        let recorded = found.and_then(|results| Ok(replay?.map(|replay| (results, replay))));
        let Ok(Some((results, replay))) = recorded else {
            blocks.into_iter().for_each(|(capacity, block)| self.pool().put(capacity, block));
            return recorded.map(|_| None);
        };
        // What it holds at most, as if it were done step by step; what blocks have beyond that is the pool's, here as there.
        let _charge = self.charge(Tag::Activations, most.total().saturating_sub(self.ledger().now().total()));
        Ok(Some(Recording { replay, results, blocks, device: self.clone(), _charge }))
    }
}

impl<T> Recording<T> {
    /// Does the work, with the dropouts of `epoch`, and gives what it makes.
    ///
    /// # Errors
    /// Of the device.
    pub fn run(&self, epoch: u64) -> Result<&T> {
        self.replay.run(epoch, None)?;
        Ok(&self.results)
    }

    /// Does work that ends with [`Optimizer::record`](crate::optim::Optimizer::record): that step is `step`, but for its scale.
    /// Gives the loss and Σ x² of every gradient too. Where one of these is not finite, no parameter was changed.
    ///
    /// # Errors
    /// Of the device; or if there is no such step.
    pub fn step(&self, epoch: u64, step: &Step) -> Result<(&T, f64, Vec<f64>)> {
        self.replay.run(epoch, Some(step))?;
        let (loss, sums) = self.replay.found()?;
        Ok((&self.results, loss, sums))
    }
}

impl<T> Drop for Recording<T> {
    fn drop(&mut self) {
        // What uses them next comes later on the same stream.
        for (capacity, block) in self.blocks.drain(..) {
            self.device.pool().put(capacity, block);
        }
    }
}
