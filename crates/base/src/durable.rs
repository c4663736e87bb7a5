//! Files and folders that are there in full or not at all: written beside their place, then renamed.
//!
//! What users make ([`replace`], [`rename`]) is on the disk when the call returns: a power cut leaves the old or the
//! new, never something between. What can be made again ([`keep`]) need not wait for the disk. What is not finished
//! ([`Unfinished`]) is removed when it fails, and when the process is told to end. Pipes and devices are written into,
//! and links stay links ([`Target`]).

mod target;
mod unfinished;

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

pub use target::Target;
pub use unfinished::{Unfinished, remove_unfinished};

use crate::error::{Error, Result};

/// What names of temporary files and folders begin with.
const PREFIX: &str = ".graphweft-";

/// What the hidden name of a file that is being written ends with.
const PARTIAL: &str = ".partial";

/// Writes a new file whose bytes are on the disk when this returns. Not atomic: for files inside a folder that is
/// renamed later.
pub fn write_new(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = File::create(path).map_err(Error::write("create", path))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(Error::write("write", path))
}

/// Replaces or creates `path` in one step. One writer at a time: what a killed one has left is overwritten by the next,
/// so its name is always the same.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    match Target::of(path)? {
        Target::File(path) => {
            let partial = Unfinished::new(&partial_of(&path));
            write_new(partial.path(), bytes)?;
            partial.publish(&path)
        }
        Target::Stream(path) => {
            let mut stream = target::into_stream(&path)?;
            stream.write_all(bytes).and_then(|()| stream.flush()).map_err(Error::write("write", &path))
        }
    }
}

/// The same for a file that `make` writes under another name, bytes and all on the disk. What it leaves when it fails
/// is removed.
pub fn replace_by<E: From<Error>>(
    path: &Path,
    make: impl FnOnce(&Path) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    match Target::of(path)? {
        Target::File(path) => {
            let partial = Unfinished::new(&partial_of(&path));
            make(partial.path())?;
            Ok(partial.publish(&path)?)
        }
        Target::Stream(path) => {
            // Where one cannot go back, as in a pipe, a header that is written last would be in the wrong place.
            let folder = Unfinished::new(&new_folder_in(&std::env::temp_dir())?);
            let whole = folder.path().join("whole");
            make(&whole)?;
            let mut stream = target::into_stream(&path)?;
            let copied = File::open(&whole).and_then(|mut file| io::copy(&mut file, &mut stream));
            Ok(copied.and_then(|_| stream.flush()).map_err(Error::write("write", &path))?)
        }
    }
}

fn partial_of(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(PARTIAL);
    path.with_file_name(name)
}

/// Removes what killed writers ([`replace`], [`replace_by`]) have left half written in a folder. For whoever is sure
/// that nobody writes there.
pub fn remove_partial(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder).map_err(Error::write("read", folder))? {
        let entry = entry.map_err(Error::write("read", folder))?;
        let (name, is_file) = (entry.file_name(), entry.file_type().is_ok_and(|kind| kind.is_file()));
        let name = name.as_encoded_bytes();
        if is_file && name.starts_with(b".") && name.ends_with(PARTIAL.as_bytes()) {
            fs::remove_file(entry.path()).map_err(Error::write("remove", entry.path()))?;
        }
    }
    Ok(())
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
pub fn folder_beside(path: &Path) -> Result<Unfinished> {
    let parent = folder_of(path);
    create_folder(parent)?;
    Ok(Unfinished::new(&new_folder_in(parent)?))
}

fn new_folder_in(parent: &Path) -> Result<PathBuf> {
    let made = tempfile::Builder::new()
        .prefix(PREFIX)
        // Temporary folders are private by default; these become what users share, as far as the umask allows.
        .permissions(Permissions::from_mode(0o777))
        .tempdir_in(parent)
        .map_err(Error::write("create a folder in", parent))?;
    Ok(made.keep())
}

/// Keeps `bytes` as `path` for later. Any number of processes and threads may do so at once. Where nothing can be kept,
/// such as a home that cannot be written, they are made again when they are needed.
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

    #[test]
    fn what_fails_leaves_nothing_and_keeps_what_was_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.npy");
        replace(&path, b"old").unwrap();
        let full = |partial: &Path| {
            fs::write(partial, "half").unwrap();
            Err(Error::write("write", partial)(io::ErrorKind::StorageFull.into()))
        };
        assert!(replace_by(&path, full).unwrap_err().to_string().contains("free some space"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        replace_by(&path, |partial| write_new(partial, b"new")).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        drop(folder_beside(&path).unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    type Writer = fn(&Path, &[u8]) -> Result<()>;

    /// What would replace a link, a pipe or a device by a file.
    const WRITERS: [Writer; 2] = [replace, |path, bytes| replace_by(path, |partial| write_new(partial, bytes))];

    #[test]
    fn links_stay_and_what_they_lead_to_is_replaced() {
        use std::os::unix::fs::symlink;
        for write in WRITERS {
            let dir = tempfile::tempdir().unwrap();
            let [folder, file, link, chain, dangling, knot] =
                ["there", "there/a.txt", "link", "chain", "dangling", "knot"].map(|name| dir.path().join(name));
            fs::create_dir(&folder).unwrap();
            fs::write(&file, "old").unwrap();
            symlink("there/a.txt", &link).unwrap();
            symlink(&link, &chain).unwrap();
            symlink("nowhere", &dangling).unwrap();
            symlink("knot", &knot).unwrap();
            for (path, text) in [(&link, "by a link"), (&chain, "by two links")] {
                write(path, text.as_bytes()).unwrap();
                assert!(fs::symlink_metadata(path).unwrap().is_symlink());
                assert_eq!(fs::read_to_string(&file).unwrap(), text);
            }
            for (path, part) in [(&dangling, "which is not there"), (&knot, "leads back"), (&folder, "is a folder")] {
                let message = write(path, b"x").unwrap_err().to_string();
                assert!(message.contains(part) && message.contains("remedy"), "{message}");
            }
            assert!(fs::symlink_metadata(&dangling).unwrap().is_symlink());
            assert_eq!((fs::read_dir(&folder).unwrap().count(), fs::read_dir(dir.path()).unwrap().count()), (1, 5));
        }
    }

    #[test]
    fn pipes_and_devices_are_written_into() {
        use std::os::unix::fs::FileTypeExt;
        for write in WRITERS {
            let dir = tempfile::tempdir().unwrap();
            let pipe = dir.path().join("pipe");
            assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
            let reader = std::thread::spawn({
                let pipe = pipe.clone();
                move || fs::read(pipe).unwrap()
            });
            let bytes = vec![7; 1 << 17];
            write(&pipe, &bytes).unwrap();
            assert!(reader.join().unwrap() == bytes, "all of it, in order");
            assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo(), "it is still a pipe");
            write(Path::new("/dev/null"), b"x").unwrap();
            assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
        }
        assert_eq!(Target::of(Path::new("/dev/stdout")).unwrap(), Target::Stream("/dev/stdout".into()));
        assert!(matches!(Target::of(Path::new("/dev/shm/graphweft-none")).unwrap(), Target::File(_)));
    }
}
