//! Writing so that a power cut leaves the old file or the new one, never something between.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use graphweft_graph::Error;

/// Writes a new file whose bytes are on the disk when this returns. Not atomic: for files inside a folder that is renamed later.
pub(crate) fn write_new(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let mut file = File::create(path).map_err(Error::write("create", path))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(Error::write("write", path))
}

/// Replaces or creates `path` in one step.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".partial");
    let partial = path.with_file_name(name);
    write_new(&partial, bytes)?;
    rename(&partial, path)
}

/// Renames a file or folder whose content is on the disk, and makes the new name last.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<(), Error> {
    fs::rename(from, to).map_err(Error::write("rename to", to))?;
    sync_folder(to.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")))
}

/// Makes the names in a folder last.
pub(crate) fn sync_folder(path: &Path) -> Result<(), Error> {
    File::open(path).and_then(|d| d.sync_all()).map_err(Error::write("write", path))
}

/// Creates a folder and its parents, if they are not there.
pub(crate) fn create_folder(path: &Path) -> Result<(), Error> {
    fs::create_dir_all(path).map_err(Error::write("create", path))
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
}
