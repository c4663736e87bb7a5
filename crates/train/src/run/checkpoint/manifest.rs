//! The list of a checkpoint's files with their hashes, which `sha256sum --check` understands as well.
//!
//! ```text
//! # 00000000000000001234 model.safetensors
//! <sha256>  model.safetensors
//! …
//! # end <sha256 of everything above>
//! ```
//!
//! Its own length follows from the names: a shorter one was cut, any other difference is corruption.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use graphweft_base::{Error, Result};

use super::COPY_AGAIN;
use crate::hash::{self, sha256};

pub(super) const MANIFEST: &str = "manifest.sha256";

const END: &str = "# end ";
const HASH: usize = hash::LENGTH;
/// Digits of a length.
const DIGITS: usize = 20;

/// Name, length and hash of each file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Manifest(Vec<Entry>);

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    name: String,
    bytes: u64,
    hash: String,
}

impl Manifest {
    /// Adds a file with this content.
    pub(super) fn add(&mut self, name: &str, content: &[u8]) {
        self.0.push(Entry { name: name.into(), bytes: content.len() as u64, hash: sha256(content) });
    }

    pub(super) fn to_text(&self) -> String {
        let mut text = String::new();
        for Entry { name, bytes, hash } in &self.0 {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "# {bytes:0DIGITS$} {name}\n{hash}  {name}");
        }
        let own = sha256(text.as_bytes());
        let _ = writeln!(text, "{END}{own}");
        text
    }

    /// Reads the manifest of a checkpoint that has files of these names.
    pub(super) fn read(folder: &Path, names: &[&str]) -> Result<Self> {
        let path = folder.join(MANIFEST);
        let bytes = fs::read(&path).map_err(|e| Error::unreadable(&path, "manifest", &e))?;
        let damaged = |problem: &str| Error::bad(&path, "manifest", problem, COPY_AGAIN);
        if bytes.len() < length(names) {
            return Err(damaged("the file is cut short"));
        }
        let text = String::from_utf8(bytes).unwrap_or_default();
        let parts = text.strip_suffix('\n').and_then(|t| t.rsplit_once(END));
        let body = parts.filter(|(body, own)| sha256(body.as_bytes()) == *own).map(|(body, _)| body);
        Self::parse(body.ok_or_else(|| damaged("its hash does not match"))?)
            .filter(|m| m.0.iter().map(|e| e.name.as_str()).eq(names.iter().copied()))
            .ok_or_else(|| damaged("it does not list the files of a checkpoint"))
    }

    fn parse(body: &str) -> Option<Self> {
        let mut entries = Vec::new();
        let mut lines = body.lines();
        while let Some(line) = lines.next() {
            let (bytes, name) = line.strip_prefix("# ")?.split_once(' ')?;
            let (hash, again) = lines.next()?.split_once("  ")?;
            if again != name || hash.len() != HASH {
                return None;
            }
            entries.push(Entry { name: name.into(), bytes: bytes.parse().ok()?, hash: hash.into() });
        }
        Some(Self(entries))
    }

    /// Gives the content of a file back if it is what it should be.
    pub(super) fn verify(&self, name: &str, file: &Path, content: Vec<u8>) -> Result<Vec<u8>> {
        let entry = self.0.iter().find(|e| e.name == name);
        let entry = entry.ok_or_else(|| Error::bad(file, "file", "the manifest does not list it", COPY_AGAIN))?;
        if content.len() as u64 != entry.bytes {
            let problem = format!("{} bytes, expected {}", content.len(), entry.bytes);
            return Err(Error::bad(file, "length", problem, COPY_AGAIN));
        }
        if sha256(&content) != entry.hash {
            return Err(Error::bad(file, "content", "its hash does not match the manifest", COPY_AGAIN));
        }
        Ok(content)
    }

    /// Whether every file is there with its full length. What is altered, not cut, is complete: whoever reads it will
    /// say so.
    pub(super) fn is_complete(folder: &Path, names: &[&str]) -> bool {
        let length_of = |name: &str| {
            let about = fs::metadata(folder.join(name)).ok().filter(fs::Metadata::is_file);
            about.map(|about| about.len())
        };
        if length_of(MANIFEST).is_none_or(|bytes| bytes < length(names) as u64) {
            return false;
        }
        match Self::read(folder, names) {
            Ok(Self(entries)) => entries.iter().all(|e| length_of(&e.name) == Some(e.bytes)),
            Err(_) => true,
        }
    }
}

/// Bytes of a manifest of files with these names.
fn length(names: &[&str]) -> usize {
    let entry = |name: &&str| "# ".len() + DIGITS + " ".len() + HASH + "  ".len() + 2 * (name.len() + 1);
    names.iter().map(entry).sum::<usize>() + END.len() + HASH + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 2] = ["a.safetensors", "state.json"];

    fn written() -> (tempfile::TempDir, String) {
        let dir = tempfile::tempdir().unwrap();
        let mut manifest = Manifest::default();
        for (name, content) in NAMES.into_iter().zip([&b"abc"[..], b"{}"]) {
            fs::write(dir.path().join(name), content).unwrap();
            manifest.add(name, content);
        }
        let text = manifest.to_text();
        fs::write(dir.path().join(MANIFEST), &text).unwrap();
        assert_eq!(Manifest::read(dir.path(), &NAMES).unwrap(), manifest);
        assert!(Manifest::is_complete(dir.path(), &NAMES));
        (dir, text)
    }

    #[test]
    fn every_truncation_is_incomplete() {
        let (dir, text) = written();
        for length in 0..text.len() {
            fs::write(dir.path().join(MANIFEST), &text[..length]).unwrap();
            assert!(Manifest::read(dir.path(), &NAMES).is_err(), "{length}");
            assert!(!Manifest::is_complete(dir.path(), &NAMES), "{length}");
        }
    }

    #[test]
    fn every_flipped_bit_of_every_byte_is_corrupt_not_incomplete() {
        let (dir, text) = written();
        for at in 0..text.len() {
            for bit in 0..8 {
                let mut bytes = text.clone().into_bytes();
                bytes[at] ^= 1 << bit;
                fs::write(dir.path().join(MANIFEST), &bytes).unwrap();
                let message = Manifest::read(dir.path(), &NAMES).unwrap_err().to_string();
                assert!(message.contains(MANIFEST), "{message}");
                assert!(Manifest::is_complete(dir.path(), &NAMES), "byte {at} bit {bit}");
            }
        }
    }

    #[test]
    fn a_short_or_missing_file_is_incomplete() {
        let (dir, _) = written();
        fs::write(dir.path().join("a.safetensors"), b"ab").unwrap();
        assert!(!Manifest::is_complete(dir.path(), &NAMES));
        fs::remove_file(dir.path().join("a.safetensors")).unwrap();
        assert!(!Manifest::is_complete(dir.path(), &NAMES));
    }
}
