//! `graphweft plan --probe`: the profile of this machine, as a file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use graphweft_graph::partition::Existing;
use graphweft_graph::progress::Progress;
use graphweft_graph::{Error, Result, durable};
use graphweft_plan::explain;
use graphweft_train::planner::{self, Heard};
use graphweft_train::world::World;
use serde_json::json;

use crate::ui::{Ui, bytes, counted};

/// A file that will be there in full or not at all. What is wrong with its path is said before anything is measured.
pub(super) struct Target {
    file: PathBuf,
    existing: Existing,
}

impl Target {
    pub(super) fn open(file: &Path, existing: Existing) -> Result<Self> {
        let target = Self { file: file.to_path_buf(), existing };
        if let durable::Target::File(real) = target.check()? {
            // That it can be written there, too.
            let folder = real.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            (tempfile::Builder::new().prefix(".graphweft-").suffix(".partial").tempfile_in(folder))
                .map_err(Error::write("create a file in", folder))?;
        }
        Ok(target)
    }

    /// Where it leads, if it may be written there.
    fn check(&self) -> Result<durable::Target> {
        let target = durable::Target::of(&self.file)?;
        if matches!(&target, durable::Target::File(real) if self.existing == Existing::Keep && real.exists()) {
            let what = format!("{} exists already", self.file.display());
            return Err(Error::request(what, "add --replace, or name another file"));
        }
        Ok(target)
    }

    fn write(self, text: &str) -> Result<PathBuf> {
        // Somebody else may have written it while the machine was measured.
        self.check()?;
        durable::replace(&self.file, text.as_bytes())?;
        Ok(self.file)
    }
}

/// Measures this machine, whatever is known of it, for the plans that follow; and writes that, if there is somewhere to.
pub(super) fn run(world: &World, rounds: u64, target: Option<Target>, ui: &Ui) -> anyhow::Result<()> {
    let progress: Arc<dyn Progress> = Arc::new(ui.clone());
    let tell = |line: &str| ui.note(line);
    let found = planner::probe(world, rounds, world.leads(), Heard { progress: &progress, tell: &tell })?;
    let Some(profile) = found else { return Ok(()) };
    let toml = profile.to_toml()?;
    let file = target.map(|target| target.write(&toml)).transpose()?;
    let wire = profile.network.between;
    let json = json!({
        "profile": file, "kernels": profile.kernels.len(), "memory": profile.memory, "cache": profile.cache,
        "latency_s": wire.latency, "bandwidth": wire.bandwidth, "error": profile.error(),
    });
    ui.result(&json, || {
        let between = format!("{:.1} µs and {:.2} GB/s between ranks", wire.latency * 1e6, wire.bandwidth / 1e9);
        let memory = bytes(profile.memory.unwrap_or(0.0) as u64);
        let written = file.map_or(String::new(), |file| format!("\nwritten to {}", file.display()));
        format!(
            "{}\n{} kernels, {between}, {memory} per rank\nplans for {} here are made with this; times {}{written}",
            profile.about,
            profile.kernels.len(),
            counted(world.ranks(), "rank"),
            explain::within(profile.error()),
        )
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_profile_is_replaced_only_when_asked_and_a_bad_path_is_found_first() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("hardware.toml");
        drop(Target::open(&file, Existing::Keep).unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left of what was not written");
        Target::open(&file, Existing::Keep).unwrap().write("one").unwrap();
        assert!(Target::open(&file, Existing::Keep).err().unwrap().to_string().contains("--replace"));
        Target::open(&file, Existing::Replace).unwrap().write("two").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "two");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        for bad in [dir.path().to_path_buf(), dir.path().join("no/such/folder.toml"), file.join("x.toml")] {
            assert!(Target::open(&bad, Existing::Replace).err().unwrap().to_string().contains("remedy"));
        }
    }
}
