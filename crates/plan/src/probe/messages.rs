//! What a message takes: seconds of an empty one, and of each byte.

use std::rc::Rc;
use std::time::Instant;

use graphweft_comm::{Communicator, Message, Type, View};

use super::LABEL;
use crate::error::Result;
use crate::fit;

/// Sizes in bytes, and how often each is sent.
const SIZES: [(usize, usize); 5] = [(8, 200), (1 << 12, 100), (1 << 16, 50), (1 << 20, 12), (1 << 24, 4)];

/// Every rank sends to the next and receives from the one before, all at once.
pub(super) fn measure(comm: &Rc<dyn Communicator>) -> Result<(f64, f64)> {
    let (rank, size) = (comm.rank(), comm.size());
    let (to, from) = ((rank + 1) % size, (rank + size - 1) % size);
    let mut samples = Vec::new();
    for (bytes, times) in SIZES {
        let (sent, mut received) = (vec![1u8; bytes], vec![0u8; bytes]);
        let mut exchange = || -> Result<f64> {
            let send = Message { peer: to, view: View::host(&sent, Type::Bytes) };
            let receive = Message { peer: from, view: View::host_mut(&mut received, Type::Bytes) };
            let start = Instant::now();
            // SAFETY: both arrays outlive the exchange and are left alone meanwhile.
            unsafe { comm.post(LABEL, &[send], &[receive]) }?.wait()?;
            Ok(start.elapsed().as_secs_f64())
        };
        comm.barrier(LABEL)?;
        exchange()?;
        let mut seconds = (0..times).map(|_| exchange()).collect::<Result<Vec<f64>>>()?;
        seconds.sort_by(f64::total_cmp);
        samples.push(([1.0, bytes as f64], seconds[times / 2]));
    }
    let [empty, byte] = fit::rates(&samples);
    Ok((empty, byte))
}
