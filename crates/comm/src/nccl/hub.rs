//! Where all ranks are connected: a part of rank 0's process, or of the only one.
//!
//! Each rank, rank 0 too, has one line to the hub, which passes on what ranks write to each other and knows who is
//! there: a process that ends without taking its leave closes its line, and everyone is told. If somebody's patience is
//! at an end, the hub asks all ranks how many exchanges they have posted; these are the same on all, so whoever has
//! posted fewest, or does not answer, holds up the others.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::frame::{Frame, Kind};
use super::meeting::Meeting;
use super::rendezvous::Rendezvous;
use crate::error::{Error, Result};

/// How long ranks have to tell how far they are.
const INQUEST: Duration = Duration::from_secs(1);

/// How long a message may wait to be taken over by the other side, whose reader does nothing else: whoever does not is
/// frozen.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

struct State {
    /// Ranks whose lines are still read.
    present: usize,
    lost: Option<usize>,
    /// What ranks answered in the inquest that is under way.
    counts: Vec<Option<u64>>,
    /// Inquests are held one at a time.
    inquest: bool,
}

struct Shared {
    /// To every rank.
    lines: Vec<Mutex<TcpStream>>,
    state: Mutex<State>,
    changed: Condvar,
}

/// The hub of a run. Dropped, it hangs up.
pub(super) struct Hub {
    /// Where it listens.
    pub(super) port: u16,
    /// Nobody is connected before all are.
    shared: Arc<Mutex<Option<Arc<Shared>>>>,
}

impl Hub {
    /// Listens for all ranks, which have until `end` to come; at any free port if the one to meet at is 0.
    pub(super) fn open(at: &Rendezvous, end: Instant) -> Result<Self> {
        let meeting = Meeting::open(at, end)?;
        let port = meeting.port;
        let shared = Arc::new(Mutex::new(None));
        let place = Arc::clone(&shared);
        let failed = |e: io::Error| Error::Library { library: "TCP", problem: e.to_string() };
        let serve = move || serve(meeting.wait(), &place);
        thread::Builder::new().name("hub".into()).spawn(serve).map_err(failed)?;
        Ok(Self { port, shared })
    }

    /// Waits until all ranks have taken their leave, or `end`: whoever has the hub goes last.
    pub(super) fn close(&self, end: Instant) {
        let Some(shared) = lock(&self.shared).clone() else { return };
        let mut state = lock(&shared.state);
        while state.present > 0 && Instant::now() < end {
            let left = end.saturating_duration_since(Instant::now());
            state = shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        let Some(shared) = lock(&self.shared).take() else { return };
        for line in &shared.lines {
            // Readers of this line end.
            let _ = lock(line).shutdown(Shutdown::Both);
        }
    }
}

/// No code panics while it holds one of these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Passes frames on for as long as somebody is there.
fn serve(lines: Vec<Option<TcpStream>>, place: &Mutex<Option<Arc<Shared>>>) {
    let ranks = lines.len();
    if let Some(absent) = lines.iter().position(Option::is_none) {
        for line in lines.into_iter().flatten() {
            let _ = Frame::write(&mut &line, Kind::Lost, absent, 0, &[]);
        }
        return;
    }
    let lines: Vec<TcpStream> = lines.into_iter().flatten().collect();
    let readers: Vec<io::Result<TcpStream>> = lines.iter().map(TcpStream::try_clone).collect();
    let state = State { present: ranks, lost: None, counts: vec![None; ranks], inquest: false };
    let lines = lines.into_iter().map(Mutex::new).collect();
    let shared = Arc::new(Shared { lines, state: Mutex::new(state), changed: Condvar::new() });
    lock(place).replace(Arc::clone(&shared));
    for rank in 0..ranks {
        shared.tell(rank, Kind::Welcome, rank, &[]);
    }
    for (rank, reader) in readers.into_iter().enumerate() {
        let shared = Arc::clone(&shared);
        let listen = move || {
            let left = reader.and_then(|mut reader| shared.listen(rank, &mut reader));
            if left.is_err() {
                shared.lose(rank);
            }
            let mut state = lock(&shared.state);
            state.present -= 1;
            shared.changed.notify_all();
        };
        // Without a thread to read it, a line is as good as lost; its rank finds out when nothing comes.
        let _ = thread::Builder::new().name(format!("hub {rank}")).spawn(listen);
    }
}

impl Shared {
    /// Writes to a rank. Whoever cannot be reached is noticed by its reader.
    fn tell(&self, rank: usize, kind: Kind, peer: usize, bytes: &[u8]) {
        if let Some(line) = self.lines.get(rank) {
            let mut line = lock(line);
            if Frame::write(&mut *line, kind, peer, 0, bytes).is_err() {
                // What was written in part cannot be taken back.
                let _ = line.shutdown(Shutdown::Both);
            }
        }
    }

    /// Reads what a rank says until it leaves.
    fn listen(self: &Arc<Self>, rank: usize, line: &mut TcpStream) -> io::Result<()> {
        loop {
            let frame = Frame::read(line)?;
            match frame.kind {
                Kind::Data => self.tell(frame.peer, Kind::Data, rank, &frame.bytes),
                Kind::Lost => self.lose(frame.peer),
                Kind::Leave => return Ok(()),
                Kind::Count => {
                    if let Some(count) = lock(&self.state).counts.get_mut(rank) {
                        *count = Some(frame.number);
                    }
                    self.changed.notify_all();
                }
                Kind::Complain => {
                    let shared = Arc::clone(self);
                    // The answer of this rank comes over this line too.
                    let _ = thread::Builder::new().name("inquest".into()).spawn(move || shared.inquest(frame.peer));
                }
                Kind::Welcome | Kind::Ask => {}
            }
        }
    }

    /// A rank is lost, unless another was before; everyone is told, and rank 0 last: its process may end for it.
    fn lose(&self, rank: usize) {
        let mut state = lock(&self.state);
        if state.lost.is_none() {
            state.lost = Some(rank);
            drop(state);
            (0..self.lines.len()).rev().for_each(|peer| self.tell(peer, Kind::Lost, rank, &[]));
        }
    }

    /// Finds who holds up the others; `suspect` if all are equally far.
    fn inquest(&self, suspect: usize) {
        let ranks = self.lines.len();
        {
            let mut state = lock(&self.state);
            if state.inquest || state.lost.is_some() {
                return;
            }
            (state.inquest, state.counts) = (true, vec![None; ranks]);
        }
        (0..ranks).for_each(|rank| self.tell(rank, Kind::Ask, rank, &[]));
        let end = Instant::now() + INQUEST;
        let mut state = lock(&self.state);
        while state.counts.iter().any(Option::is_none) && Instant::now() < end {
            let left = end.saturating_duration_since(Instant::now());
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let counts = std::mem::take(&mut state.counts);
        state.inquest = false;
        drop(state);
        // No answer is less than any.
        let slowest = counts.iter().enumerate().min_by_key(|(_, count)| **count).map_or(suspect, |(rank, _)| rank);
        let level = counts.iter().all(|count| *count == counts[slowest]);
        self.lose(if level { suspect } else { slowest });
    }
}
