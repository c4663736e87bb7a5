//! Bodies of the fuzz targets in `fuzz/` for what strangers can send.
//!
//! Proofs cannot be found by trying, so half of the inputs get the right one: what lies behind it is reached as well.

use std::io::{self, Read, Write};

use super::frame::Frame;
use super::greeting::{self, Guest, Side, Verdict};
use super::secret::{BYTES, Secret};

/// A line that gives what was prepared and forgets what is written.
struct Prepared<'a>(&'a [u8]);

impl Read for Prepared<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for Prepared<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Either side of a greeting. The first byte says which, and whether it gets the right proof.
#[allow(clippy::panic)] // That is how a target says that it has found something.
pub fn greeting(data: &[u8]) {
    let Ok(secret) = Secret::of_text("what the ranks of a run know", "a fuzz target") else { return };
    let Some((mode, data)) = data.split_first() else { return };
    let drawn = [7; BYTES];
    let guest = Guest { rank: 1, ranks: 2 };
    let known = mode & 2 != 0;
    let side = if mode & 1 == 0 { Side::Rank } else { Side::Hub };
    let said = if known { greeting::with_proof(&secret, side, data, drawn) } else { data.to_vec() };
    let mut line = Prepared(&said);
    let verdict = match side {
        Side::Rank => greeting::receive(&mut line, &secret, drawn, |_| Verdict::Welcome),
        Side::Hub => greeting::call(&mut line, &secret, drawn, guest),
    };
    if !known && matches!(verdict, Ok(Verdict::Welcome)) {
        panic!("somebody came in without the secret");
    }
}

/// Frames, one after another: what is read is written as the same bytes.
#[allow(clippy::panic)] // As above.
pub fn frames(data: &[u8]) {
    let mut rest = data;
    let mut before = rest.len();
    while let Ok(frame) = Frame::read(&mut rest) {
        let mut written = Vec::new();
        let _ = Frame::write(&mut written, frame.kind, frame.peer, frame.number, &frame.bytes);
        let read = &data[data.len() - before..data.len() - rest.len()];
        if written != read {
            panic!("a frame is written otherwise than it was read");
        }
        before = rest.len();
    }
}
