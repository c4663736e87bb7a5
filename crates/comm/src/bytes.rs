//! Bytes between ranks: what is decided once, and what is reported.

use crate::communicator::{Communicator, Label, Message};
use crate::error::{Error, Result};
use crate::view::{Type, View};

/// Gives every rank the bytes that rank 0 brings; what the others bring is dropped.
pub fn broadcast(comm: &dyn Communicator, label: Label, mut bytes: Vec<u8>) -> Result<Vec<u8>> {
    let others = 1..comm.size();
    let mut length = [bytes.len() as u64];
    if comm.rank() == 0 {
        for view in [View::host(&length, Type::Bytes), View::host(&bytes, Type::Bytes)] {
            exchange(comm, label, others.clone().map(|peer| Message { peer, view }), [])?;
        }
        return Ok(bytes);
    }
    let first = |view| [Message { peer: 0, view }];
    exchange(comm, label, [], first(View::host_mut(&mut length, Type::Bytes)))?;
    bytes = zeros(label, length[0])?;
    exchange(comm, label, [], first(View::host_mut(&mut bytes, Type::Bytes)))?;
    Ok(bytes)
}

/// Gives rank 0 the bytes of every rank, in order; the others get nothing.
pub fn gather(comm: &dyn Communicator, label: Label, bytes: Vec<u8>) -> Result<Vec<Vec<u8>>> {
    let mut length = [bytes.len() as u64];
    if comm.rank() != 0 {
        for view in [View::host_mut(&mut length, Type::Bytes), View::host(&bytes, Type::Bytes)] {
            exchange(comm, label, [Message { peer: 0, view }], [])?;
        }
        return Ok(Vec::new());
    }
    let mut lengths = vec![0u64; comm.size()];
    let place = |(peer, length): (usize, &mut u64)| Message {
        peer,
        view: View::host_mut(std::slice::from_mut(length), Type::Bytes),
    };
    let places: Vec<Message> = lengths.iter_mut().enumerate().skip(1).map(place).collect();
    exchange(comm, label, [], places)?;
    let mut all = vec![bytes];
    for length in &lengths[1..] {
        all.push(zeros(label, *length)?);
    }
    let place = |(peer, bytes): (usize, &mut Vec<u8>)| Message { peer, view: View::host_mut(bytes, Type::Bytes) };
    let places: Vec<Message> = all.iter_mut().enumerate().skip(1).map(place).collect();
    exchange(comm, label, [], places)?;
    Ok(all)
}

/// Memory for what another rank says it will send.
fn zeros(label: Label, length: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let length = usize::try_from(length).ok().filter(|n| bytes.try_reserve_exact(*n).is_ok());
    let problem = || format!("there is no memory for what another rank sends in {}", label.op);
    bytes.resize(length.ok_or_else(|| Error::Argument { op: label.op, problem: problem() })?, 0);
    Ok(bytes)
}

/// Sends and receives what is not empty, and waits for it.
fn exchange(
    comm: &dyn Communicator,
    label: Label,
    sends: impl IntoIterator<Item = Message>,
    receives: impl IntoIterator<Item = Message>,
) -> Result<()> {
    let [sends, receives] = [sends.into_iter().collect::<Vec<_>>(), receives.into_iter().collect()]
        .map(|all: Vec<Message>| all.into_iter().filter(|m| m.view.bytes > 0).collect::<Vec<_>>());
    // SAFETY: the callers own what the views show and do nothing else until this returns.
    unsafe { comm.post(label, &sends, &receives)?.wait() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::communicator::Traffic;
    use crate::threads;

    const LABEL: Label = Label { op: "test", traffic: Traffic::Setup, layer: 0 };

    #[test]
    fn everyone_hears_the_first_rank_and_it_hears_everyone() {
        for ranks in [1, 2, 5] {
            let options = threads::Options { ranks, threads: 1, deadline: Duration::from_secs(20) };
            let found = threads::run(options, |comm| -> Result<_> {
                let rank = comm.rank();
                let heard = broadcast(&*comm, LABEL, vec![rank as u8 + 7; 3 - rank.min(3)])?;
                let nothing = broadcast(&*comm, LABEL, Vec::new())?;
                // Rank 1 has nothing to say.
                let all = gather(&*comm, LABEL, vec![rank as u8; [4, 0, 1, 2, 3][rank]])?;
                Ok((heard, nothing, all))
            });
            for (rank, (heard, nothing, all)) in found.unwrap().into_iter().enumerate() {
                assert_eq!((heard, nothing), (vec![7; 3], vec![]));
                let expected: Vec<Vec<u8>> = (0..ranks).map(|r| vec![r as u8; [4, 0, 1, 2, 3][r]]).collect();
                assert_eq!(all, if rank == 0 { expected } else { Vec::new() });
            }
        }
    }
}
