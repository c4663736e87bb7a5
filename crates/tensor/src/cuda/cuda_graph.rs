//! Captured work on the GPU: a CUDA graph of everything on the stream.
//!
//! Kernels are captured with their arguments, of which only the keys of dropouts and a few numbers of the optimizer
//! change: captured kernels read these from tables, which are written before every run.

use std::cell::RefCell;
use std::sync::Arc;

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaGraph, CudaSlice, CudaStream, DevicePtr};

use super::optim::{TOLD, Told};
use super::{Cuda, failed};
use crate::backend::{Capture, Memory, Replay};
use crate::error::{Error, Result};
use crate::matrix::Matrix;
use crate::optim::{Rule, Slot, Step};
use crate::random::Origin;

/// Keys that a capture may have: one for every layer of a model.
const MOST_KEYS: usize = 1024;
/// Bytes of tables, and numbers, that an update may have: enough for all that is small enough to be captured.
const MOST_BYTES: usize = 1 << 17;
const MOST_NUMBERS: usize = 1 << 12;
/// Where a table may begin.
const ALIGNED: usize = 16;

/// A capture under way: what its kernels will look for, and where.
pub(super) struct Notes {
    origins: Vec<Origin>,
    keys: CudaSlice<u32>,
    /// Tables of an update, which are copied to the GPU when all of them are known.
    host: Vec<u8>,
    tables: CudaSlice<u8>,
    /// What an update is told, then what it finds, of so many gradients.
    numbers: CudaSlice<f64>,
    gradients: Option<usize>,
}

struct CapturedGraph {
    graph: CudaGraph,
    stream: Arc<CudaStream>,
    origins: Vec<Origin>,
    /// Both are written by runs, one after the other.
    keys: RefCell<CudaSlice<u32>>,
    numbers: RefCell<CudaSlice<f64>>,
    gradients: Option<usize>,
    _tables: CudaSlice<u8>,
    device: String,
}

impl Cuda {
    /// Fails while work is captured: `what` would be done now, or once for all.
    pub(super) fn not_captured(&self, what: &str) -> Result<()> {
        self.not_captured_by_host(what)?;
        match *self.capturing.borrow() {
            None => Ok(()),
            Some(_) => Err(Error::Device { device: self.name(), problem: format!("cannot record {what}") }),
        }
    }

    /// Where a captured kernel finds the key of a dropout, or one that others have on the GPU; else null.
    pub(super) fn captured_key(&self, origin: Origin) -> Result<u64> {
        if let Some(host) = &self.host {
            return Ok(host.key());
        }
        let mut capturing = self.capturing.borrow_mut();
        let Some(Notes { origins, keys, .. }) = &mut *capturing else { return Ok(0) };
        let at = origins.iter().position(|o| *o == origin).unwrap_or_else(|| {
            origins.push(origin);
            origins.len() - 1
        });
        if at >= MOST_KEYS {
            return Err(self.too_many("dropouts"));
        }
        Ok(keys.device_ptr(&self.stream).0 + 8 * at as u64)
    }

    fn too_many(&self, what: &str) -> Error {
        Error::Device { device: self.name(), problem: format!("cannot record a step with so many {what}") }
    }

    /// Where captured kernels find a table; nothing where no work is captured.
    pub(super) fn captured_table(&self, bytes: &[u8]) -> Result<Option<u64>> {
        let mut capturing = self.capturing.borrow_mut();
        let Some(Notes { host, tables, .. }) = &mut *capturing else { return Ok(None) };
        let at = host.len();
        host.extend(bytes);
        // The next one begins where any number may.
        host.resize(host.len().next_multiple_of(ALIGNED), 0);
        if host.len() > MOST_BYTES {
            return Err(self.too_many("parameters"));
        }
        Ok(Some(tables.device_ptr(&self.stream).0 + at as u64))
    }

    /// Where an update has its numbers: what it is told, and what it finds of so many gradients, with `more` of its own
    /// after them.
    pub(super) fn captured_numbers(&self, gradients: usize, more: usize) -> Result<u64> {
        let mut capturing = self.capturing.borrow_mut();
        let problem = |problem: &str| Error::Device { device: self.name(), problem: problem.into() };
        let Some(notes) = &mut *capturing else { return Err(problem("an update is not recorded")) };
        if notes.gradients.replace(gradients).is_some() {
            return Err(problem("cannot record two updates"));
        }
        if TOLD + 1 + gradients + more > MOST_NUMBERS {
            return Err(self.too_many("parameters"));
        }
        Ok(notes.numbers.device_ptr(&self.stream).0)
    }
}

impl Capture for Cuda {
    fn start(&self) -> Result<()> {
        self.not_captured("a recording")?;
        self.send_lists()?;
        let fail = || self.fail("record work");
        let keys = self.stream.alloc_zeros::<u32>(2 * MOST_KEYS).map_err(fail())?;
        let tables = self.stream.alloc_zeros::<u8>(MOST_BYTES).map_err(fail())?;
        let numbers = self.stream.alloc_zeros::<f64>(MOST_NUMBERS).map_err(fail())?;
        // Of other ranks' threads nothing is captured, nor hindered.
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        self.stream.begin_capture(mode).map_err(fail())?;
        let (origins, host, gradients) = (Vec::new(), Vec::new(), None);
        *self.capturing.borrow_mut() = Some(Notes { origins, keys, host, tables, numbers, gradients });
        Ok(())
    }

    fn update(&self, rule: Rule, clip: f64, loss: &Matrix, slots: &mut [Slot<'_>]) -> Result<()> {
        self.captured_update(rule, clip, loss, slots)
    }

    fn finish(&self) -> Result<Option<Box<dyn Replay>>> {
        let Some(notes) = self.capturing.borrow_mut().take() else { return Ok(None) };
        let Notes { origins, keys, host, mut tables, numbers, gradients } = notes;
        let graph = self.stream.end_capture(CUgraphInstantiate_flags(0)).map_err(self.fail("record work"))?;
        let Some(graph) = graph else { return Ok(None) };
        if !host.is_empty() {
            self.stream.memcpy_htod(&host, &mut tables.slice_mut(..host.len())).map_err(self.fail("record work"))?;
        }
        let (keys, numbers) = (RefCell::new(keys), RefCell::new(numbers));
        let (stream, device) = (Arc::clone(&self.stream), self.name());
        Ok(Some(Box::new(CapturedGraph { graph, stream, origins, keys, numbers, gradients, _tables: tables, device })))
    }

    fn abandon(&self) {
        let notes = self.capturing.borrow_mut().take();
        if notes.is_some() {
            // A capture that failed has nothing to give; the stream works as before.
            let _ = self.stream.end_capture(CUgraphInstantiate_flags(0));
        }
        // Memory can be given back on this stream only now: an error would wait for the next who uses the GPU.
        drop(notes);
    }
}

impl CapturedGraph {
    fn wrong(&self, problem: &str) -> Error {
        Error::Device { device: self.device.clone(), problem: problem.into() }
    }
}

impl Replay for CapturedGraph {
    fn run(&self, epoch: u64, step: Option<&Step>) -> Result<()> {
        let fail = |e| failed(&self.device, "run recorded work", e);
        match (step, self.gradients) {
            (Some(step), Some(_)) => {
                // Pageable bytes are staged before this returns; so below.
                let (told, mut numbers) = (Told::of(step).numbers(), self.numbers.borrow_mut());
                self.stream.memcpy_htod(&told, &mut numbers.slice_mut(..told.len())).map_err(fail)?;
            }
            (None, None) => {}
            (None, Some(_)) => return Err(self.wrong("a recorded update was told no step")),
            (Some(_), None) => return Err(self.wrong("no update is recorded")),
        }
        let keys: Vec<u32> = self.origins.iter().flat_map(|origin| origin.key(epoch)).collect();
        if !keys.is_empty() {
            let mut table = self.keys.borrow_mut();
            self.stream.memcpy_htod(&keys, &mut table.slice_mut(..keys.len())).map_err(fail)?;
        }
        self.graph.launch().map_err(fail)
    }

    fn found(&self) -> Result<(f64, Vec<f64>)> {
        let fail = |e| failed(&self.device, "read what recorded work found", e);
        let gradients = self.gradients.ok_or_else(|| self.wrong("no update is recorded"))?;
        let numbers = self.numbers.borrow();
        let mut found = self.stream.clone_dtoh(&numbers.slice(TOLD..=TOLD + gradients)).map_err(fail)?;
        self.stream.synchronize().map_err(fail)?;
        let loss = found.remove(0);
        Ok((loss, found))
    }
}
