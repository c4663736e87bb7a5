//! What this process used.

/// The most memory this process has had resident, mapped files included; `None` where the system does not tell.
pub(crate) fn peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    #[test]
    #[cfg(target_os = "linux")]
    fn what_was_touched_is_counted() {
        let before = super::peak_bytes().unwrap();
        let touched = std::hint::black_box(vec![1u8; 64 << 20]);
        assert!(super::peak_bytes().unwrap() >= before + (32 << 20));
        drop(touched);
    }
}
