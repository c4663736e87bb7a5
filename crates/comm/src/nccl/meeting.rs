//! Where rank 0's process waits for the others.
//!
//! Guests are greeted side by side, each in a thread that ends with the greeting, and may take a few seconds for it in
//! all. If more come than that, the one that has been silent for longest is shown out: a rank calls again, and a
//! greeting takes a rank some milliseconds. So strangers cost a bounded number of threads and no memory, and hold up
//! nobody.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::greeting::{self, Guest, Verdict};
use super::hub::PATIENCE;
use super::rendezvous::Rendezvous;
use super::secret::{self, Secret, Shared};
use crate::error::{Error, Result};

/// How long a guest may take to say who it is.
const GREETING: Duration = Duration::from_secs(5);

/// How often it is looked whether another guest has come.
const LOOK: Duration = Duration::from_millis(2);

/// Guests at a time, and twice as many as there are ranks if that is more.
const GUESTS: usize = 64;

/// What a greeting needs of a stack.
const STACK: usize = 128 << 10;

/// An open door.
pub(super) struct Meeting {
    /// Where it is.
    pub(super) port: u16,
    listener: TcpListener,
    room: Arc<Room>,
    end: Instant,
    /// Removed when all have come.
    _shared: Option<Shared>,
}

struct Room {
    secret: Secret,
    /// Of ranks that have come.
    lines: Mutex<Vec<Option<TcpStream>>>,
    /// Ranks that are being let in, or have come.
    seats: Mutex<Vec<bool>>,
    /// Those that have not said yet who they are, by a number, in the order in which they came.
    guests: Mutex<VecDeque<(u64, TcpStream)>>,
}

impl Meeting {
    /// Opens it for all ranks, which have until `end` to come; at any free port if the one to meet at is 0.
    pub(super) fn open(at: &Rendezvous, end: Instant) -> Result<Self> {
        let addresses = addresses_of(at)?;
        let failed = |e: io::Error| {
            let (host, port) = (&at.host, at.port);
            let remedy = match e.kind() {
                io::ErrorKind::AddrNotAvailable => "; MASTER_ADDR must be an address of rank 0's machine",
                _ if port == 0 => "",
                _ => "; choose another MASTER_PORT",
            };
            Error::Library { library: "TCP", problem: format!("rank 0 cannot listen at {host}:{port}: {e}{remedy}") }
        };
        let listener = TcpListener::bind(&addresses[..]).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let (shared, secret) = match &at.secret {
            Some(secret) => (None, secret.clone()),
            None => Shared::make(port).map(|(shared, secret)| (Some(shared), secret))?,
        };
        let lines = Mutex::new((0..at.ranks).map(|_| None).collect());
        let room = Room { secret, lines, seats: Mutex::new(vec![false; at.ranks]), guests: Mutex::default() };
        let room = Arc::new(room);
        Ok(Self { port, listener, room, end, _shared: shared })
    }

    /// The lines of all ranks, or of those that have come in time.
    pub(super) fn wait(self) -> Vec<Option<TcpStream>> {
        let most = GUESTS.max(2 * lock(&self.room.lines).len());
        let mut number = 0;
        while lock(&self.room.lines).iter().any(Option::is_none) && Instant::now() < self.end {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    // A guest that cannot be greeted is as one that has hung up.
                    let _ = self.room.let_in(number, stream, most);
                    number += 1;
                }
                Err(_) => thread::sleep(LOOK),
            }
        }
        std::mem::take(&mut *lock(&self.room.lines))
    }
}

impl Room {
    /// Greets a guest in a thread of its own.
    fn let_in(self: &Arc<Self>, number: u64, stream: TcpStream, most: usize) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        let mut guests = lock(&self.guests);
        guests.push_back((number, stream.try_clone()?));
        if guests.len() > most {
            // Its thread finds that out, and ends.
            let _ = guests.pop_front().map(|(_, silent)| silent.shutdown(Shutdown::Both));
        }
        drop(guests);
        let room = Arc::clone(self);
        let greet = move || {
            let _ = room.greet(stream);
            lock(&room.guests).retain(|(guest, _)| *guest != number);
        };
        if let Err(e) = thread::Builder::new().name("guest".into()).stack_size(STACK).spawn(greet) {
            lock(&self.guests).retain(|(guest, _)| *guest != number);
            return Err(e);
        }
        Ok(())
    }

    /// Gives a guest who knows the secret its place, if that is free.
    fn seat(&self, guest: Guest) -> Verdict {
        let mut seats = lock(&self.seats);
        if guest.ranks as usize != seats.len() {
            return Verdict::Ranks;
        }
        match seats.get_mut(guest.rank as usize) {
            None => Verdict::Ranks,
            Some(true) => Verdict::Taken,
            Some(free) => {
                *free = true;
                Verdict::Welcome
            }
        }
    }

    fn greet(&self, stream: TcpStream) -> io::Result<()> {
        let drawn = secret::draw().map_err(|e| io::Error::other(e.to_string()))?;
        // Of whoever is welcome: what says so is sent before anything else can be.
        let kept = stream.try_clone()?;
        kept.set_write_timeout(Some(PATIENCE))?;
        let mut line = Timed { stream, end: Instant::now() + GREETING };
        let mut seated = None;
        let verdict = greeting::receive(&mut line, &self.secret, drawn, |guest| {
            let verdict = self.seat(guest);
            seated = (verdict == Verdict::Welcome).then_some(guest.rank as usize);
            verdict
        });
        let Some(rank) = seated else { return verdict.map(drop) };
        let ready = verdict.and_then(|_| kept.set_read_timeout(None));
        match ready {
            Ok(()) => {
                if let Some(line) = lock(&self.lines).get_mut(rank) {
                    *line = Some(kept);
                }
            }
            // Who did not hear the answer calls again.
            Err(_) => {
                if let Some(seat) = lock(&self.seats).get_mut(rank) {
                    *seat = false;
                }
            }
        }
        Ok(())
    }
}

/// A line that is given up at `end`, however slowly it goes on.
pub(super) struct Timed {
    pub(super) stream: TcpStream,
    pub(super) end: Instant,
}

impl Timed {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Timed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(into)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Where rank 0 is.
///
/// # Errors
/// If others could listen in: without a secret ranks meet on one machine only. Or if rank 0's machine takes its name
/// for one that others cannot reach.
pub(super) fn addresses_of(at: &Rendezvous) -> Result<Vec<SocketAddr>> {
    let found = (at.host.as_str(), at.port).to_socket_addrs();
    let found = found.map_err(|e| Error::Library { library: "TCP", problem: format!("{}: {e}", at.host) })?;
    let addresses: Vec<SocketAddr> = found.collect();
    let near = addresses.iter().all(|address| address.ip().is_loopback());
    let wrong = |problem: String| Err(Error::Argument { op: "rendezvous", problem });
    if near && at.elsewhere {
        let shown = addresses.first().map(|address| address.ip().to_string()).unwrap_or_default();
        return wrong(format!(
            "some ranks are on other machines, and {} is {shown} here, which they cannot reach: set MASTER_ADDR to an \
             address of rank 0's machine",
            at.host
        ));
    }
    if !near && at.secret.is_none() {
        return wrong(format!(
            "ranks meet at {}, which others can reach too: set GRAPHWEFT_SECRET to the same long text for all ranks (or \
             GRAPHWEFT_SECRET_FILE to a file with it), such as 32 hexadecimal digits of /dev/urandom",
            at.host
        ));
    }
    Ok(addresses)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics while it holds one of these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
