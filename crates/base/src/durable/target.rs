//! Where what is written to a path really goes: only regular files are ever replaced.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::folder_of;
use crate::error::{Error, Result};

/// As many links as the system follows.
const MOST_LINKS: usize = 40;

/// What a path of the user's leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A regular file, or a place for one: it is written beside it and renamed. Links were followed, so that they stay.
    File(PathBuf),
    /// A pipe, a terminal, a device, or whatever this process has open: it is written into and stays what it is.
    Stream(PathBuf),
}

impl Target {
    /// Follows `path`.
    ///
    /// # Errors
    /// If it is a folder, or a link that leads nowhere.
    pub fn of(path: &Path) -> Result<Self> {
        let mut at = path.to_path_buf();
        for _ in 0..MOST_LINKS {
            if is_of_system(&at) && fs::metadata(&at).is_ok_and(|about| !about.is_dir()) {
                return Ok(Self::Stream(at));
            }
            match fs::symlink_metadata(&at) {
                Ok(about) if about.is_symlink() => {
                    let next = fs::read_link(&at).map_err(Error::write("follow", &at))?;
                    at = folder_of(&at).join(next);
                }
                Ok(about) if about.is_file() => return Ok(Self::File(at)),
                Ok(about) if about.is_dir() => {
                    return Err(Error::write("write", path)(io::ErrorKind::IsADirectory.into()));
                }
                Ok(_) => return Ok(Self::Stream(at)),
                Err(_) if at != path => {
                    let what = format!("{} is a link to {}, which is not there", path.display(), at.display());
                    return Err(Error::request(what, "remove the link, create what it names, or name another path"));
                }
                // Whatever else is wrong with it is found where it is written.
                Err(_) => return Ok(Self::File(at)),
            }
        }
        Err(Error::request(format!("{} is a link that leads back to itself", path.display()), "name another path"))
    }
}

/// Whether a path names something that is open here (`/dev/stdout`, `/proc/self/fd/3`), which may be a regular file:
/// whoever opened it would not see another one that was put in its place.
fn is_of_system(path: &Path) -> bool {
    let folder = folder_of(path).canonicalize().unwrap_or_default();
    folder == Path::new("/dev") || folder.starts_with("/proc")
}

/// Something that can be written into.
pub(super) fn into_stream(path: &Path) -> Result<Box<dyn Write>> {
    let same = |a: &fs::Metadata, b: &fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    let (there, own) = (fs::metadata(path), fs::metadata("/proc/self/fd/1"));
    if let (Ok(there), Ok(own)) = (&there, &own)
        && same(there, own)
    {
        // In order with what else is printed.
        return Ok(Box::new(io::stdout()));
    }
    let file: File = OpenOptions::new().append(true).open(path).map_err(Error::write("open", path))?;
    Ok(Box::new(file))
}
