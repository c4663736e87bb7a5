//! The sum over neighbours.

use std::rc::Rc;

use graphweft_tensor::ops::spmm::{Reduction, WeightVar, aggregate};
use graphweft_tensor::{Adjacency, Tape};
use serde_json::json;

use super::{Bench, OverEdges, Timing, median, random, timed};
use crate::error::Result;
use crate::input::Input;

pub(super) fn run(bench: &Bench, input: &Input) -> Result<Timing> {
    let named = bench.open(input)?;
    let (csr, hidden, dtype) = (&named.csr, bench.hidden, bench.dtype);
    let device = bench.open_device()?;
    let graph = Rc::new(Adjacency::new(&device, csr.clone())?);
    let x = random(&device, csr.num_src(), hidden, dtype, 1)?;
    let g = random(&device, csr.num_dst(), hidden, dtype, 2)?;

    let (mut forward, mut backward, mut floor) = (Vec::new(), Vec::new(), Vec::new());
    device.ledger().reset_peak();
    for _ in 0..=bench.runs {
        let mut tape = Tape::new(&device);
        let x = tape.leaf(x.clone());
        let (out, ms) = timed(&device, || Ok(aggregate(&mut tape, &graph, &x, Reduction::Sum, WeightVar::None)?))?;
        forward.push(ms);
        let (_, ms) = timed(&device, || Ok(tape.backward(vec![(out, g.clone())], &[&x], |_| Ok(()))?))?;
        backward.push(ms);
    }
    let peak = device.ledger().peak();
    for _ in 0..=bench.runs {
        let backend = device.backend();
        // The passes of forward and of backward.
        let touch = || Ok(backend.touch(&graph.forward, &[&x])?.wrapping_add(backend.touch(&graph.transpose, &[&g])?));
        let (sum, ms) = timed(&device, touch)?;
        std::hint::black_box(sum);
        floor.push(ms);
    }
    let (forward, backward, floor) = (median(forward), median(backward), median(floor));
    let found = OverEdges { op: "spmm", graph: &named, bench, forward, backward, floor, peak };
    Ok(found.timing(json!({ "reduction": "sum" })))
}
