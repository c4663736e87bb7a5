//! Ranks as threads of this process.
//!
//! A message is copied once, straight from the sender's memory to the receiver's, on the host or between GPUs; how is
//! told in `world.rs`. Waits block, they never spin. [`run`] borrows what its ranks use and waits for all of them;
//! [`launch`] is for programs: it does not wait for a rank that hangs, and pins ranks to cores of their own where there
//! are enough.

mod pin;
mod world;

use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use crate::communicator::{Communicator, Label, Message, Pending};
use crate::error::{Error, Result};
use crate::group;
use pin::Cores;
use world::{Failure, Posted, World};

pub use pin::unpin;

/// How ranks are run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How many.
    pub ranks: usize,
    /// Threads of each rank's own rayon pool.
    pub threads: usize,
    /// How long a rank waits for another.
    pub deadline: Duration,
}

/// After a failure, how long [`launch`] waits for ranks that have not noticed.
const GRACE: Duration = Duration::from_secs(5);

/// What became of a rank: what it returned, or what it panicked with.
type Outcome<T, E> = std::result::Result<std::result::Result<T, E>, Box<dyn Any + Send>>;

/// Runs `body` once per rank, each in a thread with a rayon pool of its own, and gives what they returned in the order
/// of ranks.
///
/// ```
/// use std::time::Duration;
/// use graphweft_comm::{Communicator, Label, Traffic, Type, View, threads};
/// let options = threads::Options { ranks: 3, threads: 1, deadline: Duration::from_secs(10) };
/// let sums = threads::run(options, |comm| {
///     let mut x = [comm.rank() as f64 + 1.0];
///     let label = Label { op: "example", traffic: Traffic::Metrics, layer: 0 };
///     // SAFETY: `x` is borrowed for the call only.
///     unsafe { comm.all_reduce(label, View::host_mut(&mut x, Type::F64)) }.map(|()| x[0])
/// })?;
/// assert_eq!(sums, [6.0, 6.0, 6.0]);
/// # Ok::<(), graphweft_comm::Error>(())
/// ```
///
/// # Errors
/// Of the rank whose failure came first. A panic becomes [`Error::RankLost`].
pub fn run<T: Send, E: From<Error> + Send>(
    options: Options,
    body: impl Fn(Rc<dyn Communicator>) -> std::result::Result<T, E> + Sync,
) -> std::result::Result<Vec<T>, E> {
    let world = world(options)?;
    let outcomes = std::thread::scope(|scope| {
        let one = |rank| be_rank(&world, rank, options, Cores::any(), &|comm: Rc<Threads>| body(comm));
        let handles: Vec<_> = (0..options.ranks).map(|rank| scope.spawn(move || one(rank))).collect();
        handles.into_iter().map(|h| Some(h.join().unwrap_or_else(Err))).collect()
    });
    collect(&world, outcomes)
}

/// Like [`run`], for programs: ranks are pinned to cores if these are enough for the threads of all, and a rank that
/// hangs is left behind when the others have failed for it.
///
/// # Errors
/// Of the rank whose failure came first. A panic becomes [`Error::RankLost`].
pub fn launch<T: Send + 'static, E: From<Error> + Send + 'static>(
    options: Options,
    body: impl Fn(Rc<dyn Communicator>) -> std::result::Result<T, E> + Send + Sync + 'static,
) -> std::result::Result<Vec<T>, E> {
    launch_on(options, &Cores::for_ranks(options.ranks, options.threads), move |comm| body(comm))
}

/// Like [`launch`], for ranks that start threads which must not be pinned as they are.
///
/// # Errors
/// As of [`launch`].
#[cfg(feature = "cuda")]
pub(crate) fn launch_unpinned<T: Send + 'static, E: From<Error> + Send + 'static>(
    options: Options,
    body: impl Fn(Rc<Threads>) -> std::result::Result<T, E> + Send + Sync + 'static,
) -> std::result::Result<Vec<T>, E> {
    launch_on(options, &Cores::any(), body)
}

fn launch_on<T: Send + 'static, E: From<Error> + Send + 'static>(
    options: Options,
    cores: &Cores,
    body: impl Fn(Rc<Threads>) -> std::result::Result<T, E> + Send + Sync + 'static,
) -> std::result::Result<Vec<T>, E> {
    let (world, body) = (world(options)?, Arc::new(body));
    let (sender, outcomes) = mpsc::channel();
    for rank in 0..options.ranks {
        let (ours, body, cores, sender) = (Arc::clone(&world), Arc::clone(&body), cores.clone(), sender.clone());
        let one = move || {
            let outcome = be_rank(&ours, rank, options, cores, &*body);
            // Nobody listens any more if this rank came back too late.
            let _ = sender.send((rank, outcome));
        };
        let spawned = std::thread::Builder::new().name(format!("rank {rank}")).spawn(one);
        if let Err(e) = spawned {
            world.fail(rank);
            return Err(Error::Library { library: "threads", problem: format!("rank {rank}: {e}") }.into());
        }
    }
    drop(sender);
    let mut all: Vec<Option<Outcome<T, E>>> = (0..options.ranks).map(|_| None).collect();
    let mut end: Option<Instant> = None;
    loop {
        let next = match end {
            None => outcomes.recv().ok(),
            Some(end) => outcomes.recv_timeout(end.saturating_duration_since(Instant::now())).ok(),
        };
        let Some((rank, outcome)) = next else { break };
        if !matches!(outcome, Ok(Ok(_))) {
            end.get_or_insert_with(|| Instant::now() + GRACE.min(options.deadline));
        }
        all[rank] = Some(outcome);
    }
    collect(&world, all)
}

fn world(options: Options) -> Result<Arc<World>> {
    if options.ranks == 0 {
        return Err(Error::Argument { op: "threads", problem: "there must be a rank".into() });
    }
    Ok(Arc::new(World::new(options.ranks, options.deadline)))
}

fn be_rank<T: Send, E: From<Error> + Send>(
    world: &Arc<World>,
    rank: usize,
    options: Options,
    cores: Cores,
    body: &(impl Fn(Rc<Threads>) -> std::result::Result<T, E> + Sync),
) -> Outcome<T, E> {
    let threads = options.threads.max(1);
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .thread_name(move |k| format!("rank {rank}.{k}"))
        .start_handler(move |k| cores.pin(rank * threads + k))
        .build();
    let pool = match pool {
        Ok(pool) => pool,
        Err(e) => {
            world.fail(rank);
            return Ok(Err(Error::Library { library: "rayon", problem: e.to_string() }.into()));
        }
    };
    pool.install(|| {
        catch_unwind(AssertUnwindSafe(|| {
            let member = Rc::new(Member { world: Arc::clone(world), rank, splits: RefCell::default() });
            let members = Arc::new((0..options.ranks).collect());
            let result = body(Rc::new(Threads { member: Rc::clone(&member), group: 0, members, rank }));
            if result.is_err() {
                world.fail(rank);
            }
            result
        }))
    })
}

/// All results, or the failure that came first; `None` is a rank that did not come back.
fn collect<T, E: From<Error>>(world: &World, outcomes: Vec<Option<Outcome<T, E>>>) -> std::result::Result<Vec<T>, E> {
    let first = world.lost();
    let mut values = Vec::with_capacity(outcomes.len());
    let (mut errors, mut gone) = (Vec::new(), Vec::new());
    for (rank, outcome) in outcomes.into_iter().enumerate() {
        match outcome {
            Some(Ok(Ok(value))) => values.push(value),
            Some(Ok(Err(e))) => errors.push((rank, e)),
            Some(Err(_)) | None => gone.push(rank),
        }
    }
    // A rank that is gone has no error to give: another one's, who noticed, says during what.
    let at = errors.iter().position(|(rank, _)| Some(*rank) == first).unwrap_or(0);
    if at < errors.len() {
        return Err(errors.swap_remove(at).1);
    }
    match first.filter(|rank| gone.contains(rank)).or(gone.first().copied()) {
        Some(rank) => Err(Error::RankLost { rank, op: "a computation", step: world.step(rank) }.into()),
        None => Ok(values),
    }
}

/// What the groups of one rank share.
struct Member {
    world: Arc<World>,
    /// In the whole world.
    rank: usize,
    /// How often a list of members was asked for.
    splits: RefCell<HashMap<Vec<usize>, usize>>,
}

impl Drop for Member {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.world.fail(self.rank);
        }
        self.world.end(self.rank);
    }
}

/// A rank's end of a group.
pub(crate) struct Threads {
    member: Rc<Member>,
    group: usize,
    /// Of this group, as ranks of the world.
    members: Arc<Vec<usize>>,
    rank: usize,
}

impl Threads {
    /// This rank has failed, whatever others that hear of it in another way say afterwards.
    #[cfg(feature = "cuda")]
    pub(crate) fn fail(&self) {
        self.member.world.fail(self.member.rank);
    }

    fn parts(&self, op: &'static str, messages: &[Message]) -> Result<Vec<Posted>> {
        let part = |m: &Message| Ok(Posted { peer: group::member(&self.members, op, m.peer)?, view: m.view });
        messages.iter().map(part).collect()
    }
}

impl Communicator for Threads {
    group::own_place!();

    fn set_step(&self, step: u64) {
        self.member.world.set_step(self.member.rank, step);
    }

    unsafe fn post(&self, label: Label, sends: &[Message], receives: &[Message]) -> Result<Box<dyn Pending>> {
        let (sends, receives) = (self.parts(label.op, sends)?, self.parts(label.op, receives)?);
        // SAFETY: the caller keeps the views until the exchange was waited for or dropped.
        let id = unsafe { self.member.world.post(self.member.rank, self.group, &sends, &receives) };
        Ok(Box::new(Exchange { member: Rc::clone(&self.member), op: label.op, id }))
    }

    fn split(&self, members: &[usize]) -> Result<Rc<dyn Communicator>> {
        let (rank, members) = group::chosen(&self.members, self.rank, members)?;
        let mut splits = self.member.splits.borrow_mut();
        let count = splits.entry(members.clone()).or_default();
        *count += 1;
        let group = self.member.world.group(members.clone(), *count);
        Ok(Rc::new(Self { member: Rc::clone(&self.member), group, members: Arc::new(members), rank }))
    }
}

struct Exchange {
    member: Rc<Member>,
    op: &'static str,
    id: u64,
}

impl Pending for Exchange {
    fn wait(self: Box<Self>) -> Result<()> {
        let Member { world, rank, .. } = &*self.member;
        world.wait(*rank, self.id).map_err(|failure| {
            let (op, step) = (self.op, world.step(*rank));
            match failure {
                Failure::Lost(rank) => Error::RankLost { rank, op, step },
                Failure::Unequal { from, sent, to, expected } => {
                    let problem =
                        format!("in {op} rank {from} sends {sent} bytes to rank {to}, which expects {expected}");
                    Error::Mismatch { step, problem }
                }
                Failure::Unmoved(fault) => fault.into(),
            }
        })
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.member.world.withdraw(self.member.rank, self.id);
    }
}
