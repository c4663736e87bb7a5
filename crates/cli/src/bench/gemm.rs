//! `graphweft bench gemm`

use graphweft_tensor::ops::activation::{Activated, Activation};
use graphweft_tensor::ops::linear::Weights;
use graphweft_tensor::{DType, Tag};
use serde_json::json;

use super::{Common, at_least_one, median, random, timed};
use crate::ui::{Ui, counted, table};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,

    /// Rows of the input
    #[arg(long, default_value_t = 1 << 15, value_name = "N", value_parser = at_least_one())]
    rows: usize,

    /// Columns of the output
    #[arg(long, default_value_t = 128, value_name = "K", value_parser = at_least_one())]
    out: usize,
}

pub(super) fn run(args: &Args, ui: &Ui) -> anyhow::Result<()> {
    let (n, k, out, dtype) = (args.rows, args.common.hidden, args.out, DType::from(args.common.dtype));
    let device = args.common.device.open(ui)?;
    let (x, g) = (random(&device, n, k, dtype, 1)?, random(&device, n, out, dtype, 2)?);
    let weight = random(&device, out, k, DType::F32, 3)?;
    let layer = Weights { weight: &weight, bias: None, activation: Activation::None, first: 0 };

    let input_of = Activated::itself(x.clone());
    let (mut forward, mut input, mut weights) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..=args.common.runs {
        // Each product makes its own result, as on a tape.
        let new = |rows, cols, dtype| device.uninit("bench", rows, cols, dtype, Tag::Activations);
        let kernels = device.backend();
        forward.push(timed(&device, || Ok(kernels.linear(&x, &layer, &mut new(n, out, dtype)?, None)?))?.1);
        input.push(timed(&device, || Ok(kernels.linear_dx(&g, &layer, &mut new(n, k, dtype)?, false)?))?.1);
        weights
            .push(timed(&device, || Ok(kernels.linear_dw(&input_of, &g, 0, &mut new(out, k, DType::F32)?, None)?))?.1);
    }
    let (forward, input, weights) = (median(forward), median(input), median(weights));
    let gflops = |ms: f64| 2.0 * (n * k * out) as f64 / ms / 1e6;
    let json = json!({
        "op": "gemm", "rows": n, "hidden": k, "out": out, "threads": rayon::current_num_threads(), "device": device.backend().name(),
        "dtype": dtype.to_string(), "forward_ms": forward, "backward_ms": input + weights, "forward_gflops": gflops(forward),
        "input_gradient_gflops": gflops(input), "weight_gradient_gflops": gflops(weights),
    });
    ui.result(&json, || {
        let row = |name: &str, ms: f64| [name.to_string(), format!("{ms:.2}"), format!("{:.1}", gflops(ms))];
        let rows = [row("y = x·Wᵀ", forward), row("dx = dy·W", input), row("dW = dyᵀ·x", weights)];
        let threads = rayon::current_num_threads();
        format!(
            "{n} × {k} by {k} × {out}, {}, {dtype}\n\n{}",
            counted(threads, "thread"),
            table(["", "ms", "GFLOP/s"], rows)
        )
    })
}
