//! A stack of graph-transformer layers, a whole training step.
//!
//! Each layer: queries, keys and values; attention over the edges; output projection; x = LN(x + dropout(·)); a
//! feed-forward network of twice the width with GELU; x = LN(x + dropout(·)). The loss is the mean of squares.

use std::rc::Rc;

use graphweft_plan::explain::counted;
use graphweft_tensor::ops::activation::Activation;
use graphweft_tensor::ops::attention::{Bias, EdgeDropout, Score, attention};
use graphweft_tensor::ops::dropout::RowDropout;
use graphweft_tensor::ops::linear::{Affine, linear};
use graphweft_tensor::ops::norm::Norm;
use graphweft_tensor::ops::residual::post_norm;
use graphweft_tensor::optim::{Optimizer, Rule};
use graphweft_tensor::{Adjacency, DType, Device, Dropout, Ids, Matrix, Parameter, Result as Computed, Tag, Tape, Var};
use serde_json::json;

use super::{Bench, Named, Recompute, Timed, Timing, median, random, timed};
use crate::error::Result;
use crate::input::Input;
use crate::memory::Memory;

/// The parameters of one layer.
struct Layer {
    number: u32,
    q: Affine,
    kv: [Affine; 2],
    o: Affine,
    ffn: [Affine; 2],
    norms: [Norm; 2],
}

/// What a layer is told beside its input.
#[derive(Clone)]
struct Setting {
    graph: Rc<Adjacency>,
    heads: usize,
    dtype: DType,
    rate: f64,
    epoch: u64,
}

impl Layer {
    fn new(device: &Device, number: u32, d: usize) -> Result<Self> {
        let affine = |name: &str, out: usize, input: usize| -> Result<Affine> {
            let stream = u64::from(number) * 100 + name.len() as u64;
            let scale = (input as f32).sqrt().recip();
            let weight: Vec<f32> =
                random(device, out, input, DType::F32, stream)?.to_vec::<f32>()?.iter().map(|x| x * scale).collect();
            let upload = |rows, values: &[f32]| device.upload(rows, values.len() / rows, values, Tag::Parameters);
            let name = |part: &str| format!("layers.{number}.{name}.{part}");
            Ok(Affine {
                weight: Parameter::new(name("weight"), upload(out, &weight)?),
                bias: Some(Parameter::new(name("bias"), upload(1, &vec![0.0; out])?)),
            })
        };
        let norm = |name: &str| -> Result<Norm> {
            let upload = |value: f32| device.upload(1, d, &vec![value; d], Tag::Parameters);
            let name = |part: &str| format!("layers.{number}.{name}.{part}");
            let (weight, bias) = (upload(1.0)?, upload(0.0)?);
            Ok(Norm::new(Parameter::new(name("weight"), weight), Parameter::new(name("bias"), bias)))
        };
        Ok(Self {
            number,
            q: affine("q", d, d)?,
            kv: [affine("ke", d, d)?, affine("val", d, d)?],
            o: affine("outp", d, d)?,
            ffn: [affine("ffn.1", 2 * d, d)?, affine("ffn.22", d, 2 * d)?],
            norms: [norm("norm1")?, norm("norm2")?],
        })
    }

    fn parameters(&self) -> Vec<Rc<Parameter>> {
        let affine = [&self.q, &self.kv[0], &self.kv[1], &self.o, &self.ffn[0], &self.ffn[1]];
        let of_affine = affine.into_iter().flat_map(|a| [Some(a.weight.clone()), a.bias.clone()]).flatten();
        let of_norms = self.norms.iter().flat_map(|n| [n.weight.clone(), n.bias.clone()]);
        of_affine.chain(of_norms).collect()
    }

    fn forward(&self, tape: &mut Tape, x: &Var, s: &Setting) -> Computed<Var> {
        let dropout = |stream| Dropout::new(s.rate, 1, s.epoch, self.number, stream);
        let rows = |stream| (s.rate > 0.0).then(|| RowDropout { dropout: dropout(stream), ids: Ids::Same });
        let edges = (s.rate > 0.0).then(|| EdgeDropout { dropout: dropout(0), src: Ids::Same, dst: Ids::Same });
        let apply =
            |tape: &mut Tape, x: &Var, layers: &[Affine], activation| linear(tape, x, layers, activation, s.dtype);
        let one = std::slice::from_ref::<Affine>;

        let q = apply(tape, x, one(&self.q), Activation::None)?;
        let kv = apply(tape, x, &self.kv, Activation::None)?;
        let z = attention(tape, &s.graph, s.heads, Score::Dot { q: &q, kv: &kv }, Bias::None, None, edges)?;
        drop((q, kv));
        let z = apply(tape, &z, one(&self.o), Activation::None)?;
        let x = post_norm(tape, x, &z, rows(1).as_ref(), &self.norms[0])?;
        drop(z);
        let h = apply(tape, &x, one(&self.ffn[0]), Activation::Gelu)?;
        let z = apply(tape, &h, one(&self.ffn[1]), Activation::None)?;
        drop(h);
        post_norm(tape, &x, &z, rows(2).as_ref(), &self.norms[1])
    }
}

pub(super) fn run(bench: &Bench, input: &Input) -> Result<Timing> {
    let Named { name, csr } = bench.open(input)?;
    let (d, dtype) = (bench.hidden, bench.dtype);
    let heads = bench.shared_heads()?;
    let device = bench.open_device()?;
    let (n, edges) = (csr.num_dst(), csr.num_edges());
    let graph = Rc::new(Adjacency::new(&device, csr)?);
    let x = random(&device, n, d, dtype, 1)?;
    let layers: Vec<Rc<Layer>> =
        (0..bench.layers as u32).map(|k| Layer::new(&device, k, d).map(Rc::new)).collect::<Result<_>>()?;
    let parameters: Vec<_> = layers.iter().flat_map(|l| l.parameters()).collect();
    let mut optimizer = Optimizer::new(Rule::adam_w(0.01), &parameters)?;
    let mut setting = Setting { graph, heads, dtype, rate: bench.dropout, epoch: 0 };

    let (mut forward, mut backward, mut update) = (Vec::new(), Vec::new(), Vec::new());
    device.ledger().reset_peak();
    for epoch in 0..=u64::from(bench.runs) {
        setting.epoch = epoch;
        let mut tape = Tape::new(&device);
        let (out, ms) = timed(&device, || {
            let mut x = tape.constant(x.clone());
            for layer in &layers {
                x = match bench.recompute {
                    Recompute::Nothing => layer.forward(&mut tape, &x, &setting)?,
                    Recompute::Layers => {
                        let (layer, setting) = (Rc::clone(layer), setting.clone());
                        let segment = move |tape: &mut Tape, x: &[Var]| Ok(vec![layer.forward(tape, &x[0], &setting)?]);
                        tape.checkpoint(&[&x], segment)?.remove(0)
                    }
                };
            }
            Ok(x)
        })?;
        forward.push(ms);
        // The gradient of the mean of squares, up to a factor: the output itself.
        let seed: Matrix = device.copy("bench", out.value())?;
        let (_, ms) = timed(&device, || Ok(tape.backward(vec![(out, seed)], &[], |_| Ok(()))?))?;
        backward.push(ms);
        let (_, ms) = timed(&device, || Ok(optimizer.step(1e-4, 1.0 / (n * d) as f64)?))?;
        update.push(ms);
    }
    let peak = device.ledger().peak();
    let (forward, backward, update) = (median(forward), median(backward), median(update));
    let total = forward + backward + update;
    let (peak, threads) = (Memory::from(peak), rayon::current_num_threads());
    let json = json!({
        "op": "layer", "graph": name, "nodes": n, "edges": edges, "threads": threads, "device": device.backend().name(),
        "dtype": dtype.to_string(), "hidden": d, "heads": heads, "layers": bench.layers, "dropout": bench.dropout,
        "forward_ms": forward, "backward_ms": backward, "update_ms": update, "step_ms": total,
        "peak_bytes": peak.total(), "peak": peak.to_json(),
    });
    let phases = [("forward", forward), ("backward", backward), ("update", update), ("step", total)];
    let layers = counted(bench.layers, "layer");
    Ok(Timing {
        title: format!("{layers} on {name}, {}, {dtype}", counted(threads, "thread")),
        phases: phases.map(|(name, ms)| Timed::new(name, ms)).into(),
        rate: None,
        peak: Some(peak),
        over_floor: None,
        sent: None,
        kernels: None,
        json,
    })
}
