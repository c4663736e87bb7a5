//! What needs no GPU: ranks that meet over TCP, messages of the host, and ranks that are lost.

mod strangers;

use std::net::TcpListener;
use std::panic::resume_unwind;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use super::*;
use crate::view::{Type, View};
use crate::{broadcast, gather};

const LABEL: Label = Label { op: "test", traffic: Traffic::Setup, layer: 0 };

fn secret() -> Secret {
    Secret::of_text("what the ranks of a test know", "a test").unwrap()
}

/// Runs ranks as threads that know nothing of each other but where they meet; those in `absent` do not come.
fn ranks<T: Send>(
    count: usize,
    deadline: Duration,
    absent: &[usize],
    body: impl Fn(Rc<dyn Communicator>) -> Result<T> + Sync,
) -> Vec<Option<Result<T>>> {
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let one = |rank| {
        let (host, elsewhere, secret) = ("127.0.0.1".into(), false, Some(secret()));
        let rendezvous = Rendezvous { rank, ranks: count, host, port, elsewhere, secret };
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

/// Threads of one process.
fn inside(ranks: usize, deadline: Duration) -> threads::Options {
    threads::Options { ranks, threads: 1, deadline }
}

/// Messages of every kind, to others and to itself.
fn talk(comm: &dyn Communicator) -> Result<()> {
    let (rank, count) = (comm.rank(), comm.size());
    let mut sums: Vec<f64> = (0..5000).map(|k| (k * (rank + 1)) as f64 / 7.0).collect();
    // SAFETY: borrowed for the call only.
    unsafe { comm.all_reduce(LABEL, View::host_mut(&mut sums, Type::F64)) }?;
    let total: usize = (1..=count).sum();
    assert!(sums.iter().enumerate().all(|(k, x)| (x - (k * total) as f64 / 7.0).abs() < 1e-6));
    let group = comm.split(&(0..count).rev().collect::<Vec<_>>())?;
    let mut small = [rank as f32 + 0.5];
    // SAFETY: as above.
    unsafe { group.all_reduce(LABEL, View::host_mut(&mut small, Type::F32)) }?;
    assert_eq!(small[0], (total as f32) - 0.5 * count as f32);
    assert_eq!(broadcast(comm, LABEL, vec![rank as u8 + 3; 70_000])?, vec![3; 70_000]);
    assert_eq!(gather(comm, LABEL, vec![rank as u8; rank])?.len(), if rank == 0 { count } else { 0 });
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
    Ok(())
}

#[test]
fn exchanges_are_waited_for_in_any_order() {
    let both_ways = |comm: Rc<dyn Communicator>| {
        let (rank, other) = (comm.rank(), 1 - comm.rank());
        let (own, mut got) = ([[rank as u8; 3], [rank as u8 + 10; 3]], [[0u8; 3]; 2]);
        let post = |own: &[u8], got: &mut [u8]| {
            let send = Message { peer: other, view: View::host(own, Type::Bytes) };
            let receive = Message { peer: other, view: View::host_mut(got, Type::Bytes) };
            // SAFETY: both outlive the exchange.
            unsafe { comm.post(LABEL, &[send], &[receive]) }
        };
        let [first, second] = &mut got;
        let (early, late) = (post(&own[0], first)?, post(&own[1], second)?);
        if rank == 0 {
            late.wait()?;
            early.wait()?;
        } else {
            early.wait()?;
            late.wait()?;
        }
        assert_eq!(got, [[other as u8; 3], [other as u8 + 10; 3]]);
        Ok(())
    };
    ranks(2, PATIENT, &[], both_ways).into_iter().for_each(|found| found.unwrap().unwrap());
}

#[test]
fn the_host_of_every_rank_is_heard_in_order() {
    for count in [1, 2, 5] {
        ranks(count, PATIENT, &[], |comm| talk(&*comm)).into_iter().for_each(|found| found.unwrap().unwrap());
        assert_eq!(launch(inside(count, PATIENT), |comm| talk(&*comm)).unwrap().len(), count, "as threads");
    }
}

/// Work during which `culprit` does `wrong`.
fn labour(comm: &dyn Communicator, culprit: usize, wrong: impl Fn() -> Result<()>) -> Result<()> {
    for step in 0..100 {
        comm.set_step(step);
        if comm.rank() == culprit && step == 3 {
            wrong()?;
        }
        comm.barrier(LABEL)?;
    }
    Ok(())
}

fn failed() -> Result<()> {
    Err(Error::Argument { op: "test", problem: "it failed".into() })
}

/// Everyone else names the culprit.
fn everyone_blames(culprit: usize, deadline: Duration, wrong: impl Fn() -> Result<()> + Sync) {
    let found = ranks(3, deadline, &[], |comm| labour(&*comm, culprit, &wrong));
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

#[test]
fn a_thread_that_fails_takes_the_others_down_and_its_error_is_the_first() {
    let start = Instant::now();
    for culprit in 0..3 {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let notes = Arc::clone(&heard);
        let all = launch(inside(3, PATIENT), move |comm| {
            let outcome = labour(&*comm, culprit, failed);
            if let Err(Error::RankLost { rank, op: "test", step: 3 }) = &outcome {
                notes.lock().unwrap().push((comm.rank(), *rank));
            }
            outcome
        });
        assert!(matches!(&all, Err(Error::Argument { problem, .. }) if problem == "it failed"), "{culprit}: {all:?}");
        let mut heard = heard.lock().unwrap().clone();
        heard.sort_unstable();
        let others = (0..3).filter(|rank| *rank != culprit).map(|rank| (rank, culprit));
        assert_eq!(heard, others.collect::<Vec<_>>());
    }
    assert!(start.elapsed() < PATIENT, "nobody waits for the deadline");
}

#[test]
fn a_thread_that_panics_or_hangs_is_named() {
    let panic = || resume_unwind(Box::new("it was to panic"));
    let hang = || {
        thread::sleep(Duration::from_secs(3600));
        Ok(())
    };
    for (culprit, deadline, wrong) in [(0, 20, panic as fn() -> Result<()>), (2, 20, panic), (0, 1, hang), (1, 1, hang)]
    {
        let start = Instant::now();
        let all = launch(inside(3, Duration::from_secs(deadline)), move |comm| labour(&*comm, culprit, wrong));
        assert!(
            matches!(all, Err(Error::RankLost { rank, op: "test", step: 3 }) if rank == culprit),
            "{culprit}: {all:?}"
        );
        assert!(start.elapsed() < Duration::from_secs(10), "{culprit}: after {:?}", start.elapsed());
    }
}
