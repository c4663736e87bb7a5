//! A rank's line to the hub: what others wrote to it is kept until it is asked for.

use std::collections::{HashMap, VecDeque};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::frame::{Frame, Kind};
use super::hub::{PATIENCE, greeting};
use super::rendezvous::Rendezvous;
use crate::error::{Error, Result};

/// How often a rank that is early looks whether rank 0 listens.
const LOOK: Duration = Duration::from_millis(20);

/// How much longer than the hub a rank waits for those that do not come.
const LATE: Duration = Duration::from_secs(1);

/// How long what was sent before a rank was lost may still be on its way.
const GRACE: Duration = Duration::from_millis(50);

/// How long the hub has to find who is to blame.
const VERDICT: Duration = Duration::from_secs(3);

#[derive(Default)]
struct Inbox {
    /// Bytes of other ranks, in the order in which they wrote them.
    data: HashMap<usize, VecDeque<Vec<u8>>>,
    welcome: bool,
    /// Who was lost first, and when this was heard.
    lost: Option<(usize, Instant)>,
}

struct Shared {
    inbox: Mutex<Inbox>,
    changed: Condvar,
    /// Exchanges that this rank has posted.
    posted: AtomicU64,
    /// To the hub.
    stream: Mutex<TcpStream>,
}

/// A rank's end. Dropped without [leaving](Line::leave), others hear that the rank is lost.
pub(super) struct Line(Arc<Shared>);

impl Line {
    /// Calls the hub, and waits until all ranks have.
    pub(super) fn call(to: &Rendezvous, end: Instant) -> Result<Self> {
        let failed = |problem: String| Error::Library { library: "TCP", problem };
        let where_to = format!("rank 0 at {}:{}", to.host, to.port);
        let stream = loop {
            let found = (to.host.as_str(), to.port).to_socket_addrs().and_then(|mut all| {
                let left = end.saturating_duration_since(Instant::now()).max(LOOK);
                let none = || std::io::Error::from(std::io::ErrorKind::AddrNotAvailable);
                TcpStream::connect_timeout(&all.next().ok_or_else(none)?, left)
            });
            match found {
                Ok(stream) => break stream,
                Err(e) if Instant::now() >= end => return Err(failed(format!("{where_to} does not answer: {e}"))),
                Err(_) => thread::sleep(LOOK),
            }
        };
        let started = stream.set_nodelay(true).and_then(|()| {
            stream.set_write_timeout(Some(PATIENCE))?;
            Frame::write(&mut &stream, Kind::Hello, to.rank, 0, &greeting(to.ranks))?;
            stream.try_clone()
        });
        let mut reader = started.map_err(|e| failed(format!("{where_to}: {e}")))?;
        let (inbox, changed, posted) = (Mutex::default(), Condvar::new(), AtomicU64::new(0));
        let shared = Arc::new(Shared { inbox, changed, posted, stream: Mutex::new(stream) });
        let line = Self(Arc::clone(&shared));
        let listen = move || shared.listen(&mut reader);
        thread::Builder::new().name("line".into()).spawn(listen).map_err(|e| failed(e.to_string()))?;
        // The hub notices first who has not come.
        let come = line.wait_until(end + LATE, |inbox| inbox.welcome.then_some(()));
        match come {
            Ok(Some(())) => Ok(line),
            Ok(None) => Err(failed(format!("{where_to} does not say that all {} ranks have come", to.ranks))),
            Err(rank) => Err(Error::RankLost { rank, op: "the beginning", step: 0 }),
        }
    }

    /// Looks at the inbox until something is found, a rank is lost, or `end`.
    fn wait_until<T>(
        &self,
        end: Instant,
        find: impl Fn(&mut Inbox) -> Option<T>,
    ) -> std::result::Result<Option<T>, usize> {
        let mut inbox = self.0.lock();
        loop {
            if let Some(found) = find(&mut inbox) {
                return Ok(Some(found));
            }
            let now = Instant::now();
            // What was sent before a loss is still on its way.
            let until = inbox.lost.map_or(end, |(_, heard)| end.min(heard + GRACE));
            if let Some((lost, _)) = inbox.lost.filter(|_| now >= until) {
                return Err(lost);
            }
            let left = until.saturating_duration_since(now);
            if left.is_zero() {
                return Ok(None);
            }
            inbox = self.0.changed.wait_timeout(inbox, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// This rank posts an exchange.
    pub(super) fn count(&self) {
        self.0.posted.fetch_add(1, Ordering::Relaxed);
    }

    /// Writes to another rank.
    pub(super) fn send(&self, to: usize, bytes: &[u8]) {
        self.0.say(Kind::Data, to, 0, bytes);
    }

    /// What rank `from` wrote next, if it comes before `end`; or who was lost.
    pub(super) fn receive(&self, from: usize, end: Instant) -> std::result::Result<Option<Vec<u8>>, usize> {
        self.wait_until(end, |inbox| inbox.data.get_mut(&from)?.pop_front())
    }

    /// The rank that was lost, if one was, and what was sent before has had time to come.
    pub(super) fn lost(&self) -> Option<usize> {
        self.0.lock().lost.filter(|(_, heard)| heard.elapsed() >= GRACE).map(|(rank, _)| rank)
    }

    /// Whoever is to blame that rank `suspect` does not come: everyone hears of it.
    pub(super) fn complain(&self, suspect: usize) -> usize {
        self.0.say(Kind::Complain, suspect, 0, &[]);
        match self.wait_until(Instant::now() + VERDICT, |_| None::<()>) {
            Err(lost) => lost,
            // The hub does not answer.
            Ok(_) => 0,
        }
    }

    /// Tells everyone that this rank is lost.
    pub(super) fn fail(&self, rank: usize) {
        self.0.say(Kind::Lost, rank, 0, &[]);
    }

    /// Takes leave: nobody misses this rank from now on.
    pub(super) fn leave(&self) {
        self.0.say(Kind::Leave, 0, 0, &[]);
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let _ = self.0.stream().shutdown(Shutdown::Write);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inbox> {
        // No code panics while it holds this lock.
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stream(&self) -> MutexGuard<'_, TcpStream> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, kind: Kind, peer: usize, number: u64, bytes: &[u8]) {
        // A line that is broken is noticed by its reader.
        let mut stream = self.stream();
        if Frame::write(&mut *stream, kind, peer, number, bytes).is_err() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn listen(&self, line: &mut TcpStream) {
        loop {
            let frame = Frame::read(line);
            // Without the hub there is nobody; where ranks are processes it is in that of rank 0.
            let (over, frame) = (frame.is_err(), frame.unwrap_or(Frame::of(Kind::Lost, 0)));
            let mut inbox = self.lock();
            match frame.kind {
                Kind::Welcome => inbox.welcome = true,
                Kind::Data => inbox.data.entry(frame.peer).or_default().push_back(frame.bytes),
                Kind::Lost => {
                    inbox.lost.get_or_insert((frame.peer, Instant::now()));
                }
                Kind::Ask => {
                    let posted = self.posted.load(Ordering::Relaxed);
                    drop(inbox);
                    self.say(Kind::Count, 0, posted, &[]);
                    continue;
                }
                Kind::Hello | Kind::Leave | Kind::Complain | Kind::Count => {}
            }
            self.changed.notify_all();
            if over {
                return;
            }
        }
    }
}
