//! Ranks that keep a clock: what they note, and that it does not depend on when threads run.
#![allow(clippy::unwrap_used)]

use std::rc::Rc;
use std::time::{Duration, Instant};

use graphweft_comm::{
    Clocked, Communicator, Error, Event, Fault, Faulty, Label, Log, Meeting, Message, Metered, Network, Place,
    Recorder, Sum, Times, Traffic, Type, View, Wire, replay, threads,
};

const LABEL: Label = Label { op: "test", traffic: Traffic::Rows, layer: 0 };
const WIRE: Wire = Wire { latency: 1e-5, bandwidth: 1e9 };
const NETWORK: Network = Network { ranks_per_node: 1, inside: None, between: WIRE };

fn options(ranks: usize) -> threads::Options {
    threads::Options { ranks, threads: 1, deadline: Duration::from_secs(20) }
}

/// What a rehearsed rank says of its sums: their bytes.
fn sum(to: View, pieces: usize) -> usize {
    to.bytes * pieces
}

/// Exchanges of everything that there is, between all ranks and in groups, of what has no contents.
fn rehearse(comm: &Rc<dyn Communicator>, recorder: &Recorder<usize>) -> Result<(), Error> {
    let (rank, size) = (comm.rank(), comm.size());
    let view = |bytes| View::nowhere(bytes, Type::F32);
    recorder.compute(1000 * (rank + 1));
    // SAFETY: there is no memory behind the views.
    unsafe {
        let first = Sum::start(comm, LABEL, view(40_000))?;
        recorder.compute(500);
        comm.all_reduce(LABEL, view(400))?;
        comm.reduce_scatter(LABEL, view(4 * 3000 * size), &vec![3000; size], view(12_000))?;
        first.wait()?;
        let pairs = comm.split(&[rank / 2 * 2, rank / 2 * 2 + 1])?;
        let other = 1 - pairs.rank();
        let both = [Message { peer: other, view: view(5000) }, Message { peer: pairs.rank(), view: view(70_000) }];
        pairs.post(LABEL, &both, &both)?.wait()?;
    }
    comm.barrier(LABEL)
}

fn rehearsed(faults: &[Fault], seed: u64) -> Vec<Log<usize>> {
    threads::run(options(4), |comm| {
        let recorder = Recorder::told(sum);
        let faulty: Rc<dyn Communicator> = Rc::new(Faulty::new(comm, faults, seed));
        // Others may be around it.
        let metered: Rc<dyn Communicator> = Rc::new(Metered::new(Rc::new(Clocked::new(faulty, &recorder))));
        rehearse(&metered, &recorder)?;
        Ok::<_, Error>(recorder.take())
    })
    .unwrap()
}

fn times(logs: &[Log<usize>]) -> Vec<Times> {
    replay(logs, &NETWORK, |_, bytes| *bytes as f64 * 1e-9).unwrap()
}

#[test]
fn logs_and_times_do_not_depend_on_when_threads_run() {
    let logs = rehearsed(&[], 0);
    for seed in 0..5 {
        assert_eq!(rehearsed(&[Fault::Delay(Duration::from_millis(2))], seed), logs);
    }
    // All take part in everything, so that the last to compute holds everyone up.
    let all = times(&logs);
    for t in &all {
        assert!((t.end - t.computing - t.waiting).abs() < 1e-12);
        assert!(t.end > all[3].computing && t.end < 1e-3, "{all:?}");
    }
}

#[test]
fn sums_are_told_and_what_goes_nowhere_else_is_not() {
    let logs = rehearsed(&[], 0);
    for (rank, log) in logs.iter().enumerate() {
        let computed: Vec<usize> =
            log.iter().filter_map(|e| if let Event::Compute(n) = e { Some(*n) } else { None }).collect();
        // The small sum is whole on every rank, of the others a rank has its share: a quarter.
        assert_eq!(computed, [1000 * (rank + 1), 500, 4 * 400, 4 * 12_000, 40_000]);
        for event in log {
            if let Event::Post { sends, .. } = event {
                let steps: Vec<usize> = sends.iter().map(|p| (p.peer + 4 - rank) % 4).collect();
                assert!(!steps.contains(&0) && steps.is_sorted(), "rank {rank} to {sends:?}");
            }
        }
    }
}

#[test]
fn only_the_time_of_the_processor_outside_of_the_communicator_counts() {
    let meeting = Meeting::new(2);
    let logs = threads::run(options(2), |comm| {
        let recorder = Recorder::measuring();
        let clocked = Clocked::new(Rc::clone(&comm), &recorder);
        let mut found = Vec::new();
        for _ in 0..2 {
            let start = Instant::now();
            if comm.rank() == 0 {
                while start.elapsed() < Duration::from_millis(30) {
                    std::hint::black_box(start);
                }
            } else {
                std::thread::sleep(Duration::from_millis(60));
            }
            clocked.barrier(LABEL)?;
            found.extend(meeting.bring(&*comm, &recorder)?);
        }
        Ok::<_, Error>(found)
    })
    .unwrap();
    assert_eq!((logs[0].len(), logs[1].len()), (2, 0), "rank 0 has the logs of both meetings");
    for logs in &logs[0] {
        let found = replay(logs, &NETWORK, |_, seconds| *seconds).unwrap();
        // A busy machine gives the thread less than all of its time.
        assert!(found[0].computing > 1e-3 && found[0].computing < 0.05, "{found:?}");
        assert!(found[1].computing < 5e-3, "sleeping is no computing: {found:?}");
        let arrival = found[0].computing + 1e-9 + 1e-5;
        assert!((found[1].end - arrival).abs() < 1e-3, "{found:?}");
    }
}

#[test]
fn what_has_contents_arrives_beside_what_has_none() {
    threads::run(options(3), |comm| {
        let recorder = Recorder::told(sum);
        let clocked = Clocked::new(comm, &recorder);
        let mut all = [clocked.rank() as f64; 1000];
        let nothing = View::nowhere(8000, Type::F64);
        assert_eq!(nothing.part(8, 16).place, Place::Nowhere);
        // SAFETY: the array is borrowed for the calls only.
        unsafe {
            clocked.all_reduce(LABEL, nothing)?;
            clocked.all_reduce(LABEL, View::host_mut(&mut all, Type::F64))?;
        }
        assert_eq!(all, [3.0; 1000]);
        Ok::<_, Error>(())
    })
    .unwrap();
}
