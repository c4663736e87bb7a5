//! What the probe found, kept for the next run on the same machine.

use std::fs;
use std::path::PathBuf;

use graphweft_graph::{cache_folder, durable};
use graphweft_tensor::Place;
use sha2::{Digest, Sha256};

use crate::error::Result;
use crate::probe::Detail;
use crate::profile::Profile;

/// Everything that a measurement depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Where ranks compute.
    pub place: Place,
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

/// To be raised whenever the probe measures something else: what was kept before is measured again.
const FORM: u32 = 7;

impl Machine {
    /// What tells this machine, as it is used, from others.
    fn fingerprint(&self) -> String {
        let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let about = |key: &str| cpu.lines().find(|line| line.starts_with(key)).unwrap_or_default().to_string();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let parts = [
            env!("CARGO_PKG_VERSION").to_string(),
            FORM.to_string(),
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
        Some(cache_folder()?.join("probes").join(format!("{}.toml", self.fingerprint())))
    }

    /// The profile that was kept; nothing if there is none, or if it cannot be read.
    pub fn kept(&self) -> Option<Profile> {
        Profile::read(&self.file()?).ok()
    }

    /// Keeps a profile. Where nothing can be kept, every run probes for itself.
    pub fn keep(&self, profile: &Profile) -> Result<()> {
        if let Some(file) = self.file() {
            durable::keep(&file, profile.to_toml()?.as_bytes());
        }
        Ok(())
    }
}
