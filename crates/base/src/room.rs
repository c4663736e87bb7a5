//! Whether there is room, asked before it is taken: systems promise more memory than they have, and a disk that is full
//! is found out after an hour of writing.

use std::path::Path;

use crate::error::{Error, Result};

/// Memory that can be had without swapping, as far as the operating system tells.
pub fn memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Bytes that can be written where `path` is or will be, as far as the operating system tells.
pub fn disk(path: &Path) -> Option<u64> {
    let path = std::path::absolute(path).ok()?;
    let there = path.ancestors().find(|folder| folder.exists())?;
    let about = rustix::fs::statvfs(there).ok()?;
    // Some file systems do not count.
    (about.f_blocks > 0).then(|| about.f_bavail.saturating_mul(about.f_frsize))
}

/// Fails if `what` needs more memory than there is.
///
/// # Errors
/// [`Error::Memory`] with both numbers.
pub fn check_memory(what: impl Into<String>, needed: u128, remedy: &str) -> Result<()> {
    match memory() {
        Some(available) if needed > u128::from(available) => Err(Error::Memory {
            what: what.into(),
            needed: u64::try_from(needed).unwrap_or(u64::MAX),
            available,
            remedy: remedy.into(),
        }),
        _ => Ok(()),
    }
}

/// Fails if `what` needs more space than is free where `path` is or will be.
///
/// # Errors
/// [`Error::Disk`] with both numbers.
pub fn check_disk(what: impl Into<String>, path: &Path, needed: u128) -> Result<()> {
    match disk(path) {
        Some(available) if needed > u128::from(available) => Err(Error::Disk {
            what: what.into(),
            path: path.to_path_buf(),
            needed: u64::try_from(needed).unwrap_or(u64::MAX),
            available,
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_there_is_refused_with_both_numbers() {
        let here = Path::new(".");
        assert!(check_memory("a little", 1000, "x").is_ok() && check_disk("a little", here, 1000).is_ok());
        let message = check_memory("a lot", 1 << 80, "take less").unwrap_err().to_string();
        assert!(
            message.contains("a lot needs 18446744073709551615 bytes") && message.contains("take less"),
            "{message}"
        );
        for path in [here, Path::new("not/there/yet")] {
            let message = check_disk("a lot", path, 1 << 60).unwrap_err().to_string();
            assert!(message.contains("1152921504606846976 bytes on the disk"), "{message}");
            assert!(message.contains("are free") && message.contains("remedy"), "{message}");
        }
    }
}
