//! Memory: by purpose, and of this process.

use std::fs;

use graphweft_tensor::{Tag, Usage};
use serde_json::Value;

/// Bytes that a rank held when it held most, by what they were for.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// let report = graphweft::Run::new("sbm:60:3:4:f=8").epochs(1).output(dir.path().join("run")).train()?;
/// let peak = report.peak();
/// assert_eq!(peak.total(), peak.by_purpose().map(|(_, bytes)| bytes).sum::<u64>());
/// assert!(peak.of("parameters") > 0);
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Memory(Usage);

impl Memory {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.0.total()
    }

    /// The bytes for a purpose, such as `activations`; 0 if there is none of that name.
    pub fn of(&self, purpose: &str) -> u64 {
        self.by_purpose().find(|(name, _)| *name == purpose).map_or(0, |(_, bytes)| bytes)
    }

    /// The bytes of what forward keeps for backward, and of gradients on their way.
    pub fn activations(&self) -> u64 {
        self.0.of(Tag::Activations)
    }

    /// The bytes of rows that were received from other ranks, or were on their way to them.
    pub fn exchange(&self) -> u64 {
        self.0.of(Tag::Exchange)
    }

    /// The bytes of the graph's structure.
    pub fn graph(&self) -> u64 {
        self.0.of(Tag::Graph)
    }

    /// Every purpose and its bytes.
    pub fn by_purpose(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let usage = self.0;
        Tag::ALL.into_iter().map(move |tag| (tag.name(), usage.of(tag)))
    }

    /// Every purpose with its bytes, as an object.
    pub fn to_json(&self) -> Value {
        let all = self.by_purpose().map(|(name, bytes)| (name.to_string(), bytes.into()));
        all.collect::<serde_json::Map<_, _>>().into()
    }

    pub(crate) fn largest(all: impl Iterator<Item = Self>) -> Self {
        all.max_by_key(Self::total).unwrap_or_default()
    }
}

impl From<Usage> for Memory {
    fn from(usage: Usage) -> Self {
        Self(usage)
    }
}

/// The most bytes that this process has had in memory at once, where the operating system tells.
pub(crate) fn peak_bytes() -> Option<u64> {
    parse(&fs::read_to_string("/proc/self/status").ok()?)
}

/// Bytes that this process has had read from disks, where the operating system tells; what it found in the page cache
/// is not in it.
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
