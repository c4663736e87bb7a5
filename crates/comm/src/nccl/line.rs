//! A rank's line to the hub: what others wrote to it is kept until it is asked for.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::frame::{Frame, Kind};
use super::greeting::{self, Guest, Verdict};
use super::hub::PATIENCE;
use super::meeting::{Timed, addresses_of};
use super::rendezvous::Rendezvous;
use super::secret::{self, Shared as SharedSecret};
use crate::error::{Error, Result};

/// How often a rank that is early looks whether rank 0 listens.
const LOOK: Duration = Duration::from_millis(20);

/// How much longer than the hub a rank waits for those that do not come.
const LATE: Duration = Duration::from_secs(1);

/// How long what was sent before a rank was lost may still be on its way.
const GRACE: Duration = Duration::from_millis(50);

/// How long the hub has to find who is to blame.
const VERDICT: Duration = Duration::from_secs(3);

/// Messages of one rank, which wrote them in the order in which this one's exchanges ask for them.
#[derive(Default)]
struct Queue {
    /// The number of the first of those below.
    first: u64,
    /// `None` where one was taken before those in front of it.
    messages: VecDeque<Option<Vec<u8>>>,
}

impl Queue {
    /// Message `number`, if it has come.
    fn take(&mut self, number: u64) -> Option<Vec<u8>> {
        let place = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let found = self.messages.get_mut(place)?.take();
        while let Some(None) = self.messages.front() {
            self.messages.pop_front();
            self.first += 1;
        }
        found
    }
}

#[derive(Default)]
struct Inbox {
    /// Bytes of other ranks.
    data: HashMap<usize, Queue>,
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
            match greet(to, end) {
                Ok(stream) => break stream,
                Err(Refusal::Final(e)) => return Err(e),
                Err(Refusal::NotYet(problem)) if Instant::now() >= end => {
                    return Err(failed(format!("{where_to} {problem}")));
                }
                Err(Refusal::NotYet(_)) => thread::sleep(LOOK),
            }
        };
        let mut reader = stream.try_clone().map_err(|e| failed(format!("{where_to}: {e}")))?;
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

    /// Message `number` of rank `from`, if it comes before `end`; or who was lost.
    pub(super) fn receive(
        &self,
        from: usize,
        number: u64,
        end: Instant,
    ) -> std::result::Result<Option<Vec<u8>>, usize> {
        self.wait_until(end, |inbox| inbox.data.get_mut(&from)?.take(number))
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

/// Why rank 0 was not reached.
enum Refusal {
    /// It may be later.
    NotYet(String),
    Final(Error),
}

/// Calls the hub once.
fn greet(to: &Rendezvous, end: Instant) -> std::result::Result<TcpStream, Refusal> {
    let silent = |e: io::Error| Refusal::NotYet(format!("does not answer: {e}"));
    let addresses = match addresses_of(to) {
        // A name may become known.
        Err(e @ Error::Library { .. }) => return Err(Refusal::NotYet(format!("is not known: {e}"))),
        found => found.map_err(Refusal::Final)?,
    };
    let none = || silent(io::ErrorKind::AddrNotAvailable.into());
    let left = end.saturating_duration_since(Instant::now()).max(LOOK);
    let stream = TcpStream::connect_timeout(addresses.first().ok_or_else(none)?, left).map_err(silent)?;
    let secret = match &to.secret {
        Some(secret) => Some(secret.clone()),
        None => SharedSecret::find(to.port).map_err(Refusal::Final)?,
    };
    let Some(secret) = secret else {
        let problem = "has not written a secret for this user on this machine: if it never does, set GRAPHWEFT_SECRET";
        return Err(Refusal::NotYet(problem.into()));
    };
    let guest = Guest { rank: to.rank as u32, ranks: to.ranks as u32 };
    let drawn = secret::draw().map_err(Refusal::Final)?;
    let clone = stream.try_clone().map_err(silent)?;
    let verdict = greeting::call(&mut Timed { stream: clone, end }, &secret, drawn, guest).map_err(silent)?;
    refused(to, verdict)?;
    stream.set_nodelay(true).map_err(silent)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(silent)?;
    stream.set_read_timeout(None).map_err(silent)?;
    Ok(stream)
}

/// What it means if the hub does not let this rank in.
fn refused(to: &Rendezvous, verdict: Verdict) -> std::result::Result<(), Refusal> {
    let final_word = |problem: String| Err(Refusal::Final(Error::Argument { op: "rendezvous", problem }));
    let Rendezvous { rank, ranks, host, port, .. } = to;
    match verdict {
        Verdict::Welcome => Ok(()),
        // The file may be of a run that was at this port before.
        Verdict::Stranger if to.secret.is_none() => {
            Err(Refusal::NotYet("has another secret than this user's file on this machine".into()))
        }
        Verdict::Stranger => final_word(format!(
            "whoever listens at {host}:{port} has another secret: GRAPHWEFT_SECRET must be the same for all ranks, and \
             the port that of no other run"
        )),
        Verdict::Version => final_word(format!("rank 0 at {host}:{port} is another version of this program")),
        Verdict::Ranks => final_word(format!("rank 0 at {host}:{port} waits for another number of ranks than {ranks}")),
        Verdict::Taken => final_word(format!("there is a rank {rank} at {host}:{port} already: each rank comes once")),
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
                Kind::Data => inbox.data.entry(frame.peer).or_default().messages.push_back(Some(frame.bytes)),
                Kind::Lost => {
                    inbox.lost.get_or_insert((frame.peer, Instant::now()));
                }
                Kind::Ask => {
                    let posted = self.posted.load(Ordering::Relaxed);
                    drop(inbox);
                    self.say(Kind::Count, 0, posted, &[]);
                    continue;
                }
                Kind::Leave | Kind::Complain | Kind::Count => {}
            }
            self.changed.notify_all();
            if over {
                return;
            }
        }
    }
}
