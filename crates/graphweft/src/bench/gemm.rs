//! The matrix products of a linear layer.

use graphweft_plan::explain::counted;
use graphweft_tensor::ops::Write;
use graphweft_tensor::ops::activation::{Activated, Activation};
use graphweft_tensor::ops::linear::{Columns, Weights};
use graphweft_tensor::{DType, Tag};
use serde_json::json;

use super::{Bench, Timed, Timing, median, random, timed};
use crate::error::Result;

pub(super) fn run(bench: &Bench, rows: usize, out: usize) -> Result<Timing> {
    let (n, k, dtype) = (rows, bench.hidden, bench.dtype);
    let device = bench.open_device()?;
    let (x, g) = (random(&device, n, k, dtype, 1)?, random(&device, n, out, dtype, 2)?);
    let weight = random(&device, out, k, DType::F32, 3)?;
    let layer = Weights { weight: &weight, bias: None, activation: Activation::None, first: 0 };

    let input_of = Activated::itself(x.clone());
    let (mut forward, mut input, mut weights) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..=bench.runs {
        // Each product makes its own result, as on a tape.
        let new = |rows, cols, dtype| device.uninit("bench", rows, cols, dtype, Tag::Activations);
        let kernels = device.backend();
        forward.push(timed(&device, || Ok(kernels.linear(&x, &layer, &mut new(n, out, dtype)?, None)?))?.1);
        input.push(timed(&device, || Ok(kernels.linear_dx(&g, &layer, &mut new(n, k, dtype)?, Write::Set)?))?.1);
        weights.push(
            timed(&device, || {
                Ok(kernels.linear_dw(&input_of, Columns { of: &g, first: 0 }, &mut new(out, k, DType::F32)?, None)?)
            })?
            .1,
        );
    }
    let (forward, input, weights) = (median(forward), median(input), median(weights));
    let gflops = |ms: f64| 2.0 * (n * k * out) as f64 / ms / 1e6;
    let threads = rayon::current_num_threads();
    let json = json!({
        "op": "gemm", "rows": n, "hidden": k, "out": out, "threads": threads, "device": device.backend().name(),
        "dtype": dtype.to_string(), "forward_ms": forward, "backward_ms": input + weights,
        "forward_gflops": gflops(forward), "input_gradient_gflops": gflops(input),
        "weight_gradient_gflops": gflops(weights),
    });
    let row = |name: &str, ms: f64| Timed { rate: Some(gflops(ms)), ..Timed::new(name, ms) };
    Ok(Timing {
        title: format!("{n} × {k} by {k} × {out}, {}, {dtype}", counted(threads, "thread")),
        phases: vec![row("y = x·Wᵀ", forward), row("dx = dy·W", input), row("dW = dyᵀ·x", weights)],
        rate: Some("GFLOP/s".into()),
        peak: None,
        over_floor: None,
        sent: None,
        kernels: None,
        json,
    })
}
