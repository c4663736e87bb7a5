//! Ranks with a GPU each, which NCCL connects: as processes ([`run`]), started by `torchrun`, `mpirun`, `srun`, or
//! anything else that starts one per rank and says in its environment which one it is ([`Launcher`](crate::Launcher));
//! or as threads of one process ([`launch`]).
//!
//! What is on GPUs goes by NCCL's sends and receives, all messages of an exchange as one group, on a stream of its own.
//! Sums are made of messages as everywhere, because NCCL's own have no fixed order. What is on the host, and whatever
//! is said about lost ranks, goes over TCP through a hub in rank 0's process, for threads too. Nothing but NCCL itself
//! is needed, and that only when GPUs have something to say to each other.
//!
//! Whoever does not know the run's [secret](Secret) is turned away before a word of theirs is believed, and a rank that
//! is there already is refused. Rank 0 listens only at the address that it was given, and only until all ranks have
//! come. What is sent is not encrypted, and NCCL's own lines between machines know no secrets: on a network that others
//! use too, have the machines of a run talk through a private network or a tunnel (WireGuard, IPsec).
//!
//! A process that is lost, on any machine, closes its line to the hub, and a thread that fails says so: all others are
//! told at once which rank it was. NCCL is never waited for without a deadline; when a rank is lost or late, what the
//! GPUs still wait for is aborted.
//!
//! NCCL wants a GPU for each rank. To try several on one, give each process another `NCCL_HOSTID` (and
//! `NCCL_SOCKET_IFNAME=lo`); for threads of one process, set `NCCL_MULTI_RANK_GPU_ENABLE=1`, which NCCL 2.32 knows and
//! 2.28 does not. On a busy GPU, `halo` and `ring` were seen to stop so in their first epoch, until the deadline:
//! threads that share a GPU share its context, in which loading a kernel may wait for NCCL's, and that for the other
//! rank. Ranks that have a GPU each are not in such a circle.

mod exchange;
mod frame;
pub mod fuzz;
mod greeting;
mod hub;
mod line;
mod meeting;
mod member;
mod raw;
mod rendezvous;
mod secret;

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::communicator::{Communicator, Label, Message, Pending, Traffic};
use crate::error::{Error, Result};
use crate::group;
use crate::process;
use crate::threads;
use crate::view::Place;
use exchange::Exchange;
use hub::Hub;
use member::Member;

pub use rendezvous::Rendezvous;
pub use secret::Secret;

/// How this rank is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Who it is.
    pub rendezvous: Rendezvous,
    /// Threads of its rayon pool.
    pub threads: usize,
    /// How long it waits for another.
    pub deadline: Duration,
}

/// Runs `body` as the rank that this process is, in a rayon pool of its own.
///
/// # Errors
/// Of `body`, of NCCL, or [`Error::RankLost`] if another rank failed before all came to the end.
pub fn run<T: Send, E: From<Error> + Send>(
    options: &Options,
    body: impl FnOnce(Rc<dyn Communicator>) -> std::result::Result<T, E> + Send,
) -> std::result::Result<T, E> {
    process::in_pool(options.threads, || {
        let Options { rendezvous: at, deadline, .. } = options;
        let hub = if at.rank == 0 { Some(Hub::open(at, Instant::now() + *deadline)?) } else { None };
        be_rank(Member::start(at, hub, *deadline)?, body)
    })
}

/// Runs `body` once per rank as [`threads::launch`] does, with NCCL between their GPUs.
///
/// # Errors
/// Of the rank whose failure came first. A panic becomes [`Error::RankLost`].
pub fn launch<T: Send + 'static, E: From<Error> + Send + 'static>(
    options: threads::Options,
    body: impl Fn(Rc<dyn Communicator>) -> std::result::Result<T, E> + Send + Sync + 'static,
) -> std::result::Result<Vec<T>, E> {
    let threads::Options { ranks, deadline, .. } = options;
    let secret = Secret::draw()?;
    // Here, not with rank 0: it hangs up when all ranks have come back or were left behind.
    let hub = Hub::open(&Rendezvous::near(0, ranks, 0, &secret), Instant::now() + deadline)?;
    let port = hub.port;
    threads::launch_unpinned(options, move |near| {
        let member = Member::start(&Rendezvous::near(near.rank(), ranks, port, &secret), None, deadline)?;
        // Said here before others hear of it over the hub, so that this error is the first.
        be_rank(member, |comm| body(comm).inspect_err(|_| near.fail()))
    })
}

/// Runs `body` as a rank that has met the others.
fn be_rank<T, E: From<Error>>(
    member: Member,
    body: impl FnOnce(Rc<dyn Communicator>) -> std::result::Result<T, E>,
) -> std::result::Result<T, E> {
    let member = Rc::new(member);
    let run = || -> std::result::Result<T, E> {
        let members = Arc::new((0..member.size).collect());
        let world = Rc::new(Nccl { member: Rc::clone(&member), members, rank: member.rank });
        let value = body(Rc::clone(&world) as Rc<dyn Communicator>)?;
        world.barrier(Label { op: "the end", traffic: Traffic::Setup, layer: 0 })?;
        Ok(value)
    };
    let value = process::or_fail(run, || member.fail())?;
    member.finish();
    Ok(value)
}

/// A rank's end of a group.
struct Nccl {
    member: Rc<Member>,
    /// As ranks of the world.
    members: Arc<Vec<usize>>,
    rank: usize,
}

impl Communicator for Nccl {
    group::own_place!();

    fn set_step(&self, step: u64) {
        self.member.step.set(step);
    }

    unsafe fn post(&self, label: Label, sends: &[Message], receives: &[Message]) -> Result<Box<dyn Pending>> {
        if let Some(lost) = self.member.lost(label.op) {
            return Err(lost);
        }
        let in_world = |messages: &[Message]| -> Result<Vec<Message>> {
            let peer = |m: &Message| match m.view.place {
                Place::Nowhere => {
                    let problem = "NCCL moves what is somewhere".into();
                    Err(Error::Argument { op: label.op, problem })
                }
                _ => Ok(Message { peer: group::member(&self.members, label.op, m.peer)?, ..*m }),
            };
            messages.iter().map(peer).collect()
        };
        let (sends, receives) = (in_world(sends)?, in_world(receives)?);
        self.member.line.count();
        // SAFETY: the caller keeps the views until the exchange was waited for or dropped.
        Ok(Box::new(unsafe { Exchange::start(&self.member, label.op, &sends, &receives) }?))
    }

    /// Groups need no numbers: ranks make the same calls in the same order, so messages of two ranks do not get mixed
    /// up.
    fn split(&self, members: &[usize]) -> Result<Rc<dyn Communicator>> {
        let (rank, world) = group::chosen(&self.members, self.rank, members)?;
        Ok(Rc::new(Self { member: Rc::clone(&self.member), members: Arc::new(world), rank }))
    }
}

#[cfg(test)]
mod tests;
