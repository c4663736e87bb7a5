//! What is not finished has a guard that takes it away, and is listed, so that a process that is told to end can take
//! it away too.
//!
//! The list is the process's, as signals are. Whoever takes everything away keeps the list locked until the process is
//! gone: nothing half removed can be renamed to its place meanwhile.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{folder_of, sync_folder};
use crate::error::{Error, Result};

/// What is removed.
#[derive(Clone, Copy, Debug)]
enum What {
    /// A file, or a folder with all that is in it.
    All,
    /// A folder that nothing was put into.
    Empty,
}

static ALL: Mutex<BTreeMap<PathBuf, What>> = Mutex::new(BTreeMap::new());

fn all() -> MutexGuard<'static, BTreeMap<PathBuf, What>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A file or folder in the making. Dropped, it is removed.
#[derive(Debug)]
pub struct Unfinished {
    path: PathBuf,
}

impl Unfinished {
    /// Takes care of `path`, which need not be there yet.
    pub fn new(path: &Path) -> Self {
        Self::with(path, What::All)
    }

    /// Takes care of the folder `path` as long as nothing is in it.
    pub fn while_empty(path: &Path) -> Self {
        Self::with(path, What::Empty)
    }

    fn with(path: &Path, what: What) -> Self {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        all().insert(path.clone(), what);
        Self { path }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Renames it, now that its content is on the disk, and makes the new name last.
    pub fn publish(self, to: &Path) -> Result<()> {
        let mut listed = all();
        fs::rename(&self.path, to).map_err(Error::write("rename to", to))?;
        listed.remove(&self.path);
        drop(listed);
        sync_folder(folder_of(to))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // What was published is not listed any more.
        if let Some(what) = all().remove(&self.path) {
            remove(&self.path, what);
        }
    }
}

fn remove(path: &Path, what: What) {
    if matches!(what, What::Empty) {
        let _ = fs::remove_dir(path);
        return;
    }
    let is_folder = fs::symlink_metadata(path).is_ok_and(|about| about.is_dir());
    // Others may still be writing into a folder; what cannot be removed stays.
    let gone = |_: &u32| if is_folder { fs::remove_dir_all(path) } else { fs::remove_file(path) }.is_ok();
    let _ = (0..if is_folder { 10 } else { 1 }).find(gone);
}

/// Removes everything that is not finished, for a process that is about to end: from here on nothing can be published.
pub fn remove_unfinished() {
    let listed = all();
    listed.iter().for_each(|(path, what)| remove(path, *what));
    std::mem::forget(listed);
}
