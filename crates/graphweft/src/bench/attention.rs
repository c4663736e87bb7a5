//! Attention over the edges of a graph, which may have features that are added to keys and values.

use std::rc::Rc;

use graphweft_tensor::ops::attention::{Bias, Score, attention};
use graphweft_tensor::ops::edge_values::{EdgeColumns, EdgeTail, absorb, widen};
use graphweft_tensor::{Adjacency, DType, Device, Matrix, Result as Computed, Tag, Tape, Var};
use serde_json::json;

use super::{Bench, OverEdges, Timing, median, random, timed};
use crate::error::Result;
use crate::input::Input;

/// The features of edges, and the weight that they have in keys and values.
struct WithEdges {
    tail: EdgeTail,
    weight: Matrix,
}

impl WithEdges {
    fn new(device: &Device, edges: usize, bench: &Bench) -> Result<Option<Self>> {
        let (features, categories) = (bench.edge_features, bench.edge_categories);
        let columns = EdgeColumns::new(features, &[categories][..usize::from(categories > 0)])?;
        if columns.is_empty() {
            return Ok(None);
        }
        let mut rows = random(device, edges, columns.stored(), DType::F32, 5)?.to_vec::<f32>()?;
        if categories > 0 {
            for (edge, row) in rows.chunks_exact_mut(columns.stored()).enumerate() {
                row[features] = (edge.wrapping_mul(7919) % categories) as f32;
            }
        }
        let rows = Some(device.upload(edges, columns.stored(), &rows, Tag::Graph)?);
        let weight = random(device, bench.hidden, columns.width(), DType::F32, 6)?;
        Ok(Some(Self { tail: EdgeTail { columns, rows }, weight }))
    }
}

/// What edges bring, and the weight that makes numbers for it.
#[derive(Clone, Copy)]
struct EdgeOperands<'a> {
    tail: &'a EdgeTail,
    weight: &'a Var,
}

/// Attention; with features of edges, queries are widened before it and outputs absorbed after it.
fn attend(
    tape: &mut Tape,
    graph: &Rc<Adjacency>,
    heads: usize,
    [q, kv]: [&Var; 2],
    edges: Option<EdgeOperands<'_>>,
) -> Computed<Var> {
    let Some(EdgeOperands { tail, weight }) = edges else {
        return attention(tape, graph, heads, Score::Dot { q, kv }, Bias::None, None, None);
    };
    let q = widen(tape, q, weight, heads, &tail.columns)?;
    let out = attention(tape, graph, heads, Score::Dot { q: &q, kv }, Bias::None, Some(tail.clone().into()), None)?;
    absorb(tape, &out, weight, heads, &tail.columns)
}

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
    let with = WithEdges::new(&device, csr.num_edges(), bench)?;

    let (mut forward, mut backward, mut floor) = (Vec::new(), Vec::new(), Vec::new());
    device.ledger().reset_peak();
    for _ in 0..=bench.runs {
        let mut tape = Tape::new(&device);
        let (q, kv) = (tape.leaf(q.clone()), tape.leaf(kv.clone()));
        let weight = with.as_ref().map(|with| tape.leaf(with.weight.clone()));
        let edges = with.as_ref().zip(weight.as_ref());
        let edges = edges.map(|(with, weight)| EdgeOperands { tail: &with.tail, weight });
        let (out, ms) = timed(&device, || Ok(attend(&mut tape, &graph, heads, [&q, &kv], edges)?))?;
        forward.push(ms);
        let leaves: Vec<&Var> = [&q, &kv].into_iter().chain(&weight).collect();
        let (_, ms) = timed(&device, || Ok(tape.backward(vec![(out, g.clone())], &leaves, |_| Ok(()))?))?;
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
    let (features, categories) = (bench.edge_features, bench.edge_categories);
    Ok(found.timing(json!({ "heads": heads, "edge_features": features, "edge_categories": categories })))
}
