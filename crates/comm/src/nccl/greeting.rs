//! How a rank and the hub get to know each other, before either believes a word of the other.
//!
//! Three messages of fixed length; nothing is allocated for a stranger.
//!
//! | who | says | bytes |
//! |---|---|---|
//! | hub | what it is, and bytes that it has just drawn | 40 |
//! | rank | its version, who it is, how many ranks there are, bytes that it has just drawn, a proof | 104 |
//! | hub | whether the rank is let in, a proof | 48 |
//!
//! A [proof](Secret::proof) is over all that was said and drawn, so it is of no use to somebody who overheard it. It is
//! not what keeps others from reading or changing what comes after: that is not encrypted.

use std::io::{self, Read, Write};

use super::secret::{BYTES, Secret};

const MAGIC: [u8; 8] = *b"gweft 2\n";
const VERSION: usize = 24;
const CHALLENGE: usize = 8 + BYTES;
/// What a rank says, without its proof.
const CLAIM: usize = 8 + VERSION + 4 + 4 + BYTES;
const HELLO: usize = CLAIM + BYTES;
const ANSWER: usize = 16 + BYTES;

/// What the hub answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Come in.
    Welcome,
    /// Whoever this is does not know the secret.
    Stranger,
    /// Another version of this program.
    Version,
    /// Another number of ranks, or a rank beyond it.
    Ranks,
    /// This rank is here already.
    Taken,
}

const VERDICTS: [Verdict; 5] = [Verdict::Welcome, Verdict::Stranger, Verdict::Version, Verdict::Ranks, Verdict::Taken];

/// Who somebody says to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Guest {
    pub(crate) rank: u32,
    pub(crate) ranks: u32,
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "this is not Graphweft")
}

fn version() -> [u8; VERSION] {
    let mut padded = [0; VERSION];
    padded.iter_mut().zip(env!("CARGO_PKG_VERSION").bytes()).for_each(|(to, from)| *to = from);
    padded
}

/// The hub's side: asks who is there; `seat` says whether a guest who knows the secret may come in.
///
/// # Errors
/// If the line breaks, or is of something else.
pub(crate) fn receive(
    line: &mut (impl Read + Write),
    secret: &Secret,
    drawn: [u8; BYTES],
    seat: impl FnOnce(Guest) -> Verdict,
) -> io::Result<Verdict> {
    let mut challenge = [0; CHALLENGE];
    challenge[..8].copy_from_slice(&MAGIC);
    challenge[8..].copy_from_slice(&drawn);
    line.write_all(&challenge)?;
    let mut hello = [0; HELLO];
    line.read_exact(&mut hello)?;
    let (claim, proof) = hello.split_at(CLAIM);
    if claim[..8] != MAGIC {
        return Err(damaged());
    }
    let number = |at: usize| u32::from_le_bytes([claim[at], claim[at + 1], claim[at + 2], claim[at + 3]]);
    let guest = Guest { rank: number(8 + VERSION), ranks: number(12 + VERSION) };
    let verdict = if !secret.proves(&[b"rank", &challenge, claim], proof) {
        Verdict::Stranger
    } else if claim[8..8 + VERSION] != version() {
        Verdict::Version
    } else {
        seat(guest)
    };
    let mut answer = [0; ANSWER];
    answer[..8].copy_from_slice(&MAGIC);
    answer[8] = VERDICTS.iter().position(|known| *known == verdict).unwrap_or(1) as u8;
    let proof = secret.proof(&[b"hub", &challenge, claim, &answer[..16]]);
    answer[16..].copy_from_slice(&proof);
    line.write_all(&answer)?;
    Ok(verdict)
}

/// A rank's side.
///
/// # Errors
/// If the line breaks, or is of something else. A hub that does not know the secret has [`Verdict::Stranger`].
pub(crate) fn call(
    line: &mut (impl Read + Write),
    secret: &Secret,
    drawn: [u8; BYTES],
    guest: Guest,
) -> io::Result<Verdict> {
    let mut challenge = [0; CHALLENGE];
    line.read_exact(&mut challenge)?;
    if challenge[..8] != MAGIC {
        return Err(damaged());
    }
    let mut hello = [0; HELLO];
    let (claim, proof) = hello.split_at_mut(CLAIM);
    let numbers = [guest.rank.to_le_bytes(), guest.ranks.to_le_bytes()].concat();
    let said: [&[u8]; 4] = [&MAGIC, &version(), &numbers, &drawn];
    claim.copy_from_slice(&said.concat());
    proof.copy_from_slice(&secret.proof(&[b"rank", &challenge, claim]));
    let claim = hello;
    line.write_all(&claim)?;
    let mut answer = [0; ANSWER];
    line.read_exact(&mut answer)?;
    if answer[..8] != MAGIC {
        return Err(damaged());
    }
    if !secret.proves(&[b"hub", &challenge, &claim[..CLAIM], &answer[..16]], &answer[16..]) {
        return Ok(Verdict::Stranger);
    }
    VERDICTS.get(usize::from(answer[8])).copied().ok_or_else(damaged)
}

/// Who speaks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// Whoever lets others in.
    Hub,
    /// Rank 1 of two.
    Rank,
}

/// What a side would say with this content and the right proof, for tests of what lies behind it.
pub(crate) fn with_proof(secret: &Secret, side: Side, content: &[u8], drawn: [u8; BYTES]) -> Vec<u8> {
    let padded = |len: usize| -> Vec<u8> { content.iter().copied().chain(std::iter::repeat(0)).take(len).collect() };
    if side == Side::Rank {
        let (claim, challenge) = (padded(CLAIM), [&MAGIC[..], &drawn].concat());
        let proof = secret.proof(&[b"rank", &challenge, &claim]);
        return [&claim[..], &proof].concat();
    }
    let (challenge, answer) = ([&MAGIC[..], &drawn].concat(), padded(16));
    let said: [&[u8]; 4] = [&MAGIC, &version(), &[1, 0, 0, 0, 2, 0, 0, 0], &drawn];
    let proof = secret.proof(&[b"hub", &challenge, &said.concat(), &answer]);
    [&challenge[..], &answer, &proof].concat()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::thread;

    use super::*;
    use crate::nccl::secret::draw;

    const GUEST: Guest = Guest { rank: 3, ranks: 4 };

    fn meet(hubs: &Secret, ranks: &Secret, seat: impl FnOnce(Guest) -> Verdict) -> [Verdict; 2] {
        let (mut near, mut far) = UnixStream::pair().unwrap();
        thread::scope(|scope| {
            let rank = scope.spawn(move || call(&mut far, ranks, draw().unwrap(), GUEST).unwrap());
            let hub = receive(&mut near, hubs, draw().unwrap(), seat).unwrap();
            [hub, rank.join().unwrap()]
        })
    }

    #[test]
    fn both_sides_come_to_the_same_verdict() {
        let secret = Secret::draw().unwrap();
        for verdict in VERDICTS {
            let found = meet(&secret, &secret, |guest| {
                assert_eq!(guest, GUEST);
                verdict
            });
            assert_eq!(found, [verdict; 2]);
        }
    }

    #[test]
    fn another_secret_makes_strangers_of_both() {
        let secrets = [Secret::draw().unwrap(), Secret::draw().unwrap()];
        assert_eq!(meet(&secrets[0], &secrets[1], |_| Verdict::Welcome), [Verdict::Stranger; 2]);
    }

    /// A line that gives what was prepared and keeps what is written.
    struct Prepared<'a>(&'a [u8], Vec<u8>);

    impl Read for Prepared<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.0.read(into)
        }
    }

    impl Write for Prepared<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn every_bit_of_a_greeting_counts_and_none_is_of_use_twice() {
        let (secret, drawn) = (Secret::draw().unwrap(), draw().unwrap());
        let challenge = [&MAGIC[..], &drawn].concat();
        let answers = [&challenge[..], &[0; ANSWER]].concat();
        let mut rank = Prepared(&answers, Vec::new());
        assert!(call(&mut rank, &secret, draw().unwrap(), GUEST).is_err(), "an answer of zeros");
        let hello = rank.1;
        assert_eq!(hello.len(), HELLO);
        let heard =
            |hello: &[u8], drawn| receive(&mut Prepared(hello, Vec::new()), &secret, drawn, |_| Verdict::Welcome);
        assert_eq!(heard(&hello, drawn).unwrap(), Verdict::Welcome);
        for bit in 0..HELLO * 8 {
            let mut changed = hello.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!matches!(heard(&changed, drawn), Ok(Verdict::Welcome)), "bit {bit}");
        }
        assert_eq!(heard(&hello, draw().unwrap()).unwrap(), Verdict::Stranger, "overheard");
        assert!(heard(&hello[..HELLO - 1], drawn).is_err(), "half of it");
    }
}
