//! The GPUs that this build can use.

/// A GPU; a build without CUDA sees none.
///
/// ```
/// assert!(graphweft::Doctor::look().gpus.iter().all(|gpu| gpu.memory > 0));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gpu {
    /// What it is called.
    pub name: String,
    /// Bytes of its memory.
    pub memory: u64,
    /// Compute capability, e.g. 9.0.
    pub architecture: String,
    /// Multiprocessors.
    pub processors: i32,
}

/// All of them; none in a build without CUDA.
pub(crate) fn gpus() -> Vec<Gpu> {
    #[cfg(feature = "cuda")]
    let found = graphweft_tensor::cuda::Gpu::all().into_iter().map(|gpu| Gpu {
        name: gpu.name,
        memory: gpu.memory as u64,
        architecture: format!("{}.{}", gpu.architecture.major, gpu.architecture.minor),
        processors: gpu.processors,
    });
    #[cfg(not(feature = "cuda"))]
    let found = std::iter::empty();
    found.collect()
}
