//! What all ranks of a run know and nobody else does. It never travels: a rank shows that it knows it (HMAC-SHA256 over
//! numbers that both sides have drawn), and so does the hub.
//!
//! | where it comes from | when |
//! |---|---|
//! | `GRAPHWEFT_SECRET`, a text of at least 16 characters | it is set |
//! | `GRAPHWEFT_SECRET_FILE`, a file with such a text | it is set |
//! | rank 0 draws it; the others read it in a file that only this user can read | all ranks are on this machine |
//! | it is drawn | ranks are threads of one process |
//!
//! It is never an argument, since everybody on a machine sees those, and never printed.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use crate::error::{Error, Result};

/// Bytes of a secret, of a proof, and of what either side draws.
pub(super) const BYTES: usize = 32;

/// Texts shorter than this can be guessed.
const SHORTEST: usize = 16;

/// Longer files are not secrets.
const LONGEST: u64 = 4096;

const VARIABLE: &str = "GRAPHWEFT_SECRET";
const FILE: &str = "GRAPHWEFT_SECRET_FILE";

/// What all ranks of a run know and nobody else does.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; BYTES]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// The same for the same text.
    ///
    /// # Errors
    /// [`Error::Argument`] if it is so short that it can be guessed; `from` says where it comes from.
    pub fn of_text(text: &str, from: &str) -> Result<Self> {
        let text = text.trim();
        if text.len() < SHORTEST {
            let problem = format!("{from} has {} characters: it takes at least {SHORTEST}", text.len());
            return Err(Error::Argument { op: "secret", problem });
        }
        Ok(Self(Sha256::digest(text).into()))
    }

    /// What the environment of this process says, if it says anything.
    ///
    /// # Errors
    /// [`Error::Argument`] if the text is too short, or the file cannot be read or can be read by others.
    pub fn of_this_process() -> Result<Option<Self>> {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        if let Some(text) = set(VARIABLE) {
            return Self::of_text(&text.to_string_lossy(), VARIABLE).map(Some);
        }
        let Some(file) = set(FILE) else { return Ok(None) };
        let shown = format!("{FILE} {}", Path::new(&file).display());
        let text = private_text(Path::new(&file));
        let text = text.map_err(|e| Error::Argument { op: "secret", problem: format!("{shown}: {e}") })?;
        Self::of_text(&text, &shown).map(Some)
    }

    /// One that nobody can guess.
    pub(super) fn draw() -> Result<Self> {
        draw().map(Self)
    }

    /// Shows that whoever speaks knows the secret, and says these things.
    pub(super) fn proof(&self, said: &[&[u8]]) -> [u8; BYTES] {
        self.mac(said).finalize().into_bytes().into()
    }

    /// Whether `proof` is that of somebody who knows the secret; takes the same time whatever differs.
    pub(super) fn proves(&self, said: &[&[u8]], proof: &[u8]) -> bool {
        self.mac(said).verify_slice(proof).is_ok()
    }

    fn mac(&self, said: &[&[u8]]) -> Hmac<Sha256> {
        // Keys of this length are their own block: a key is never refused, and this is what `new` would do.
        let mut key = hmac::digest::Key::<Hmac<Sha256>>::default();
        key[..BYTES].copy_from_slice(&self.0);
        let mut mac = Hmac::<Sha256>::new(&key);
        said.iter().for_each(|part| mac.update(part));
        mac
    }
}

/// Bytes that nobody can guess.
///
/// # Errors
/// [`Error::Library`] if the system gives none.
pub(super) fn draw() -> Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    let failed =
        |e: getrandom::Error| Error::Library { library: "the system's random numbers", problem: e.to_string() };
    getrandom::fill(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// A file that processes of this user on this machine find, by the port where their ranks meet. Removed when dropped.
#[derive(Debug)]
pub(super) struct Shared(PathBuf);

impl Shared {
    /// Writes a new secret.
    pub(super) fn make(port: u16) -> Result<(Self, Secret)> {
        let (path, secret) = (place(port)?, Secret::draw()?);
        write(&path, &secret.0).map_err(|e| unusable(&path, &e))?;
        Ok((Self(path), secret))
    }

    /// The secret that rank 0 wrote last, if it has.
    pub(super) fn find(port: u16) -> Result<Option<Secret>> {
        let path = place(port)?;
        match fs::read(&path) {
            Ok(bytes) => Ok(bytes.try_into().ok().map(Secret)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(unusable(&path, &e)),
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn unusable(path: &Path, e: &io::Error) -> Error {
    let problem = format!("{}: {e}; set {VARIABLE} to the same long text for all ranks instead", path.display());
    Error::Argument { op: "secret", problem }
}

/// Where ranks on this machine that meet at `port` look for their secret.
fn place(port: u16) -> Result<PathBuf> {
    let cache = graphweft_base::cache_folder().ok_or_else(|| {
        let problem = format!("this user has no folder for it: set {VARIABLE} to the same long text for all ranks");
        Error::Argument { op: "secret", problem }
    })?;
    // Home folders may be those of many machines.
    let machine = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    Ok(cache.join("meetings").join(format!("{}-{port}", machine.trim())))
}

/// In one piece, and only for this user.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
    let partial = path.with_extension(format!("{}.partial", std::process::id()));
    let _ = fs::remove_file(&partial);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial)?;
    file.write_all(bytes)?;
    fs::rename(&partial, path)
}

/// A short text in a file that others cannot read.
fn private_text(path: &Path) -> io::Result<String> {
    let about = fs::metadata(path)?;
    let wrong = |problem: &str| Err(io::Error::other(problem.to_string()));
    if about.mode() & 0o077 != 0 {
        return wrong("other users may read it: chmod 600");
    }
    if !about.is_file() || about.len() > LONGEST {
        return wrong("it is no file of at most 4096 bytes");
    }
    fs::read_to_string(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_holds_for_what_was_said_by_who_knows() {
        let (ours, theirs) = (Secret::draw().unwrap(), Secret::draw().unwrap());
        let proof = ours.proof(&[b"rank", &[1, 2]]);
        assert!(ours.proves(&[b"rank", &[1, 2]], &proof));
        assert!(!ours.proves(&[b"rank", &[1, 3]], &proof) && !theirs.proves(&[b"rank", &[1, 2]], &proof));
        assert!(!ours.proves(&[b"rank", &[1, 2]], &proof[1..]) && !ours.proves(&[b"rank", &[1, 2]], &[]));
        assert_eq!(format!("{ours:?}"), "Secret");
    }

    #[test]
    fn proofs_are_those_of_the_standard() {
        // RFC 4231, test case 1, whose key of 20 bytes is filled with zeros as every key is.
        let mut key = [0; BYTES];
        key[..20].fill(0x0b);
        let proof = Secret(key).proof(&[b"Hi ", b"There"]);
        assert_eq!(proof[..8], [0xb0, 0x34, 0x4c, 0x61, 0xd8, 0xdb, 0x38, 0x53]);
    }

    #[test]
    fn short_texts_and_files_that_others_read_are_refused() {
        assert_eq!(Secret::of_text(" 0123456789abcdef\n", "x"), Secret::of_text("0123456789abcdef", "x"));
        assert!(Secret::of_text("0123456789abcde", "X").unwrap_err().to_string().contains("X has 15 characters"));
        let folder = std::env::temp_dir().join(format!("graphweft-secret-{}", std::process::id()));
        write(&folder.join("7"), b"a text that is long enough").unwrap();
        assert_eq!(fs::metadata(folder.join("7")).unwrap().mode() & 0o777, 0o600);
        assert_eq!(private_text(&folder.join("7")).unwrap(), "a text that is long enough");
        fs::set_permissions(folder.join("7"), fs::Permissions::from_mode(0o640)).unwrap();
        assert!(private_text(&folder.join("7")).unwrap_err().to_string().contains("chmod 600"));
        fs::remove_dir_all(&folder).unwrap();
    }
}
