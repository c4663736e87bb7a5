//! What goes over the lines between ranks and their hub, once they have [greeted](super::greeting) each other.

use std::io::{self, Read, Write};

/// Numbers before the bytes of a frame.
const HEAD: usize = 3 * 8;

/// Frames longer than this are nobody's.
const LONGEST: u64 = 1 << 40;

/// What a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// To a rank: all are there.
    Welcome,
    /// Bytes of an exchange; `peer` is who gets them, or who sent them.
    Data,
    /// Rank `peer` is lost.
    Lost,
    /// The sender has come to its end in peace.
    Leave,
    /// To the hub: I wait for `peer`, and my patience is at an end.
    Complain,
    /// To a rank: how many exchanges have you posted?
    Ask,
    /// To the hub: `number` of them.
    Count,
}

const KINDS: [Kind; 7] = [Kind::Welcome, Kind::Data, Kind::Lost, Kind::Leave, Kind::Complain, Kind::Ask, Kind::Count];

/// One of them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    pub(super) peer: usize,
    /// For [`Kind::Count`].
    pub(super) number: u64,
    pub(super) bytes: Vec<u8>,
}

impl Frame {
    /// Without bytes.
    pub(super) fn of(kind: Kind, peer: usize) -> Self {
        Self { kind, peer, number: 0, bytes: Vec::new() }
    }

    pub(super) fn write(to: &mut impl Write, kind: Kind, peer: usize, number: u64, bytes: &[u8]) -> io::Result<()> {
        let place = KINDS.iter().position(|k| *k == kind).unwrap_or(0) as u64;
        let mut head = [0; HEAD];
        for (at, x) in head.chunks_exact_mut(8).zip([place << 32 | peer as u64, number, bytes.len() as u64]) {
            at.copy_from_slice(&x.to_le_bytes());
        }
        // One segment where it is short: a head alone would travel alone.
        if bytes.len() <= 1024 {
            return to.write_all(&[&head, bytes].concat());
        }
        to.write_all(&head)?;
        to.write_all(bytes)
    }

    pub(super) fn read(from: &mut impl Read) -> io::Result<Self> {
        let mut head = [0; HEAD];
        from.read_exact(&mut head)?;
        let mut numbers = [0u64; 3];
        for (x, bytes) in numbers.iter_mut().zip(head.as_chunks().0) {
            *x = u64::from_le_bytes(*bytes);
        }
        let [first, number, len] = numbers;
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "not a frame of Graphweft");
        let kind = *KINDS.get((first >> 32) as usize).ok_or_else(damaged)?;
        if len > LONGEST {
            return Err(damaged());
        }
        // Grows with what arrives: a stranger's length is not believed.
        let mut bytes = Vec::new();
        from.take(len).read_to_end(&mut bytes)?;
        if bytes.len() as u64 != len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Self { kind, peer: (first & 0xffff_ffff) as usize, number, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_as_they_were_written() {
        let mut wire = Vec::new();
        for (kind, len) in KINDS.into_iter().zip([0, 1, 5000, 3, 1024, 1025, 0]) {
            Frame::write(&mut wire, kind, 7, u64::MAX - 1, &vec![9; len]).unwrap();
        }
        let mut rest = &wire[..];
        for (kind, len) in KINDS.into_iter().zip([0, 1, 5000, 3, 1024, 1025, 0]) {
            let frame = Frame { kind, peer: 7, number: u64::MAX - 1, bytes: vec![9; len] };
            assert_eq!(Frame::read(&mut rest).unwrap(), frame);
        }
        assert!(rest.is_empty() && Frame::read(&mut rest).is_err());
        assert!(Frame::read(&mut &wire[..wire.len() - 1000]).is_ok());
        assert!(Frame::read(&mut &[0xff; 64][..]).is_err(), "of a stranger");
        let mut long = wire[..HEAD].to_vec();
        long[16..].copy_from_slice(&(LONGEST - 1).to_le_bytes());
        assert!(Frame::read(&mut &long[..]).is_err(), "of a liar");
    }
}
