//! Recorded work on the GPU: a CUDA graph of everything on the stream.
//!
//! Kernels are recorded with their arguments, of which only the keys of dropouts change: recorded kernels read these from a table,
//! which is written before every run.

use std::cell::RefCell;
use std::sync::Arc;

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaGraph, CudaSlice, CudaStream, DevicePtr};

use super::{Cuda, failed};
use crate::backend::{Memory, Recorder, Replay};
use crate::error::{Error, Result};
use crate::random::Origin;

/// Keys that a recording may have: one for every layer of a model.
const MOST_KEYS: usize = 1024;

/// A recording under way: the keys that its kernels will look for, and where.
pub(super) struct Keys {
    origins: Vec<Origin>,
    table: CudaSlice<u32>,
}

struct Recorded {
    graph: CudaGraph,
    stream: Arc<CudaStream>,
    origins: Vec<Origin>,
    /// Written by runs, one after the other.
    table: RefCell<CudaSlice<u32>>,
    device: String,
}

impl Cuda {
    /// Fails while work is recorded: `what` would be done now, or once for all.
    pub(super) fn not_recorded(&self, what: &str) -> Result<()> {
        match *self.recording.borrow() {
            None => Ok(()),
            Some(_) => Err(Error::Device { device: self.name(), problem: format!("cannot record {what}") }),
        }
    }

    /// Where a recorded kernel finds the key of a dropout; null where nothing is recorded.
    pub(super) fn recorded_key(&self, origin: Origin) -> Result<u64> {
        let mut recording = self.recording.borrow_mut();
        let Some(Keys { origins, table }) = &mut *recording else { return Ok(0) };
        let at = origins.iter().position(|o| *o == origin).unwrap_or_else(|| {
            origins.push(origin);
            origins.len() - 1
        });
        if at >= MOST_KEYS {
            let problem = format!("cannot record a step with more than {MOST_KEYS} dropouts");
            return Err(Error::Device { device: self.name(), problem });
        }
        Ok(table.device_ptr(&self.stream).0 + 8 * at as u64)
    }
}

impl Recorder for Cuda {
    fn start(&self) -> Result<()> {
        self.not_recorded("a recording")?;
        let table = self.stream.alloc_zeros::<u32>(2 * MOST_KEYS).map_err(self.fail("record work"))?;
        // Of other ranks' threads nothing is recorded, nor hindered.
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        self.stream.begin_capture(mode).map_err(self.fail("record work"))?;
        *self.recording.borrow_mut() = Some(Keys { origins: Vec::new(), table });
        Ok(())
    }

    fn finish(&self, keep: bool) -> Result<Option<Box<dyn Replay>>> {
        let Some(Keys { origins, table }) = self.recording.borrow_mut().take() else { return Ok(None) };
        let flags = CUgraphInstantiate_flags(0);
        let graph = match self.stream.end_capture(flags) {
            // A recording that failed has nothing to give; the stream works as before.
            _ if !keep => return Ok(None),
            found => found.map_err(self.fail("record work"))?,
        };
        let Some(graph) = graph else { return Ok(None) };
        let (stream, device) = (Arc::clone(&self.stream), self.name());
        Ok(Some(Box::new(Recorded { graph, stream, origins, table: RefCell::new(table), device })))
    }
}

impl Replay for Recorded {
    fn run(&self, epoch: u64) -> Result<()> {
        let fail = |e| failed(&self.device, "run recorded work", e);
        let keys: Vec<u32> = self.origins.iter().flat_map(|origin| origin.key(epoch)).collect();
        if !keys.is_empty() {
            let mut table = self.table.borrow_mut();
            // Pageable bytes are staged before this returns.
            self.stream.memcpy_htod(&keys, &mut table.slice_mut(..keys.len())).map_err(fail)?;
        }
        self.graph.launch().map_err(fail)
    }
}
