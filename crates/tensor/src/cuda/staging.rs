//! Short lists on their way to the GPU: what kernels read beside matrices, such as the structure of a batch of graphs.
//!
//! A batch has a dozen lists of some kilobytes each. Copied one by one, they cost the host more than all else that it
//! does before a step; so they are put side by side in a chunk, and what is not there yet goes in one copy before the
//! next kernel. A chunk lives as long as one of its lists. Long lists go by themselves.

use std::rc::Rc;

use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DriverError, result};

use super::{Cuda, CudaBlock, CudaMemory};
use crate::error::Result;

/// Bytes of a chunk.
const CHUNK: usize = 1 << 20;
/// Lists with more bytes go by themselves.
const SHORT: usize = 1 << 18;
/// Where a list may begin: where CUDA's own blocks do.
const ALIGNED: usize = 256;

/// A list in a chunk.
pub(super) struct Staged {
    chunk: Rc<CudaSlice<u8>>,
    start: usize,
    bytes: usize,
}

impl Staged {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn place(&self, stream: &CudaStream) -> u64 {
        self.chunk.device_ptr(stream).0 + self.start as u64
    }
}

/// The chunk that is being filled.
#[derive(Default)]
pub(super) struct Staging {
    chunk: Option<Rc<CudaSlice<u8>>>,
    used: usize,
    /// What is not copied yet, up to what is used.
    waiting: Vec<u8>,
}

/// The bytes that a list takes of a chunk: an empty one has a place too.
fn room(bytes: usize) -> usize {
    bytes.max(1).next_multiple_of(ALIGNED)
}

impl Cuda {
    /// A list on the GPU: there before the next kernel.
    pub(super) fn brought(&self, bytes: &[u8]) -> std::result::Result<CudaBlock, DriverError> {
        if bytes.len() > SHORT {
            return self.stream.clone_htod(bytes).map(|slice| CudaBlock(CudaMemory::Own(slice)));
        }
        let mut staging = self.staging.borrow_mut();
        let room = room(bytes.len());
        let chunk = match &staging.chunk {
            Some(chunk) if chunk.len() - staging.used >= room => Rc::clone(chunk),
            _ => {
                self.send(&mut staging)?;
                // SAFETY: every byte that a list has is written before a kernel reads it.
                let chunk = Rc::new(unsafe { self.stream.alloc::<u8>(CHUNK) }?);
                (staging.chunk, staging.used) = (Some(Rc::clone(&chunk)), 0);
                chunk
            }
        };
        let start = staging.used;
        staging.used += room;
        staging.waiting.extend_from_slice(bytes);
        let padded = staging.waiting.len() + room - bytes.len();
        staging.waiting.resize(padded, 0);
        Ok(CudaBlock(CudaMemory::Staged(Staged { chunk, start, bytes: bytes.len() })))
    }

    /// Copies the lists that wait for it.
    pub(super) fn send_lists(&self) -> Result<()> {
        let mut staging = self.staging.borrow_mut();
        self.send(&mut staging).map_err(self.fail("copy lists to the GPU"))
    }

    fn send(&self, staging: &mut Staging) -> std::result::Result<(), DriverError> {
        let Staging { chunk: Some(chunk), used, waiting } = staging else { return Ok(()) };
        if waiting.is_empty() {
            return Ok(());
        }
        self.context.bind_to_thread()?;
        let at = chunk.device_ptr(&self.stream).0 + (*used - waiting.len()) as u64;
        // SAFETY: that part of the chunk is there, and only lists that were just put there have it. Pageable bytes are
        // staged before this returns.
        unsafe { result::memcpy_htod_async(at, &waiting[..], self.stream.cu_stream()) }?;
        waiting.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_list_has_a_place_and_a_short_one_fits_a_chunk() {
        assert_eq!([0, 1, 256, 257].map(room), [256, 256, 256, 512]);
        assert!(room(SHORT) <= CHUNK);
    }
}
