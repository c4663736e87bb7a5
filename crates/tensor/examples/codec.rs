//! How fast rows are coded for the way between ranks, beside a copy of them: GB of uncoded rows a second.
//!
//! ```text
//! RAYON_NUM_THREADS=1 cargo run --release -p graphweft-tensor --example codec -- 64 4000 1000
//! ```
//!
//! The arguments are the columns of a row, the rows, and how often each is timed; the median counts.
#![allow(clippy::print_stdout)]

use std::time::Instant;

use graphweft_tensor::codec::{Codec, Draw, decode, encode};
use graphweft_tensor::{DType, Device, Result, Tag};

fn main() -> Result<()> {
    let mut numbers = std::env::args().skip(1).map(|arg| arg.parse().unwrap_or(1));
    let mut next = |usual: usize| numbers.next().unwrap_or(usual);
    let (cols, rows, times) = (next(64), next(4000), next(1000));
    let device = Device::cpu();
    let ids: Vec<u64> = (0..rows as u64).collect();
    let values: Vec<f32> = (0..rows * cols).map(|k| ((k * 7919) % 1013) as f32 / 500.0 - 1.0).collect();
    let x = device.upload(rows, cols, &values, Tag::Activations)?;
    let mut y = device.zeros("example", rows, cols, DType::F32, Tag::Activations)?;
    let bytes = (4 * rows * cols) as f64;
    let copied = median(times, || device.copy("example", &x).map(drop))?;
    println!("{rows} rows of {cols} columns, {} thread(s)", rayon_threads());
    println!("{:12} {:>8} {:>8} {:>10} {:>10}", "", "encode", "decode", "of a copy", "of a copy");
    println!("{:12} {:>8.1} {:>8}", "copy", bytes / copied / 1e9, "");
    for name in ["bf16", "f8", "int8", "int4", "int2", "int1", "columns:4"] {
        let (codec, draw): (Codec, _) = (name.parse()?, Draw::new(1, 2, 3, 4));
        let coded = encode(codec, draw, &x, &ids)?;
        let there = median(times, || encode(codec, draw, &x, &ids).map(drop))?;
        let back = median(times, || decode(codec, draw, &coded, &mut y))?;
        let [a, b] = [there, back].map(|seconds| bytes / seconds / 1e9);
        let [c, d] = [there, back].map(|seconds| 100.0 * copied / seconds);
        println!("{name:12} {a:>8.1} {b:>8.1} {c:>8.0} % {d:>8.0} %");
    }
    Ok(())
}

fn rayon_threads() -> String {
    std::env::var("RAYON_NUM_THREADS").unwrap_or_else(|_| "all".into())
}

/// Seconds in the middle of all.
fn median(times: usize, mut once: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut seconds = Vec::with_capacity(times.max(1));
    for _ in 0..times.max(1) {
        let start = Instant::now();
        once()?;
        seconds.push(start.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    Ok(seconds[seconds.len() / 2])
}
