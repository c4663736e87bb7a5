//! Collectives made of messages, the same on every communicator: in a fixed order, hence the same bits.
//!
//! Every rank sends each other rank the piece which that one adds up; with [`Sum`], the results then go to everybody.
//! Memory for what the others sent is bounded: long sums go in rounds, the next of which is under way while one is
//! added.

use std::rc::Rc;

use crate::communicator::{Communicator, Label, Message, Pending};
use crate::error::{Error, Result};
use crate::scratch::Scratch;
use crate::view::{Place, Type, View};

/// Up to this many bytes every rank sends everything to every other: one step instead of two.
const SMALL: usize = 4096;

/// Bytes of a round, from all ranks together: what stays in the cache of a processor.
const ROUND: usize = 4 << 20;

/// The same on a GPU, where a round must make up for the launch of a kernel.
const ROUND_GPU: usize = 64 << 20;

/// A sum over ranks under way, so that gradients of some parameters travel while others are computed. Dropped without
/// waiting, it is given up.
///
/// ```
/// use std::time::Duration;
/// use graphweft_comm::{Label, Sum, Traffic, Type, View, threads};
/// let options = threads::Options { ranks: 2, threads: 1, deadline: Duration::from_secs(10) };
/// threads::run(options, |comm| {
///     let label = Label { op: "gradients", traffic: Traffic::Gradients, layer: 0 };
///     let mut bucket = vec![0.5f32; 3000];
///     // SAFETY: `bucket` is not touched before the sum was waited for.
///     let sum = unsafe { Sum::start(&comm, label, View::host_mut(&mut bucket, Type::F32)) }?;
///     // … compute the next gradients …
///     sum.wait()?;
///     assert!(bucket.iter().all(|x| *x == 1.0));
///     Ok::<(), graphweft_comm::Error>(())
/// })?;
/// # Ok::<(), graphweft_comm::Error>(())
/// ```
pub struct Sum {
    round: Round,
    regions: Vec<View>,
    small: bool,
    label: Label,
    comm: Rc<dyn Communicator>,
}

impl Sum {
    /// Starts to replace the elements of `view` by their sums over ranks, added in the order of ranks.
    ///
    /// # Safety
    /// Nobody else touches `view` until the sum was waited for or dropped.
    pub unsafe fn start(comm: &Rc<dyn Communicator>, label: Label, view: View) -> Result<Self> {
        summable(label.op, view)?;
        let small = view.bytes <= SMALL;
        let regions = if small { vec![view; comm.size()] } else { regions(view, comm.size()) };
        // SAFETY: as promised by the caller; what this rank adds up is not sent, or else changed when it was.
        let round = unsafe { Round::post(&**comm, label, &regions, regions[comm.rank()]) }?;
        Ok(Self { round, regions, small, label, comm: Rc::clone(comm) })
    }

    /// Blocks until the sums are there.
    ///
    /// # Errors
    /// [`RankLost`](Error::RankLost) if a peer ended or the deadline passed.
    pub fn wait(self) -> Result<()> {
        Self::wait_all(vec![self])
    }

    /// Blocks until all of these are there, in the order in which they were started; the second steps of all overlap.
    ///
    /// # Errors
    /// [`RankLost`](Error::RankLost) if a peer ended or the deadline passed.
    pub fn wait_all(sums: Vec<Self>) -> Result<()> {
        let mut second = Vec::with_capacity(sums.len());
        for sum in sums {
            let Self { round, regions, small, label, comm } = sum;
            // SAFETY: as promised to `start`.
            unsafe {
                round.add(&*comm)?;
                if !small {
                    second.push(gather(&*comm, label, &regions)?);
                }
            }
        }
        second.into_iter().try_for_each(Pending::wait)
    }
}

/// See [`Communicator::all_reduce`].
///
/// # Safety
/// Nobody else touches `view` meanwhile.
pub(crate) unsafe fn all_reduce<C: Communicator + ?Sized>(comm: &C, label: Label, view: View) -> Result<()> {
    summable(label.op, view)?;
    if view.bytes <= SMALL {
        // SAFETY: by the caller's promise; `view` is changed when it was sent.
        return unsafe { Round::post(comm, label, &vec![view; comm.size()], view)?.add(comm) };
    }
    let regions = regions(view, comm.size());
    // SAFETY: by the caller's promise; the regions do not overlap, and this rank's own is not sent before it is summed.
    unsafe {
        scatter(comm, label, &regions, regions[comm.rank()])?;
        gather(comm, label, &regions)?.wait()
    }
}

/// See [`Communicator::reduce_scatter`].
///
/// # Safety
/// Nobody else touches the views meanwhile.
pub(crate) unsafe fn reduce_scatter<C: Communicator + ?Sized>(
    comm: &C,
    label: Label,
    from: View,
    lengths: &[usize],
    to: View,
) -> Result<()> {
    summable(label.op, from)?;
    let (rank, size, element) = (comm.rank(), comm.size(), from.dtype.size());
    let total = lengths.iter().try_fold(0usize, |sum, len| sum.checked_add(len.checked_mul(element)?));
    let own = lengths.get(rank).map(|len| len * element);
    if lengths.len() != size || total != Some(from.bytes) || own != Some(to.bytes) || to.dtype != from.dtype {
        let (all, part) = (from.bytes, to.bytes);
        let problem = format!("{all} bytes into {lengths:?} elements for {size} ranks, {part} bytes for rank {rank}");
        return Err(Error::Argument { op: label.op, problem });
    }
    let mut end = 0;
    let mut region = |len: &usize| {
        end += len * element;
        from.part(end - len * element, len * element)
    };
    let regions: Vec<View> = lengths.iter().map(&mut region).collect();
    // SAFETY: by the caller's promise.
    unsafe { scatter(comm, label, &regions, to) }
}

/// See [`Communicator::barrier`].
pub(crate) fn barrier<C: Communicator + ?Sized>(comm: &C, label: Label) -> Result<()> {
    let mut here = [0u8; 1];
    let mut others = vec![0u8; comm.size()];
    let (here, others) = (View::host_mut(&mut here, Type::Bytes), View::host_mut(&mut others, Type::Bytes));
    let peers = (0..comm.size()).filter(|p| *p != comm.rank());
    let sends: Vec<Message> = peers.clone().map(|peer| Message { peer, view: here }).collect();
    let receives: Vec<Message> = peers.map(|peer| Message { peer, view: others.part(peer, 1) }).collect();
    // SAFETY: both arrays outlive the exchange.
    unsafe { comm.post(label, &sends, &receives)?.wait() }
}

fn summable(op: &'static str, view: View) -> Result<()> {
    if view.dtype != Type::Bytes && view.bytes.is_multiple_of(view.dtype.size()) {
        return Ok(());
    }
    let problem = format!("{} bytes of {:?} cannot be summed", view.bytes, view.dtype);
    Err(Error::Argument { op, problem })
}

/// Equal shares of the elements of `view`, one per rank.
fn regions(view: View, size: usize) -> Vec<View> {
    let (element, elements) = (view.dtype.size(), view.bytes / view.dtype.size());
    // Wide enough for any length and number of ranks.
    let start = |p: usize| (elements as u128 * p as u128 / size as u128) as usize * element;
    (0..size).map(|p| view.part(start(p), start(p + 1) - start(p))).collect()
}

/// Sends region p to rank p and adds what the others send for this rank's into `to`, in rounds.
///
/// # Safety
/// Nobody else touches the views meanwhile; `to` is no part of the regions, or this rank's own.
unsafe fn scatter<C: Communicator + ?Sized>(comm: &C, label: Label, regions: &[View], to: View) -> Result<()> {
    let element = to.dtype.size();
    let round = if matches!(to.place, Place::Cuda(_)) { ROUND_GPU } else { ROUND };
    let step = (round / comm.size() / element).max(SMALL) * element;
    let longest = regions.iter().map(|r| r.bytes).max().unwrap_or(0);
    let mut before: Option<Round> = None;
    for start in (0..longest).step_by(step) {
        let piece = |v: &View| v.part(start.min(v.bytes), step.min(v.bytes.saturating_sub(start)));
        let pieces: Vec<View> = regions.iter().map(piece).collect();
        // SAFETY: as promised by the caller; pieces of different rounds do not overlap.
        let next = unsafe { Round::post(comm, label, &pieces, piece(&to)) }?;
        if let Some(round) = before.replace(next) {
            // SAFETY: as above.
            unsafe { round.add(comm) }?;
        }
    }
    match before {
        // SAFETY: as above.
        Some(round) => unsafe { round.add(comm) },
        None => Ok(()),
    }
}

/// Sends this rank's region to all others and receives theirs.
///
/// # Safety
/// Nobody else touches the regions until the result was waited for or dropped.
unsafe fn gather<C: Communicator + ?Sized>(comm: &C, label: Label, regions: &[View]) -> Result<Box<dyn Pending>> {
    let own = regions[comm.rank()];
    let peers = (0..comm.size()).filter(|p| *p != comm.rank());
    let sends: Vec<Message> = peers.clone().filter(|_| own.bytes > 0).map(|peer| Message { peer, view: own }).collect();
    let theirs = peers.map(|peer| Message { peer, view: regions[peer] });
    let receives: Vec<Message> = theirs.filter(|m| m.view.bytes > 0).collect();
    // SAFETY: as promised by the caller.
    unsafe { comm.post(label, &sends, &receives) }
}

/// Pieces on their way to the ranks that add them up.
struct Round {
    // Before the memory that it receives into.
    pending: Box<dyn Pending>,
    others: Scratch,
    own: View,
    to: View,
}

impl Round {
    /// Sends piece p to rank p and receives what the others have of this rank's.
    ///
    /// # Safety
    /// Nobody else touches the views until the round was added or dropped.
    unsafe fn post<C: Communicator + ?Sized>(comm: &C, label: Label, pieces: &[View], to: View) -> Result<Self> {
        let (rank, own) = (comm.rank(), pieces[comm.rank()]);
        let mut others = Scratch::beside(own, (comm.size() - 1) * own.bytes)?;
        let into = others.view(own);
        let peers = (0..comm.size()).filter(|p| *p != rank);
        let send = |peer: usize| Message { peer, view: pieces[peer] };
        let receive = |peer: usize| Message { peer, view: into.part(place(peer, rank) * own.bytes, own.bytes) };
        let sends: Vec<Message> = peers.clone().map(send).filter(|m| m.view.bytes > 0).collect();
        let receives: Vec<Message> = peers.map(receive).filter(|m| m.view.bytes > 0).collect();
        // SAFETY: `others` is kept with the exchange; the rest by the caller's promise.
        let pending = unsafe { comm.post(label, &sends, &receives) }?;
        Ok(Self { pending, others, own, to })
    }

    /// Waits for the pieces and leaves their sum in `to`.
    ///
    /// # Safety
    /// As for `post`.
    unsafe fn add<C: Communicator + ?Sized>(self, comm: &C) -> Result<()> {
        let Self { pending, others, own, to } = self;
        pending.wait()?;
        // SAFETY: all of them are valid, as long as each other, and nobody else's.
        unsafe { others.add_up(to, own, comm.rank(), comm.size()) }?;
        comm.added(to, comm.size());
        Ok(())
    }
}

/// Where rank `peer` stands among all but `rank`.
pub(crate) fn place(peer: usize, rank: usize) -> usize {
    peer - usize::from(peer > rank)
}
