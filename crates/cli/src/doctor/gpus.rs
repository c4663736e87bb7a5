//! The GPUs that this build can use.

use std::fmt;

use crate::ui::bytes;

/// One GPU; a build without CUDA sees none.
#[cfg_attr(not(feature = "cuda"), allow(dead_code))]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) memory: u64,
    /// Compute capability, e.g. 9.0.
    pub(super) architecture: String,
    pub(super) processors: i32,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (memory, processors) = (bytes(self.memory), self.processors);
        writeln!(f, "{}, {memory} of memory, {processors} multiprocessors, sm {}", self.name, self.architecture)
    }
}

/// All of them; none in a build without CUDA.
pub(super) fn gpus() -> Vec<Line> {
    #[cfg(feature = "cuda")]
    let found = graphweft_tensor::cuda::Gpu::all().into_iter().map(|gpu| Line {
        name: gpu.name,
        memory: gpu.memory as u64,
        architecture: format!("{}.{}", gpu.architecture.0, gpu.architecture.1),
        processors: gpu.processors,
    });
    #[cfg(not(feature = "cuda"))]
    let found = std::iter::empty();
    found.collect()
}
