//! Measuring this machine, and its profile as a file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use graphweft_base::progress::Progress;
use graphweft_base::{Error as Bad, durable};
use graphweft_graph::partition::Existing;
use graphweft_train::planning::Listener;
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::run::Run;

/// A file that will be there in full or not at all. What is wrong with its path is said before anything is measured.
pub(super) struct Target {
    file: PathBuf,
    existing: Existing,
}

impl Target {
    pub(super) fn open(file: &Path, existing: Existing) -> graphweft_base::Result<Self> {
        let target = Self { file: file.to_path_buf(), existing };
        if let durable::Target::File(real) = target.check()? {
            // That it can be written there, too.
            let folder = real.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            (tempfile::Builder::new().prefix(".graphweft-").suffix(".partial").tempfile_in(folder))
                .map_err(Bad::write("create a file in", folder))?;
        }
        Ok(target)
    }

    /// Where it leads, if it may be written there.
    fn check(&self) -> graphweft_base::Result<durable::Target> {
        let target = durable::Target::of(&self.file)?;
        if matches!(&target, durable::Target::File(real) if self.existing == Existing::Keep && real.exists()) {
            let what = format!("{} exists already", self.file.display());
            return Err(Bad::request(what, "add --replace, or name another file"));
        }
        Ok(target)
    }

    fn write(self, text: &str) -> graphweft_base::Result<PathBuf> {
        // Somebody else may have written it while the machine was measured.
        self.check()?;
        durable::replace(&self.file, text.as_bytes())?;
        Ok(self.file)
    }
}

/// What was measured of this machine, for the plans that follow on as many ranks.
///
/// ```no_run
/// // It takes up to a minute.
/// let measured = graphweft::Run::default().ranks(2).calibrate(None)?;
/// println!("{}: {} kernels, {:.1} GB/s", measured.about, measured.kernels, measured.bandwidth / 1e9);
/// # Ok::<(), graphweft::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Calibration {
    /// The machine, in words.
    pub about: String,
    /// How many kernels were timed.
    pub kernels: usize,
    /// Bytes of a rank, if they are known.
    pub memory: Option<f64>,
    /// Seconds until an empty message arrives.
    pub latency: f64,
    /// Bytes per second of a large one.
    pub bandwidth: f64,
    /// How far times of plans may be off, as a share of them.
    pub error: f64,
    /// How many ranks it is for.
    pub ranks: usize,
    /// The file that the profile was written to.
    pub file: Option<PathBuf>,
    cache: Option<f64>,
}

impl Calibration {
    /// As `graphweft plan --calibrate --json` prints it.
    pub fn to_json(&self) -> Value {
        json!({
            "profile": self.file, "kernels": self.kernels, "memory": self.memory, "cache": self.cache,
            "latency_s": self.latency, "bandwidth": self.bandwidth, "error": self.error,
        })
    }
}

impl Run {
    /// Measures this machine, whatever is known of it, for the plans that follow; and writes that as a profile, if
    /// there is a file to.
    ///
    /// # Errors
    /// If the file cannot be written, which is looked at first, or is there and is not to be [replaced](Run::replace);
    /// if a rank is lost. Under a launcher only the first
    /// process has what was measured.
    pub fn calibrate(&self, file: Option<&Path>) -> Result<Calibration> {
        let target = file.map(|file| Target::open(file, self.existing)).transpose()?;
        self.plan_by(|config, world, watched| {
            let progress: Arc<dyn Progress> = Arc::new(watched.clone());
            let tell = |line: &str| watched.note(line);
            let listener = Listener { progress: &progress, tell: &tell };
            let found = listener.calibrate(world, config.parallel.calibration_rounds)?;
            let profile = found.ok_or_else(Error::follows)?;
            let toml = profile.to_toml()?;
            let file = target.map(|target| target.write(&toml)).transpose()?;
            let wire = profile.network.between;
            Ok(Calibration {
                kernels: profile.kernels.len(),
                memory: profile.memory,
                latency: wire.latency,
                bandwidth: wire.bandwidth,
                error: profile.error(),
                ranks: world.ranks(),
                cache: profile.cache,
                about: profile.about,
                file,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn refused(file: &Path, existing: Existing) -> String {
        Target::open(file, existing).err().unwrap().to_string()
    }

    #[test]
    fn a_profile_is_replaced_only_when_asked_and_a_bad_path_is_found_first() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("hardware.toml");
        drop(Target::open(&file, Existing::Keep).unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left of what was not written");
        Target::open(&file, Existing::Keep).unwrap().write("one").unwrap();
        assert!(refused(&file, Existing::Keep).contains("--replace"));
        Target::open(&file, Existing::Replace).unwrap().write("two").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "two");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        for bad in [dir.path().to_path_buf(), dir.path().join("no/such/folder.toml"), file.join("x.toml")] {
            assert!(refused(&bad, Existing::Replace).contains("remedy"));
        }
    }
}
