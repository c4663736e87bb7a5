//! `graphweft bench attention`

use std::rc::Rc;

use graphweft_tensor::ops::attention::{BiasVar, attention};
use graphweft_tensor::{Adjacency, DType, Tape};
use serde_json::json;

use super::{Common, Heads, Input, Report, median, open, random, timed};
use crate::ui::Ui;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    input: Input,

    #[command(flatten)]
    common: Common,

    #[command(flatten)]
    heads: Heads,
}

pub(super) fn run(args: &Args, ui: &Ui) -> anyhow::Result<()> {
    let (name, csr) = open(&args.input, ui)?;
    let (hidden, dtype) = (args.common.hidden, DType::from(args.common.dtype));
    let heads = args.heads.of(hidden)?;
    let device = args.common.device.open(ui)?;
    let graph = Rc::new(Adjacency::new(&device, csr.clone())?);
    let n = csr.num_dst();
    let q = random(&device, n, hidden, dtype, 1)?;
    let kv = random(&device, csr.num_src(), 2 * hidden, dtype, 2)?;
    let g = random(&device, n, hidden, dtype, 3)?;
    let lse = random(&device, n, heads, DType::F32, 4)?;

    let (mut forward, mut backward, mut floor) = (Vec::new(), Vec::new(), Vec::new());
    device.ledger().reset_peak();
    for _ in 0..=args.common.runs {
        let mut tape = Tape::new(&device);
        let (q, kv) = (tape.leaf(q.clone()), tape.leaf(kv.clone()));
        let (out, ms) = timed(&device, || Ok(attention(&mut tape, &graph, heads, &q, &kv, BiasVar::None, None)?))?;
        forward.push(ms);
        let (_, ms) = timed(&device, || Ok(tape.backward(vec![(out, g.clone())], &[&q, &kv], |_| Ok(()))?))?;
        backward.push(ms);
    }
    let peak = device.ledger().peak();
    for _ in 0..=args.common.runs {
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
    let report =
        Report { op: "attention", graph: &name, csr: &csr, common: &args.common, forward, backward, floor, peak };
    report.show(ui, json!({ "heads": heads }))
}
