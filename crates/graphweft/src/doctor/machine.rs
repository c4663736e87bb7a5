//! The machine's processor and memory.

use std::fs;

use crate::units::{bytes, counted};

/// What the operating system says about this machine.
///
/// ```
/// assert!(graphweft::Doctor::look().machine.memory > 0);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Machine {
    /// The name of the processor.
    pub cpu: String,
    /// Threads that can run at once.
    pub cores: usize,
    /// Bytes of memory; 0 where it does not say.
    pub memory: u64,
    /// Instruction sets that kernels make use of.
    pub simd: Vec<&'static str>,
}

impl Machine {
    pub(crate) fn look() -> Self {
        let cpu = field("/proc/cpuinfo", "model name");
        Self {
            cpu: if cpu.is_empty() { std::env::consts::ARCH.into() } else { cpu },
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory: memory_bytes().unwrap_or(0),
            simd: simd(),
        }
    }
}

/// This machine in words, for what is written of a run; `gpu` is where it computes, if that is not the processor.
pub(crate) fn in_words(gpu: Option<usize>) -> String {
    let Machine { cpu, cores, memory, .. } = Machine::look();
    let gpu = gpu.and_then(|place| super::gpus::gpus().into_iter().nth(place));
    let gpu = gpu.map_or(String::new(), |gpu| format!("{}, {}; ", gpu.name, bytes(gpu.memory)));
    format!("{gpu}{cpu}, {}, {}", counted(cores, "core"), bytes(memory))
}

/// Memory of the machine, if it says.
pub(crate) fn memory_bytes() -> Option<u64> {
    let kib: u64 = field("/proc/meminfo", "MemTotal").trim_end_matches(" kB").parse().ok()?;
    kib.checked_mul(1024)
}

/// The rest of the first line of `file` that begins with `key`.
fn field(file: &str, key: &str) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix(key)).unwrap_or_default();
    line.trim_start_matches([' ', '\t', ':']).trim().to_string()
}

#[cfg(target_arch = "x86_64")]
fn simd() -> Vec<&'static str> {
    macro_rules! detected {
        ($($feature:tt),*) => { [$(($feature, std::arch::is_x86_feature_detected!($feature))),*] };
    }
    let features = detected!["avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512bf16"];
    features.into_iter().filter_map(|(name, there)| there.then_some(name)).collect()
}

#[cfg(not(target_arch = "x86_64"))]
fn simd() -> Vec<&'static str> {
    vec![]
}
