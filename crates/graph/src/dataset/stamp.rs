//! The memory of a validation: which files, of which size, times and place on the disk, were found good.
//!
//! It spares what takes long and nobody's safety rests on: that numbers are finite and that edges have their reverse.
//! That ids and offsets are in range is looked at every time, before they are used: a stamp can be wrong, or forged.
//! See [`super::Dataset`].
//!
//! The stamp lies in the folder as `.validated`. Where the folder cannot be written (shared data), it lies in
//! `$GRAPHWEFT_CACHE`, or the user's cache directory, under a name made from the folder's path; where that fails too,
//! the folder is simply validated again.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use graphweft_base::{Error, Result, cache_folder, durable};

/// Changes when validation begins to check more.
const VERSION: &str = "graphweft-validated 3";
const NAME: &str = ".validated";

/// The files of a dataset as text: their sizes, when they and their inodes last changed, and which inodes of which
/// devices they are. Whoever writes into a file can set its time back, but not that of its inode.
pub(crate) struct Files(String);

impl Files {
    pub(crate) fn of(dir: &Path) -> Result<Self> {
        let mut lines = Vec::new();
        let mut look = |folder: &Path| -> std::io::Result<()> {
            for entry in fs::read_dir(folder)? {
                let entry = entry?;
                let path = entry.path();
                let about = fs::metadata(&path)?;
                let known = path.extension().is_some_and(|e| e == "npy" || e == "toml");
                if about.is_file() && known {
                    let modified = format!("{}.{:09}", about.mtime(), about.mtime_nsec());
                    let changed = format!("{}.{:09}", about.ctime(), about.ctime_nsec());
                    let (name, place) = (path.strip_prefix(dir).unwrap_or(&path), [about.dev(), about.ino()]);
                    lines.push(format!("{} {} {modified} {changed} {place:?}", name.display(), about.len()));
                }
            }
            Ok(())
        };
        let mut look_at = |folder: &Path| look(folder).map_err(|e| Error::unreadable(folder, "folder", &e));
        look_at(dir)?;
        if let Ok(splits) = fs::read_dir(dir.join("split")) {
            for split in splits.flatten().filter(|s| s.path().is_dir()) {
                look_at(&split.path())?;
            }
        }
        lines.sort_unstable();
        Ok(Self(format!("{VERSION}\n{}\n", lines.join("\n"))))
    }
}

pub(crate) fn is_current(dir: &Path, files: &Files) -> bool {
    let same = |path: PathBuf| is_plain(&path) && fs::read_to_string(path).is_ok_and(|text| text == files.0);
    same(dir.join(NAME)) || in_cache(dir).is_some_and(same)
}

/// Leaves a stamp where it can; without one the next open validates again.
pub(crate) fn save(dir: &Path, files: &Files) {
    // Root may write anywhere, but a folder that is marked read-only is meant to stay as it is.
    let read_only = fs::metadata(dir).is_ok_and(|about| about.permissions().readonly());
    let stamp = dir.join(NAME);
    // What a link points to belongs to somebody else.
    let free = is_plain(&stamp) || fs::symlink_metadata(&stamp).is_err();
    if !read_only && free && fs::write(&stamp, &files.0).is_ok() {
        return;
    }
    if let Some(path) = in_cache(dir) {
        durable::keep(&path, files.0.as_bytes());
    }
}

fn is_plain(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|about| about.is_file())
}

fn in_cache(dir: &Path) -> Option<PathBuf> {
    let cache = cache_folder()?;
    let mut hash = DefaultHasher::new();
    dir.canonicalize().ok()?.hash(&mut hash);
    Some(cache.join("validated").join(format!("{:016x}", hash.finish())))
}
