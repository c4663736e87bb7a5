//! What this process has used: memory, and the disk.

use std::fs;

/// The most bytes that this process has had in memory at once, where the operating system tells.
pub(crate) fn peak_bytes() -> Option<u64> {
    parse(&fs::read_to_string("/proc/self/status").ok()?)
}

/// Bytes that this process has had read from disks, where the operating system tells; what it found in the page cache is not in it.
pub(crate) fn read_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("read_bytes:"))?.trim().parse().ok()
}

fn parse(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_found_among_the_other_lines() {
        assert_eq!(parse("Name:\tx\nVmHWM:\t    1234 kB\nVmRSS:\t     12 kB\n"), Some(1234 << 10));
        assert_eq!(parse("Name:\tx\n"), None);
    }
}
