//! SHA-256 as text, as `sha256sum` has it.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

/// Characters of a hash.
pub(crate) const LENGTH: usize = 64;

/// The hash of these bytes.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    text(&Sha256::digest(bytes))
}

/// Of what comes piece by piece.
#[derive(Default)]
pub(crate) struct Hasher(Sha256);

impl Hasher {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> String {
        text(&self.0.finalize())
    }
}

fn text(digest: &[u8]) -> String {
    digest.iter().fold(String::with_capacity(LENGTH), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_everyone_else() {
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(b"abc"), known);
        let mut pieces = Hasher::default();
        [&b"a"[..], b"", b"bc"].into_iter().for_each(|piece| pieces.add(piece));
        assert_eq!(pieces.finish(), known);
    }
}
