//! Files that others made: no pipe that is waited for, no device that never ends, and no longer than what they should
//! hold.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// Longer than any text that somebody writes about a graph or a run.
const LONGEST_TEXT: u64 = 16 << 20;

/// Opens a plain file, or a link to one. Anything else cannot be mapped, and to open it may take for ever.
pub fn open(path: &Path) -> io::Result<File> {
    match fs::metadata(path)? {
        about if about.is_file() => File::open(path),
        about if about.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        _ => Err(io::Error::new(io::ErrorKind::Unsupported, "this is a pipe, a socket or a device")),
    }
}

/// The text of a file that may be a pipe, such as `<(…)` of a shell, but not one that never ends.
pub fn text(file: File) -> io::Result<String> {
    let mut text = String::new();
    file.take(LONGEST_TEXT + 1).read_to_string(&mut text)?;
    match text.len() as u64 {
        0..=LONGEST_TEXT => Ok(text),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, format!("it has more than {LONGEST_TEXT} bytes of text"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_is_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(open(dir.path()).unwrap_err().kind(), io::ErrorKind::IsADirectory);
        assert_eq!(open(Path::new("/dev/zero")).unwrap_err().kind(), io::ErrorKind::Unsupported);
        assert_eq!(open(&dir.path().join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn text_that_never_ends_is_not_read_to_its_end() {
        let error = text(File::open("/dev/zero").unwrap()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("short");
        fs::write(&path, "a = 1\n").unwrap();
        assert_eq!(text(File::open(&path).unwrap()).unwrap(), "a = 1\n");
    }
}
