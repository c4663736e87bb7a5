//! Going on with a run: what must be as it was, and what may not be overwritten.
//!
//! A run is its settings, but for those that say how far and where it is computed, and its data. It goes on from a
//! checkpoint of its own; in a new folder from that of any run. Where a folder has a run already, a checkpoint of
//! another one is refused.

use std::fs;
use std::path::Path;

use graphweft_base::Error as Bad;
use graphweft_model::Models;

use crate::config::{Config, Draft};
use crate::data::fingerprint::Fingerprint;
use crate::error::{Error, Result};
use crate::run::checkpoint::{Checkpoint, Checkpoints, WholeCheckpoint};
use crate::run::run_dir::RunDir;
use crate::run::session::Start;

/// Settings that may change when a run goes on; all others would make it another run.
const CHANGEABLE: [&str; 5] = ["train.epochs", "run.checkpoint_every", "run.keep", "compute.record", "pipeline.guard"];
/// Of this section all may change: every strategy computes the same.
const PARALLEL: &str = "parallel.";
/// What a plan sets, for its ranks.
const PLANNED: &str = "compute.remat";

impl Start {
    /// The configuration of the run in `dir`, changed by what was given now; `None` if there is no run yet.
    ///
    /// # Errors
    /// If a setting was given that would make it another run, or if no checkpoint of the run is whole.
    pub fn resumed(&self, dir: &Path, given: &Draft) -> Result<Option<Config>> {
        let (stored, file) = match self {
            Self::New => return Ok(None),
            Self::At(path) => (Some(Checkpoint::read(path)?.config), path.join("config.toml")),
            // Which ones are whole does not depend on the settings.
            Self::Newest => match Checkpoints::new(dir.join("checkpoints"), 1, 1).newest()?.whole()? {
                Some(from) => (Some(from.checkpoint.config), from.folder.join("config.toml")),
                None => (RunDir::config(dir), dir.join("config.toml")),
            },
        };
        let Some(stored) = stored else { return Ok(None) };
        let draft = Draft::parse(&stored, &file)?.with_models(given.models());
        let (before, mut after) = (draft.clone().finish()?, draft.changed_by(given)?.finish()?);
        if same_place(&before, &after) {
            after.data.path.clone_from(&before.data.path);
        }
        match changed(&before, &after)? {
            Some(key) => {
                let problem = format!("the run in {} has another value", dir.display());
                let remedy = format!(
                    "leave it out; only {} and [parallel] may change when a run goes on",
                    CHANGEABLE.join(", ")
                );
                Err(Error::setting(key, problem, remedy))
            }
            None => Ok(Some(after)),
        }
    }
}

impl RunDir {
    /// Why there is nothing to go on with in `dir`, where nobody says what to begin there.
    pub fn missing(dir: &Path) -> Error {
        let file = dir.join("config.toml");
        if file.exists() {
            let remedy = "give the settings of the run again, with its --data or --graph";
            return Bad::bad(file, "config", "it is cut short, and there is no checkpoint", remedy).into();
        }
        let what = format!("there is no run in {} to go on with", dir.display());
        let remedy = "check the path after -o; to begin a run there, name its --data or --graph, or leave out --resume";
        Bad::request(what, remedy).into()
    }
}

/// The first setting by which two configurations are of different runs.
fn changed(before: &Config, after: &Config) -> Result<Option<String>> {
    let stays = |key: &String| !CHANGEABLE.contains(&key.as_str()) && !key.starts_with(PARALLEL);
    Ok(before.differences(after)?.into_iter().find(stays))
}

/// Whether both name the same folder, by whatever path.
fn same_place(a: &Config, b: &Config) -> bool {
    let place = |config: &Config| config.data.path.as_ref().and_then(|path| fs::canonicalize(path).ok());
    place(a).is_some_and(|a| place(b) == Some(a))
}

/// Fails where the checkpoint `path` is of another run than the one that `dir` has.
pub(crate) fn check_own(dir: &Path, path: &Path, saved: &Checkpoint, models: &Models) -> Result<()> {
    if !RunDir::is_begun(dir) || lies_in(path, &dir.join("checkpoints")) || is_of_run(dir, path, saved, models) {
        return Ok(());
    }
    let (dir, path) = (dir.display(), path.display());
    let what = format!("{path} is of another run than the one in {dir}, which would be overwritten");
    let remedy = "name a new folder with -o, or go on with the run that is there by --resume alone";
    Err(Bad::request(what, remedy).into())
}

fn lies_in(path: &Path, folder: &Path) -> bool {
    let resolved = |path: &Path| fs::canonicalize(path).ok();
    let parent = resolved(path).and_then(|path| path.parent().map(Path::to_path_buf));
    parent.is_some_and(|parent| resolved(folder) == Some(parent))
}

/// Whether a checkpoint that lies elsewhere, such as a copy of a lost one, has the settings of the run in `dir`.
fn is_of_run(dir: &Path, path: &Path, saved: &Checkpoint, models: &Models) -> bool {
    let read = |text: &str, file: &Path| Draft::parse(text, file).ok()?.with_models(models).finish().ok();
    let own = RunDir::config(dir).and_then(|text| read(&text, dir));
    let (Some(mut own), Some(other)) = (own, read(&saved.config, path)) else { return false };
    if same_place(&own, &other) {
        own.data.path.clone_from(&other.data.path);
    }
    let differences = own.differences(&other).unwrap_or_else(|_| vec!["?".into()]);
    let stays = |key: &String| !CHANGEABLE.contains(&key.as_str()) && !key.starts_with(PARALLEL) && key != PLANNED;
    !differences.iter().any(stays)
}

/// Whether the data are those that `saved`, from `path`, was trained on; a line for people where it does not say.
///
/// # Errors
/// If they are others.
pub(crate) fn check_data(config: &Config, from: &WholeCheckpoint, now: &Fingerprint) -> Result<Option<String>> {
    let path = from.folder.display();
    let Some(before) = &from.checkpoint.state.data else {
        return Ok(Some(format!("{path} does not say on which data it was trained: these are taken to be the same")));
    };
    let Some(part) = before.difference(now) else { return Ok(None) };
    let of = config.data.path.as_ref().or(config.data.graph.as_ref()).cloned().unwrap_or_default();
    let problem = format!("not as they were when {path} was trained");
    let remedy = "restore the data as they were, or train anew on these with another folder for -o";
    Err(Bad::bad(of, part, problem, remedy).into())
}
