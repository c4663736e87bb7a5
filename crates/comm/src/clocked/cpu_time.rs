//! How long this thread has been computing.

use std::time::Duration;

/// The processor's time that this thread has used.
#[cfg(target_os = "linux")]
pub fn cpu_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// The time since some moment: where threads have no clock of their own, ranks should have a core each.
#[cfg(not(target_os = "linux"))]
pub fn cpu_time() -> Duration {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    START.get_or_init(std::time::Instant::now).elapsed()
}
