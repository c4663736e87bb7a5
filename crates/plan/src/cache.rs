//! What a calibration found, kept for the next run on the same machine.

use std::fs;
use std::path::PathBuf;

use graphweft_base::{cache_folder, durable};
use graphweft_tensor::DeviceName;
use sha2::{Digest, Sha256};

use crate::calibration::Detail;
use crate::error::Result;
use crate::profile::Profile;

/// Everything that a measurement depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Where ranks compute.
    pub place: DeviceName,
    /// Ranks on this machine that compute at the same time.
    pub ranks: usize,
    /// All ranks, some of which may be on other machines.
    pub world: usize,
    /// Threads of each.
    pub threads: usize,
    /// How they talk.
    pub comm: String,
    /// Types in which rows are stored.
    pub dtypes: String,
    /// How exactly products are computed.
    pub precision: String,
    /// The GPU, where one computes.
    pub gpu: Option<String>,
    /// How much of it is measured.
    pub detail: Detail,
}

/// The code that measures and what it writes. Where it has changed, what was kept before is measured again.
const SOURCES: [(&str, &[u8]); 10] = [
    ("calibration.rs", include_bytes!("calibration.rs")),
    ("calibration/busy.rs", include_bytes!("calibration/busy.rs")),
    ("calibration/messages.rs", include_bytes!("calibration/messages.rs")),
    ("calibration/off.rs", include_bytes!("calibration/off.rs")),
    ("calibration/program.rs", include_bytes!("calibration/program.rs")),
    ("calibration/rough.rs", include_bytes!("calibration/rough.rs")),
    ("calibration/sums.rs", include_bytes!("calibration/sums.rs")),
    ("fit.rs", include_bytes!("fit.rs")),
    ("kernels.rs", include_bytes!("kernels.rs")),
    ("profile.rs", include_bytes!("profile.rs")),
];

/// A number for all of [`SOURCES`], made when this is compiled (FNV-1a).
const METHOD: u64 = {
    let (mut hash, mut k) = (0xcbf2_9ce4_8422_2325_u64, 0);
    while k < SOURCES.len() {
        let (bytes, mut at) = (SOURCES[k].1, 0);
        while at < bytes.len() {
            hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0100_0000_01b3);
            at += 1;
        }
        k += 1;
    }
    hash
};

impl Machine {
    /// What tells this machine, as it is used, from others.
    fn fingerprint(&self) -> String {
        let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let about = |key: &str| cpu.lines().find(|line| line.starts_with(key)).unwrap_or_default().to_string();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let parts = [
            env!("CARGO_PKG_VERSION").to_string(),
            METHOD.to_string(),
            about("model name"),
            about("flags"),
            cores.to_string(),
            format!("{self:?}"),
        ];
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.finalize().iter().take(12).map(|b| format!("{b:02x}")).collect()
    }

    /// Where a profile of it is kept, if anything can be.
    fn file(&self) -> Option<PathBuf> {
        Some(cache_folder()?.join("calibrations").join(format!("{}.toml", self.fingerprint())))
    }

    /// The profile that was kept; nothing if there is none, or if it cannot be read.
    pub fn kept(&self) -> Option<Profile> {
        Profile::read(&self.file()?).ok()
    }

    /// Keeps a profile. Where nothing can be kept, every run calibrates for itself.
    pub fn keep(&self, profile: &Profile) -> Result<()> {
        if let Some(file) = self.file() {
            durable::keep(&file, profile.to_toml()?.as_bytes());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_file_that_measures_counts() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/calibration");
        for file in fs::read_dir(folder).unwrap() {
            let name = format!("calibration/{}", file.unwrap().file_name().display());
            assert!(SOURCES.iter().any(|(listed, _)| *listed == name), "{name} is not among the sources");
        }
    }
}
