//! The time of one attention forward from Rust, in microseconds, on the graph of `attention.py`'s measure of a call.
//!
//!     cargo run --release --example kernel -- GRAPH

#![allow(clippy::print_stdout)]

use std::time::Instant;

use graphweft::Graph;
use graphweft::kernels::{Attention, EdgeKernels, Score, Seed, Values, ValuesMut};

const HEADS: usize = 8;
const WIDTH: usize = 128;
const CALLS: u32 = 1000;

fn main() -> graphweft::Result<()> {
    let spec = std::env::args().nth(1).unwrap_or_else(|| "rmat:6:4".into());
    let graph = Graph::generate(&spec, 0)?;
    let (kernels, n) = (EdgeKernels::new(&graph)?, graph.num_nodes());
    let row = |width: usize| (0..n * width).map(|k| (k % 97) as f32 / 97.0).collect::<Vec<f32>>();
    let (q, kv, mut out, mut lse) = (row(WIDTH), row(2 * WIDTH), row(WIDTH), row(HEADS));
    let score = Score::Dot { q: Values::F32(&q), kv: Values::F32(&kv) };
    let (bias, edges) = (None, None);
    let call = Attention { heads: HEADS, width: WIDTH, score, bias, edges, dropout: 0.0, seed: Seed::Number(0) };
    let mut times = Vec::new();
    for _ in 0..31 {
        let start = Instant::now();
        for _ in 0..CALLS {
            kernels.attention(&call, ValuesMut::F32(&mut out), ValuesMut::F32(&mut lse))?;
        }
        times.push(start.elapsed().as_secs_f64() * 1e6 / f64::from(CALLS));
    }
    times.sort_by(f64::total_cmp);
    println!("{:.2}", times[times.len() / 2]);
    Ok(())
}
