//! The machine's processor and memory.

use std::fs;

use crate::doctor::gpus;
use graphweft_plan::explain::{bytes, counted};

/// The name of the processor.
pub(crate) fn cpu() -> String {
    let cpu = field("/proc/cpuinfo", "model name");
    if cpu.is_empty() { std::env::consts::ARCH.into() } else { cpu }
}

/// This machine in words, for what is written of a run; `gpu` is where it computes, if that is not the processor.
pub(crate) fn in_words(gpu: Option<usize>) -> String {
    let gpu = gpu.and_then(|place| gpus().into_iter().nth(place));
    let gpu = gpu.map_or(String::new(), |gpu| format!("{}, {}; ", gpu.name, bytes(gpu.memory)));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{gpu}{}, {}, {}", cpu(), counted(cores, "core"), bytes(memory_bytes().unwrap_or(0)))
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

/// Instruction sets that kernels make use of.
#[cfg(target_arch = "x86_64")]
pub(crate) fn simd() -> Vec<&'static str> {
    macro_rules! detected {
        ($($feature:tt),*) => { [$(($feature, std::arch::is_x86_feature_detected!($feature))),*] };
    }
    let features = detected!["avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512bf16"];
    features.into_iter().filter_map(|(name, there)| there.then_some(name)).collect()
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn simd() -> Vec<&'static str> {
    vec![]
}
