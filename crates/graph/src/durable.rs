//! Files and folders that are there in full or not at all: written beside their place, then renamed.
//!
//! What users make ([`replace`], [`rename`]) is on the disk when the call returns: a power cut leaves the old or the new, never
//! something between. What can be made again ([`keep`]) need not wait for the disk.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::TempDir;

use crate::error::{Error, Result};

/// What names of temporary files and folders begin with.
const PREFIX: &str = ".graphweft-";

/// Writes a new file whose bytes are on the disk when this returns. Not atomic: for files inside a folder that is renamed later.
pub fn write_new(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = File::create(path).map_err(Error::write("create", path))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(Error::write("write", path))
}

/// Replaces or creates `path` in one step. One writer at a time: what a killed one has left is overwritten by the next, so its
/// name is always the same.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".partial");
    let partial = path.with_file_name(name);
    write_new(&partial, bytes)?;
    rename(&partial, path)
}

/// Renames a file or folder whose content is on the disk, and makes the new name last.
pub fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).map_err(Error::write("rename to", to))?;
    sync_folder(folder_of(to))
}

/// Makes the names in a folder last.
pub fn sync_folder(path: &Path) -> Result<()> {
    File::open(path).and_then(|d| d.sync_all()).map_err(Error::write("write", path))
}

/// Creates a folder and its parents, if they are not there.
pub fn create_folder(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(Error::write("create", path))
}

/// A new folder beside `path`, in which it can be made before it is renamed. Dropped, it is removed.
pub fn folder_beside(path: &Path) -> Result<TempDir> {
    let parent = folder_of(path);
    create_folder(parent)?;
    tempfile::Builder::new()
        .prefix(PREFIX)
        // Temporary folders are private by default; these become what users share, as far as the umask allows.
        .permissions(Permissions::from_mode(0o777))
        .tempdir_in(parent)
        .map_err(Error::write("create a folder in", parent))
}

/// Keeps `bytes` as `path` for later. Any number of processes and threads may do so at once. Where nothing can be kept, such as a
/// home that cannot be written, they are made again when they are needed.
pub fn keep(path: &Path, bytes: &[u8]) {
    let write = || -> io::Result<()> {
        let folder = folder_of(path);
        fs::create_dir_all(folder)?;
        let mut partial = tempfile::Builder::new().prefix(PREFIX).make_in(folder, |path| File::create_new(path))?;
        partial.write_all(bytes)?;
        partial.persist(path)?;
        Ok(())
    };
    let _ = write();
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_nothing_else_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.txt");
        for text in ["one", "two, longer"] {
            replace(&path, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        let message = replace(&dir.path().join("no/such/folder"), b"x").unwrap_err().to_string();
        assert!(message.contains("no/such/.folder.partial"), "{message}");
    }

    #[test]
    fn many_may_keep_the_same_at_once_and_readers_see_it_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cache/kept");
        let content = |k: u8| vec![k; 10_000];
        std::thread::scope(|scope| {
            for k in 0..4 {
                let path = &path;
                scope.spawn(move || {
                    for _ in 0..50 {
                        keep(path, &content(k));
                        let found = fs::read(path).unwrap();
                        assert!(found == content(found[0]), "a mixture of {} bytes", found.len());
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(dir.path().join("cache")).unwrap().count(), 1);
        // Others may read it as they may read other files of this user.
        let plain = dir.path().join("plain");
        fs::write(&plain, "x").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&path), mode(&plain));
    }

    #[test]
    fn what_cannot_be_kept_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("folder");
        fs::create_dir(&path).unwrap();
        fs::write(dir.path().join("file"), "x").unwrap();
        keep(&path, b"y");
        keep(&dir.path().join("file/kept"), b"y");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "nothing is left behind");
    }
}
