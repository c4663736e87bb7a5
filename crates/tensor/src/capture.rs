//! Work that is told to a device once and done many times.
//!
//! A GPU is told every kernel by the host, which takes longer than the kernels of a small graph. Where a step is the
//! same every time but for its dropouts, the device [captures](Device::capture) it and does it again by one call.
//!
//! Memory that captured work takes belongs to it: nobody else gets it while the work is kept, and it is counted. So
//! do its results. What it only reads, and what it changes in place, must live as long.

use crate::backend::{Block, Replay};
use crate::device::{Charge, Device};
use crate::error::{Error, Result};
use crate::ledger::Tag;
use crate::optim::Step;

/// What a device has captured, and where its results are.
pub struct Captured<T> {
    replay: Box<dyn Replay>,
    results: T,
    blocks: Vec<(usize, Block)>,
    device: Device,
    _charge: Charge,
}

impl Device {
    /// Whether this device can capture work.
    pub fn can_capture(&self) -> bool {
        self.backend().capture().is_some()
    }

    /// Remembers what `work` asks for, without doing it; `None` where the device cannot. What `work` returns has
    /// contents after it [was run](Captured::run), new ones every time.
    ///
    /// # Errors
    /// Of `work`; and if it needs memory that is not idle (so it should have been done before), reads results or brings
    /// new numbers to the device. Nothing was done then.
    pub fn capture<T, E: From<Error>>(
        &self,
        work: impl FnOnce() -> std::result::Result<T, E>,
    ) -> std::result::Result<Option<Captured<T>>, E> {
        let Some(capture) = self.backend().capture() else { return Ok(None) };
        capture.start()?;
        self.pool().set_apart();
        let (most, found) = self.ledger().peak_within(work);
        let replay = match found {
            Ok(_) => capture.finish(),
            Err(_) => {
                capture.abandon();
                Ok(None)
            }
        };
        let blocks = self.pool().end_apart();
        let captured = found.and_then(|results| Ok(replay?.map(|replay| (results, replay))));
        let Ok(Some((results, replay))) = captured else {
            blocks.into_iter().for_each(|(capacity, block)| self.pool().put(capacity, block));
            return captured.map(|_| None);
        };
        // What it holds at most, as if it were done step by step; what blocks have beyond that is the pool's, here as
        // there.
        let _charge = self.charge(Tag::Activations, most.total().saturating_sub(self.ledger().now().total()));
        Ok(Some(Captured { replay, results, blocks, device: self.clone(), _charge }))
    }
}

impl<T> Captured<T> {
    /// Does the work, with the dropouts of `epoch`, and gives what it makes.
    ///
    /// # Errors
    /// Of the device.
    pub fn run(&self, epoch: u64) -> Result<&T> {
        self.replay.run(epoch, None)?;
        Ok(&self.results)
    }

    /// Does work that ends with [`Optimizer::capture`](crate::optim::Optimizer::capture): that step is `step`, but for
    /// its scale. Gives the loss and Σ x² of every gradient too. Where one of these is not finite, no parameter was
    /// changed.
    ///
    /// # Errors
    /// Of the device; or if there is no such step.
    pub fn step(&self, epoch: u64, step: &Step) -> Result<(&T, f64, Vec<f64>)> {
        self.replay.run(epoch, Some(step))?;
        let (loss, sums) = self.replay.found()?;
        Ok((&self.results, loss, sums))
    }
}

impl<T> Drop for Captured<T> {
    fn drop(&mut self) {
        // What uses them next comes later on the same stream.
        for (capacity, block) in self.blocks.drain(..) {
            self.device.pool().put(capacity, block);
        }
    }
}
