//! `graphweft bench gemm`

use graphweft_tensor::ops::activation::Activation;
use graphweft_tensor::ops::linear::{Affine, linear};
use graphweft_tensor::{DType, Device, Parameter, Tape};
use serde_json::json;

use super::{Common, median, random, timed};
use crate::ui::{Ui, table};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,

    /// Rows of the input
    #[arg(long, default_value_t = 1 << 15, value_name = "N")]
    rows: usize,

    /// Columns of the output
    #[arg(long, default_value_t = 128, value_name = "K")]
    out: usize,
}

pub(super) fn run(args: &Args, ui: &Ui) -> anyhow::Result<()> {
    let (n, k, out, dtype) = (args.rows, args.common.hidden, args.out, DType::from(args.common.dtype));
    let device = Device::cpu();
    let (x, g) = (random(&device, n, k, dtype, 1)?, random(&device, n, out, dtype, 2)?);
    let layer = Affine { weight: Parameter::new("weight", random(&device, out, k, DType::F32, 3)?), bias: None };

    let (mut forward, mut both, mut weights) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..=args.common.runs {
        let run = |with_input: bool| -> anyhow::Result<(f64, f64)> {
            let mut tape = Tape::new(&device);
            let x = if with_input { tape.leaf(x.clone()) } else { tape.constant(x.clone()) };
            let layers = std::slice::from_ref(&layer);
            let (y, ahead) = timed(|| Ok(linear(&mut tape, &x, layers, Activation::None, dtype)?))?;
            let (_, back) = timed(|| Ok(tape.backward(vec![(y, g.clone())], &[&x], |_| Ok(()))?))?;
            layer.weight.take_grad();
            Ok((ahead, back))
        };
        let (ahead, back) = run(true)?;
        forward.push(ahead);
        both.push(back);
        weights.push(run(false)?.1);
    }
    let (forward, both, weights) = (median(forward), median(both), median(weights));
    let gflops = |ms: f64| 2.0 * (n * k * out) as f64 / ms / 1e6;
    let input = (both - weights).max(1e-6);
    let json = json!({
        "op": "gemm", "rows": n, "hidden": k, "out": out, "threads": rayon::current_num_threads(),
        "dtype": dtype.to_string(), "forward_ms": forward, "backward_ms": both, "forward_gflops": gflops(forward),
        "input_gradient_gflops": gflops(input), "weight_gradient_gflops": gflops(weights),
    });
    ui.result(&json, || {
        let row = |name: &str, ms: f64| [name.to_string(), format!("{ms:.2}"), format!("{:.1}", gflops(ms))];
        let rows = [row("y = x·Wᵀ", forward), row("dx = dy·W", input), row("dW = dyᵀ·x", weights)];
        let threads = rayon::current_num_threads();
        format!("{n} × {k} by {k} × {out}, {threads} threads, {dtype}\n\n{}", table(["", "ms", "GFLOP/s"], rows))
    })
}
