//! How fast ranks talk: time of a barrier, of sums, and of everybody sending to everybody.
//!
//! ```text
//! cargo run --release -p graphweft-comm --example exchange -- 4
//! cargo build --release -p graphweft-comm --example exchange
//! mpirun -n 4 target/release/examples/exchange
//! ```
#![allow(clippy::print_stdout)]

use std::rc::Rc;
use std::time::{Duration, Instant};

use graphweft_comm::{Communicator, Error, Label, Launcher, Message, Result, Traffic, Type, View, mpi, threads};

const LABEL: Label = Label { op: "example", traffic: Traffic::Rows, layer: 0 };
const DEADLINE: Duration = Duration::from_secs(60);

fn main() -> Result<()> {
    let ranks = std::env::args().nth(1).and_then(|arg| arg.parse().ok()).unwrap_or(2);
    match Launcher::of_this_process() {
        None => threads::launch(threads::Options { ranks, threads: 1, deadline: DEADLINE }, measure).map(drop),
        Some(_) => mpi::run(mpi::Options { threads: 1, deadline: DEADLINE }, measure),
    }
}

#[allow(clippy::needless_pass_by_value)] // A rank's body owns its communicator.
fn measure(comm: Rc<dyn Communicator>) -> Result<()> {
    let size = comm.size();
    let tell = |what: &str, time: Duration, bytes: usize| {
        if comm.rank() == 0 {
            let (time, rate) = (time.as_secs_f64() * 1e6, bytes as f64 / time.as_secs_f64() / 1e9);
            println!("{size} ranks  {what:32}  {time:>10.1} µs  {rate:>6.2} GB/s received by each");
        }
    };
    tell("barrier", median(&*comm, 201, || comm.barrier(LABEL))?, 0);
    for len in [8, 1 << 12, 1 << 22] {
        let mut x = vec![1.0f32; len / 4];
        let view = View::host_mut(&mut x, Type::F32);
        let runs = if len > 1 << 20 { 9 } else { 101 };
        // SAFETY: `x` outlives the sums.
        let time = median(&*comm, runs, || unsafe { comm.all_reduce(LABEL, view) })?;
        tell(&format!("sum of {len} bytes"), time, len);
    }
    for len in [1 << 10, 1 << 16, 1 << 22] {
        let (mut own, mut got) = (vec![1u8; len], vec![0u8; len * size]);
        let (own, got) = (View::host_mut(&mut own, Type::Bytes), View::host_mut(&mut got, Type::Bytes));
        let peers = (0..size).filter(|p| *p != comm.rank());
        let sends: Vec<Message> = peers.clone().map(|peer| Message { peer, view: own }).collect();
        let receives: Vec<Message> = peers.map(|peer| Message { peer, view: got.part(peer * len, len) }).collect();
        let runs = if len > 1 << 20 { 9 } else { 101 };
        // SAFETY: both vectors outlive the exchanges.
        let time = median(&*comm, runs, || unsafe { comm.post(LABEL, &sends, &receives)?.wait() })?;
        tell(&format!("{len} bytes to each other rank"), time, len * (size - 1));
    }
    Ok(())
}

/// The median time of an exchange, all ranks beginning together.
fn median(comm: &dyn Communicator, runs: usize, exchange: impl Fn() -> Result<()>) -> Result<Duration> {
    let mut times = Vec::with_capacity(runs);
    for _ in 0..runs {
        comm.barrier(LABEL)?;
        let start = Instant::now();
        exchange()?;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    times.get(runs / 2).copied().ok_or_else(|| Error::Argument { op: "example", problem: "no runs".into() })
}
