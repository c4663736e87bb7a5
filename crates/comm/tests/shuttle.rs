//! The core of the threads communicator under shuttle: its own source, compiled with locks whose schedules are tried at
//! random and, for the smallest cases, all of them. A missed wake-up or a deadlock fails the test with the schedule
//! that led to it.
#![allow(clippy::unwrap_used, clippy::panic)]

mod sync {
    pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard};
}

mod view {
    pub(crate) use graphweft_comm::{Place, View};
}

/// Nothing but the host.
mod moving {
    use std::sync::Arc;

    use crate::view::{Place, View};

    pub(crate) enum Moment {}

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Fault {}

    pub(crate) fn now(_: Place) -> Result<Option<Arc<Moment>>, Fault> {
        Ok(None)
    }

    pub(crate) fn hold_up(_: Place, moment: &Moment) -> Result<(), Fault> {
        match *moment {}
    }

    #[derive(Clone, Copy)]
    pub(crate) struct Held<'a> {
        pub(crate) view: View,
        #[allow(dead_code)] // There are no moments here.
        pub(crate) until: Option<&'a Moment>,
    }

    /// # Safety
    /// Both views are valid and of the same length, that of `to` for writing.
    pub(crate) unsafe fn copy(from: Held<'_>, to: Held<'_>) -> Result<Option<Arc<Moment>>, Fault> {
        // SAFETY: as promised by the caller.
        unsafe { std::ptr::copy(from.view.pointer, to.view.pointer, from.view.bytes) };
        Ok(None)
    }
}

#[allow(dead_code)]
#[path = "../src/threads/world.rs"]
mod world;

use std::time::Duration;

use graphweft_comm::{Type, View};
use shuttle::sync::Arc;
use shuttle::thread;
use world::{Failure, Posted, World};

/// Copied under the lock, or outside of it.
const SMALL: usize = 8;
const LARGE: usize = 4096;

/// Ranks that end tell the others, as they do in `threads`.
fn ranks(count: usize, body: impl Fn(&World, usize) + Send + Sync + 'static) {
    // Time does not pass here: nobody is ever too late.
    let world = Arc::new(World::new(count, Duration::from_secs(3600)));
    let body = Arc::new(body);
    let one = |rank: usize| {
        let (world, body) = (Arc::clone(&world), Arc::clone(&body));
        thread::spawn(move || {
            body(&world, rank);
            world.end(rank);
        })
    };
    let threads: Vec<_> = (0..count).map(one).collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
}

fn send(to: usize, x: &[u8]) -> Posted {
    Posted { peer: to, view: View::host(x, Type::Bytes) }
}

fn receive(from: usize, x: &mut [u8]) -> Posted {
    Posted { peer: from, view: View::host_mut(x, Type::Bytes) }
}

/// Each rank sends two messages of different lengths to the next and waits in its own order.
fn around(world: &World, rank: usize, count: usize, lengths: [usize; 2]) {
    let (next, before) = ((rank + 1) % count, (rank + count - 1) % count);
    let own = lengths.map(|len| vec![rank as u8 + 1; len]);
    let mut got = lengths.map(|len| vec![0; len]);
    let ids = {
        let [a, b] = &mut got;
        // SAFETY: the vectors outlive both waits.
        unsafe {
            [
                world.post(rank, 0, &[send(next, &own[0])], &[receive(before, a)]),
                world.post(rank, 0, &[send(next, &own[1])], &[receive(before, b)]),
            ]
        }
    };
    let order = if rank.is_multiple_of(2) { [0, 1] } else { [1, 0] };
    for k in order {
        world.wait(rank, ids[k]).unwrap();
    }
    assert!(got.iter().flatten().all(|x| *x == before as u8 + 1));
}

#[test]
fn every_schedule_of_two_ranks_ends() {
    for lengths in [[SMALL, LARGE], [LARGE, LARGE]] {
        shuttle::check_dfs(move || ranks(2, move |world, rank| around(world, rank, 2, lengths)), Some(20_000));
    }
}

#[test]
fn three_ranks_end_in_any_order_of_waits() {
    let body = || ranks(3, |world, rank| around(world, rank, 3, [LARGE, SMALL]));
    shuttle::check_random(body, 3_000);
    shuttle::check_pct(body, 3_000, 3);
}

#[test]
fn memory_is_given_back_in_time_and_its_owner_named() {
    let body = || {
        ranks(3, |world, rank| {
            let (next, before) = ((rank + 1) % 3, (rank + 2) % 3);
            let (own, mut got) = (vec![rank as u8 + 1; LARGE], vec![0; LARGE]);
            // SAFETY: the vectors outlive wait and withdrawal.
            let id = unsafe { world.post(rank, 0, &[send(next, &own)], &[receive(before, &mut got)]) };
            if rank == 1 {
                world.withdraw(rank, id);
                // Nobody may write any more: a copy that is still under way would be a race that changes this.
                let found = got.clone();
                assert!(found.iter().all(|x| *x == 0) || found.iter().all(|x| *x == before as u8 + 1));
                got.fill(77);
                thread::yield_now();
                assert!(got.iter().all(|x| *x == 77));
                return;
            }
            let result = world.wait(rank, id);
            assert!(result.is_ok() || result == Err(Failure::Lost(1)), "{result:?}");
            world.withdraw(rank, id);
        });
    };
    shuttle::check_random(body, 3_000);
    shuttle::check_pct(body, 3_000, 3);
}

#[test]
fn a_rank_that_fails_or_ends_wakes_all_that_wait() {
    for fails in [true, false] {
        let body = move || {
            ranks(3, move |world, rank| {
                if rank == 0 {
                    if fails {
                        world.fail(rank);
                    }
                    return;
                }
                let (own, mut got) = (vec![1; LARGE], [vec![0; LARGE], vec![0; SMALL]]);
                let [a, b] = &mut got;
                let peer = 3 - rank;
                // SAFETY: the vectors outlive wait and withdrawal.
                let id = unsafe { world.post(rank, 0, &[send(peer, &own)], &[receive(peer, a), receive(0, b)]) };
                assert_eq!(world.wait(rank, id), Err(Failure::Lost(0)));
                world.withdraw(rank, id);
            });
        };
        shuttle::check_random(body, 3_000);
        shuttle::check_pct(body, 3_000, 3);
    }
}
