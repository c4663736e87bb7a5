//! What it takes a rank to add up what others have sent, which its communicator does.

use std::rc::Rc;

use graphweft_comm::{Clocked, Communicator, Event, Recorder, Type, View};
use graphweft_tensor::DType;
use graphweft_tensor::dry::Work;

use super::LABEL;
use crate::error::Result;
use crate::kernels::sum_over_ranks;

/// Bytes of a sum: all of them are made in one go.
const SIZES: [usize; 14] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256, 448];
const UNIT: usize = 4096;
const TIMES: usize = 12;

/// The least seconds of the processor for sums of several sizes, all ranks at once.
pub(super) fn measure(comm: &Rc<dyn Communicator>, dtypes: &[DType]) -> Result<Vec<(Work, f64)>> {
    let (recorder, ranks) = (Recorder::measuring(), comm.size());
    let clocked = Clocked::new(Rc::clone(comm), &recorder);
    let mut samples = Vec::new();
    for (dtype, bytes) in dtypes.iter().flat_map(|dtype| SIZES.map(|size| (*dtype, size * UNIT))) {
        let kind = Type::Number(dtype);
        let (mut from, mut to) = (vec![0u8; ranks * bytes], vec![0u8; bytes]);
        let lengths = vec![bytes / kind.size(); ranks];
        let mut least = f64::INFINITY;
        for _ in 0..TIMES {
            recorder.take();
            let view = |bytes: &mut [u8]| View::host_mut(bytes, kind);
            // SAFETY: both arrays outlive the call and are left alone meanwhile.
            unsafe { clocked.reduce_scatter(LABEL, view(&mut from), &lengths, view(&mut to)) }?;
            let seconds = |event: &Event<f64>| if let Event::Compute(seconds) = event { *seconds } else { 0.0 };
            least = least.min(recorder.take().iter().map(seconds).sum());
        }
        samples.push((sum_over_ranks(dtype, bytes, ranks), least));
    }
    Ok(samples)
}
