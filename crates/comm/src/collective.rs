//! Collectives made of messages, the same on every communicator: in a fixed order, hence the same bits.

use crate::communicator::{Communicator, Label, Message};
use crate::error::{Error, Result};
use crate::view::{Place, Type, View};

/// Below this every rank sends everything to every other: one round instead of two.
const SMALL: usize = 4096;

/// See [`Communicator::all_reduce`].
///
/// # Safety
/// Nobody else touches `view` meanwhile.
pub(crate) unsafe fn all_reduce<C: Communicator + ?Sized>(comm: &C, label: Label, view: View) -> Result<()> {
    let (rank, size) = (comm.rank(), comm.size());
    if size == 1 || view.bytes == 0 {
        return Ok(());
    }
    if view.bytes <= SMALL {
        let mut all = vec![0u64; (view.bytes * size).div_ceil(8)];
        let all = View { dtype: view.dtype, ..View::host_mut(&mut all, view.dtype) };
        let places =
            (0..size).filter(|p| *p != rank).map(|p| Message { peer: p, view: all.part(p * view.bytes, view.bytes) });
        let sends: Vec<Message> = (0..size).filter(|p| *p != rank).map(|peer| Message { peer, view }).collect();
        // SAFETY: `all` outlives the exchange; `view` by the caller's promise.
        unsafe {
            comm.post(label, &sends, &places.collect::<Vec<_>>())?.wait()?;
            copy(view, all.part(rank * view.bytes, view.bytes));
            copy(all.part(0, view.bytes), view);
            for p in 1..size {
                add(label.op, view, all.part(p * view.bytes, view.bytes))?;
            }
        }
        return Ok(());
    }
    let elements = view.bytes / view.dtype.size();
    let lengths: Vec<usize> = (0..size).map(|p| elements * (p + 1) / size - elements * p / size).collect();
    let starts = starts(&lengths, view.dtype.size());
    let own = view.part(starts[rank], lengths[rank] * view.dtype.size());
    let mut sum = vec![0u64; own.bytes.div_ceil(8)];
    let sum = View { bytes: own.bytes, ..View::host_mut(&mut sum, view.dtype) };
    // SAFETY: `sum` outlives both exchanges; `view` by the caller's promise; its parts do not overlap.
    unsafe {
        reduce_scatter(comm, label, view, &lengths, sum)?;
        copy(sum, own);
        let part = |peer: usize| Message { peer, view: view.part(starts[peer], lengths[peer] * view.dtype.size()) };
        let sends: Vec<Message> = (0..size).filter(|p| *p != rank).map(|peer| Message { peer, view: own }).collect();
        let receives: Vec<Message> = (0..size).filter(|p| *p != rank).map(part).collect();
        comm.post(label, &sends, &receives)?.wait()
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
    let (rank, size, bytes) = (comm.rank(), comm.size(), to.bytes);
    let total: usize = lengths.iter().sum();
    if lengths.len() != size || total * from.dtype.size() != from.bytes || lengths[rank] * from.dtype.size() != bytes {
        let problem = format!("lengths {lengths:?} do not fit {} bytes shared by {size} ranks", from.bytes);
        return Err(Error::Argument { op: label.op, problem });
    }
    let starts = starts(lengths, from.dtype.size());
    let part = |p: usize| from.part(starts[p], lengths[p] * from.dtype.size());
    let mut others = vec![0u64; (bytes * (size - 1)).div_ceil(8)];
    let others = View::host_mut(&mut others, from.dtype);
    let place = |p: usize| others.part((p - usize::from(p > rank)) * bytes, bytes);
    let peers = (0..size).filter(|p| *p != rank);
    let sends: Vec<Message> = peers.clone().map(|peer| Message { peer, view: part(peer) }).collect();
    let receives: Vec<Message> = peers.map(|peer| Message { peer, view: place(peer) }).collect();
    // SAFETY: `others` outlives the exchange; the rest by the caller's promise.
    unsafe {
        comm.post(label, &sends, &receives)?.wait()?;
        copy(if rank == 0 { part(0) } else { place(0) }, to);
        for p in 1..size {
            add(label.op, to, if p == rank { part(p) } else { place(p) })?;
        }
    }
    Ok(())
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

fn starts(lengths: &[usize], size: usize) -> Vec<usize> {
    lengths
        .iter()
        .scan(0, |end, len| {
            let start = *end;
            *end += len * size;
            Some(start)
        })
        .collect()
}

/// # Safety
/// Both views are valid host memory of the same length; they may be the same but not overlap otherwise.
unsafe fn copy(from: View, to: View) {
    debug_assert_eq!(from.bytes, to.bytes);
    // SAFETY: as promised by the caller.
    unsafe { std::ptr::copy(from.pointer, to.pointer, from.bytes) }
}

/// `to += x`.
///
/// # Safety
/// Both views are valid memory of the same length and do not overlap.
unsafe fn add(op: &'static str, to: View, x: View) -> Result<()> {
    macro_rules! sum {
        ($type:ty, $plus:expr) => {{
            let len = to.bytes / size_of::<$type>();
            let (to, x) = (to.pointer.cast::<$type>(), x.pointer.cast::<$type>());
            for k in 0..len {
                // SAFETY: inside both views; pieces of a view need not be aligned.
                unsafe { to.add(k).write_unaligned($plus(to.add(k).read_unaligned(), x.add(k).read_unaligned())) }
            }
        }};
    }
    if to.place != Place::Host || x.place != Place::Host || to.dtype == Type::Bytes {
        let problem = format!("{:?} at {:?} cannot be summed here", to.dtype, to.place);
        return Err(Error::Argument { op, problem });
    }
    match to.dtype {
        Type::F32 => sum!(f32, |a: f32, b: f32| a + b),
        Type::F64 => sum!(f64, |a: f64, b: f64| a + b),
        Type::Bf16 => sum!(half::bf16, |a: half::bf16, b: half::bf16| half::bf16::from_f32(a.to_f32() + b.to_f32())),
        Type::Bytes => {}
    }
    Ok(())
}
