//! Ranks as processes that MPI connects: `mpirun -n 4 program`, `srun -n 4 program`.
//!
//! MPI is loaded when it is needed ([`library()`] says which), so every build has this.
//!
//! Every message is a message of MPI (several if it is longer than MPI can count). Waits test and sleep in turns, with
//! a deadline: they never spin, so ranks may outnumber cores. Sums are made of messages as everywhere, because MPI's
//! own have no fixed order.
//!
//! A process that is lost: others on the same machine notice within a tenth of a second, on other machines when their
//! deadline has passed; both then say which rank it was. Open MPI's `mpirun` asks the others to end (SIGTERM) when one
//! was killed or ended with an error, and kills them a second later: a program that handles the signal has reported by
//! then. With `--enable-recovery` it leaves them in peace (and ends with 0, whatever its processes end with). MPICH's
//! may kill them at once. Where ranks have several threads each, `mpirun --bind-to none` (or `--map-by slot:PE=T`) lets
//! them use more than one core.
//!
//! If an exchange is given up and MPI cannot take its requests back, MPI is never called again: only in its calls does
//! it touch memory of this process. (A network card that was told to write to memory of an exchange, by a rank that is
//! lost, is beyond that promise.)

mod abi;
mod alive;
mod library;
mod member;
mod raw;

use std::ffi::c_int;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::communicator::{Communicator, Label, Message, Pending, Traffic};
use crate::error::{Error, Result};
use crate::group;
use crate::process;
use crate::view::{Place, Type, View};
use alive::Process;
use member::{LAST_TAG, Member};
use raw::{End, Request};

pub use library::{Library, library, mpiexec};

/// How long a rank that waits sleeps at most before it looks again.
const NAP: Duration = Duration::from_millis(1);

/// How long an exchange may still come to its end after a rank was lost.
const GRACE: Duration = Duration::from_millis(30);
/// How often a rank that waits looks whether the processes it waits for are still there.
const LOOK: Duration = Duration::from_millis(50);

/// How long MPI has to take requests back.
const RETURN: Duration = Duration::from_millis(50);

const SETUP: Label = Label { op: "setup", traffic: Traffic::Setup, layer: 0 };

/// How this rank is run. How many there are is the launcher's choice.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Threads of this rank's rayon pool.
    pub threads: usize,
    /// How long it waits for another.
    pub deadline: Duration,
}

/// Runs `body` as the rank that this process is, in a rayon pool of its own.
///
/// # Errors
/// Of `body`, of MPI, or [`Error::RankLost`] if another rank failed before all came to the end. After an error MPI is
/// left as it is: the process should end.
pub fn run<T: Send, E: From<Error> + Send>(
    options: Options,
    body: impl FnOnce(Rc<dyn Communicator>) -> std::result::Result<T, E> + Send,
) -> std::result::Result<T, E> {
    process::in_pool(options.threads, || {
        let member = Rc::new(Member::start(options.deadline)?);
        let run = || -> std::result::Result<T, E> {
            let members = Arc::new((0..member.size).collect());
            let world = Rc::new(Mpi { member: Rc::clone(&member), tag: 0, members, rank: member.rank });
            world.introduce()?;
            let value = body(Rc::clone(&world) as Rc<dyn Communicator>)?;
            // Whoever ends MPI waits for the others without a deadline: better here.
            world.barrier(Label { op: "the end", ..SETUP })?;
            Ok(value)
        };
        let value = process::or_fail(run, || member.fail())?;
        member.finish().map(|()| value).map_err(E::from)
    })
}

/// A rank's end of a group.
struct Mpi {
    member: Rc<Member>,
    /// Of all messages of this group.
    tag: c_int,
    /// As ranks of the world.
    members: Arc<Vec<usize>>,
    rank: usize,
}

impl Mpi {
    /// All ranks tell where their processes are.
    fn introduce(&self) -> Result<()> {
        let this = Process::this();
        let mut own = this.to_numbers();
        let mut all = vec![0u64; Process::NUMBERS * self.size()];
        let (out, into) = (View::host_mut(&mut own, Type::Bytes), View::host_mut(&mut all, Type::Bytes));
        let sends: Vec<Message> = (0..self.size()).map(|peer| Message { peer, view: out }).collect();
        let receives: Vec<Message> =
            (0..self.size()).map(|peer| Message { peer, view: into.part(peer * out.bytes, out.bytes) }).collect();
        // SAFETY: both arrays outlive the exchange.
        unsafe { self.post(SETUP, &sends, &receives)?.wait()? };
        self.member.know(all.as_chunks().0.iter().map(|n| Process::from_numbers(*n)).collect());
        Ok(())
    }

    fn peer(&self, op: &'static str, message: &Message) -> Result<usize> {
        match message.view.place {
            Place::Host => group::member(&self.members, op, message.peer),
            place => {
                let problem = format!("MPI moves host memory only, not what is at {place:?}");
                Err(Error::Argument { op, problem })
            }
        }
    }
}

impl Communicator for Mpi {
    group::own_place!();

    fn set_step(&self, step: u64) {
        self.member.step.set(step);
    }

    unsafe fn post(&self, label: Label, sends: &[Message], receives: &[Message]) -> Result<Box<dyn Pending>> {
        let member = &self.member;
        if let Some(lost) = member.lost(label.op) {
            return Err(lost);
        }
        if member.is_closed() {
            return Err(Error::Library { library: "MPI", problem: "it is over".into() });
        }
        let both = [receives, sends];
        let [from, to] = both.map(|m| m.iter().map(|m| self.peer(label.op, m)).collect::<Result<Vec<usize>>>());
        let (from, to) = (from?, to?);
        let (member, count) = (Rc::clone(member), sends.len() + receives.len());
        let (requests, slots) = (Vec::with_capacity(count), Vec::with_capacity(count));
        let mut exchange = Box::new(Exchange { member, op: label.op, requests, slots });
        let (mpi, data) = (&self.member.mpi, self.member.data);
        // SAFETY: the caller keeps the views until the exchange has ended or was dropped, and dropping ends it. What is
        // posted before an error is dropped with the exchange.
        unsafe {
            for (peer, message) in from.into_iter().zip(receives) {
                for chunk in raw::chunks(message.view) {
                    exchange.requests.push(mpi.receive(data, chunk, peer, self.tag)?);
                    exchange.slots.push(Slot { peer, expected: Some(chunk.bytes) });
                }
            }
            for (peer, message) in to.into_iter().zip(sends) {
                for chunk in raw::chunks(message.view) {
                    exchange.requests.push(mpi.send(data, chunk, peer, self.tag)?);
                    exchange.slots.push(Slot { peer, expected: None });
                }
            }
        }
        Ok(exchange)
    }

    /// The first member numbers the group; messages of groups are told apart by tags.
    fn split(&self, members: &[usize]) -> Result<Rc<dyn Communicator>> {
        let (rank, world) = group::chosen(&self.members, self.rank, members)?;
        let mut tag = [0u64];
        let view = View::host_mut(&mut tag, Type::Bytes);
        if rank == 0 {
            let number = self.member.groups.get();
            self.member.groups.set(number + 1);
            let free = 1 + number * self.member.size + self.member.rank;
            if free > LAST_TAG as usize {
                let problem = format!("rank {} has split off {number} groups, more than MPI can tell apart", self.rank);
                return Err(Error::Argument { op: "split", problem });
            }
            // SAFETY: nobody else has seen the view yet.
            unsafe { view.pointer.cast::<u64>().write(free as u64) };
        }
        let (sends, receives): (Vec<Message>, Vec<Message>) = match rank {
            0 => (members[1..].iter().map(|peer| Message { peer: *peer, view }).collect(), Vec::new()),
            _ => (Vec::new(), vec![Message { peer: members[0], view }]),
        };
        // SAFETY: `tag` outlives the exchange.
        unsafe { self.post(Label { op: "split", ..SETUP }, &sends, &receives)?.wait()? };
        let (member, members) = (Rc::clone(&self.member), Arc::new(world));
        Ok(Rc::new(Self { member, tag: tag[0] as c_int, members, rank }))
    }
}

/// What a request is for.
struct Slot {
    peer: usize,
    /// Bytes to receive; nothing for a send.
    expected: Option<usize>,
}

/// Requests under way.
struct Exchange {
    member: Rc<Member>,
    op: &'static str,
    /// Removed with their slots when they have ended.
    requests: Vec<Request>,
    slots: Vec<Slot>,
}

impl Exchange {
    /// Takes out what has ended and tells whether something has.
    fn test(&mut self) -> Result<bool> {
        // SAFETY: MPI is not closed (callers see to it), and the views are valid as long as this exists.
        let mut ended = unsafe { self.member.mpi.test_some(&mut self.requests) }?;
        ended.sort_unstable_by_key(|(at, _)| std::cmp::Reverse(*at));
        let any = !ended.is_empty();
        let mut problem = Ok(());
        for (at, end) in ended {
            self.requests.swap_remove(at);
            let slot = self.slots.swap_remove(at);
            problem = problem.and(self.judge(&slot, end));
        }
        problem.map(|()| any)
    }

    fn judge(&self, slot: &Slot, end: End) -> Result<()> {
        let sent = match (end, slot.expected) {
            (End::Failed(e), _) => {
                // A rank that is gone is the likely cause of whatever MPI says about messages with it.
                return Err(self.member.dead(&[slot.peer]).map_or(e, |lost| self.member.lose(self.op, lost)));
            }
            (End::Bytes(got), Some(expected)) if got != expected => format!("{got}"),
            (End::Longer, _) => "more".into(),
            (End::Bytes(_), _) => return Ok(()),
        };
        let (op, from, to, expected) = (self.op, slot.peer, self.member.rank, slot.expected.unwrap_or(0));
        let problem = format!("in {op} rank {from} sends {sent} bytes to rank {to}, which expects {expected}");
        Err(Error::Mismatch { step: self.member.step.get(), problem })
    }

    /// Ranks that have not sent or received everything, those that should send first.
    fn absent(&self) -> Vec<usize> {
        let (receives, sends): (Vec<&Slot>, Vec<&Slot>) = self.slots.iter().partition(|s| s.expected.is_some());
        let mut peers = Vec::new();
        for slot in receives.into_iter().chain(sends) {
            if !peers.contains(&slot.peer) {
                peers.push(slot.peer);
            }
        }
        peers
    }
}

impl Pending for Exchange {
    fn wait(mut self: Box<Self>) -> Result<()> {
        let member = Rc::clone(&self.member);
        let start = Instant::now();
        let (mut looked, mut nap) = (start, Duration::from_micros(10));
        let mut heard = None;
        loop {
            if self.requests.is_empty() {
                return Ok(());
            }
            if let Some(lost) = member.lost(self.op) {
                // What was sent before the loss is still on its way: a rank that takes its leave after an exchange must
                // not take the others out of it.
                let since = *heard.get_or_insert_with(Instant::now);
                if member.is_closed() || since.elapsed() >= GRACE {
                    return Err(lost);
                }
            }
            if member.is_closed() {
                return Err(Error::Library { library: "MPI", problem: "it is over".into() });
            }
            if self.test()? {
                nap = Duration::from_micros(10);
                continue;
            }
            let (absent, now) = (self.absent(), Instant::now());
            member.listen(&absent)?;
            if now - looked >= LOOK {
                looked = now;
                if let Some(dead) = member.dead(&absent) {
                    return Err(member.lose(self.op, dead));
                }
            }
            if now - start >= member.deadline {
                let culprit = member.inquest(&absent)?;
                return Err(member.lose(self.op, culprit));
            }
            std::thread::sleep(nap);
            nap = NAP.min(nap * 2);
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if self.requests.is_empty() || self.member.is_closed() {
            return;
        }
        for (request, slot) in self.requests.iter_mut().zip(&self.slots) {
            if slot.expected.is_some() {
                // SAFETY: MPI is not closed and the request is active.
                unsafe { self.member.mpi.cancel(request) };
            }
        }
        let end = Instant::now() + RETURN;
        while Instant::now() < end {
            // What a cancelled receive says is of no interest.
            let _ = self.test();
            if self.requests.is_empty() {
                return;
            }
            std::thread::sleep(NAP);
        }
        // MPI keeps addresses that are about to be gone. Others must hear of it as long as they can.
        self.member.lose(self.op, self.member.rank);
        self.member.close();
    }
}
