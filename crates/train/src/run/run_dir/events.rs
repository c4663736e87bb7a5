//! TensorBoard's event file, written by hand: records of a length, a payload and two checksums, with protocol buffers
//! inside.
//!
//! ```text
//! u64 length, u32 masked crc32c(length), payload, u32 masked crc32c(payload)
//! Event   { 1: double wall_time, 2: int64 step, 3: string file_version, 5: Summary }
//! Summary { 1: repeated Value { 1: string tag, 2: float simple_value } }
//! ```

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use graphweft_base::{Error, Result};

const NAME: &str = "events.out.tfevents.0.graphweft";
const VERSION: &str = "brain.Event:2";

/// Appends scalars to an event file.
#[derive(Debug)]
pub(crate) struct Events {
    file: File,
    path: PathBuf,
}

impl Events {
    /// Opens or creates the event file in `folder` and drops what is after epoch `epoch`, or damaged.
    pub(crate) fn open(folder: &Path, epoch: u64) -> Result<Self> {
        let path = folder.join(NAME);
        let write = || Error::write("write", &path);
        let old = std::fs::read(&path).unwrap_or_default();
        let kept = records(&old).take_while(|r| r.step.is_none_or(|step| step <= epoch)).last().map_or(0, |r| r.end);
        let mut file = OpenOptions::new().create(true).truncate(false).write(true).open(&path).map_err(write())?;
        file.set_len(kept as u64).and_then(|()| file.seek(SeekFrom::End(0))).map_err(write())?;
        let mut events = Self { file, path };
        if kept == 0 {
            let mut event = wall_time();
            put_bytes(&mut event, 3, VERSION.as_bytes());
            events.write(&event)?;
        }
        Ok(events)
    }

    /// Adds the scalars of an epoch.
    pub(crate) fn add(&mut self, epoch: u64, scalars: &[(&str, f64)]) -> Result<()> {
        let mut summary = Vec::new();
        for (tag, value) in scalars {
            let mut entry = Vec::new();
            put_bytes(&mut entry, 1, tag.as_bytes());
            put_key(&mut entry, 2, 5);
            entry.extend((*value as f32).to_le_bytes());
            put_bytes(&mut summary, 1, &entry);
        }
        let mut event = wall_time();
        put_key(&mut event, 2, 0);
        put_number(&mut event, epoch);
        put_bytes(&mut event, 5, &summary);
        self.write(&event)
    }

    fn write(&mut self, payload: &[u8]) -> Result<()> {
        let length = (payload.len() as u64).to_le_bytes();
        let parts = [&length[..], &masked(&length), payload, &masked(payload)];
        self.file.write_all(&parts.concat()).map_err(Error::write("write", &self.path))
    }
}

fn wall_time() -> Vec<u8> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |t| t.as_secs_f64());
    let mut event = Vec::new();
    put_key(&mut event, 1, 1);
    event.extend(now.to_le_bytes());
    event
}

fn put_number(out: &mut Vec<u8>, mut x: u64) {
    while x >= 0x80 {
        out.push(x as u8 | 0x80);
        x >>= 7;
    }
    out.push(x as u8);
}

fn put_key(out: &mut Vec<u8>, field: u64, kind: u64) {
    put_number(out, field << 3 | kind);
}

fn put_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    put_key(out, field, 2);
    put_number(out, bytes.len() as u64);
    out.extend(bytes);
}

/// A whole record: where it ends, and the step of its event if it has one.
struct Record {
    end: usize,
    step: Option<u64>,
}

/// The records at the start of a file, as far as their checksums hold.
fn records(bytes: &[u8]) -> impl Iterator<Item = Record> {
    let mut at = 0usize;
    std::iter::from_fn(move || {
        let head = bytes.get(at..at.checked_add(12)?)?;
        let (length, check) = head.split_at(8);
        let payload = usize::try_from(u64::from_le_bytes(length.try_into().ok()?)).ok()?;
        let end = payload.checked_add(at)?.checked_add(16)?;
        let payload = bytes.get(at + 12..end - 4)?;
        if check != masked(length) || bytes.get(end - 4..end)? != masked(payload) {
            return None;
        }
        at = end;
        Some(Record { end, step: step(payload) })
    })
}

/// Field 2 of an event. Our own events have the time first: a key and eight bytes.
fn step(event: &[u8]) -> Option<u64> {
    let rest = event.get(9..)?.strip_prefix(&[2 << 3])?;
    let mut x = 0;
    for (k, byte) in rest.iter().take(10).enumerate() {
        x |= u64::from(byte & 0x7f).checked_shl(7 * k as u32)?;
        if byte & 0x80 == 0 {
            return Some(x);
        }
    }
    None
}

/// CRC-32C, rotated and shifted so that checksums of checksums are no special case.
fn masked(bytes: &[u8]) -> [u8; 4] {
    let crc = crc32c(bytes);
    (crc.rotate_right(15).wrapping_add(0xa282_ead8)).to_le_bytes()
}

fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        let mut crc = crc ^ u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
        }
        crc
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_standard() {
        // The check value of CRC-32C, and RFC 3720's 32 zeros.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    }

    #[test]
    fn the_first_record_is_what_tensorboard_writes() {
        let dir = tempfile::tempdir().unwrap();
        Events::open(dir.path(), 0).unwrap();
        let bytes = std::fs::read(dir.path().join(NAME)).unwrap();
        // Length 24; 09 and a time; 1a 0d "brain.Event:2". The header's checksum is known from files of TensorBoard
        // itself.
        assert_eq!(bytes[..12], [24, 0, 0, 0, 0, 0, 0, 0, 0xa3, 0x7f, 0x4b, 0x22]);
        assert_eq!(bytes[12], 9);
        assert_eq!(&bytes[21..36], b"\x1a\x0dbrain.Event:2");
        assert_eq!(bytes.len(), 40);
    }

    #[test]
    fn scalars_are_read_back_and_a_resumed_file_has_each_epoch_once() {
        let dir = tempfile::tempdir().unwrap();
        let steps = || -> Vec<Option<u64>> {
            records(&std::fs::read(dir.path().join(NAME)).unwrap()).map(|r| r.step).collect()
        };
        let mut events = Events::open(dir.path(), 0).unwrap();
        for epoch in [1, 2, 300] {
            events.add(epoch, &[("loss", 0.5), ("valid", f64::NAN)]).unwrap();
        }
        drop(events);
        assert_eq!(steps(), [None, Some(1), Some(2), Some(300)]);
        let whole = std::fs::read(dir.path().join(NAME)).unwrap();
        let tag = whole.windows(4).position(|w| w == b"loss").unwrap();
        assert_eq!(whole[tag + 4..tag + 9], [0x15, 0, 0, 0, 0x3f], "field 2, 0.5 as a float");

        // Cut in the middle of the last record, then resumed from epoch 1 and from nothing.
        std::fs::write(dir.path().join(NAME), &whole[..whole.len() - 3]).unwrap();
        Events::open(dir.path(), 1).unwrap().add(2, &[("loss", 0.25)]).unwrap();
        assert_eq!(steps(), [None, Some(1), Some(2)]);
        std::fs::write(dir.path().join(NAME), b"nonsense").unwrap();
        Events::open(dir.path(), 1).unwrap();
        assert_eq!(steps(), [None]);
    }
}
