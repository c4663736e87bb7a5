//! Attention over the edges of a graph.

use std::rc::Rc;

use graphweft_tensor::ops::attention::{Bias, attention};
use graphweft_tensor::{Adjacency, DType, Tape};
use serde_json::json;

use super::{Bench, OverEdges, Timing, median, random, timed};
use crate::error::Result;
use crate::input::Input;

pub(super) fn run(bench: &Bench, input: &Input) -> Result<Timing> {
    let named = bench.open(input)?;
    let (csr, hidden, dtype) = (&named.csr, bench.hidden, bench.dtype);
    let heads = bench.shared_heads()?;
    let device = bench.open_device()?;
    let graph = Rc::new(Adjacency::new(&device, csr.clone())?);
    let n = csr.num_dst();
    let q = random(&device, n, hidden, dtype, 1)?;
    let kv = random(&device, csr.num_src(), 2 * hidden, dtype, 2)?;
    let g = random(&device, n, hidden, dtype, 3)?;
    let lse = random(&device, n, heads, DType::F32, 4)?;

    let (mut forward, mut backward, mut floor) = (Vec::new(), Vec::new(), Vec::new());
    device.ledger().reset_peak();
    for _ in 0..=bench.runs {
        let mut tape = Tape::new(&device);
        let (q, kv) = (tape.leaf(q.clone()), tape.leaf(kv.clone()));
        let (out, ms) = timed(&device, || Ok(attention(&mut tape, &graph, heads, &q, &kv, Bias::None, None)?))?;
        forward.push(ms);
        let (_, ms) = timed(&device, || Ok(tape.backward(vec![(out, g.clone())], &[&q, &kv], |_| Ok(()))?))?;
        backward.push(ms);
    }
    let peak = device.ledger().peak();
    for _ in 0..=bench.runs {
        let backend = device.backend();
        // The passes of forward, of backward by destination and of backward by source.
        let touch = || {
            let sum = backend.touch(&graph.forward, &[&kv])?.wrapping_add(backend.touch(&graph.forward, &[&kv])?);
            Ok(sum.wrapping_add(backend.touch(&graph.transpose, &[&q, &g, &lse, &lse])?))
        };
        let (sum, ms) = timed(&device, touch)?;
        std::hint::black_box(sum);
        floor.push(ms);
    }
    let (forward, backward, floor) = (median(forward), median(backward), median(floor));
    let found = OverEdges { op: "attention", graph: &named, bench, forward, backward, floor, peak };
    Ok(found.timing(json!({ "heads": heads })))
}
