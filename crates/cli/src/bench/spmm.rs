//! `graphweft bench spmm`

use std::rc::Rc;

use graphweft_tensor::ops::spmm::{Reduction, WeightVar, aggregate};
use graphweft_tensor::{Adjacency, DType, Tape};
use serde_json::json;

use super::{Common, Input, Report, median, open, random, timed};
use crate::ui::Ui;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    input: Input,

    #[command(flatten)]
    common: Common,
}

pub(super) fn run(args: &Args, ui: &Ui) -> anyhow::Result<()> {
    let (name, csr) = open(&args.input, ui)?;
    let (hidden, dtype) = (args.common.hidden, DType::from(args.common.dtype));
    let device = args.common.device.open(ui)?;
    let graph = Rc::new(Adjacency::new(&device, csr.clone())?);
    let x = random(&device, csr.num_src(), hidden, dtype, 1)?;
    let g = random(&device, csr.num_dst(), hidden, dtype, 2)?;

    let (mut forward, mut backward, mut floor) = (Vec::new(), Vec::new(), Vec::new());
    device.ledger().reset_peak();
    for _ in 0..=args.common.runs {
        let mut tape = Tape::new(&device);
        let x = tape.leaf(x.clone());
        let (out, ms) = timed(&device, || Ok(aggregate(&mut tape, &graph, &x, Reduction::Sum, WeightVar::None)?))?;
        forward.push(ms);
        let (_, ms) = timed(&device, || Ok(tape.backward(vec![(out, g.clone())], &[&x], |_| Ok(()))?))?;
        backward.push(ms);
    }
    let peak = device.ledger().peak();
    for _ in 0..=args.common.runs {
        let backend = device.backend();
        // The passes of forward and of backward.
        let touch = || Ok(backend.touch(&graph.forward, &[&x])?.wrapping_add(backend.touch(&graph.transpose, &[&g])?));
        let (sum, ms) = timed(&device, touch)?;
        std::hint::black_box(sum);
        floor.push(ms);
    }
    let (forward, backward, floor) = (median(forward), median(backward), median(floor));
    let report = Report { op: "spmm", graph: &name, csr: &csr, common: &args.common, forward, backward, floor, peak };
    report.show(ui, json!({ "reduction": "sum" }))
}
