//! What ranks do in the tests of every communicator: all kinds of exchanges, each checked against what one rank would
//! compute.

use std::rc::Rc;

use graphweft_comm::{Communicator, Label, Message, Result, Sum, Traffic, Type, View};

pub(crate) const fn label(op: &'static str) -> Label {
    Label { op, traffic: Traffic::Rows, layer: 0 }
}

/// Exchanges of one step, by name, in order.
pub(crate) const OPS: [&str; 8] = ["small", "large", "large", "shift", "exchange", "group", "gradients", "barrier"];

/// Runs `steps` steps and gives the bits of all results.
pub(crate) fn work(comm: &Rc<dyn Communicator>, steps: u64) -> Result<Vec<u64>> {
    let (rank, size) = (comm.rank(), comm.size());
    let mine: Vec<usize> = (0..size).filter(|p| p % 2 == rank % 2).collect();
    let group = comm.split(&mine)?;
    let mut bits = Vec::new();
    for step in 0..steps {
        comm.set_step(step);
        for (op, len) in [("small", 5), ("large", 3001)] {
            let value = |rank: usize, k: usize| 0.1 * (rank + 1) as f64 + (k as f64) * 1e-3 + step as f64;
            let mut x: Vec<f64> = (0..len).map(|k| value(rank, k)).collect();
            // SAFETY: `x` is borrowed for the call only.
            unsafe { comm.all_reduce(label(op), View::host_mut(&mut x, Type::F64)) }?;
            let expected = |k: usize| (1..size).fold(value(0, k), |sum, p| sum + value(p, k));
            assert!(x.iter().enumerate().all(|(k, x)| *x == expected(k)), "{op} on rank {rank}");
            bits.extend(x.iter().map(|x| x.to_bits()));
        }
        shift(comm, step)?;
        exchange(comm)?;
        let mut x = [rank as f32; 7];
        // SAFETY: as above.
        unsafe { group.all_reduce(label("group"), View::host_mut(&mut x, Type::F32)) }?;
        assert_eq!(x, [mine.iter().sum::<usize>() as f32; 7]);
        buckets(comm)?;
        comm.barrier(label("barrier"))?;
    }
    Ok(bits)
}

/// Everything to the right, received from the left, in pieces that are waited for in the opposite order.
fn shift(comm: &Rc<dyn Communicator>, step: u64) -> Result<()> {
    let (rank, size) = (comm.rank(), comm.size());
    let (right, left) = ((rank + 1) % size, (rank + size - 1) % size);
    let own = vec![rank as u64 + 100 * step; 5000];
    let mut got = [vec![0u64; 4000], vec![0u64; 1000]];
    let out = View::host(&own, Type::Bytes);
    let [first, second] = got.each_mut().map(|g| View::host_mut(g, Type::Bytes));
    // SAFETY: the vectors outlive both exchanges.
    unsafe {
        let early = comm.post(
            label("shift"),
            &[Message { peer: right, view: out.part(0, 32_000) }],
            &[Message { peer: left, view: first }],
        )?;
        let late = comm.post(
            label("shift"),
            &[Message { peer: right, view: out.part(32_000, 8_000) }],
            &[Message { peer: left, view: second }],
        )?;
        late.wait()?;
        early.wait()?;
    }
    assert!(got.iter().flatten().all(|x| *x == left as u64 + 100 * step));
    Ok(())
}

/// Rank r sends 700·(r + p mod 3) bytes to rank p, to itself too.
fn exchange(comm: &Rc<dyn Communicator>) -> Result<()> {
    let (rank, size) = (comm.rank(), comm.size());
    let bytes = |from: usize, to: usize| 700 * ((from + to) % 3);
    let own: Vec<Vec<u8>> = (0..size).map(|p| vec![(10 * rank + p) as u8; bytes(rank, p)]).collect();
    let mut got: Vec<Vec<u8>> = (0..size).map(|p| vec![0; bytes(p, rank)]).collect();
    let send = |(peer, x): (usize, &Vec<u8>)| Message { peer, view: View::host(x, Type::Bytes) };
    let receive = |(peer, x): (usize, &mut Vec<u8>)| Message { peer, view: View::host_mut(x, Type::Bytes) };
    let sends: Vec<Message> = own.iter().enumerate().map(send).collect();
    let receives: Vec<Message> = got.iter_mut().enumerate().map(receive).collect();
    // SAFETY: the vectors outlive the exchange.
    unsafe { comm.post(label("exchange"), &sends, &receives)?.wait()? };
    for (p, got) in got.iter().enumerate() {
        assert!(got.iter().all(|x| *x == (10 * p + rank) as u8), "from rank {p} to rank {rank}");
    }
    Ok(())
}

/// Several sums at once.
fn buckets(comm: &Rc<dyn Communicator>) -> Result<()> {
    let (rank, size) = (comm.rank(), comm.size());
    let mut buckets = [vec![rank as f32; 2000], vec![1.0; 3], vec![0.5; 2047]];
    let mut sums = Vec::new();
    for bucket in &mut buckets {
        // SAFETY: the buckets are left alone until all sums were waited for.
        sums.push(unsafe { Sum::start(comm, label("gradients"), View::host_mut(bucket, Type::F32)) }?);
    }
    Sum::wait_all(sums)?;
    let all = [(size * (size - 1) / 2) as f32, size as f32, size as f32 / 2.0];
    assert!(buckets.iter().zip(all).all(|(bucket, sum)| bucket.iter().all(|x| *x == sum)));
    Ok(())
}
