//! Ranks as threads: right results whatever the delays, and the right rank blamed whatever breaks.
#![allow(clippy::unwrap_used, clippy::panic)]

mod work;

use std::rc::Rc;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use graphweft_comm::{
    Checked, Communicator, Error, Fault, Faulty, Message, Metered, Pending, Result, Type, View, threads,
};
use work::{OPS, label, work};

fn options(ranks: usize) -> threads::Options {
    threads::Options { ranks, threads: 1, deadline: Duration::from_secs(30) }
}

#[test]
fn results_are_right_and_their_bits_the_same_whatever_the_delays() {
    for ranks in [1, 2, 3, 8] {
        let plain = threads::run(options(ranks), |comm| work(&comm, 3)).unwrap();
        for seed in 0..3 {
            let delay = Fault::Delay(Duration::from_millis(2));
            let late = threads::run(options(ranks), |comm| {
                let comm: Rc<dyn Communicator> = Rc::new(Faulty::new(comm, &[delay], seed));
                work(&comm, 3)
            });
            assert_eq!(late.unwrap(), plain, "{ranks} ranks");
        }
        let checked = threads::run(options(ranks), |comm| {
            let comm: Rc<dyn Communicator> = Rc::new(Checked::new(Rc::new(Metered::new(comm))));
            work(&comm, 3)
        });
        assert_eq!(checked.unwrap(), plain, "{ranks} ranks");
    }
}

#[test]
fn sixty_four_ranks_work() {
    let bits = threads::run(options(64), |comm| work(&comm, 2)).unwrap();
    assert!(bits.iter().all(|b| *b == bits[0]));
}

/// Runs `work` on ranks of which one has a fault; gives what each of the others saw, and after what time.
fn break_one(ranks: usize, victim: usize, deadline: Duration, fault: Fault) -> Vec<(usize, Error, Duration)> {
    let seen = Mutex::new(Vec::new());
    let start = Instant::now();
    let result = threads::run(threads::Options { ranks, threads: 1, deadline }, |comm| {
        let rank = comm.rank();
        let comm: Rc<dyn Communicator> = Rc::new(Faulty::new(comm, &[fault], 1));
        let result = work(&comm, 20).map(drop);
        if let (Err(e), false) = (&result, rank == victim) {
            seen.lock().unwrap().push((rank, e.clone(), start.elapsed()));
        }
        result
    });
    assert!(matches!(result, Err(Error::RankLost { rank, .. }) if rank == victim), "{fault:?}: {result:?}");
    let seen = seen.into_inner().unwrap();
    assert_eq!(seen.len(), ranks - 1, "{fault:?}: {seen:?}");
    seen
}

#[test]
fn a_rank_that_panics_is_named_to_all_others_at_once() {
    for ranks in [2, 3, 5] {
        for victim in 0..ranks {
            for at in [0, 1, 5, 23] {
                let fault = Fault::Panic { rank: victim, at };
                let start = Instant::now();
                for (rank, e, _) in break_one(ranks, victim, Duration::from_secs(30), fault) {
                    let Error::RankLost { rank: lost, op, step } = e else { panic!("{fault:?}: rank {rank}: {e}") };
                    assert_eq!(lost, victim, "{fault:?}: rank {rank} of {ranks}");
                    assert!(OPS.contains(&op) && step <= 2, "{fault:?}: {op} in step {step}");
                }
                assert!(start.elapsed() < Duration::from_secs(5));
            }
        }
    }
}

#[test]
fn a_rank_that_hangs_is_named_to_all_others_within_the_deadline() {
    let one = |(ranks, victim, at)| {
        let fault = Fault::Hang { rank: victim, at, time: Duration::from_millis(1200) };
        for (rank, e, time) in break_one(ranks, victim, Duration::from_millis(300), fault) {
            assert!(matches!(e, Error::RankLost { rank, .. } if rank == victim), "{fault:?}: rank {rank}: {e}");
            assert!(time < Duration::from_millis(1100), "{fault:?}: rank {rank} after {time:?}");
        }
    };
    // At the same time: all they do is wait.
    std::thread::scope(|scope| {
        for case in [(2, 0, 3), (3, 2, 0), (4, 1, 14), (5, 3, 7)] {
            scope.spawn(move || one(case));
        }
    });
}

#[test]
fn a_broken_connection_is_noticed() {
    let fault = Fault::Drop { from: 1, to: 2, at: 4 };
    let result =
        threads::run(threads::Options { ranks: 4, threads: 1, deadline: Duration::from_millis(300) }, |comm| {
            let comm: Rc<dyn Communicator> = Rc::new(Faulty::new(comm, &[fault], 1));
            work(&comm, 20).map(drop)
        });
    assert!(matches!(result, Err(Error::RankLost { rank: 1, .. })), "{result:?}");
}

#[test]
fn a_rank_that_fails_or_stops_early_is_named() {
    let own = Error::Argument { op: "own", problem: "of rank 1".into() };
    let failed =
        threads::run(options(3), |comm| if comm.rank() == 1 { Err(own.clone()) } else { work(&comm, 2).map(drop) });
    assert_eq!(failed, Err(own));
    let stopped = threads::run(options(3), |comm| if comm.rank() == 2 { Ok(()) } else { work(&comm, 2).map(drop) });
    assert!(matches!(stopped, Err(Error::RankLost { rank: 2, op: "small", step: 0 })), "{stopped:?}");
}

#[test]
fn a_program_does_not_wait_for_a_rank_that_never_comes_back() {
    let start = Instant::now();
    let options = threads::Options { ranks: 3, threads: 1, deadline: Duration::from_millis(300) };
    let result = threads::launch(options, |comm| {
        let hang = Fault::Hang { rank: 1, at: 9, time: Duration::from_secs(3600) };
        let comm: Rc<dyn Communicator> = Rc::new(Faulty::new(comm, &[hang], 1));
        work(&comm, 20).map(drop)
    });
    assert!(matches!(result, Err(Error::RankLost { rank: 1, step: 0 | 1, .. })), "{result:?}");
    assert!(start.elapsed() < Duration::from_secs(5));
    assert_eq!(threads::launch(options, |comm| work(&comm, 1).map(|_| comm.rank())).unwrap(), [0, 1, 2]);
}

/// What each rank saw of an exchange, by such a communicator, in which rank r sends `bytes(r)` to the next.
fn unequal(
    by: fn(Rc<dyn Communicator>) -> Rc<dyn Communicator>,
    bytes: impl Fn(usize) -> (usize, usize, &'static str) + Sync,
) -> Vec<String> {
    let seen = Mutex::new(vec![String::new(); 3]);
    let short = threads::Options { deadline: Duration::from_millis(500), ..options(3) };
    let result: Result<Vec<()>> = threads::run(short, |comm| {
        let rank = comm.rank();
        let comm = by(comm);
        let (sent, expected, op) = bytes(rank);
        let (own, mut got) = (vec![0u8; sent], vec![0u8; expected]);
        let send = Message { peer: (rank + 1) % 3, view: View::host(&own, Type::Bytes) };
        let receive = Message { peer: (rank + 2) % 3, view: View::host_mut(&mut got, Type::Bytes) };
        // SAFETY: the vectors outlive the exchange.
        let result = unsafe { comm.post(label(op), &[send], &[receive]) }.and_then(Pending::wait);
        seen.lock().unwrap()[rank] = result.as_ref().map_or_else(ToString::to_string, |()| String::new());
        // Stays, so that the others see what they see by themselves.
        std::thread::sleep(Duration::from_millis(100));
        result
    });
    assert!(matches!(result, Err(Error::Mismatch { .. })), "{result:?}");
    seen.into_inner().unwrap()
}

#[test]
fn lengths_that_differ_are_told_to_both_sides() {
    let seen = unequal(|comm| comm, |rank| (if rank == 0 { 3000 } else { 2999 }, 2999, "shift"));
    for text in &seen[..2] {
        assert!(text.contains("rank 0 sends 3000 bytes to rank 1, which expects 2999"), "{seen:?}");
    }
}

fn checked(comm: Rc<dyn Communicator>) -> Rc<dyn Communicator> {
    Rc::new(Checked::new(comm))
}

#[test]
fn calls_that_differ_are_told_instead_of_hanging() {
    // Rank 1 is in another operation; rank 2 expects more. Lengths agree by chance in the first case.
    let seen = unequal(checked, |rank| (10, 10, if rank == 1 { "attend" } else { "aggregate" }));
    assert!(seen[0].contains("rank 0 is in aggregate of layer 0") && seen[0].contains("rank 1 in attend"), "{seen:?}");
    assert!(seen[1].contains("rank 1 is in attend of layer 0") && seen[1].contains("rank 0 in aggregate"), "{seen:?}");
    let seen = unequal(checked, |rank| (10, if rank == 2 { 11 } else { 10 }, "attend"));
    assert!(
        seen[2].contains("11 bytes in 1 from it") && seen[2].contains("10 bytes in 1 messages to rank 2"),
        "{seen:?}"
    );
    // A collective on one side, a message on the other: without a check all would wait until the deadline.
    let result: Result<Vec<()>> = threads::run(options(2), |comm| {
        let comm = Checked::new(comm);
        let mut x = [1.0f64; 3];
        let view = View::host_mut(&mut x, Type::F64);
        let receive = [Message { peer: 0, view }];
        // SAFETY: `x` outlives the exchanges.
        unsafe {
            match comm.rank() {
                0 => comm.all_reduce(label("moments"), view),
                _ => comm.post(label("shift"), &[], &receive)?.wait(),
            }
        }
    });
    assert!(matches!(&result, Err(Error::Mismatch { problem, .. }) if problem.contains("moments")), "{result:?}");
}

#[test]
fn what_was_dropped_is_never_touched_again() {
    let result: Result<Vec<()>> = threads::run(options(2), |comm| {
        let rank = comm.rank();
        let peer = 1 - rank;
        if rank == 0 {
            let own = vec![7u8; 100_000];
            let send = [Message { peer, view: View::host(&own, Type::Bytes) }];
            // SAFETY: dropped before the vector.
            drop(unsafe { comm.post(label("shift"), &send, &[]) }?);
            drop(own);
            return comm.barrier(label("barrier"));
        }
        std::thread::sleep(Duration::from_millis(20));
        let mut got = vec![0u8; 100_000];
        let receive = [Message { peer, view: View::host_mut(&mut got, Type::Bytes) }];
        // SAFETY: the vector outlives the exchange.
        let result = unsafe { comm.post(label("shift"), &[], &receive)?.wait() };
        assert!(got.iter().all(|x| *x == 0));
        result
    });
    assert!(matches!(result, Err(Error::RankLost { rank: 0, .. })), "{result:?}");
}

#[test]
fn calls_that_cannot_be_right_are_refused() {
    let found = threads::run(options(2), |comm| {
        let mut bytes = [0u8; 3];
        let view = View::host_mut(&mut bytes, Type::Bytes);
        // SAFETY: nothing is sent.
        let errors = unsafe {
            [
                comm.post(label("shift"), &[Message { peer: 2, view }], &[]).map(drop),
                comm.all_reduce(label("sum"), view),
                comm.reduce_scatter(label("sum"), View { dtype: Type::BF16, ..view }.part(0, 2), &[1], view.part(0, 2)),
                comm.split(&[0, 0, 1]).map(drop),
                comm.split(&[1 - comm.rank()]).map(drop),
                comm.split(&[0, 1, 2]).map(drop),
            ]
        };
        Ok::<_, Error>(errors)
    });
    for errors in found.unwrap() {
        assert!(errors.iter().all(|e| matches!(e, Err(Error::Argument { .. }))), "{errors:?}");
    }
    let none = threads::run(options(0), |_| Ok::<_, Error>(()));
    assert!(matches!(none, Err(Error::Argument { .. })));
}
