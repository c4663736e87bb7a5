//! What needs no GPU: ranks that meet over TCP, messages of the host, and ranks that are lost.

use std::net::TcpListener;
use std::thread;
use std::time::Instant;

use super::*;
use crate::view::{Type, View};
use crate::{broadcast, gather};

const LABEL: Label = Label { op: "test", traffic: Traffic::Setup, layer: 0 };

/// Runs ranks as threads that know nothing of each other but where they meet; those in `absent` do not come.
fn ranks<T: Send>(
    count: usize,
    deadline: Duration,
    absent: &[usize],
    body: impl Fn(Rc<dyn Communicator>) -> Result<T> + Sync,
) -> Vec<Option<Result<T>>> {
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let one = |rank| {
        let rendezvous = Rendezvous { rank, ranks: count, host: "127.0.0.1".into(), port };
        run(&Options { rendezvous, threads: 1, deadline }, &body)
    };
    let one = &one;
    thread::scope(|scope| {
        let start = |rank| (!absent.contains(&rank)).then(|| scope.spawn(move || one(rank)));
        let all: Vec<_> = (0..count).map(start).collect();
        all.into_iter().map(|t| t.map(|t| t.join().unwrap_or_else(|panic| resume_unwind(panic)))).collect()
    })
}

const PATIENT: Duration = Duration::from_secs(20);

#[test]
fn the_host_of_every_rank_is_heard_in_order() {
    for count in [1, 2, 5] {
        let found = ranks(count, PATIENT, &[], |comm| {
            let rank = comm.rank();
            let mut sums: Vec<f64> = (0..5000).map(|k| (k * (rank + 1)) as f64 / 7.0).collect();
            // SAFETY: borrowed for the call only.
            unsafe { comm.all_reduce(LABEL, View::host_mut(&mut sums, Type::F64)) }?;
            let group = comm.split(&(0..count).rev().collect::<Vec<_>>())?;
            let mut small = [rank as f32 + 0.5];
            // SAFETY: as above.
            unsafe { group.all_reduce(LABEL, View::host_mut(&mut small, Type::F32)) }?;
            let heard = broadcast(&*comm, LABEL, vec![rank as u8 + 3; 70_000])?;
            let all = gather(&*comm, LABEL, vec![rank as u8; rank])?;
            // To itself, with messages to another before and after.
            let (own, mut got) = ([rank as u8; 9], [0u8; 18]);
            let into = View::host_mut(&mut got, Type::Bytes);
            let next = (rank + 1) % count;
            let send = |peer| Message { peer, view: View::host(&own, Type::Bytes) };
            let receives = [
                Message { peer: rank, view: into.part(0, 9) },
                Message { peer: (rank + count - 1) % count, view: into.part(9, 9) },
            ];
            // SAFETY: as above.
            unsafe { comm.post(LABEL, &[send(rank), send(next)], &receives)?.wait()? };
            assert_eq!((got[0], usize::from(got[17])), (rank as u8, (rank + count - 1) % count));
            Ok((sums, small, heard, all.len()))
        });
        let total: usize = (1..=count).sum();
        for (rank, found) in found.into_iter().enumerate() {
            let (sums, small, heard, parts) = found.unwrap().unwrap();
            assert!(sums.iter().enumerate().all(|(k, x)| (x - (k * total) as f64 / 7.0).abs() < 1e-6));
            assert_eq!((small[0], heard), ((total as f32) - 0.5 * count as f32, vec![3; 70_000]));
            assert_eq!(parts, if rank == 0 { count } else { 0 });
        }
    }
}

/// Runs work during which `culprit` does `wrong`; everyone else names it.
fn everyone_blames(culprit: usize, deadline: Duration, wrong: impl Fn() -> Result<()> + Sync) {
    let found = ranks(3, deadline, &[], |comm| {
        for step in 0..100 {
            comm.set_step(step);
            if comm.rank() == culprit && step == 3 {
                wrong()?;
            }
            comm.barrier(LABEL)?;
        }
        Ok(())
    });
    for (rank, found) in found.into_iter().enumerate() {
        match found.unwrap() {
            Err(Error::RankLost { rank: named, op: "test", step: 3 }) if rank != culprit => assert_eq!(named, culprit),
            Err(_) if rank == culprit => {}
            other => panic!("rank {rank}: {other:?}"),
        }
    }
}

#[test]
fn a_rank_that_fails_is_named_by_all() {
    let failed = || Err(Error::Argument { op: "test", problem: "it failed".into() });
    let start = Instant::now();
    [0, 1, 2].into_iter().for_each(|rank| everyone_blames(rank, PATIENT, failed));
    assert!(start.elapsed() < PATIENT, "nobody waits for the deadline");
}

#[test]
fn a_rank_that_hangs_is_named_by_all() {
    let hang = || {
        thread::sleep(Duration::from_secs(3));
        Ok(())
    };
    everyone_blames(1, Duration::from_secs(1), hang);
}

#[test]
fn a_rank_that_does_not_come_is_named() {
    for (rank, found) in ranks(3, Duration::from_secs(1), &[1], |_| Ok(())).into_iter().enumerate() {
        match found {
            None => assert_eq!(rank, 1),
            Some(Err(Error::RankLost { rank: 1, .. })) => {}
            Some(other) => panic!("rank {rank}: {other:?}"),
        }
    }
    let nobody = ranks(2, Duration::from_millis(300), &[0], |_| Ok(())).remove(1).unwrap();
    assert!(nobody.unwrap_err().to_string().contains("rank 0 at 127.0.0.1"));
}
