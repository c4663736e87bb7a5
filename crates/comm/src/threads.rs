//! Ranks as threads of this process.
//!
//! A message is announced in a mailbox shared by all ranks and copied by the receiver straight from the sender's memory, under
//! a lock of its own: a sender that goes away takes the address back under that lock, so nobody reads memory that is gone. Waits
//! block on a condition variable; they never spin.

use std::any::Any;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::communicator::{Communicator, Label, Message, Pending};
use crate::error::{Error, Result};
use crate::view::View;

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

/// A message that was announced: where it lies, until it was taken or taken back.
struct Parcel {
    content: Mutex<Option<View>>,
}

/// Between two ranks of a group.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Route {
    group: usize,
    from: usize,
    to: usize,
}

#[derive(Default)]
struct State {
    mail: HashMap<Route, VecDeque<Arc<Parcel>>>,
    /// Groups by members and by how often these were asked for.
    groups: HashMap<(Vec<usize>, usize), usize>,
    /// The rank whose loss came first.
    lost: Option<usize>,
    /// Ranks that have ended.
    ended: Vec<bool>,
    /// Whom each rank waits for.
    waits_for: Vec<Option<usize>>,
}

struct World {
    state: Mutex<State>,
    changed: Condvar,
    deadline: Duration,
}

impl World {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the groups of one rank share.
struct Member {
    world: Arc<World>,
    /// In the whole world.
    rank: usize,
    step: AtomicU64,
    /// How often a list of members was asked for.
    splits: RefCell<HashMap<Vec<usize>, usize>>,
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut state = self.world.lock();
        state.ended[self.rank] = true;
        if std::thread::panicking() {
            state.lost.get_or_insert(self.rank);
        }
        drop(state);
        self.world.changed.notify_all();
    }
}

/// A rank's end of a group.
pub struct Threads {
    member: Rc<Member>,
    group: usize,
    /// Of this group, as ranks of the world.
    members: Arc<Vec<usize>>,
    rank: usize,
}

/// Runs `body` once per rank, each in a thread with a rayon pool of its own, and gives what they returned in the order of ranks.
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
    let ranks = options.ranks;
    if ranks == 0 {
        return Err(Error::Argument { op: "threads", problem: "there must be a rank".into() }.into());
    }
    let state = State { ended: vec![false; ranks], waits_for: vec![None; ranks], ..State::default() };
    let world = Arc::new(World { state: Mutex::new(state), changed: Condvar::new(), deadline: options.deadline });
    let members = Arc::new((0..ranks).collect::<Vec<_>>());
    let one = |rank: usize| -> std::thread::Result<std::result::Result<T, E>> {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(options.threads.max(1))
            .thread_name(move |k| format!("rank {rank}.{k}"))
            .build()
            .map_err(|e| Error::Library { library: "rayon", problem: e.to_string() });
        let pool = match pool {
            Ok(pool) => pool,
            Err(e) => return Ok(Err(e.into())),
        };
        pool.install(|| {
            catch_unwind(AssertUnwindSafe(|| {
                let splits = RefCell::default();
                let member = Rc::new(Member { world: Arc::clone(&world), rank, step: AtomicU64::new(0), splits });
                let result = body(Rc::new(Threads {
                    member: Rc::clone(&member),
                    group: 0,
                    members: Arc::clone(&members),
                    rank,
                }));
                if result.is_err() {
                    member.world.lock().lost.get_or_insert(rank);
                }
                result
            }))
        })
    };
    let results: Vec<_> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..ranks).map(|rank| scope.spawn(move || one(rank))).collect();
        handles.into_iter().map(|h| h.join().unwrap_or_else(Err)).collect()
    });
    let first = world.lock().lost;
    collect(results, first)
}

/// All results, or the failure that came first.
fn collect<T, E: From<Error>>(
    results: Vec<std::thread::Result<std::result::Result<T, E>>>,
    first: Option<usize>,
) -> std::result::Result<Vec<T>, E> {
    let mut values = Vec::with_capacity(results.len());
    let mut failures: Vec<(usize, std::result::Result<E, Box<dyn Any + Send>>)> = Vec::new();
    for (rank, result) in results.into_iter().enumerate() {
        match result {
            Ok(Ok(value)) => values.push(value),
            Ok(Err(e)) => failures.push((rank, Ok(e))),
            Err(panic) => failures.push((rank, Err(panic))),
        }
    }
    let Some(at) = failures.iter().position(|(rank, _)| Some(*rank) == first).or((!failures.is_empty()).then_some(0))
    else {
        return Ok(values);
    };
    // A rank that panicked has no error to give: another one's, who noticed, says during what.
    let (rank, failure) = failures.swap_remove(at);
    match failure {
        Ok(e) => Err(e),
        Err(_) => Err(failures
            .into_iter()
            .find_map(|(_, f)| f.ok())
            .unwrap_or_else(|| Error::RankLost { rank, op: "a computation", step: 0 }.into())),
    }
}

impl Threads {
    fn lost(&self, op: &'static str, rank: usize) -> Error {
        Error::RankLost { rank, op, step: self.member.step.load(Ordering::Relaxed) }
    }

    /// Blocks until `ready` gives something; meanwhile this rank is known to wait for `peer`.
    fn wait_for<T>(&self, op: &'static str, peer: usize, mut ready: impl FnMut(&mut State) -> Option<T>) -> Result<T> {
        let (world, me) = (&*self.member.world, self.member.rank);
        let end = Instant::now() + world.deadline;
        let mut state = world.lock();
        loop {
            if let Some(found) = ready(&mut state) {
                state.waits_for[me] = None;
                return Ok(found);
            }
            let left = end.saturating_duration_since(Instant::now());
            let lost = match state.lost {
                Some(lost) => Some(lost),
                None if state.ended[peer] => Some(peer),
                // Who does not answer may itself wait for another: the one that waits for nobody is to blame.
                None if left.is_zero() => Some(culprit(&state.waits_for, peer)),
                None => None,
            };
            if let Some(lost) = lost {
                state.lost.get_or_insert(lost);
                world.changed.notify_all();
                return Err(self.lost(op, lost));
            }
            state.waits_for[me] = Some(peer);
            state = world.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Follows who waits for whom from `rank` to one that waits for nobody.
fn culprit(waits_for: &[Option<usize>], mut rank: usize) -> usize {
    for _ in 0..waits_for.len() {
        match waits_for[rank] {
            Some(next) => rank = next,
            None => break,
        }
    }
    rank
}

impl Communicator for Threads {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.members.len()
    }

    fn set_step(&self, step: u64) {
        self.member.step.store(step, Ordering::Relaxed);
    }

    unsafe fn post(&self, label: Label, sends: &[Message], receives: &[Message]) -> Result<Box<dyn Pending>> {
        let world = &self.member.world;
        let mut parcels = Vec::with_capacity(sends.len());
        let mut state = world.lock();
        for send in sends {
            let parcel = Arc::new(Parcel { content: Mutex::new(Some(send.view)) });
            let route = Route { group: self.group, from: self.rank, to: send.peer };
            state.mail.entry(route).or_default().push_back(Arc::clone(&parcel));
            parcels.push((self.members[send.peer], parcel));
        }
        drop(state);
        world.changed.notify_all();
        let me = Self {
            member: Rc::clone(&self.member),
            group: self.group,
            members: Arc::clone(&self.members),
            rank: self.rank,
        };
        Ok(Box::new(Exchange { me, op: label.op, sends: parcels, receives: receives.to_vec() }))
    }

    fn split(&self, members: &[usize]) -> Result<Rc<dyn Communicator>> {
        let world_ranks: Option<Vec<usize>> = members.iter().map(|m| self.members.get(*m).copied()).collect();
        let rank = members.iter().position(|m| *m == self.rank);
        let (Some(world_ranks), Some(rank)) = (world_ranks, rank) else {
            let problem = format!("{members:?} is no list of ranks that has rank {} of {}", self.rank, self.size());
            return Err(Error::Argument { op: "split", problem });
        };
        let mut splits = self.member.splits.borrow_mut();
        let count = splits.entry(world_ranks.clone()).or_default();
        *count += 1;
        let mut state = self.member.world.lock();
        let next = state.groups.len() + 1;
        let group = *state.groups.entry((world_ranks.clone(), *count)).or_insert(next);
        Ok(Rc::new(Self { member: Rc::clone(&self.member), group, members: Arc::new(world_ranks), rank }))
    }
}

struct Exchange {
    me: Threads,
    op: &'static str,
    sends: Vec<(usize, Arc<Parcel>)>,
    receives: Vec<Message>,
}

impl Pending for Exchange {
    fn wait(self: Box<Self>) -> Result<()> {
        let (me, op) = (&self.me, self.op);
        for receive in &self.receives {
            let peer = me.members[receive.peer];
            let route = Route { group: me.group, from: receive.peer, to: me.rank };
            let parcel = me.wait_for(op, peer, |state| state.mail.get_mut(&route)?.pop_front())?;
            let mut content = parcel.content.lock().unwrap_or_else(PoisonError::into_inner);
            let from = content.ok_or_else(|| me.lost(op, peer))?;
            if from.bytes != receive.view.bytes {
                let problem = format!(
                    "in {op} rank {peer} sends {} bytes to rank {}, which expects {}",
                    from.bytes, me.member.rank, receive.view.bytes
                );
                return Err(Error::Mismatch { step: me.member.step.load(Ordering::Relaxed), problem });
            }
            // SAFETY: the sender keeps its memory while the parcel has an address, which it takes back under this lock; ours is
            // valid by the promise made to `post`.
            unsafe { std::ptr::copy_nonoverlapping(from.pointer, receive.view.pointer, from.bytes) };
            *content = None;
            drop(content);
            // Taken under the lock, so that a sender between looking and sleeping is not missed.
            drop(me.member.world.lock());
            me.member.world.changed.notify_all();
        }
        for (peer, parcel) in &self.sends {
            let taken = || parcel.content.lock().unwrap_or_else(PoisonError::into_inner).is_none();
            me.wait_for(op, *peer, |_| taken().then_some(()))?;
        }
        Ok(())
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        for (_, parcel) in &self.sends {
            *parcel.content.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}
