//! What a message takes: seconds of an empty one, and of each byte.

use std::rc::Rc;
use std::time::Instant;

use graphweft_comm::{Communicator, Message, Type, View};

use super::LABEL;
use crate::error::Result;

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
        samples.push((bytes as f64, seconds[times / 2]));
    }
    Ok(rates(&samples))
}

/// The seconds of an empty message and of each byte, from sizes and times, the smallest first. What is short may fit
/// into caches and buffers on the way, so the two longest tell of bytes.
fn rates(samples: &[(f64, f64)]) -> (f64, f64) {
    let empty = samples.first().map_or(0.0, |(_, t)| *t);
    let byte = match samples {
        [.., (long, at_long), (longest, at_longest)] if at_longest > at_long => {
            (at_longest - at_long) / (longest - long)
        }
        [.., (longest, at_longest)] => at_longest / longest,
        [] => 0.0,
    };
    (empty, byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_messages_tell_of_bytes() {
        // 100 µs, then a buffer of 100 kB that takes no time, then 10 ns a byte.
        let time = |bytes: f64| 1e-4 + 1e-8 * (bytes - 1e5).max(0.0);
        let samples: Vec<(f64, f64)> = SIZES.iter().map(|(bytes, _)| (*bytes as f64, time(*bytes as f64))).collect();
        let (empty, byte) = rates(&samples);
        assert!((empty / 1e-4 - 1.0).abs() < 1e-9 && (byte / 1e-8 - 1.0).abs() < 1e-9, "{empty} {byte}");
        // A clock that was disturbed says nothing that is negative.
        assert_eq!(rates(&[(10.0, 5.0), (20.0, 4.0)]).1, 4.0 / 20.0);
    }
}
