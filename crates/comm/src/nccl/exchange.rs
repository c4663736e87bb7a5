//! An exchange under way: what is on the host, over the hub; what is on GPUs, by NCCL.

use std::rc::Rc;
use std::time::Instant;

use super::member::Member;
use crate::communicator::{Message, Pending};
use crate::error::{Error, Result};
use crate::gpu::{Current, End, Moment};
use crate::moving::{self, Fault};
use crate::view::{Gpu, Place, View};

pub(super) struct Exchange {
    member: Rc<Member>,
    op: &'static str,
    /// From others to the host, with the number of each among those of its rank.
    on_host: Vec<(Message, u64)>,
    on_gpu: Option<Flight>,
    /// Whoever is suspected if nothing comes.
    suspect: usize,
}

/// What NCCL does.
struct Flight {
    over: Moment,
    gpu: Gpu,
}

/// The GPU of a message that is on one.
fn gpu(message: &Message) -> Option<Gpu> {
    match message.view.place {
        Place::Cuda(gpu) => Some(gpu),
        Place::Host | Place::Nowhere => None,
    }
}

impl Exchange {
    /// # Safety
    /// As for [`Communicator::post`](crate::Communicator::post); peers are ranks of the world.
    pub(super) unsafe fn start(
        member: &Rc<Member>,
        op: &'static str,
        sends: &[Message],
        receives: &[Message],
    ) -> Result<Self> {
        let rank = member.rank;
        let suspect = receives.iter().chain(sends).map(|m| m.peer).find(|peer| *peer != rank).unwrap_or(rank);
        // SAFETY: as promised by the caller.
        let on_gpu = unsafe { Flight::start(member, op, sends, receives) }?;
        let (own, others): (Vec<&Message>, Vec<&Message>) =
            sends.iter().filter(|m| gpu(m).is_none()).partition(|m| m.peer == rank);
        for message in others {
            // SAFETY: the view is valid, as promised by the caller.
            let bytes = unsafe { std::slice::from_raw_parts(message.view.pointer, message.view.bytes) };
            member.line.send(message.peer, bytes);
        }
        let (to_self, on_host): (Vec<&Message>, Vec<&Message>) =
            receives.iter().filter(|m| gpu(m).is_none()).partition(|m| m.peer == rank);
        for (from, to) in pairs(op, rank, &own, &to_self)? {
            // SAFETY: both are valid and as long as each other.
            unsafe { std::ptr::copy(from.pointer, to.pointer, from.bytes) };
        }
        let on_host = on_host.into_iter().map(|m| (*m, member.expect(m.peer))).collect();
        Ok(Self { member: Rc::clone(member), op, on_host, on_gpu, suspect })
    }

    fn mismatch(&self, from: usize, sent: usize, expected: usize) -> Error {
        let (op, to, step) = (self.op, self.member.rank, self.member.step.get());
        let problem = format!("in {op} rank {from} sends {sent} bytes to rank {to}, which expects {expected}");
        Error::Mismatch { step, problem }
    }
}

/// What a rank sends to itself, with where it goes.
fn pairs(op: &'static str, rank: usize, from: &[&Message], to: &[&Message]) -> Result<Vec<(View, View)>> {
    let equal = from.len() == to.len() && from.iter().zip(to).all(|(a, b)| a.view.bytes == b.view.bytes);
    if !equal {
        let problem = format!("what rank {rank} sends to itself is not what it expects of itself");
        return Err(Error::Argument { op, problem });
    }
    Ok(from.iter().zip(to).map(|(a, b)| (a.view, b.view)).collect())
}

impl Flight {
    /// Enqueues what is on GPUs, if anything is.
    ///
    /// # Safety
    /// As for [`Exchange::start`].
    unsafe fn start(
        member: &Member,
        op: &'static str,
        sends: &[Message],
        receives: &[Message],
    ) -> Result<Option<Self>> {
        let some = |m: &&Message| gpu(m).is_some() && m.view.bytes > 0;
        let (sends, receives): (Vec<&Message>, Vec<&Message>) =
            (sends.iter().filter(some).collect(), receives.iter().filter(some).collect());
        let Some(first) = sends.iter().chain(&receives).find_map(|m| gpu(m)) else { return Ok(None) };
        let connection = member.connect(op, first)?;
        let on = connection.stream.cu_stream().expose_provenance();
        let _current = Current::of(first)?;
        for message in sends.iter().chain(&receives) {
            if gpu(message).is_some_and(|gpu| gpu.device != connection.device) {
                let problem = "all memory of a rank must be on one GPU".into();
                return Err(Error::Argument { op, problem });
            }
        }
        // All memory of a rank is in the order of one stream.
        Moment::of(first, first.stream)?.hold_up(first, on)?;
        let rank = member.rank;
        let (own, out): (Vec<&Message>, Vec<&Message>) = sends.into_iter().partition(|m| m.peer == rank);
        let (to_self, into): (Vec<&Message>, Vec<&Message>) = receives.into_iter().partition(|m| m.peer == rank);
        for (from, to) in pairs(op, rank, &own, &to_self)? {
            // SAFETY: as promised by the caller.
            unsafe {
                let source = End { pointer: from.pointer, gpu: first };
                crate::gpu::copy(source, End { pointer: to.pointer, gpu: Gpu { aside: on, ..first } }, from.bytes)
            }?;
        }
        if !out.is_empty() || !into.is_empty() {
            let (nccl, comm) = (&connection.nccl, connection.comm);
            let group = nccl.group(|| {
                for Message { peer, view } in out {
                    // SAFETY: as promised by the caller; the context is current.
                    unsafe { nccl.send(comm, view.pointer, view.bytes, *peer, on) }?;
                }
                for Message { peer, view } in into {
                    // SAFETY: as above.
                    unsafe { nccl.receive(comm, view.pointer, view.bytes, *peer, on) }?;
                }
                Ok(())
            });
            group.map_err(|e| member.broken(op, e))?;
            member.until_ready(op, connection)?;
        }
        Ok(Some(Self { over: Moment::of(first, on)?, gpu: first }))
    }
}

impl Pending for Exchange {
    fn wait(mut self: Box<Self>) -> Result<()> {
        let member = Rc::clone(&self.member);
        let end = Instant::now() + member.deadline;
        for (message, number) in std::mem::take(&mut self.on_host) {
            let bytes = member.hear(self.op, message.peer, number, end)?;
            if bytes.len() != message.view.bytes {
                return Err(self.mismatch(message.peer, bytes.len(), message.view.bytes));
            }
            // SAFETY: whoever posted this keeps the view until it was waited for; lengths are equal.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), message.view.pointer, bytes.len()) };
        }
        if let Some(flight) = self.on_gpu.take() {
            // The host waits here: if a rank is lost, what follows must not be computed from what never came.
            member.until(self.op, self.suspect, || Ok(flight.over.is_past()? || member.is_broken()?))?;
        }
        Ok(())
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if let Some(Flight { over, gpu }) = self.on_gpu.take() {
            // Memory that is used again is not touched before NCCL is done with it, or aborted.
            let _: std::result::Result<(), Fault> = moving::hold_up(Place::Cuda(gpu), &over);
        }
    }
}
